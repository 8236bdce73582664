//! `serve --listen http://…`: the HTTP door of the real program.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::world::{EMBEDDED, Home, PATIENCE, Process, expect_words};

/// `drawspan serve` with its embedded Gateway on a port of the system's choice, and where that is.
#[track_caller]
pub(crate) fn serve(home: &Home, host: &str, more: &[&str]) -> (Process, String) {
    let listen = format!("http://{host}:0");
    let args = [&EMBEDDED[..], &["--listen", &listen], more].concat();
    let mut serve = Process::start(&mut home.drawspan(&args));
    let line = serve.stderr.expect("the address");
    let url = line.strip_prefix("listening on ");
    let url = url.unwrap_or_else(|| panic!("no address: {line}"));
    let address = url
        .strip_prefix("http://")
        .and_then(|url| url.strip_suffix("/mcp"));
    let address = address.unwrap_or_else(|| panic!("not the URL of the endpoint: {url}"));
    let start = format!("{host}:");
    assert!(
        address.starts_with(&start) && !address.ends_with(":0"),
        "{address}"
    );
    (serve, address.to_owned())
}

/// One connection to the program.
pub(crate) struct Client {
    address: String,
    pub(crate) stream: TcpStream,
}

impl Client {
    #[track_caller]
    pub(crate) fn new(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let address = address.to_owned();
        Self { address, stream }
    }

    pub(crate) fn send(&mut self, headers: &str, body: &str) {
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        // One that is turned away may be told so before it has said anything.
        let _ = self.stream.write_all(request.as_bytes());
    }

    /// The next answer, head and body.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> String {
        let mut seen = Vec::new();
        let mut byte = [0];
        while !seen.ends_with(b"\r\n\r\n") {
            let read = self.stream.read(&mut byte).unwrap();
            assert_eq!(read, 1, "cut off in {}", String::from_utf8_lossy(&seen));
            seen.push(byte[0]);
        }
        let head = String::from_utf8(seen).unwrap();
        let length = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length:")
                    .map(str::to_owned)
            })
            .map_or(0, |length| length.trim().parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        head + &String::from_utf8(body).unwrap()
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, headers: &str, body: &str) -> String {
        self.send(headers, body);
        self.answer()
    }
}

/// `initialize` of a handshake client.
pub(crate) const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"tester","version":"1"}}}"#,
);

#[test]
fn port_0_is_one_that_the_system_chose_and_stderr_tells() {
    let home = Home::new("http-port-0");
    for host in ["127.0.0.1", "[::1]"] {
        // A machine without IPv6 cannot show the brackets.
        if std::net::TcpListener::bind((host.trim_matches(['[', ']']), 0)).is_err() {
            continue;
        }
        let (serve, address) = serve(&home, host, &[]);
        let answer = Client::new(&address).ask("", INITIALIZE);
        expect_words(&answer, &["200 OK", "\"protocolVersion\":\"2025-11-25\""]);
        serve.signal(rustix::process::Signal::TERM);
        serve.finish().expect_code(0);
    }
}
