//! Many connections: what they cost, and what happens to those that are too many.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use drawspan::clock::{Deadline, Now, Uptime};
use drawspan::codec::outbuf::OutBuf;
use drawspan::ids::WireId;
use drawspan::io::{EventLoop, SystemCalls};
use drawspan::limits::Limits;
use drawspan::link::{Driven, IoEvent, IoRequest, OpenSpec};

use crate::probe::PATIENCE;
use crate::stdio::{PORT, helper_command, said, say, story};

/// The listener's wire; connections are the numbers above it.
const LISTENER: WireId = WireId(0);

/// What is said to a connection that is one too many.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

/// Sends back what it gets. In steady state it allocates nothing and walks through nothing.
struct Echo {
    /// What waits to leave on wire 1, 2 …
    out: Vec<OutBuf>,
    asks: VecDeque<IoRequest>,
    open: usize,
    open_max: usize,
    turned_away: usize,
    /// Calls of the loop that concern a wire.
    calls: usize,
    bytes: usize,
    /// Of a test that asks for it: whether bytes came in (`true`) or what waits was asked for, and where.
    order: Option<Vec<(bool, WireId)>>,
    due: Uptime,
}

impl Echo {
    fn new() -> Self {
        Self {
            out: Vec::new(),
            asks: VecDeque::new(),
            open: 0,
            open_max: usize::MAX,
            turned_away: 0,
            calls: 0,
            bytes: 0,
            order: None,
            due: Uptime::ZERO.after(PATIENCE),
        }
    }

    fn mint(&mut self) -> WireId {
        self.out.push(OutBuf::new());
        WireId(u32::try_from(self.out.len()).unwrap())
    }

    fn out(&mut self, wire: WireId) -> &mut OutBuf {
        &mut self.out[wire.0 as usize - 1]
    }
}

impl Driven for Echo {
    fn handle_io(&mut self, _now: Now, wire: WireId, event: IoEvent<'_>) {
        self.calls += 1;
        match event {
            IoEvent::Bytes(bytes) => {
                self.bytes += bytes.len();
                if let Some(order) = &mut self.order {
                    order.push((true, wire));
                }
                self.out(wire).tail().extend_from_slice(bytes);
                self.asks.push_back(IoRequest::Flush(wire));
            }
            IoEvent::Eof | IoEvent::Failed(_) => {
                self.open -= 1;
                self.asks.push_back(IoRequest::Close(wire));
            }
            IoEvent::Opened
            | IoEvent::StderrBytes(_)
            | IoEvent::WriteClosed
            | IoEvent::Drained
            | IoEvent::Exited(_) => {}
        }
    }

    fn handle_accept(&mut self, _now: Now, listener: WireId, _peer: &str) -> Option<WireId> {
        assert_eq!(listener, LISTENER);
        let wire = self.mint();
        if self.open == self.open_max {
            self.turned_away += 1;
            self.out(wire).tail().extend_from_slice(BUSY);
            self.asks.push_back(IoRequest::Finish(wire));
        } else {
            self.open += 1;
        }
        Some(wire)
    }

    fn handle_timeout(&mut self, now: Now) {
        // Only tests that wait in vain get here twice.
        self.due = now.after(PATIENCE);
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        self.asks.pop_front()
    }

    fn next_deadline(&self) -> Option<Deadline> {
        Some(Deadline::new(self.due, "the test gives up"))
    }

    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        self.calls += 1;
        if let Some(order) = &mut self.order {
            order.push((false, wire));
        }
        Some(self.out(wire))
    }
}

struct Server {
    events: EventLoop,
    echo: Echo,
    turns: usize,
}

impl Server {
    fn new() -> Self {
        Self::with(&Limits::default())
    }

    fn with(limits: &Limits) -> Self {
        Self {
            events: EventLoop::new(limits).unwrap(),
            echo: Echo::new(),
            turns: 0,
        }
    }

    fn listen(&mut self) -> u16 {
        let host = "127.0.0.1".to_owned();
        let spec = OpenSpec::Listen { host, port: 0 };
        self.echo.asks.push_back(IoRequest::Open(LISTENER, spec));
        self.events.settle(&mut [&mut self.echo]);
        self.events.local_port(0, LISTENER).unwrap()
    }

    fn turn(&mut self) {
        self.turns += 1;
        self.events.turn(&mut [&mut self.echo]).unwrap();
    }

    #[track_caller]
    fn until(&mut self, what: &str, done: impl Fn(&Echo) -> bool) {
        let give_up = self.events.now().after(PATIENCE);
        while !done(&self.echo) {
            assert!(self.events.now().up < give_up, "waited in vain for {what}");
            self.turn();
        }
    }

    /// Turns for so long; almost all of that time is sleep.
    fn idle(&mut self, time: Duration) {
        let until = self.events.now().after(time);
        let before = self.turns;
        while self.events.now().up < until {
            self.echo.due = until;
            self.turn();
        }
        let turns = self.turns - before;
        assert!(turns <= 5, "{turns} turns with nothing to do");
    }

