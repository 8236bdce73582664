//! Connections on real sockets: what virtual time cannot show is how a client that is gone looks.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use drawspan::clock::{Deadline, Now, Uptime};
use drawspan::codec::outbuf::OutBuf;
use drawspan::ids::WireId;
use drawspan::io::EventLoop;
use drawspan::limits::Limits;
use drawspan::link::http_server::{ExchangeId, HttpConnection, HttpEvent};
use drawspan::link::{Driven, IoEvent, IoRequest, OpenSpec};

const LISTENER: WireId = WireId(0);

/// How long anything may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Accepts connections; answers `/now` at once, refuses `/refuse`, lets the others wait.
struct Server {
    connections: BTreeMap<WireId, HttpConnection>,
    asks: Vec<IoRequest>,
    waiting: Vec<(WireId, ExchangeId)>,
    gone: Vec<Uptime>,
    closed: usize,
    ended: Option<Uptime>,
    give_up: Option<Uptime>,
}

impl Server {
    fn new() -> Self {
        let spec = OpenSpec::Listen {
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        Self {
            connections: BTreeMap::new(),
            asks: vec![IoRequest::Open(LISTENER, spec)],
            waiting: Vec::new(),
            gone: Vec::new(),
            closed: 0,
            ended: None,
            give_up: None,
        }
    }

    fn drain(&mut self, now: Now, wire: WireId) {
        let Some(connection) = self.connections.get_mut(&wire) else {
            return;
        };
        while let Some(event) = connection.poll_event() {
            match event {
                HttpEvent::Head { exchange, head } => match head.path() {
                    "/refuse" => connection.respond(now, exchange, 403, &[], b"refused"),
                    "/stream" => {
                        connection.start_sse(now, exchange, &[]);
                        self.waiting.push((wire, exchange));
                    }
                    _ => connection.accept(now, exchange),
                },
                HttpEvent::Body { exchange, body } if body == b"now" => {
                    connection.respond(now, exchange, 200, &[], &body);
                }
                HttpEvent::Body { exchange, .. } => self.waiting.push((wire, exchange)),
                HttpEvent::Gone { .. } => self.gone.push(now.up),
                HttpEvent::Closed => self.closed += 1,
            }
        }
        while let Some(ask) = connection.poll_io() {
            self.asks.push(ask);
        }
        if connection.is_closed() {
            self.connections.remove(&wire);
        }
    }
}

impl Driven for Server {
    fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>) {
        if matches!(event, IoEvent::Eof) {
            self.ended = Some(now.up);
        }
        if let Some(connection) = self.connections.get_mut(&wire) {
            connection.handle_io(now, event);
        }
        self.drain(now, wire);
    }

    fn handle_accept(&mut self, now: Now, _: WireId, _: &str) -> Option<WireId> {
        let wire = WireId(1 + u32::try_from(self.connections.len() + self.closed).expect("few"));
        let connection = HttpConnection::new(wire, &Limits::DEFAULT, now);
        self.connections.insert(wire, connection);
        Some(wire)
    }

    fn handle_timeout(&mut self, now: Now) {
        assert!(self.give_up.is_none_or(|at| at > now.up), "nothing happens");
        let wires: Vec<WireId> = self.connections.keys().copied().collect();
        for wire in wires {
            if let Some(connection) = self.connections.get_mut(&wire) {
                connection.handle_timeout(now);
            }
            self.drain(now, wire);
        }
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        (!self.asks.is_empty()).then(|| self.asks.remove(0))
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let connections = self.connections.values();
        let due = connections.filter_map(HttpConnection::next_deadline);
        due.chain(self.give_up.map(|at| Deadline::new(at, "test")))
            .min()
    }

    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        Some(self.connections.get_mut(&wire)?.outgoing())
    }
}

struct World {
    events: EventLoop,
    server: Server,
    port: u16,
}

