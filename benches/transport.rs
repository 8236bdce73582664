//! Calls of a tool through a whole hub, at 100 B, 8 KiB and 1 MiB: messages a second and MiB a second.
//!
//! `memory` plays the loop, so it is the hub's own cost; `line` and `http` go through the real loop and the
//! kernel, with a client in a second thread. `pipelined` sends 64 requests at a time, the others one.
//!
//! ```text
//! cargo bench --bench transport              three tries each, the best one counts
//! cargo bench --bench transport -- --quick   one short try: does it work?
//! cargo bench --bench transport -- memory    what has this in its name
//! ```
#![allow(clippy::print_stdout, reason = "a table is what it is for")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use drawspan::audit::Chain;
use drawspan::clock::{Deadline, Now};
use drawspan::codec::outbuf::OutBuf;
use drawspan::entropy::Seeded;
use drawspan::hub::Hub;
use drawspan::ids::WireId;
use drawspan::io::EventLoop;
use drawspan::io::append_file::{AppendFile, Fate};
use drawspan::limits::Limits;
use drawspan::link::{Driven, IoEvent, IoRequest};

#[path = "../tests/weight/server.rs"]
mod server;

use server::{Server, call, config, modern_call, modern_fields, post};

const SIZES: [(&str, usize); 3] = [("100 B", 100), ("8 KiB", 8 << 10), ("1 MiB", 1 << 20)];
const PIPELINED: usize = 64;

/// How long and how often.
#[derive(Clone, Copy)]
struct Effort {
    time: Duration,
    tries: usize,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let quick = words.iter().any(|word| word == "--quick");
    let wanted: Vec<&String> = words
        .iter()
        .filter(|word| !word.starts_with("--"))
        .collect();
    let effort = if quick {
        Effort {
            time: Duration::from_millis(20),
            tries: 1,
        }
    } else {
        Effort {
            time: Duration::from_millis(300),
            tries: 3,
        }
    };
    println!(
        "{:<28} {:>12} {:>10} {:>12}",
        "calls", "a second", "MiB/s", "us each"
    );
    for (name, size) in SIZES {
        let run = |what: &str, measure: &dyn Fn(Effort) -> f64| {
            let label = format!("{what}, {name}");
            if wanted.is_empty() || wanted.iter().any(|word| label.contains(&**word)) {
                let rate = measure(effort);
                let mib = rate * size as f64 / f64::from(1 << 20);
                println!("{label:<28} {rate:>12.0} {mib:>10.1} {:>12.2}", 1e6 / rate);
            }
        };
        run("memory line", &|effort| memory_line(effort, size));
        run("memory line audited", &|effort| {
            memory_audited(effort, size)
        });
        run("memory http session", &|effort| {
            memory_http(effort, size, false)
        });
        run("memory http stateless", &|effort| {
            memory_http(effort, size, true)
        });
        run("line", &|effort| line(effort, size, 1));
        run("line pipelined", &|effort| line(effort, size, PIPELINED));
        run("http", &|effort| http(effort, size, 1));
        run("http pipelined", &|effort| http(effort, size, 8));
    }
}