    /// Connections that the server has accepted, from this thread.
    fn connect(&mut self, port: u16, count: usize) -> Vec<TcpStream> {
        let before = self.echo.open;
        let connect = |_| TcpStream::connect(("127.0.0.1", port)).unwrap();
        let clients: Vec<TcpStream> = (0..count).map(connect).collect();
        for client in &clients {
            client.set_nodelay(true).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        self.until("the connections", |echo| echo.open == before + count);
        clients
    }

    /// Every client sends once and gets it back.
    fn round<C: Read + Write>(&mut self, clients: &mut [C]) {
        let done = self.echo.bytes + 64 * clients.len();
        for client in &mut *clients {
            client.write_all(&[b'x'; 64]).unwrap();
        }
        self.until("all requests", |echo| echo.bytes == done);
        let mut back = [0; 64];
        for client in clients {
            client.read_exact(&mut back).unwrap();
        }
    }

    /// What `rounds` of all clients cost us.
    fn cost<C: Read + Write>(&mut self, clients: &mut [C], rounds: u64) -> SystemCalls {
        self.round(clients);
        let before = self.events.system_calls();
        for _ in 0..rounds {
            self.round(clients);
        }
        self.events.system_calls().since(before)
    }
}

#[test]
#[cfg(target_os = "linux")]
fn eight_connections_cost_one_read_and_one_write_a_request() {
    const ROUNDS: u64 = 200;
    const REQUESTS: u64 = 8 * ROUNDS;
    let mut server = Server::new();
    let port = server.listen();
    let mut clients = server.connect(port, 8);
    let calls = server.cost(&mut clients, ROUNDS);
    assert_eq!((calls.reads, calls.writes), (REQUESTS, REQUESTS));
    assert!(
        2 * calls.total() <= 5 * REQUESTS,
        "{calls:?} for {REQUESTS} requests"
    );
}

#[test]
fn an_answer_leaves_before_the_next_client_is_heard() {
    let mut server = Server::new();
    let port = server.listen();
    let mut clients = server.connect(port, 3);
    server.idle(Duration::from_millis(1));
    server.echo.order = Some(Vec::new());
    server.round(&mut clients);
    let order = server.echo.order.take().unwrap();
    assert_eq!(order.len(), 6, "{order:?}");
    for pair in order.chunks(2) {
        assert_eq!(pair, [(true, pair[0].1), (false, pair[0].1)], "{order:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_unix_socket_costs_no_more() {
    const ROUNDS: u64 = 500;
    let mut server = Server::new();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let wire = server.echo.mint();
    server.events.adopt(0, wire, ours).unwrap();
    let mut clients = [theirs];
    let calls = server.cost(&mut clients, ROUNDS);
    assert_eq!([calls.waits, calls.reads, calls.writes], [ROUNDS; 3]);
    // That the peer has read an answer is no news; with room to write it would be.
    let before = server.turns;
    for _ in 0..20 {
        server.round(&mut clients);
        server.echo.due = server.events.now().after(Duration::from_millis(1));
        server.until("the deadline", |echo| {
            echo.due > Uptime::ZERO.after(PATIENCE)
        });
    }
    let turns = server.turns - before;
    assert!(turns < 50, "{turns} turns for 20 requests and 20 deadlines");
}

#[test]
fn a_message_allocates_nothing() {
    let mut server = Server::new();
    let port = server.listen();
    let mut clients = server.connect(port, 8);
    server.round(&mut clients);
    let cost = allocation_counter::measure(|| {
        for _ in 0..100 {
            server.round(&mut clients);
        }
    });
    assert_eq!(cost.count_total, 0, "{cost:?}");
}

/// The helper: connects as often as asked, and does one exchange on each connection.
pub(crate) fn crowd(port: u16) {
    let _raised = EventLoop::new(&Limits::default()).unwrap();
    let mut clients = Vec::new();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    for _ in 0..line.trim().parse().unwrap() {
        clients.push(TcpStream::connect(("127.0.0.1", port)).unwrap());
    }
    say("connected");
    std::io::stdin().read_line(&mut line).unwrap();
    for client in &mut clients {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"x").unwrap();
    }
    for client in &mut clients {
        client.read_exact(&mut [0]).unwrap();
    }
    say("story: all served");
}

#[test]
#[cfg(target_os = "linux")]
fn ten_thousand_connections_are_served_and_cost_nothing_while_idle() {
    // In a process of its own, whose descriptors nobody else opens.
    let mut child = helper_command("scale").spawn().unwrap();
    assert_eq!(story(&mut child), "as many descriptors as before");
}

/// The helper of the test above.
#[cfg(target_os = "linux")]
pub(crate) fn scale() {
    const ROUNDS: u64 = 200;
    const CROWD: usize = 10_000;
    let mut server = Server::new();
    let most = server.events.descriptors_max();
    let crowd = CROWD.min(most - 200);
    if crowd < CROWD {
        say(&format!("only {crowd} connections of {most} descriptors"));
    }
    let port = server.listen();
    let mut few = server.connect(port, 8);
    let alone = server.cost(&mut few, ROUNDS);
    let descriptors = open_descriptors();

    let mut command = helper_command("crowd");
    let mut child = command.env(PORT, port.to_string()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{crowd}").unwrap();
    server.until("the crowd", |echo| echo.open == crowd + 8);
    said(&mut child, "connected");

    let before = server.echo.calls;
    let crowded = server.cost(&mut few, ROUNDS);
    // Bytes, the buffer to send from, and word that it has left.
    let requests = 8 * (ROUNDS + 1);
    assert_eq!((server.echo.calls - before) as u64, 3 * requests);
    assert_eq!((crowded.reads, crowded.writes), (alone.reads, alone.writes));
    assert!(
        crowded.waits <= alone.waits + ROUNDS,
        "{crowded:?}, alone {alone:?}"
    );
    // That the loop does not walk through the crowd itself is the compiler's proof: `io::table::Table`,
    // which holds the wires, has no way to.

    writeln!(stdin).unwrap();
    server.until("the end of the crowd", |echo| echo.open == 8);
    assert_eq!(story(&mut child), "all served");
    drop((child, stdin));
    assert_eq!(open_descriptors(), descriptors);
    say("story: as many descriptors as before");
}

#[cfg(target_os = "linux")]
fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn those_that_are_too_many_hear_so_in_full() {
    const CLIENTS: usize = 1_000;
    let mut server = Server::new();
    server.echo.open_max = 8;
    let port = server.listen();
    let mut few = server.connect(port, 8);
    let storm = std::thread::spawn(move || {
        for _ in 0..CLIENTS {
            let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            // More than we read of it before we answer: a plain close would reset the answer away.
            client.write_all(&[b'x'; 4_096]).unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            assert!(answer == BUSY, "{}", String::from_utf8_lossy(&answer));
        }
    });
    server.until("the storm", |echo| echo.turned_away == CLIENTS);
    storm.join().unwrap();
    // Those that were let in did not notice, and afterwards there is nothing to do.
    server.round(&mut few);
    server.idle(Duration::from_millis(50));
    assert_eq!((server.echo.open, server.events.finishing()), (8, 0));
}

#[test]
fn who_never_ends_is_cut_in_time() {
    let limits = Limits {
        finish_timeout: Duration::from_millis(30),
        ..Limits::DEFAULT
    };
    let mut server = Server::with(&limits);
    server.echo.open_max = 0;
    let port = server.listen();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    server.until("the connection", |echo| echo.turned_away == 1);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, BUSY);
    client.write_all(b"and another thing").unwrap();
    server.idle(Duration::from_millis(60));
    assert!(soon_gone(&mut client), "it is still listened to");
}

#[test]
fn of_too_many_that_never_end_the_oldest_is_cut() {
    let limits = Limits {
        finish_timeout: PATIENCE,
        finishing_max: 2,
        ..Limits::DEFAULT
    };
    let mut server = Server::with(&limits);
    server.echo.open_max = 0;
    let port = server.listen();
    let mut clients = Vec::new();
    for number in 1..=3 {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        server.until("the connection", |echo| echo.turned_away == number);
        client.read_exact(&mut [0; BUSY.len()]).unwrap();
        clients.push(client);
    }
    assert_eq!(server.events.finishing(), 2);
    assert!(soon_gone(&mut clients[0]), "the oldest");
    assert!(!gone(&mut clients[1]) && !gone(&mut clients[2]));
}

/// Whether nobody takes what this client sends: it has met the reset that answered an earlier write.
fn gone(client: &mut TcpStream) -> bool {
    client.write_all(b"x").is_err()
}

/// The same where that reset may still be on its way.
fn soon_gone(client: &mut TcpStream) -> bool {
    let give_up = Instant::now() + PATIENCE;
    while Instant::now() < give_up {
        if gone(client) {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

#[test]
fn a_long_answer_leaves_after_the_machine_has_forgotten_it() {
    const TOTAL: usize = 8 * 1024 * 1024;
    let mut server = Server::new();
    let port = server.listen();
    let mut clients = server.connect(port, 1);
    let wire = WireId(1);
    server.echo.out(wire).tail().resize(TOTAL, b'x');
    server.echo.asks.push_back(IoRequest::Finish(wire));
    let mut client = clients.remove(0);
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        all.len()
    });
    while !reader.is_finished() {
        server.echo.due = server.events.now().after(Duration::from_millis(5));
        server.turn();
    }
    assert_eq!(reader.join().unwrap(), TOTAL);
    assert!(server.echo.out(wire).is_empty());
}
