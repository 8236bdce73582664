//! The exchanges of an HTTP server: the first that fits a request answers it.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::log::Log;

/// What to answer, and when.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    #[serde(default)]
    when: When,
    /// Status line and fields, each with its line end; the blank line is added.
    head: String,
    #[serde(default)]
    body: Vec<String>,
    /// Add a `Content-Length`. Without it the parts of the body are written one by one.
    #[serde(default = "yes")]
    auto_length: bool,
    /// Each part of the body is one chunk.
    #[serde(default)]
    chunked: bool,
    #[serde(default)]
    chunk_ext: String,
    #[serde(default)]
    trailers: String,
    #[serde(default)]
    close: bool,
    #[serde(default)]
    hold_ms: u64,
    #[serde(default)]
    gap_ms: u64,
    /// How often it answers; then it fits nothing.
    limit: Option<usize>,
    /// Written to the stream that was opened last, after the answer.
    #[serde(default)]
    push: Vec<String>,
    /// This answer is a stream for `push`.
    #[serde(default)]
    stream: bool,
    #[serde(rename = "note")]
    _note: Option<String>,
    #[serde(rename = "expect")]
    _expect: Option<String>,
}

const fn yes() -> bool {
    true
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct When {
    verb: Option<String>,
    rpc: Option<String>,
    target: Option<String>,
    has_header: Option<String>,
    lacks_header: Option<String>,
    #[serde(default)]
    header_is: BTreeMap<String, String>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    #[allow(dead_code, reason = "the log of the program has a clock of its own")]
    pub(crate) at: Instant,
    /// Connections are counted from 0.
    pub(crate) connection: usize,
    pub(crate) verb: String,
    pub(crate) target: String,
    /// In their order; names in lower case, values without the blanks around them.
    pub(crate) fields: Vec<(String, String)>,
    /// The body as JSON; null when it is none.
    pub(crate) message: Value,
}

impl Got {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let name = name.to_ascii_lowercase();
        let found = self.fields.iter().find(|(field, _)| *field == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or("")
    }

    fn to_json(&self) -> Value {
        json!({
            "verb": self.verb,
            "target": self.target,
            "fields": self.fields,
            "got": self.message,
            "connection": self.connection,
        })
    }
}

/// A server that plays on threads until it is dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    exchanges: Vec<Exchange>,
    port: u16,
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Debug)]
struct State {
    used: Vec<usize>,
    got: Vec<Got>,
    log: Log,
    streams: Vec<TcpStream>,
    connections: Vec<TcpStream>,
    stop: bool,
}

