//! What many upstream servers cost: connecting to twenty, one call more, five thousand tools, a server that
//! was killed, memory of each while nobody uses it. Prints one line for each.
//!
//! ```sh
//! cargo bench --bench upstreams
//! ```
//!
//! The servers are this program itself, or `sh` where many of them are to lie idle. Guardians are on, as in
//! `drawspan`.

#![expect(clippy::print_stdout, reason = "a program that prints numbers")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use drawspan::gate::{Gate, Passage, Policy, ToolCall};
use drawspan::ids::{CallId, RuntimeId, TicketId, WireId};
use drawspan::io::EventLoop;
use drawspan::io::system::OsEntropy;
use drawspan::limits::Limits;
use drawspan::manager::entry::read_servers;
use drawspan::manager::{Manager, ManagerOutput, Options, Prefix, Settings};

/// A server in a few lines of shell, as small as a process gets.
const SHELL: &str = r#"while read -r line; do
  id=${line#*\"id\":}; id=${id%%[,\}]*}
  case $line in
    *\"initialize\"*) r='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *\"tools/list\"*) r='{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}' ;;
    *\"server/discover\"*) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"no\"}}"; continue ;;
    *) continue ;;
  esac
  echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$r}"
done"#;

const CALLS: usize = 5_000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        #[cfg(target_os = "linux")]
        Some("guard") => return drawspan::io::guardian_process::run().into(),
        Some("server") => {
            let number = |at: usize| args.get(at).and_then(|n| n.parse().ok()).unwrap_or(0);
            serve(number(2), number(3));
        }
        Some("idle") => lie_idle(args.get(2).and_then(|n| n.parse().ok()).unwrap_or(0)),
        _ => measure(),
    }
    ExitCode::SUCCESS
}

