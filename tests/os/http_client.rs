//! The HTTP links through the real loop, against plain servers in threads.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use drawspan::clock::{Deadline, Now};
use drawspan::codec::outbuf::OutBuf;
use drawspan::codec::uri::Uri;
use drawspan::ids::{UpstreamRequestId, WireId, WireMint};
use drawspan::io::EventLoop;
use drawspan::limits::Limits;
use drawspan::link::http_client::{HttpBounds, HttpLink, HttpProxy, HttpTarget};
use drawspan::link::sse_client::SseLink;
use drawspan::link::upstream::UpstreamEvent;
use drawspan::link::{Driven, IoEvent, IoRequest, TlsSpec};
use drawspan::protocol::client::{Dialect, Outgoing, OutgoingKind};
use drawspan::protocol::revision::Revision;

use crate::probe::PATIENCE;

/// Both links behind one contract.
enum Link {
    Http(Box<HttpLink>),
    Sse(Box<SseLink>),
}

struct Machine {
    link: Link,
    mint: WireMint,
    told: Vec<String>,
    give_up: Deadline,
}

macro_rules! with {
    ($machine:expr, $link:ident => $call:expr) => {
        match &mut $machine.link {
            Link::Http($link) => $call,
            Link::Sse($link) => $call,
        }
    };
}

impl Machine {
    fn note(&mut self) {
        while let Some(event) = with!(self, link => link.poll_event()) {
            self.told.push(match event {
                UpstreamEvent::Message { text, .. } => text.to_string(),
                other @ (UpstreamEvent::Up
                | UpstreamEvent::Unreadable { .. }
                | UpstreamEvent::RequestEnded { .. }
                | UpstreamEvent::Resuming { .. }
                | UpstreamEvent::Remark { .. }
                | UpstreamEvent::Ending(_)
                | UpstreamEvent::Closed(_)) => format!("{other:?}"),
            });
        }
    }
}

impl Driven for Machine {
    fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>) {
        let mint = &mut self.mint;
        with!(self, link => link.handle_io(now, wire, event, mint));
        self.note();
    }

    fn handle_timeout(&mut self, now: Now) {
        assert!(now.up < self.give_up.at, "waited in vain: {:?}", self.told);
        let mint = &mut self.mint;
        with!(self, link => link.handle_timeout(now, mint));
        self.note();
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        with!(self, link => link.poll_io())
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let of_link = match &self.link {
            Link::Http(link) => link.next_deadline(),
            Link::Sse(link) => link.next_deadline(),
        };
        Deadline::earlier(of_link, Some(self.give_up))
    }

    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        with!(self, link => link.outgoing(wire))
    }
}

struct World {
    events: EventLoop,
    machine: Machine,
}

fn target(scheme: &str, host: &str, port: u16) -> HttpTarget {
    HttpTarget {
        url: Uri::parse(&format!("{scheme}://{host}:{port}/mcp")).unwrap(),
        headers: Vec::new(),
        tls: TlsSpec::default(),
        proxy: None,
    }
}

impl World {
    fn new(link: impl FnOnce(HttpBounds, &Limits) -> Link) -> Self {
        // Shorter than the test's patience, so that a connection that is kept shows in the deadline.
        let limits = Limits {
            pool_idle_ttl: PATIENCE / 2,
            ..Limits::default()
        };
        let events = EventLoop::new(&limits).unwrap();
        let give_up = Deadline::new(events.now().after(PATIENCE), "the test gives up");
        let mut machine = Machine {
            link: link(HttpBounds::from(&limits), &limits),
            mint: WireMint::default(),
            told: Vec::new(),
            give_up,
        };
        let (now, mint) = (events.now(), &mut machine.mint);
        with!(machine, link => link.start(now, mint));
        machine.note();
        Self { events, machine }
    }

    fn http(target: HttpTarget) -> Self {
        Self::new(|bounds, limits| Link::Http(Box::new(HttpLink::new(target, bounds, limits))))
    }

    fn send(&mut self, message: Outgoing) {
        let (now, mint) = (self.events.now(), &mut self.machine.mint);
        with!(self.machine, link => link.send(now, &message, mint)).unwrap();
        self.machine.note();
        self.events.settle(&mut [&mut self.machine]);
    }

