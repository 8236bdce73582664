//! Many calls of many sessions through one `drawspan serve`, whose upstream servers are killed at random all
//! the while: every call has exactly one answer, memory stays flat, and nothing is left behind.
//!
//! `DRAWSPAN_SOAK_CALLS=100000 cargo test --release --test soak -- --nocapture` is the long run; it prints
//! what it has counted. `DRAWSPAN_SEED` chooses other victims.
#![cfg(all(target_os = "linux", feature = "cli"))]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails with the line that could not"
)]

mod common;

#[path = "matrix/client.rs"]
#[allow(dead_code, reason = "written for the table of the span")]
mod client;
#[path = "matrix/places.rs"]
#[allow(dead_code, reason = "written for the table of the span")]
mod places;

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Sender, channel};

use drawspan::entropy::Seeded;
use drawspan::protocol::client::peer::CallFault;
use drawspan::protocol::revision::Revision;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::client::{Address, Client};
use crate::common::{Home, Process, until};
use crate::places::everything_server;

const SESSIONS: usize = 50;

/// Calls of a session that are open at once.
const OPEN: usize = 3;

/// Answers between one killing and the next.
const ANSWERS_PER_DEATH: usize = 50;

/// What memory may grow by between a fifth of the calls and the last one. A record of 100 bytes that stays for
/// each call would come to more than that in the long run.
const GROWTH_KIB: u64 = 4 * 1024;

/// Answers by what they are: `result`, or the text of an error, its numbers left out.
type Tally = BTreeMap<String, usize>;

#[test]
fn every_call_has_one_answer_whoever_dies() {
    let number = |name: &str, usual: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap(),
        Err(_) => usual,
    };
    let calls = usize::try_from(number("DRAWSPAN_SOAK_CALLS", 5_000)).unwrap();
    let seed = number("DRAWSPAN_SEED", 1);
    let home = Home::new("soak");
    let program = everything_server();
    let config = json!({
        "mcpServers": { "greeter": { "command": program } },
        // Victims come back soon, however often they die.
        "limits": { "reconnect_first_interval_ms": 5, "reconnect_most_interval_ms": 50 },
    });
    home.write("drawspan.json", &config.to_string());
    let socket = home.path("door.sock");
    let door = format!("unix:{}", socket.display());
    let args = ["serve", "--listen", "http://127.0.0.1:0", "--listen", &door];
    let (serve, url) = Process::listening(&mut home.drawspan(&args));
    let unix = || Address::Unix(socket.clone());
    let pair = Address::Sse(format!("{}/sse", url.strip_suffix("/mcp").unwrap()));
    let kinds = [
        (unix(), Revision::V2025_11_25),
        (Address::Http(url.clone()), Revision::V2026_07_28),
        (Address::Http(url), Revision::V2025_06_18),
        (unix(), Revision::V2024_11_05),
        (pair, Revision::V2025_03_26),
    ];
    let before = descriptors(&serve);

    let (ticks, answers) = channel();
    let mut killer = Killer {
        dice: Seeded::new(seed),
        serve: serve.id(),
        deaths: 0,
    };
    let mut warm = 0;
    let (tally, last) = std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let ticks = ticks.clone();
                let (address, revision) = &kinds[number % kinds.len()];
                // The first ones have one more where it does not come out even.
                let share = calls / SESSIONS + usize::from(number < calls % SESSIONS);
                scope.spawn(move || session(number, share, address, *revision, &ticks))
            })
            .collect();
        drop(ticks);
        for (count, ()) in answers.iter().enumerate() {
            if count % ANSWERS_PER_DEATH == ANSWERS_PER_DEATH - 1 {
                killer.kill_one();
            }
            if count == calls / 5 {
                warm = serve.memory_kib("VmRSS");
            }
        }
        let last = serve.memory_kib("VmRSS");
        let mut tally = Tally::new();
        for session in sessions {
            for (what, count) in session.join().unwrap() {
                *tally.entry(what).or_default() += count;
            }
        }
        (tally, last)
    });

    let deaths = killer.deaths;
    let report = format!(
        "{calls} calls, {SESSIONS} sessions, {deaths} killed (seed {seed}): {tally:#?}\n\
         resident after a fifth: {warm} KiB, at the end: {last} KiB"
    );
    say(&report);
    assert_eq!(tally.values().sum::<usize>(), calls, "{report}");
    // Each death costs the calls that were open in that session, and those that came before it was noticed.
    // How many are refused until the server is back is a question of how fast the clients are.
    let lost = |(kind, _): &(&String, &usize)| *kind != "result" && !kind.contains("retry after");
    let lost: usize = tally.iter().filter(lost).map(|(_, count)| count).sum();
    assert!(lost <= 2 * OPEN * deaths, "{report}");
    assert!(deaths >= calls / ANSWERS_PER_DEATH / 2, "{report}");
    assert!(last <= warm + GROWTH_KIB, "{report}");
    // All sessions have gone, and with them their servers; the stateless callers' one stays for a while.
    until("the servers to end", || {
        let running = children(serve.id()).len();
        (running <= 1).then_some(()).ok_or(format!("{running} run"))
    });
    until("the descriptors to be closed", || {
        let now = descriptors(&serve);
        // One server has four: its input, output, error and its guardian. One left behind for each death or
        // session would be dozens.
        (now.len() <= before.len() + 8)
            .then_some(())
            .ok_or(format!("{now:?}, {before:?} before"))
    });
    let guardians = children(serve.id());
    serve.signal(Signal::TERM);
    serve.end().expect_code(0);
    home.expect_processes(0);
    until("the guardians to end", || {
        let left = guardians
            .iter()
            .filter(|pid| children_file(**pid).is_some());
        (left.count() == 0).then_some(()).ok_or_else(String::new)
    });
    assert_eq!(home.listing(), ["drawspan.json"]);
}