impl World {
    fn new() -> Self {
        let mut events = EventLoop::new(&Limits::DEFAULT).expect("a loop");
        let mut server = Server::new();
        events.settle(&mut [&mut server]);
        let port = events.local_port(0, LISTENER).expect("a port");
        Self {
            events,
            server,
            port,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    fn until(&mut self, what: &str, done: impl Fn(&Server) -> bool) {
        self.server.give_up = Some(self.events.now().after(PATIENCE));
        while !done(&self.server) {
            self.events
                .turn(&mut [&mut self.server])
                .unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    }
}

const HEAD: &str = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: ";

/// The answer as text, read until the server ends its side.
fn read_all(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

#[test]
fn a_client_that_is_gone_is_noticed_at_once() {
    for (request, stream) in [
        (format!("{HEAD}4\r\n\r\nwait"), false),
        ("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), true),
    ] {
        let mut world = World::new();
        let mut client = world.connect();
        client.write_all(request.as_bytes()).expect("sent");
        world.until("the request", |server| !server.waiting.is_empty());
        if stream {
            // What was sent before it left is read, so that its end is no reset.
            let mut head = [0; 1_000];
            assert!(client.read(&mut head).expect("a head") > 0);
        }
        drop(client);
        world.until("its end", |server| server.closed == 1);
        let server = &world.server;
        let ended = server.ended.expect("an end that is no reset");
        assert_eq!(server.gone.len(), 1);
        let late = server.gone[0].since(ended);
        // By the second probe; a busy machine may be late, a minute of silence would be another thing.
        assert!(late < Duration::from_secs(5), "{late:?}");
    }
}

#[test]
fn a_half_closed_client_is_answered() {
    let mut world = World::new();
    let mut client = world.connect();
    client
        .write_all(format!("{HEAD}4\r\n\r\nwait").as_bytes())
        .expect("sent");
    client.shutdown(Shutdown::Write).expect("half-closed");
    world.until("its end", |server| server.ended.is_some());
    // Through some probes.
    let later = world.events.now().after(Duration::from_millis(100));
    while world.events.now().up < later {
        world.events.turn(&mut [&mut world.server]).expect("a turn");
    }
    let (wire, exchange) = world.server.waiting[0];
    let now = world.events.now();
    let connection = world.server.connections.get_mut(&wire).expect("it is open");
    connection.respond(now, exchange, 200, &[], b"late");
    world.server.drain(now, wire);
    world.until("the end", |server| server.closed == 1);
    let text = read_all(&mut client);
    assert!(text.starts_with("HTTP/1.1 100 Continue\r\n\r\n"), "{text}");
    assert!(text.ends_with("Connection: close\r\n\r\nlate"), "{text}");
    assert_eq!(world.server.gone, []);
}

#[test]
fn a_refusal_is_read_by_a_client_that_sends_on() {
    let mut world = World::new();
    let mut client = world.connect();
    let sent = std::thread::spawn(move || {
        let body = vec![b'x'; 3_000_000];
        let head = "POST /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n";
        client.write_all(head.as_bytes()).expect("a head");
        client
            .write_all(&body)
            .expect("nobody resets the connection");
        read_all(&mut client)
    });
    world.until("its end", |server| server.closed == 1);
    let text = sent.join().expect("a client");
    assert!(text.starts_with("HTTP/1.1 403 "), "{text}");
    assert!(text.ends_with("refused"), "{text}");
}

#[test]
fn a_reset_is_an_end() {
    let mut world = World::new();
    let mut client = world.connect();
    client
        .write_all(b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n")
        .expect("sent");
    world.until("the request", |server| !server.waiting.is_empty());
    // Closed with the head of the stream unread: the system resets the connection.
    client.set_nonblocking(true).expect("a flag");
    while client.peek(&mut [0]).is_err() {
        std::thread::yield_now();
    }
    drop(client);
    world.until("its end", |server| server.closed == 1);
    assert_eq!(world.server.gone.len(), 1);
}

#[test]
fn requests_on_one_connection_are_answered_each() {
    let mut world = World::new();
    let mut client = world.connect();
    let asked = std::thread::spawn(move || {
        for _ in 0..100 {
            client
                .write_all(format!("{HEAD}3\r\n\r\nnow").as_bytes())
                .expect("sent");
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\nnow") {
                let mut byte = [0; 500];
                let n = client.read(&mut byte).expect("an answer");
                answer.extend_from_slice(&byte[..n]);
            }
        }
    });
    world.until("the end", |server| server.closed == 1);
    asked.join().expect("a client");
}
