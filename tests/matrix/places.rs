//! One upstream hop: a server with one of everything, and a real `drawspan serve` in front of it with all its
//! doors open.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use drawspan::link::ChildSpec;
use drawspan::protocol::revision::Revision;
use rustix::process::{Pid, Signal};

use crate::client::Address;
use crate::common::{
    DRAWSPAN, Home, LISTENING, PATIENCE, Process, example, running, until, until_gone,
};

/// How messages travel on one hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Transport {
    Stdio,
    Http,
    Sse,
    Unix,
}

impl Transport {
    pub(crate) const ALL: [Self; 4] = [Self::Stdio, Self::Http, Self::Sse, Self::Unix];

    /// Whether messages of a revision can travel so: the pair of 2024-11-05 has no place for what a request
    /// of 2026-07-28 says in headers, and that revision does not know the pair.
    pub(crate) fn carries(self, revision: Revision) -> bool {
        match self {
            Self::Stdio | Self::Http | Self::Unix => true,
            Self::Sse => !revision.is_stateless(),
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "HTTP",
            Self::Sse => "SSE",
            Self::Unix => "unix",
        }
    }
}

/// See the module page.
pub(crate) struct Place {
    home: Home,
    server: Option<Process>,
    serve: Process,
    /// How `drawspan serve` is told of the upstream server.
    target: Vec<String>,
    url: String,
    socket: PathBuf,
}

impl Place {
    /// Starts both programs. `drawspan` speaks `revision` to the server, and nothing else.
    pub(crate) fn new(revision: Revision, transport: Transport) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("matrix-{number}-{revision}-{}", transport.name());
        let home = Home::new(&name);
        let program = everything_server();
        let listen = ["--listen", "http://127.0.0.1:0/mcp"];
        let (server, target) = match transport {
            Transport::Stdio => {
                // Under a name of its own, which its guardian has among its arguments.
                let own = home.path("server");
                std::os::unix::fs::symlink(&program, &own).unwrap();
                (
                    None,
                    vec!["--".to_owned(), own.to_str().unwrap().to_owned()],
                )
            }
            Transport::Http => {
                let (server, url) = Process::listening(&mut home.program(&program, &listen));
                let transport = ["--transport", "http"].map(str::to_owned);
                (Some(server), [&transport[..], &[url]].concat())
            }
            Transport::Sse => {
                let (server, url) = Process::listening(&mut home.program(&program, &listen));
                let transport = ["--transport", "sse"].map(str::to_owned);
                (Some(server), [&transport[..], &[older(&url)]].concat())
            }
            Transport::Unix => {
                let address = format!("unix:{}", home.path("server.sock").display());
                let mut server =
                    Process::start(&mut home.program(&program, &["--listen", &address]));
                // Whoever connects before it listens is told so: wait for the file.
                drop(server.stdin.take());
                let path = home.path("server.sock");
                until("the server's socket", || {
                    path.exists().then_some(()).ok_or_else(String::new)
                });
                (Some(server), vec![address])
            }
        };
        let protocol = ["serve", "--protocol", revision.as_str()].map(str::to_owned);
        let target = [&protocol[..], &target].concat();
        let socket = home.path("door.sock");
        let door = format!("unix:{}", socket.display());
        let mut args = vec!["serve", "--listen", "http://127.0.0.1:0", "--listen", &door];
        args.extend(target[1..].iter().map(String::as_str));
        let (serve, url) = Process::listening(&mut home.drawspan(&args));
        Self {
            home,
            server,
            serve,
            target,
            url,
            socket,
        }
    }

    /// Where clients find it.
    pub(crate) fn address(&self, transport: Transport) -> Address {
        match transport {
            Transport::Stdio => Address::Stdio(self.own()),
            Transport::Http => Address::Http(self.url.clone()),
            Transport::Sse => Address::Sse(older(&self.url)),
            Transport::Unix => Address::Unix(self.socket.clone()),
        }
    }

    /// A `drawspan serve` of the client's own, on stdin and stdout.
    fn own(&self) -> ChildSpec {
        let home = self.home.dir().to_str().unwrap().to_owned();
        let path = std::env::var("PATH").unwrap();
        let env = [
            ("HOME", home.clone()),
            ("TMPDIR", home.clone()),
            ("PATH", path),
        ];
        ChildSpec {
            program: DRAWSPAN.to_owned(),
            args: self.target.clone(),
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
            cwd: Some(home.into()),
        }
    }

    /// Ends everything; what it said, and nothing of it is left.
    pub(crate) fn end(mut self) -> Vec<String> {
        self.serve.signal(Signal::TERM);
        let finished = self.serve.end();
        if let Some(server) = self.server.take() {
            server.signal(Signal::TERM);
            server.end().expect_code(0);
        }
        self.home.expect_processes(0);
        let home = self.home.path("").to_str().unwrap().to_owned();
        until_gone(PATIENCE, || mentioning(&home));
        let mut left = self.home.listing();
        left.retain(|name| name != "server");
        assert_eq!(left, Vec::<String>::new(), "files were left");
        let mut said = finished.expect_code(0).stderr;
        said.retain(|line| !line.starts_with(LISTENING));
        said
    }
}

/// Processes whose arguments hold this.
fn mentioning(word: &str) -> Vec<(Pid, String)> {
    running(|_, arguments| {
        let mut arguments = arguments.iter();
        arguments.any(|argument| String::from_utf8_lossy(argument).contains(word))
    })
}

/// The older pair of the same listener.
pub(crate) fn older(url: &str) -> String {
    format!("{}/sse", url.strip_suffix("/mcp").unwrap())
}

/// The server of all places.
pub(crate) fn everything_server() -> String {
    example("everything_server")
}