#[expect(clippy::print_stderr, reason = "numbers to be written down")]
fn say(report: &str) {
    eprintln!("{report}");
}

/// Makes its calls, a few at a time; what came of them.
fn session(
    number: usize,
    calls: usize,
    address: &Address,
    revision: Revision,
    ticks: &Sender<()>,
) -> Tally {
    let mut client = Client::connect(address, revision).unwrap();
    let mut tally = Tally::new();
    let mut open = VecDeque::new();
    let mut made = 0;
    while made < calls || !open.is_empty() {
        if made < calls && open.len() < OPEN {
            let name = format!("{number}-{made}");
            let params = format!(r#"{{"name":"greet","arguments":{{"name":"{name}"}}}}"#);
            open.push_back((client.begin("tools/call", &params, false), name));
            made += 1;
            continue;
        }
        let Some((id, name)) = open.pop_front() else {
            continue;
        };
        let kind = match client.answer(id) {
            Ok(result) => {
                let text = result["content"][0]["text"].as_str().unwrap_or_default();
                match result["isError"] == true {
                    true => clear(text),
                    false => {
                        assert_eq!(
                            text,
                            format!("Hello, {name}!"),
                            "the answer of another call"
                        );
                        "result".to_owned()
                    }
                }
            }
            Err(CallFault::Remote(error)) => clear(&error.message),
            Err(fault) => panic!("session {number}: no answer, {fault:?}"),
        };
        *tally.entry(kind).or_default() += 1;
        ticks.send(()).unwrap();
    }
    client.end();
    tally
}

/// An error that says whose fault it was, with its numbers left out.
fn clear(text: &str) -> String {
    assert!(text.contains("greeter"), "what went wrong? {text:?}");
    let mut kind: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '#' } else { c })
        .collect();
    while kind.contains("##") {
        kind = kind.replace("##", "#");
    }
    kind
}

/// Ends upstream servers, and now and then the guardian of one.
struct Killer {
    dice: Seeded,
    serve: u32,
    deaths: usize,
}

impl Killer {
    fn kill_one(&mut self) {
        let guardians = children(self.serve);
        let Some(guardian) = pick(&mut self.dice, &guardians) else {
            return;
        };
        let victim = match self.dice.below(8) {
            0 => Some(guardian),
            _ => pick(&mut self.dice, &children(guardian)),
        };
        let Some(pid) = victim.and_then(|pid| Pid::from_raw(pid.try_into().unwrap())) else {
            return;
        };
        // It may have ended meanwhile; its parent has not read its end yet, or its number is not used again.
        self.deaths += usize::from(kill_process(pid, Signal::KILL).is_ok());
    }
}

fn pick(dice: &mut Seeded, all: &[u32]) -> Option<u32> {
    let count = u64::try_from(all.len()).unwrap();
    (count > 0).then(|| all[usize::try_from(dice.below(count)).unwrap()])
}

/// The processes that a process has started, in its main thread. Linux: proc(5).
fn children(parent: u32) -> Vec<u32> {
    let text = children_file(parent).unwrap_or_default();
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

fn children_file(parent: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()
}

/// What a process has open.
fn descriptors(process: &Process) -> Vec<String> {
    let open = std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap();
    let target = |entry: std::io::Result<std::fs::DirEntry>| {
        let target = std::fs::read_link(entry.ok()?.path()).ok()?;
        Some(target.display().to_string())
    };
    open.filter_map(target).collect()
}