    fn close(&mut self) {
        let (now, mint) = (self.events.now(), &mut self.machine.mint);
        with!(self.machine, link => link.close(now, mint));
        self.machine.note();
        self.events.settle(&mut [&mut self.machine]);
    }

    fn keeps_a_connection(&self) -> bool {
        self.machine.next_deadline() != Some(self.machine.give_up)
    }

    fn until(&mut self, last: &str) {
        while !self
            .machine
            .told
            .last()
            .is_some_and(|told| told.starts_with(last))
        {
            self.events.turn(&mut [&mut self.machine]).unwrap();
        }
    }
}

fn request(id: u64, method: &str, dialect: Dialect) -> Outgoing {
    Outgoing {
        kind: OutgoingKind::Request {
            id: UpstreamRequestId(id),
            method: method.to_owned().into(),
            name: None,
            headers: Vec::new(),
        },
        dialect,
        body: format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#).into_bytes(),
    }
}

fn result(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

const LEGACY: Dialect = Dialect::Session(Revision::V2025_06_18);

/// Reads one request: its head in lower case and its body. `None` at the end.
fn read(stream: &mut BufReader<impl Read>) -> Option<(String, String)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).unwrap() == 0 {
            return None;
        }
    }
    let head = head.to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1);
    let length = length.map_or(0, |rest| {
        rest.split("\r\n").next().unwrap().parse().unwrap()
    });
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    Some((head, String::from_utf8(body).unwrap()))
}

/// Accepts `connections` and serves each in a thread of its own.
fn serve<T: Send + 'static>(
    connections: usize,
    serve: impl Fn(BufReader<TcpStream>) -> T + Clone + Send + 'static,
) -> (u16, JoinHandle<Vec<T>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let accept = |_| {
            let (socket, _) = listener.accept().unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let serve = serve.clone();
            std::thread::spawn(move || serve(BufReader::new(socket)))
        };
        let threads: Vec<_> = (0..connections).map(accept).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    (port, thread)
}