/// A server that takes `delay` milliseconds for its handshake and has so many tools.
fn serve(delay: usize, tools: usize) {
    let entry = |n: usize| {
        format!(
            r#"{{"name":"tool_{n}","description":"What tool number {n} does, in a sentence as long as they are.","inputSchema":{{"type":"object","properties":{{"path":{{"type":"string"}},"count":{{"type":"integer"}}}},"required":["path"]}}}}"#
        )
    };
    let list: Vec<String> = (0..tools.max(1)).map(entry).collect();
    let list = format!(r#"{{"tools":[{}]}}"#, list.join(","));
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let Some(id) = line.split(r#""id":"#).nth(1) else {
            continue;
        };
        let id: String = id.chars().take_while(char::is_ascii_digit).collect();
        let is = |method: &str| line.contains(&format!(r#""method":"{method}""#));
        let result = if is("initialize") {
            std::thread::sleep(Duration::from_millis(delay as u64));
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#
        } else if is("tools/list") {
            &list
        } else if is("tools/call") {
            r#"{"content":[{"type":"text","text":"ok"}]}"#
        } else {
            let error = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no"}}}}"#
            );
            let _ = writeln!(out, "{error}").and_then(|()| out.flush());
            continue;
        };
        let _ = writeln!(out, r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
            .and_then(|()| out.flush());
    }
}

struct Client {
    events: EventLoop,
    manager: Manager,
    gate: Gate,
    runtime: RuntimeId,
}

impl Client {
    fn new(servers: &[(String, String)]) -> Self {
        let limits = Limits::default();
        let mut events = EventLoop::new(&limits).expect("a loop");
        events.set_guardian("/proc/self/exe", vec!["guard".to_owned()]);
        let settings = Settings {
            identity: r#"{"name":"bench","version":"1"}"#.to_owned(),
            capabilities: "{}".to_owned(),
            limits: limits.clone(),
        };
        let mut manager = Manager::new(settings, Box::new(OsEntropy::new()), WireId(1));
        let env = std::env::vars().collect();
        let records = read_servers(servers, &env, &limits);
        let records = records
            .into_iter()
            .map(|one| one.outcome.expect("a record"));
        let now = events.now();
        manager.set_servers(now, records.collect());
        let runtime = manager.open_runtime(now, Prefix::Always).expect("room");
        Self {
            events,
            manager,
            gate: Gate::new(Policy::Open, &limits),
            runtime,
        }
    }

    fn connect(&mut self) -> Duration {
        let began = Instant::now();
        self.manager.connect(self.events.now(), self.runtime);
        while !self.manager.is_settled(self.runtime) {
            self.turn();
        }
        began.elapsed()
    }

    fn turn(&mut self) {
        self.events.turn(&mut [&mut self.manager]).expect("a turn");
    }

    fn call(&mut self, tool: &str) -> (TicketId, bool) {
        let call = ToolCall {
            id: CallId(1),
            tool: tool.into(),
            arguments: r#"{"path":"a"}"#.into(),
            caller: "bench".into(),
            wants_progress: false,
            ..ToolCall::default()
        };
        let Passage::Open(call) = self.gate.admit(self.events.now(), call) else {
            unreachable!("the gate is open");
        };
        let now = self.events.now();
        let ticket = self
            .manager
            .call(now, self.runtime, call, Options::default());
        loop {
            while let Some(output) = self.manager.poll_output() {
                if let ManagerOutput::Answer {
                    ticket: of,
                    outcome,
                } = output
                {
                    if of == ticket {
                        return (ticket, outcome.is_ok());
                    }
                }
            }
            self.turn();
        }
    }

    fn end(mut self) {
        self.manager.close(self.events.now());
        while !self.manager.is_gone() {
            self.turn();
        }
    }
}

fn own(name: &str, delay: usize, tools: usize) -> (String, String) {
    let entry = format!(
        r#"{{"command":"/proc/{}/exe","args":["server","{delay}","{tools}"]}}"#,
        std::process::id()
    );
    (name.to_owned(), entry)
}

fn p50(mut of: Vec<Duration>) -> Duration {
    of.sort();
    of[of.len() / 2]
}

fn measure() {
    let twenty: Vec<_> = (0..20)
        .map(|n| own(&format!("s{n:02}"), if n == 7 { 1_000 } else { 0 }, 10))
        .collect();
    let mut client = Client::new(&twenty);
    let all = client.connect();
    client.end();
    let mut client = Client::new(&twenty[7..8]);
    let slowest = client.connect();
    client.end();
    println!("20 servers, one of them slow by 1 s: {all:.3?}; that one alone: {slowest:.3?}");

    let mut client = Client::new(&[own("s", 0, 1)]);
    client.connect();
    client.call("s__tool_0");
    let through: Vec<Duration> = (0..CALLS)
        .map(|_| {
            let began = Instant::now();
            assert!(client.call("s__tool_0").1);
            began.elapsed()
        })
        .collect();
    client.end();
    let (through, raw) = (p50(through), p50(raw()));
    println!("one call more, p50 of {CALLS}: {through:.1?}; the pipe alone: {raw:.1?}");

    let before = memory("self", "VmRSS:");
    let mut client = Client::new(&[own("s", 0, 5_000)]);
    let took = client.connect();
    let tools = client
        .manager
        .catalog(client.runtime)
        .map_or(0, |all| all.tools().count());
    let after = memory("self", "VmRSS:");
    println!(
        "{tools} tools: {took:.1?}, {} KiB more resident",
        after.saturating_sub(before)
    );
    client.end();

    recovery();
    idle();
}

/// The same request to the same server over two pipes, blocking.
fn raw() -> Vec<Duration> {
    let mut child = Command::new("/proc/self/exe")
        .args(["server", "0", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a server");
    let mut input = child.stdin.take().expect("a pipe");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    let times = (0..CALLS)
        .map(|id| {
            let began = Instant::now();
            let request = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"tool_0\",\"arguments\":{{\"path\":\"a\"}}}}}}\n"
            );
            input.write_all(request.as_bytes()).expect("it reads");
            line.clear();
            output.read_line(&mut line).expect("it answers");
            began.elapsed()
        })
        .collect();
    drop(input);
    let _ = child.wait();
    times
}

/// From `kill -9` of a server to the answer of the next call.
fn recovery() {
    let mut client = Client::new(&[own("s", 0, 1)]);
    client.connect();
    let mut times = Vec::new();
    for _ in 0..3 {
        // Good service, so that each death is the first.
        let until = Instant::now() + Duration::from_secs(11);
        while Instant::now() < until {
            client.call("s__tool_0");
            std::thread::sleep(Duration::from_millis(100));
        }
        let pid = server_of(std::process::id()).expect("a server");
        let began = Instant::now();
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        while !client.call("s__tool_0").1 {}
        times.push(began.elapsed());
    }
    client.end();
    println!(
        "kill -9 of a server to the next answer, p50 of 3: {:.1?}",
        p50(times)
    );
}

/// The process that runs as `server` below this one; its guardian stands between.
fn server_of(ancestor: u32) -> Option<u32> {
    let mut below = vec![ancestor];
    while let Some(pid) = below.pop() {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(path).ok()?;
        for child in children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
        {
            let line = std::fs::read(format!("/proc/{child}/cmdline")).ok()?;
            let mut words = line.split(|byte| *byte == 0);
            if words.nth(1) == Some(b"server") {
                return Some(child);
            }
            below.push(child);
        }
    }
    None
}

/// Memory with so many servers connected, in processes of their own, or one would warm up the next.
fn idle() {
    let mut none = 0;
    for count in [0_usize, 10, 50] {
        let output = Command::new("/proc/self/exe")
            .args(["idle", &count.to_string()])
            .output();
        let text = String::from_utf8_lossy(&output.expect("it runs").stdout).into_owned();
        let numbers: Vec<usize> = text
            .split_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect();
        let [rss, guards, pss] = numbers.as_slice() else {
            continue;
        };
        if count == 0 {
            none = *rss;
        }
        let each = rss.saturating_sub(none) / count.max(1);
        println!(
            "{count} idle servers: {rss} KiB resident, {each} KiB each; guardians: {guards} of {pss} KiB (PSS)"
        );
    }
}

/// Prints memory in use, the number of guardians, and the memory of one.
fn lie_idle(count: usize) {
    let servers: Vec<_> = (0..count)
        .map(|n| {
            let script = format!("{SHELL:?}");
            let entry = format!(r#"{{"command":"sh","args":["-c",{script}]}}"#);
            (format!("s{n}"), entry)
        })
        .collect();
    let mut client = Client::new(&servers);
    client.connect();
    while client.manager.poll_output().is_some() {}
    let guards: Vec<usize> = children(std::process::id())
        .iter()
        .map(|pid| memory_in(&format!("/proc/{pid}/smaps_rollup"), "Pss:"))
        .collect();
    let pss = guards.iter().sum::<usize>() / guards.len().max(1);
    println!("{} {} {pss}", memory("self", "VmRSS:"), guards.len());
    client.end();
}

fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    let children = children.split_whitespace();
    children.filter_map(|pid| pid.parse().ok()).collect()
}

fn memory(pid: &str, name: &str) -> usize {
    memory_in(&format!("/proc/{pid}/status"), name)
}

/// KiB.
fn memory_in(path: &str, name: &str) -> usize {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|n| n.parse().ok()).unwrap_or(0)
}
