//! Every way to a tool goes through the gate: each door in front, each kind of tool behind. A refused call is
//! run by nobody and its caller is told why; arguments that the hook gives are what is run; a call that may pass
//! is run once.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use drawspan::bridge::ChannelMode;
use drawspan::gateway::endpoint::Credentials;
use drawspan::gateway::identity::DeviceIdentity;
use drawspan::gateway::session::SessionConfig;
use drawspan::hub::{
    GatewayConfig, HookConfig, Hub, HubConfig, HubEvent, HubPolicy, LocalConfig, ServerIdentity,
    UpstreamConfig,
};
use drawspan::io::EventLoop;
use drawspan::io::system::OsEntropy;
use drawspan::limits::Limits;
use drawspan::link::ChildSpec;
use drawspan::link::websocket::ConnectSpec;
use drawspan::local::{LocalReply, Registry, Tool};
use drawspan::manager::Prefix;
use drawspan::manager::entry::{read_plugins, read_servers};
use drawspan::secret::Secret;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::servers::Shop;
use crate::http::{Client as HttpClient, INITIALIZE};
use crate::world::{Gateway, HELLO, Home, PATIENCE, Process, TOKEN, expect_words, text, until};

/// Says what the text of the arguments asks for.
const HOOK: &str = r#"
    input=$(cat)
    cell=${input#*cell<}; cell=${cell%%>*}
    case "$input" in
        *'"text":"block '*) echo '{"block":true,"blockReason":"not today: '$cell'"}' ;;
        *'"text":"change '*)
            echo '{"params":{"session_key":"agent:main:main", "text":"changed cell<'$cell'>", "n":2.50}}' ;;
        *) echo '{}' ;;
    esac
"#;

/// What keeps a record of who ran, a line each.
const RAN: &str = "ran";

/// A call as a client makes it, or its arguments after the gate.
fn arguments(text: &str, cell: &str, n: &str) -> String {
    format!(r#"{{"session_key":"agent:main:main", "text":"{text} cell<{cell}>", "n":{n}}}"#)
}

fn record(path: &Path, out: &str, arguments: &str) {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path);
    writeln!(file.unwrap(), "{out} {arguments}").unwrap();
}

/// One way in: calls a tool and gives the result.
type Way<'a> = Box<dyn FnMut(&str, &str) -> Value + 'a>;

/// What is behind the gate, by the name of the tool. The first word of a record is the first of the pair.
const CHANNEL: (&str, &str) = ("channel", "messages_send");
const COMMAND: (&str, &str) = ("command", "command");
const CLOSURE: (&str, &str) = ("closure", "closure");
const PROGRAM: (&str, &str) = ("program", "program");
const STDIO: (&str, &str) = ("stdio", "stdio__echo");
const HTTP: (&str, &str) = ("http", "http__echo");

struct World {
    shop: Shop,
    gateway: Gateway,
    /// The server behind HTTP, and its URL.
    far: Process,
    far_url: String,
}