fn json(out: &mut impl Write, extra: &str, body: &str) {
    let length = body.len();
    write!(
        out,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{extra}Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
}

/// A server of one session whose calls are streams that it cuts after an id.
fn session(mut stream: BufReader<TcpStream>) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some((head, body)) = read(&mut stream) {
        seen.push(head.split(" http").next().unwrap().to_owned());
        let out = stream.get_mut();
        let events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        if body.contains("initialize\"") {
            json(out, "Mcp-Session-Id: s\r\n", &result(1));
            continue;
        }
        assert!(head.contains("mcp-session-id: s\r\n"), "{head}");
        if body.contains("initialized") {
            out.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
                .unwrap();
        } else if body.contains("tools/list") {
            json(out, "", &result(2));
        } else if body.contains("tools/call") {
            write!(out, "{events}id: 7\nretry: 20\ndata:\n\n").unwrap();
            return seen;
        } else if head.contains("last-event-id: 7") {
            write!(out, "{events}data: {}\n\n", result(3)).unwrap();
            return seen;
        } else if head.starts_with("delete") {
            out.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        } else {
            out.write_all(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
                .unwrap();
        }
    }
    seen
}

#[test]
fn a_session_from_its_beginning_to_its_end() {
    // One for the call that is cut, one for the stream it is resumed on, one for what is left.
    let (port, server) = serve(3, session);
    let mut world = World::http(target("http", "127.0.0.1", port));
    world.send(request(1, "initialize", Dialect::Handshake));
    world.until(&result(1));
    world.send(Outgoing {
        kind: OutgoingKind::Notification {
            method: "notifications/initialized".into(),
        },
        dialect: LEGACY,
        body: br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_vec(),
    });
    world.send(request(2, "tools/list", LEGACY));
    world.until(&result(2));
    world.send(request(3, "tools/call", LEGACY));
    world.until("Resuming");
    world.until(&result(3));
    world.close();
    world.until("Closed(Local)");
    drop(world);
    let seen: Vec<String> = server.join().unwrap().concat();
    let count = |what: &str| seen.iter().filter(|seen| seen.starts_with(what)).count();
    assert_eq!((count("post"), count("delete")), (4, 1), "{seen:?}");
    assert!((1..=2).contains(&count("get")), "{seen:?}");
}

#[test]
fn a_connection_is_kept_and_its_end_noticed() {
    // Each connection serves two requests, then ends without a word.
    let (port, server) = serve(2, |mut stream| {
        for _ in 0..2 {
            let (_, body) = read(&mut stream).unwrap();
            let id = body
                .split("\"id\":")
                .nth(1)
                .unwrap()
                .split(',')
                .next()
                .unwrap()
                .to_owned();
            json(stream.get_mut(), "", &result(id.parse().unwrap()));
        }
    });
    let mut world = World::http(target("http", "localhost", port));
    let modern = Dialect::Stateless(Revision::V2026_07_28);
    for id in 1..=4 {
        world.send(request(id, "tools/list", modern));
        world.until(&result(id));
        if id == 2 {
            // Its end is noticed while nobody asks.
            while world.keeps_a_connection() {
                world.events.turn(&mut [&mut world.machine]).unwrap();
            }
        }
    }
    server.join().unwrap();
    assert_eq!(world.machine.told.len(), 5);
}

#[test]
fn the_older_pair() {
    let (port, server) = serve(2, |mut stream| {
        let (head, _) = read(&mut stream).unwrap();
        if head.starts_with("get") {
            let out = stream.get_mut();
            write!(
                out,
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: endpoint\ndata: m?s=1\n\ndata: {}\n\n",
                result(1)
            )
            .unwrap();
            // The client ends it.
            assert!(read(&mut stream).is_none());
        } else {
            assert!(head.starts_with("post /m?s=1 "), "{head}");
            let out = stream.get_mut();
            out.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 8\r\n\r\nAccepted")
                .unwrap();
            // The connection is kept until the client lets go of it.
            assert!(read(&mut stream).is_none());
        }
    });
    let target = target("http", "127.0.0.1", port);
    let mut world =
        World::new(|bounds, limits| Link::Sse(Box::new(SseLink::new(target, bounds, limits))));
    world.until(&result(1));
    world.send(request(
        2,
        "tools/list",
        Dialect::Session(Revision::V2024_11_05),
    ));
    while !world.keeps_a_connection() {
        world.events.turn(&mut [&mut world.machine]).unwrap();
    }
    world.close();
    assert!(
        world
            .machine
            .told
            .last()
            .unwrap()
            .starts_with("Closed(Local)")
    );
    drop(world);
    server.join().unwrap();
}

#[test]
fn a_server_that_is_not_there() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let mut world = World::http(target("http", "127.0.0.1", port));
    world.send(request(1, "initialize", Dialect::Handshake));
    world.until("RequestEnded");
    let told = world.machine.told.last().unwrap();
    assert!(
        told.contains("NotSent") && told.contains("connection refused"),
        "{told}"
    );
}

#[test]
fn a_proxy_that_refuses_and_one_that_lets_through() {
    let (port, proxy) = serve(2, |mut stream| {
        let (head, _) = read(&mut stream).unwrap();
        let allowed = head.starts_with("connect good:80 ");
        let out = stream.get_mut();
        if !allowed {
            out.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").unwrap();
            return head;
        }
        out.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let (head, _) = read(&mut stream).unwrap();
        json(stream.get_mut(), "", &result(1));
        head
    });
    let through = |host| {
        let mut target = target("http", host, 80);
        target.proxy = Some(HttpProxy {
            host: "127.0.0.1".to_owned(),
            port,
            credentials: None,
        });
        let mut world = World::http(target);
        world.send(request(1, "initialize", Dialect::Handshake));
        world
    };
    through("good").until(&result(1));
    let mut refused = through("bad");
    refused.until("RequestEnded");
    let told = refused.machine.told.last().unwrap();
    assert!(
        told.contains("refused a tunnel to bad:80 with HTTP status 403"),
        "{told}"
    );
    let mut heads = proxy.join().unwrap();
    heads.sort();
    assert!(heads[1].starts_with("post /mcp "), "{heads:?}");
}