/// A text as tools print it, as it stands in JSON.
fn text(size: usize) -> String {
    let mut text = String::with_capacity(size + 80);
    let mut line = 0;
    while text.len() < size {
        text.push_str(if line % 16 == 15 {
            r#"how much of it is é, ü or ß, and how much is a \"quoted\" word?\n"#
        } else {
            r"a line of text as a tool may print it, sixty-two bytes of it..\n"
        });
        line += 1;
    }
    // Cut where no escape and no letter is.
    let mut end = size.min(text.len());
    while !text.is_char_boundary(end) || text[..end].ends_with('\\') {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// Calls of `once`, which does `count` messages, in a second; the best of all tries.
fn rate(effort: Effort, count: usize, mut once: impl FnMut()) -> f64 {
    once();
    let mut best = 0_f64;
    for _ in 0..effort.tries {
        let start = Instant::now();
        let mut done = 0;
        while start.elapsed() < effort.time {
            once();
            done += count;
        }
        best = best.max(done as f64 / start.elapsed().as_secs_f64());
    }
    best
}

fn memory_line(effort: Effort, size: usize) -> f64 {
    let mut server = Server::new();
    let wire = server.hub.serve_adopted(server.now);
    let request = format!("{}\n", call("echo", "17", &text(size)));
    rate(effort, 1, || {
        assert!(server.exchange(wire, request.as_bytes(), br#""id":17"#));
    })
}

/// The same with an audit log: two lines for each call, chained and written to a file.
fn memory_audited(effort: Effort, size: usize) -> f64 {
    let path = std::env::temp_dir().join(format!("drawspan-bench-audit-{}", std::process::id()));
    let mut file = AppendFile::open(&path).expect("a file");
    let mut server = Server::new();
    server.hub.keep_audit(true);
    let wire = server.hub.serve_adopted(server.now);
    let request = format!("{}\n", call("echo", "17", &text(size)));
    let (mut bodies, mut sealed) = (Vec::new(), Vec::new());
    let mut chain = Chain::new();
    let mut write = |server: &mut Server| {
        bodies.clear();
        sealed.clear();
        server.hub.take_audit(&mut bodies);
        for body in bodies.split_inclusive(|byte| *byte == b'\n') {
            chain.seal(&mut sealed, &body[..body.len() - 1]);
        }
        assert_eq!(file.fate(false), Fate::Same);
        assert_eq!(file.append(&sealed), Ok(sealed.len()));
        server.hub.audit_written(server.now, Ok(()), 0);
    };
    let measured = rate(effort, 1, || {
        // Required: the call runs once its line is written.
        server.tell(wire, request.as_bytes());
        write(&mut server);
        assert!(server.exchange(wire, b"", br#""id":17"#));
        write(&mut server);
    });
    std::fs::remove_file(&path).expect("there");
    measured
}

fn memory_http(effort: Effort, size: usize, modern: bool) -> f64 {
    let mut server = Server::new();
    let wire = server.connect();
    let request = if modern {
        post(
            &modern_fields("echo"),
            &modern_call("echo", "17", &text(size)),
        )
    } else {
        let session = server.open_session(wire);
        post(&session, &call("echo", "17", &text(size)))
    };
    rate(effort, 1, || {
        assert!(server.exchange(wire, request.as_bytes(), br#""id":17"#));
    })
}

/// A hub in a real loop in this thread, until the client is done.
fn serve(events: &mut EventLoop, hub: &mut Hub, client: std::thread::JoinHandle<f64>) -> f64 {
    let mut tick = Tick(events.now());
    while !client.is_finished() {
        events.turn(&mut [hub, &mut tick]).expect("the loop turns");
    }
    client.join().expect("the client was served")
}

/// Wakes the loop now and then, for the end of a thread is none of its events.
struct Tick(Now);

impl Driven for Tick {
    fn handle_io(&mut self, _: Now, _: WireId, _: IoEvent<'_>) {}

    fn handle_timeout(&mut self, now: Now) {
        self.0 = now;
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        None
    }

    fn next_deadline(&self) -> Option<Deadline> {
        Some(Deadline::new(
            self.0.after(Duration::from_millis(5)),
            "tick",
        ))
    }

    fn outgoing(&mut self, _: WireId) -> Option<&mut OutBuf> {
        None
    }
}

fn hub(events: &EventLoop) -> Hub {
    Hub::new(
        config(Limits::default()),
        Box::new(Seeded::new(7)),
        events.now(),
    )
}

fn line(effort: Effort, size: usize, in_flight: usize) -> f64 {
    let mut events = EventLoop::new(&Limits::default()).expect("a loop");
    let mut hub = hub(&events);
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    let wire = hub.serve_adopted(events.now());
    events.adopt(0, wire, ours).expect("a wire");
    let in_flight = if size > 64 << 10 {
        in_flight.min(4)
    } else {
        in_flight
    };
    let request = format!("{}\n", call("echo", "17", &text(size)));
    let batch = request.repeat(in_flight).into_bytes();
    let client = std::thread::spawn(move || {
        let reader = theirs.try_clone().expect("a second handle");
        let mut answers = std::io::BufReader::with_capacity(1 << 20, reader);
        let mut answer = Vec::new();
        rate(effort, in_flight, || {
            // Written beside the reading, for both directions have their limit.
            std::thread::scope(|scope| {
                if batch.len() > 64 << 10 {
                    scope.spawn(|| (&theirs).write_all(&batch).expect("it is read"));
                } else {
                    theirs.write_all(&batch).expect("it is read");
                }
                for _ in 0..in_flight {
                    answer.clear();
                    std::io::BufRead::read_until(&mut answers, b'\n', &mut answer).expect("a line");
                    assert!(answer.starts_with(br#"{"jsonrpc":"2.0","id":17,"result""#));
                }
            });
        })
    });
    serve(&mut events, &mut hub, client)
}

fn http(effort: Effort, size: usize, in_flight: usize) -> f64 {
    let mut events = EventLoop::new(&Limits::default()).expect("a loop");
    let mut hub = hub(&events);
    let listener = hub.listen_http("127.0.0.1", 0);
    events.settle(&mut [&mut hub]);
    let port = events.local_port(0, listener).expect("a port");
    let in_flight = if size > 64 << 10 { 1 } else { in_flight };
    let request = post(
        &modern_fields("echo"),
        &modern_call("echo", "17", &text(size)),
    );
    let batch = request.repeat(in_flight).into_bytes();
    let client = std::thread::spawn(move || {
        let mut wire = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        wire.set_nodelay(true).expect("a TCP option");
        let mut buffer = vec![0; 1 << 20];
        let mut length = None;
        rate(effort, in_flight, || {
            wire.write_all(&batch).expect("it is read");
            let mut got = 0;
            while length.is_none_or(|length| got < length * in_flight) {
                let n = wire.read(&mut buffer).expect("an answer");
                assert!(n > 0, "the connection ended");
                // The first answer says how long each of them is.
                length = length.or_else(|| Some(answer_length(&buffer[..n])));
                got += n;
            }
        })
    });
    serve(&mut events, &mut hub, client)
}

/// Length of the answer whose head is here.
fn answer_length(head: &[u8]) -> usize {
    let end = memchr::memmem::find(head, b"\r\n\r\n").expect("a head") + 4;
    let text = std::str::from_utf8(&head[..end]).expect("a head is text");
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    let (_, rest) = text.split_once("Content-Length:").expect("a length");
    let length = rest.lines().next().expect("a line").trim();
    end + length.parse::<usize>().expect("a number")
}