impl World {
    fn new() -> Self {
        let shop = Shop::new("gate-routes")
            .with(
                "TOOLS",
                r#"[{"name":"echo","inputSchema":{"type":"object"}}]"#,
            )
            .with("RESULT", r#"{"content":[{"type":"text","text":"ran"}]}"#)
            .with("CALL", r#"printf '%s %s\n' "$1" "$line" >> ran"#);
        shop.home.write("hook.sh", HOOK);
        let gateway = shop.home.gateway();
        let post = ["gateway", "post", "--store", "store", "hello"];
        shop.home.run(&post).expect_code(0);
        let mut command = shop
            .home
            .drawspan(&["serve", "--listen", "http://127.0.0.1:0"]);
        for (name, value) in shop.entry()["env"].as_object().unwrap() {
            command.args(["-e", &format!("{name}={}", value.as_str().unwrap())]);
        }
        command.args(["--", "./server", "http"]);
        Self {
            far: Process::start(&mut command),
            far_url: String::new(),
            gateway,
            shop,
        }
    }

    fn home(&self) -> &Home {
        &self.shop.home
    }

    fn servers(&self) -> Value {
        let mut near = self.shop.entry();
        near["args"] = json!(["stdio"]);
        near["cwd"] = json!(self.home().path(""));
        json!({"stdio": near, "http": {"url": self.far_url}})
    }

    fn commands(&self) -> Value {
        let script = r#"printf 'command %s\n' "$(cat)" >> ran; echo ran"#;
        json!({"command": {"command": ["sh", "-c", script], "cwd": self.home().path("")}})
    }

    /// Everything that ran, messages that arrived at the Gateway included.
    fn ran(&self, way: &mut Way<'_>) -> Vec<String> {
        let ran = std::fs::read_to_string(self.home().path(RAN)).unwrap_or_default();
        let mut ran: Vec<String> = ran.lines().map(str::to_owned).collect();
        let read = r#"{"session_key":"agent:main:main","limit":200}"#;
        let result = way("messages_read", read);
        for message in result["structuredContent"]["messages"]
            .as_array()
            .into_iter()
            .flatten()
        {
            ran.push(format!("channel {message}"));
        }
        ran
    }

    /// Every verdict for every tool behind one door.
    fn walk(&self, door: &str, outs: &[(&str, &str)], mut way: Way<'_>) {
        for (out, tool) in outs {
            let cell = |verdict: &str| format!("{door}-{out}-{verdict}");
            for verdict in ["block", "change", "pass"] {
                let result = way(tool, &arguments(verdict, &cell(verdict), "1.0"));
                let name = cell(verdict);
                assert_eq!(
                    result["isError"] == true,
                    verdict == "block",
                    "{name}: {result}"
                );
                if verdict == "block" {
                    expect_words(text(&result), &["not today", &name]);
                }
            }
            let ran = self.ran(&mut way);
            let of = |verdict: &str| -> Vec<&String> {
                let cell = format!("cell<{}>", cell(verdict));
                ran.iter().filter(|line| line.contains(&cell)).collect()
            };
            assert_eq!(
                of("block"),
                Vec::<&String>::new(),
                "{door} {out}: a refused call ran"
            );
            for (verdict, word, n) in [("change", "changed", "2.50"), ("pass", "pass", "1.0")] {
                let of = of(verdict);
                assert_eq!(of.len(), 1, "{door} {out} {verdict}: {of:?}");
                let exact = arguments(word, &cell(verdict), n);
                let expected = match *out {
                    // The Gateway is told the text and nothing that it does not know.
                    "channel" => format!("{word} cell<{}>", cell(verdict)),
                    "stdio" | "http" => format!(r#""arguments":{exact}"#),
                    _ => format!("{out} {exact}"),
                };
                assert!(of[0].starts_with(out), "{of:?}");
                assert!(of[0].contains(&expected), "{expected}\nin {of:?}");
            }
        }
    }
}

#[test]
fn every_way_in_and_every_way_out_passes_the_gate() {
    let mut world = World::new();
    world.far_url = world.far.listens();
    the_program(&world);
    an_embedding_program(&world);
}

/// The program: stdin, sockets and HTTP are doors of one hub.
fn the_program(world: &World) {
    let config = json!({
        "mcpServers": world.servers(),
        "pluginTools": world.commands(),
        "hooks": {"beforeToolCall": {"command": ["sh", "hook.sh"], "timeoutMs": 30_000}},
        "limits": {"stream_start_interval_ms": 60_000},
    });
    let home = world.home();
    home.write("all.json", &config.to_string());
    let gateway = ["--gateway", &world.gateway.url, "--token-file", "token"];
    let doors = [
        "--listen",
        "stdio",
        "--listen",
        "unix:all.sock",
        "--listen",
        "http://127.0.0.1:0",
    ];
    let args = [&["serve", "--config", "all.json"][..], &gateway, &doors].concat();
    let mut serve = Process::start(&mut home.drawspan(&args));
    let address = serve.address();
    serve.meet();
    let outs = [CHANNEL, COMMAND, STDIO, HTTP];
    let socket = home.path("all.sock");
    world.walk("unix", &outs, lines(UnixStream::connect(socket).unwrap()));
    world.walk("session", &outs, session(&address));
    world.walk("stateless", &outs, stateless(&address));
    world.walk("sse", &outs, sse_pair(&address));
    world.walk(
        "stdin",
        &outs,
        Box::new(|tool, arguments| serve.call(tool, arguments)),
    );
    serve.signal(Signal::TERM);
    serve.finish().expect_code(0);
}

/// A client on a line wire.
fn lines(mut stream: UnixStream) -> Way<'static> {
    writeln!(stream, "{HELLO}").unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut id = 0;
    Box::new(move |tool, arguments| {
        id += 1;
        writeln!(stream, "{}", call(id, tool, arguments, "")).unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(reader.read_line(&mut line).unwrap(), 0, "no answer");
            let mut message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message["result"].take();
            }
        }
    })
}