impl Peer {
    /// Listens on a loopback port of the system's choice. `variant` is put in front of the
    /// exchanges.
    pub(crate) fn start(
        input: &Value,
        variant: Option<usize>,
        log: Log,
    ) -> Result<Self, Box<dyn Error>> {
        let mut exchanges = Vec::deserialize(&input["exchanges"])?;
        if let Some(n) = variant {
            let variant = input["variants"].get(n).ok_or("no such variant")?;
            exchanges.insert(0, Exchange::deserialize(variant)?);
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let state = State {
            used: vec![0; exchanges.len()],
            got: Vec::new(),
            log,
            streams: Vec::new(),
            connections: Vec::new(),
            stop: false,
        };
        let shared = Arc::new(Shared {
            exchanges,
            port,
            state: Mutex::new(state),
            stopped: Condvar::new(),
        });
        let acceptor = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Ok(Self {
            port,
            shared,
            acceptor: Some(acceptor),
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The requests so far.
    #[allow(dead_code, reason = "the program has its log, tests have this")]
    pub(crate) fn got(&self) -> Vec<Got> {
        self.shared.state().got.clone()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.stop = true;
        for connection in state.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(state);
        self.shared.stopped.notify_all();
        // Wakes the acceptor, which then sees that it is over.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (number, stream) in listener.incoming().enumerate() {
        let Ok(stream) = stream else { continue };
        let mut state = shared.state();
        if state.stop {
            return;
        }
        state.connections.extend(stream.try_clone());
        drop(state);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            // It ends when the client goes away, and nobody asks how.
            let _ = converse(&stream, number, &shared);
            let _ = stream.shutdown(Shutdown::Both);
        });
    }
}

fn converse(stream: &TcpStream, connection: usize, shared: &Shared) -> io::Result<()> {
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream);
    while let Some(got) = read_request(&mut reader, stream, connection)? {
        let exchange = {
            let mut state = shared.state();
            state.log.note(got.to_json());
            state.got.push(got.clone());
            shared.pick(&got, &mut state.used)
        };
        let Some(exchange) = exchange else {
            let head = b"HTTP/1.1 500 No Such Exchange\r\nContent-Length: 0\r\n\r\n";
            (&*stream).write_all(head)?;
            continue;
        };
        if exchange.stream {
            shared.state().streams.extend(stream.try_clone());
        }
        shared.answer(exchange, &got, stream)?;
        if exchange.close {
            return Ok(());
        }
    }
    Ok(())
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of another thread says nothing about this table.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn pick(&self, got: &Got, used: &mut [usize]) -> Option<&Exchange> {
        let candidates = self.exchanges.iter().zip(used);
        for (exchange, used) in candidates {
            let left = exchange.limit.is_none_or(|limit| *used < limit);
            if left && exchange.when.fits(got) {
                *used += 1;
                return Some(exchange);
            }
        }
        None
    }

    fn fill(&self, template: &str, got: &Got) -> String {
        let id = &got.message["id"];
        template
            .replace("{{id}}", &id.to_string())
            .replace("{{id_text}}", id.as_str().unwrap_or(&id.to_string()))
            .replace("{{port}}", &self.port.to_string())
    }

    fn answer(&self, exchange: &Exchange, got: &Got, mut stream: &TcpStream) -> io::Result<()> {
        let parts: Vec<String> = exchange
            .body
            .iter()
            .map(|part| self.fill(part, got))
            .collect();
        let mut head = self.fill(&exchange.head, got);
        if exchange.auto_length {
            let length: usize = parts.iter().map(String::len).sum();
            head.push_str(&format!("Content-Length: {length}\r\n"));
        }
        // A case without a head is one whose answer never begins.
        if !head.is_empty() {
            head.push_str("\r\n");
            stream.write_all(head.as_bytes())?;
        }
        if exchange.chunked {
            for part in &parts {
                let (length, extension) = (part.len(), &exchange.chunk_ext);
                write!(stream, "{length:04X}{extension}\r\n{part}\r\n")?;
            }
            write!(stream, "0\r\n{}\r\n", exchange.trailers)?;
        } else if exchange.auto_length {
            stream.write_all(parts.concat().as_bytes())?;
        } else {
            for part in &parts {
                self.pause(exchange.gap_ms);
                stream.write_all(part.as_bytes())?;
            }
        }
        for part in &exchange.push {
            let to = self.state().streams.last().map(TcpStream::try_clone);
            if let Some(to) = to {
                to?.write_all(self.fill(part, got).as_bytes())?;
            }
        }
        self.pause(exchange.hold_ms);
        Ok(())
    }

    /// Waits this long, or until the server is stopped.
    fn pause(&self, ms: u64) {
        let limit = Duration::from_millis(ms);
        let waiting = |state: &mut State| !state.stop;
        drop(
            self.stopped
                .wait_timeout_while(self.state(), limit, waiting),
        );
    }
}

impl When {
    fn fits(&self, got: &Got) -> bool {
        let equal = |want: &Option<String>, found: &str| want.as_deref().is_none_or(|w| w == found);
        let has = |name: &String| got.field(name).is_some();
        equal(&self.verb, &got.verb)
            && equal(&self.rpc, got.method())
            && equal(&self.target, &got.target)
            && self.has_header.as_ref().is_none_or(has)
            && !self.lacks_header.as_ref().is_some_and(has)
            && self
                .header_is
                .iter()
                .all(|(name, value)| got.field(name) == Some(value))
    }
}

fn read_request(
    reader: &mut BufReader<&TcpStream>,
    mut stream: &TcpStream,
    connection: usize,
) -> io::Result<Option<Got>> {
    let Some(first) = read_line(reader)? else {
        return Ok(None);
    };
    let mut words = first.split(' ').map(str::to_owned);
    let (verb, target) = (words.next(), words.next());
    let mut fields = Vec::new();
    while let Some(line) = read_line(reader)?.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut got = Got {
        at: Instant::now(),
        connection,
        verb: verb.unwrap_or_default(),
        target: target.unwrap_or_default(),
        fields,
        message: Value::Null,
    };
    let says = |name, word| {
        let value = got.field(name).unwrap_or("").to_ascii_lowercase();
        value.contains(word)
    };
    if says("expect", "100-continue") {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let mut body = Vec::new();
    if says("transfer-encoding", "chunked") {
        while let Some(line) = read_line(reader)? {
            let size = line.split(';').next().unwrap_or("").trim();
            let size = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
            reader.take(size).read_to_end(&mut body)?;
            read_line(reader)?;
            if size == 0 {
                break;
            }
        }
    } else {
        let length = got.field("content-length").unwrap_or("0").parse();
        let length = length.map_err(io::Error::other)?;
        reader.take(length).read_to_end(&mut body)?;
    }
    got.message = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Some(got))
}

/// One line without its end; `None` at the end of the connection.
fn read_line(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    if reader.read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&line);
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}
