//! A whole hub in the real loop: what a request costs in system calls, and a crowd of clients.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use drawspan::entropy::Seeded;
use drawspan::hub::Hub;
use drawspan::io::EventLoop;
use drawspan::limits::Limits;

#[path = "../weight/server.rs"]
mod server;

use server::{INITIALIZE, call, config, modern_call, modern_fields, post};

use crate::probe::PATIENCE;
use crate::stdio::{PORT, helper_command, said, say, story};

struct World {
    events: EventLoop,
    hub: Hub,
    port: u16,
}

impl World {
    fn new() -> Self {
        let mut events = EventLoop::new(&Limits::default()).unwrap();
        let limits = Limits {
            connections_max: 20_000,
            ..Limits::default()
        };
        let mut hub = Hub::new(config(limits), Box::new(Seeded::new(7)), events.now());
        let listener = hub.listen_http("127.0.0.1", 0);
        events.settle(&mut [&mut hub]);
        let port = events.local_port(0, listener).unwrap();
        Self { events, hub, port }
    }

    fn turn(&mut self) {
        self.events.turn(&mut [&mut self.hub]).unwrap();
    }

    fn connect(&mut self, count: usize) -> Vec<Client> {
        let connect = |_| {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_nonblocking(true).unwrap();
            let got = Vec::with_capacity(64 << 10);
            Client { stream, got }
        };
        (0..count).map(connect).collect()
    }

    /// Every client sends its request, and has its answer afterwards. (The clients are in this thread, too,
    /// but call recv and send, which are not counted as reads and writes.)
    fn round(&mut self, clients: &mut [Client], requests: &[String]) {
        let give_up = self.events.now().after(PATIENCE);
        for (client, request) in clients.iter_mut().zip(requests) {
            client.got.clear();
            client.stream.write_all(request.as_bytes()).unwrap();
        }
        while !clients.iter_mut().all(Client::is_answered) {
            assert!(self.events.now().up < give_up, "waited in vain for answers");
            self.turn();
        }
    }
}

struct Client {
    stream: TcpStream,
    got: Vec<u8>,
}

impl Client {
    fn is_answered(&mut self) -> bool {
        let mut more = [0; 16 << 10];
        while !answered(&self.got) {
            match self.stream.read(&mut more) {
                Ok(0) => panic!("the connection ended"),
                Ok(n) => self.got.extend_from_slice(&more[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return false,
                Err(e) => panic!("{e}"),
            }
        }
        true
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.got).unwrap()
    }
}

/// Whether these bytes are one whole answer.
fn answered(got: &[u8]) -> bool {
    let Some(end) = memchr::memmem::find(got, b"\r\n\r\n") else {
        return false;
    };
    let head = std::str::from_utf8(&got[..end]).unwrap();
    let length = head.split_once("Content-Length:").map_or(0, |(_, rest)| {
        let value = rest.lines().next().unwrap_or_default();
        value.trim().parse().unwrap()
    });
    assert!(got.len() <= end + 4 + length, "more than one answer");
    got.len() == end + 4 + length
}

fn session_of(answer: &str) -> String {
    let (_, rest) = answer.split_once("Mcp-Session-Id: ").unwrap();
    format!("Mcp-Session-Id: {}\r\n", rest.lines().next().unwrap())
}

#[test]
#[cfg(target_os = "linux")]
fn eight_clients_cost_two_and_a_half_system_calls_a_request() {
    const ROUNDS: u64 = 100;
    const REQUESTS: u64 = 8 * ROUNDS;
    let mut world = World::new();
    let mut clients = world.connect(8);
    let open = vec![post("", INITIALIZE); 8];
    world.round(&mut clients, &open);
    let in_session: Vec<String> = clients
        .iter()
        .map(|client| post(&session_of(client.text()), &call("echo", "1", "hello")))
        .collect();
    let fields = modern_fields("echo");
    let stateless = vec![post(&fields, &modern_call("echo", "1", "hello")); 8];
    // Up to here the kernel keeps an answer in one piece, and a request, too.
    let longer = vec![post(&fields, &modern_call("echo", "1", &"x".repeat(4 << 10))); 8];
    for requests in [in_session, stateless, longer] {
        world.round(&mut clients, &requests);
        let before = world.events.system_calls();
        for _ in 0..ROUNDS {
            world.round(&mut clients, &requests);
        }
        let calls = world.events.system_calls().since(before);
        for client in &clients {
            assert!(
                client.text().starts_with("HTTP/1.1 200 "),
                "{}",
                client.text()
            );
        }
        assert_eq!((calls.reads, calls.writes), (REQUESTS, REQUESTS));
        assert!(
            2 * calls.total() <= 5 * REQUESTS,
            "{calls:?} for {REQUESTS} requests"
        );
    }
}

#[test]
#[cfg(target_os = "linux")]
fn ten_thousand_clients_are_answered() {
    // In a process of its own, whose descriptors nobody else opens.
    let mut child = helper_command("hub-scale").spawn().unwrap();
    assert_eq!(story(&mut child), "all served");
}

/// The helper of the test above: the hub, and in a further process the crowd.
#[cfg(target_os = "linux")]
pub(crate) fn scale() {
    const CROWD: usize = 10_000;
    let mut world = World::new();
    let most = world.events.descriptors_max();
    let crowd = CROWD.min(most - 200);
    if crowd < CROWD {
        say(&format!("only {crowd} clients of {most} descriptors"));
    }
    let mut few = world.connect(8);
    let fields = modern_fields("echo");
    let requests = vec![post(&fields, &modern_call("echo", "1", "hello")); 8];
    world.round(&mut few, &requests);
    let cost = |world: &mut World, few: &mut Vec<Client>| {
        let before = world.events.system_calls();
        world.round(few, &requests);
        world.events.system_calls().since(before)
    };
    let alone = cost(&mut world, &mut few);

    let mut command = helper_command("hub-crowd");
    let mut child = command.env(PORT, world.port.to_string()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{crowd}").unwrap();
    let crowd = std::thread::spawn(move || {
        said(&mut child, "answered");
        (child, stdin)
    });
    while !crowd.is_finished() {
        // The thread is no event of the loop, but eight requests are.
        world.round(&mut few, &requests);
    }
    let (mut child, mut stdin) = crowd.join().unwrap();
    // All of them are idle now, and cost the few nothing.
    world.round(&mut few, &requests);
    assert_eq!(cost(&mut world, &mut few), alone);
    writeln!(stdin).unwrap();
    let told = story(&mut child);
    say(&format!("story: {told}"));
}

/// The helper of the helper: connects as often as asked, and each connection has one call answered.
pub(crate) fn crowd(port: u16) {
    let _raised = EventLoop::new(&Limits::default()).unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let fields = modern_fields("echo");
    let mut clients = Vec::new();
    for number in 0..line.trim().parse().unwrap() {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = post(
            &fields,
            &modern_call("echo", "1", &format!("number {number}.")),
        );
        stream.write_all(request.as_bytes()).unwrap();
        clients.push(stream);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let mut got = vec![0; 4 << 10];
        let mut length = 0;
        while !answered(&got[..length]) {
            let n = client.read(&mut got[length..]).unwrap();
            assert!(n > 0, "the connection ended");
            length += n;
        }
        let text = std::str::from_utf8(&got[..length]).unwrap();
        assert!(text.contains(&format!("number {number}.")), "{text}");
    }
    say("answered");
    std::io::stdin().read_line(&mut line).unwrap();
    say("story: all served");
}