fn call(id: u64, tool: &str, arguments: &str, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{meta}"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

/// The result in an answer over HTTP.
fn result_of(answer: &str) -> Value {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    let mut message: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"));
    message["result"].take()
}

/// A client of the handshake era over HTTP.
fn session(address: &str) -> Way<'static> {
    let mut client = HttpClient::new(address);
    let answer = client.ask("", INITIALIZE);
    let id = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("mcp-session-id").then_some(value)
    });
    let headers = format!(
        "Mcp-Session-Id: {}\r\nMCP-Protocol-Version: 2025-11-25\r\n",
        id.unwrap()
    );
    Box::new(move |tool, arguments| result_of(&client.ask(&headers, &call(1, tool, arguments, ""))))
}

/// A stateless client.
fn stateless(address: &str) -> Way<'static> {
    const META: &str = concat!(
        r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
        r#""io.modelcontextprotocol/clientCapabilities":{}},"#
    );
    let mut client = HttpClient::new(address);
    Box::new(move |tool, arguments| {
        let headers = format!(
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
        );
        result_of(&client.ask(&headers, &call(1, tool, arguments, META)))
    })
}

/// A client of the two endpoints of 2024-11-05.
fn sse_pair(address: &str) -> Way<'static> {
    let address = address.to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET /sse HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n\r\n"
    )
    .unwrap();
    let mut reader = BufReader::new(stream);
    // Each event is one line of data in one chunk.
    let mut data = move || loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "the stream ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return data.trim_end().to_owned();
        }
    };
    let path = data();
    assert!(path.starts_with("/messages"), "{path}");
    let post = move |body: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut status = String::new();
        BufReader::new(stream).read_line(&mut status).unwrap();
        assert!(status.starts_with("HTTP/1.1 202"), "{status}");
    };
    post(&INITIALIZE.replace("2025-11-25", "2024-11-05"));
    expect_words(&data(), &[r#""protocolVersion":"2024-11-05""#]);
    post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let mut id = 0;
    Box::new(move |tool, arguments| {
        id += 1;
        post(&call(id, tool, arguments, ""));
        loop {
            let mut message: Value = serde_json::from_str(&data()).unwrap();
            if message["id"] == id {
                return message["result"].take();
            }
        }
    })
}

/// A program that uses the library: a client of its own, doors, and tools that it answers itself.
fn an_embedding_program(world: &World) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let program = Program::start(world, theirs);
    let outs = [CHANNEL, COMMAND, CLOSURE, PROGRAM, STDIO, HTTP];
    let mut way = lines(ours);
    until("the Gateway", || match way("conversations_list", "{}") {
        result if result["isError"] == true => Err(result.to_string()),
        _ => Ok(()),
    });
    world.walk("embedded", &outs, way);
    let answered = [CLOSURE, PROGRAM];
    world.walk(
        "embedded-unix",
        &answered,
        lines(UnixStream::connect(&program.socket).unwrap()),
    );
    world.walk("embedded-session", &answered, session(&program.address));
    world.walk("embedded-stateless", &answered, stateless(&program.address));
    world.walk("embedded-sse", &answered, sse_pair(&program.address));
    program.stop();
}

struct Program {
    thread: JoinHandle<()>,
    stopped: Arc<AtomicBool>,
    address: String,
    socket: PathBuf,
}

impl Program {
    fn start(world: &World, client: UnixStream) -> Self {
        let home = world.home().path("");
        let socket = world.home().path("embedded.sock");
        let config = Setup {
            servers: world.servers(),
            commands: world.commands(),
            gateway: world.gateway.url.clone(),
            home,
        };
        let stopped = Arc::new(AtomicBool::new(false));
        let (told, port) = channel();
        let (stop, path) = (stopped.clone(), socket.clone());
        let thread = std::thread::spawn(move || {
            let mut events = EventLoop::new(&Limits::default()).unwrap();
            let now = events.now();
            let ran = config.home.join(RAN);
            let mut hub = Hub::new(config.hub(), Box::new(OsEntropy::new()), now);
            let listener = hub.listen_http("127.0.0.1", 0);
            hub.listen_unix(path);
            let wire = hub.serve_adopted(now);
            events.adopt(0, wire, client).unwrap();
            events.settle(&mut [&mut hub]);
            told.send(events.local_port(0, listener).unwrap()).unwrap();
            loop {
                events.turn(&mut [&mut hub]).unwrap();
                let now = events.now();
                while let Some(event) = hub.poll_event() {
                    if let HubEvent::Local(request) = event {
                        record(&ran, request.kind.name(), request.kind.arguments());
                        hub.resolve_local(now, request.call, LocalReply::text("ran"));
                    } else if let HubEvent::Finished(_) = event {
                        return;
                    }
                }
                if stop.swap(false, Ordering::Relaxed) {
                    hub.shutdown(now);
                }
                events.settle(&mut [&mut hub]);
            }
        });
        let port = port.recv_timeout(PATIENCE).unwrap();
        Self {
            thread,
            stopped,
            address: format!("127.0.0.1:{port}"),
            socket,
        }
    }

    fn stop(self) {
        self.stopped.store(true, Ordering::Relaxed);
        // It looks after each turn.
        drop(UnixStream::connect(&self.socket));
        self.thread.join().unwrap();
    }
}

struct Setup {
    servers: Value,
    commands: Value,
    gateway: String,
    home: PathBuf,
}

impl Setup {
    fn hub(self) -> HubConfig {
        let path = std::env::var("PATH").unwrap();
        let home = self.home.to_str().unwrap().to_owned();
        let env = [("PATH".to_owned(), path), ("HOME".to_owned(), home)];
        let limits = Limits {
            stream_start_interval: PATIENCE,
            ..Limits::default()
        };
        let entries = |map: &Value| -> Vec<(String, String)> {
            let entries = map.as_object().unwrap().iter();
            entries
                .map(|(name, entry)| (name.clone(), entry.to_string()))
                .collect()
        };
        let ours = BTreeMap::from(env.clone());
        let servers = read_servers(&entries(&self.servers), &ours, &limits);
        let plugins = read_plugins(&entries(&self.commands), &ours, &limits);
        let hook = ChildSpec {
            program: "sh".to_owned(),
            args: vec!["hook.sh".to_owned()],
            env: env.to_vec(),
            cwd: Some(self.home.clone()),
        };
        let ran = self.home.join(RAN);
        let mut registry = Registry::new();
        let anything = r#"{"type":"object"}"#;
        let closure = Tool::new("closure", "", anything).answered_with(move |arguments| {
            record(&ran, "closure", arguments);
            Ok("ran".to_owned())
        });
        registry.add_tool(closure).unwrap();
        registry
            .add_tool(Tool::new("program", "", anything))
            .unwrap();
        HubConfig {
            identity: ServerIdentity::bridge(),
            gateway: Some(gateway(&self.gateway, &limits)),
            local: Some(LocalConfig {
                registry,
                state_key: [1; 32],
            }),
            plugins: plugins
                .into_iter()
                .map(|one| one.outcome.unwrap())
                .collect(),
            upstream: Some(UpstreamConfig {
                servers: servers
                    .into_iter()
                    .map(|one| one.outcome.unwrap())
                    .collect(),
                prefix: Prefix::Auto,
            }),
            channel_mode: ChannelMode::Off,
            policy: HubPolicy::Hook(HookConfig {
                command: hook,
                timeout: Some(PATIENCE),
            }),
            limits,
            ..HubConfig::default()
        }
    }
}

fn gateway(url: &str, limits: &Limits) -> GatewayConfig {
    let (host, port) = url.strip_prefix("ws://").unwrap().split_once(':').unwrap();
    GatewayConfig {
        connect: ConnectSpec {
            host: host.to_owned(),
            port: port.trim_end_matches('/').parse().unwrap(),
            path: "/".to_owned(),
            tls: None,
        },
        session: SessionConfig {
            url_for_log: url.to_owned(),
            loopback: true,
            identity: DeviceIdentity::generate(&mut OsEntropy::new()),
            credentials: Credentials {
                token: Some(Secret::new(TOKEN.to_owned())),
                password: None,
            },
            stored_token: None,
            platform: "linux",
            limits: limits.clone(),
        },
    }
}
