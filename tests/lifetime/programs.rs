//! Every way a program with a loop can end. The program is this test again, with only [`helper`] in it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use drawspan::limits::Limits;
use rustix::process::{Pid, Signal, kill_process};

use crate::census::Census;
use crate::host::Host;
use crate::servers::{DAEMON, IGNORES_EOF, IGNORES_TERM, OBEDIENT};

/// The census of a helper, and how it is going to end.
const WORD: &str = "DRAWSPAN_LIFETIME_WORD";
const DEATH: &str = "DRAWSPAN_LIFETIME_DEATH";

/// What a helper starts: more than nine processes, not counting those that come and go.
fn servers() -> [String; 4] {
    [
        OBEDIENT.to_owned(),
        IGNORES_EOF.to_owned(),
        format!("{DAEMON} {IGNORES_TERM}"),
        format!("{DAEMON} echo '\"ready\"'; cat >/dev/null"),
    ]
}

#[test]
#[ignore = "the other tests of this file run it, as a process of its own"]
fn helper() {
    let Ok(word) = std::env::var(WORD) else {
        return;
    };
    let death = std::env::var(DEATH).unwrap();
    let mut host = Host::with(Census::known(word), &Limits::DEFAULT);
    host.events.watch_signals().unwrap();
    for script in servers() {
        host.start(&script);
    }
    host.until_ready();
    say("ready");
    match death.as_str() {
        "signal" => {
            while host.events.take_signal().is_none() {
                host.turn();
            }
        }
        _ => {
            let mut rest = Vec::new();
            std::io::stdin().read_to_end(&mut rest).unwrap();
        }
    }
    match death.as_str() {
        "abort" => std::process::abort(),
        "panic" => panic!("on purpose"),
        // Without a word to anyone, and without unwinding.
        "exit" => std::process::exit(0),
        _ => {}
    }
    host.close();
    host.until_closed();
}

#[expect(clippy::print_stderr, reason = "the helper's report to its test")]
fn say(line: &str) {
    eprintln!("{line}");
}

struct Helper {
    census: Census,
    process: Child,
}

impl Helper {
    fn start(death: &str) -> Self {
        let census = Census::new();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "programs::helper", "--ignored", "--nocapture"])
            .env(WORD, census.word())
            .env(DEATH, death)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let mut lines = stderr.lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "ready"), "the helper starts");
        let found = census.count();
        assert!(found.len() > 12, "the count finds them: {found:?}");
        assert_eq!(census.guardians().len(), 4);
        Self { census, process }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn end_input(&mut self) {
        let mut stdin = self.process.stdin.take().unwrap();
        stdin.write_all(b"x").unwrap();
    }

    /// Nothing is left within three seconds.
    #[track_caller]
    fn expect_nothing(mut self, since: Instant) {
        self.process.wait().unwrap();
        self.census.expect_nothing(since);
    }
}

#[test]
fn it_is_killed() {
    let helper = Helper::start("eof");
    let since = Instant::now();
    helper.signal(Signal::KILL);
    helper.expect_nothing(since);
}

#[test]
fn it_is_asked_to_end() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let helper = Helper::start("signal");
        let since = Instant::now();
        helper.signal(signal);
        helper.expect_nothing(since);
    }
}

#[test]
fn its_input_ends_or_it_panics_aborts_or_exits() {
    for death in ["eof", "panic", "abort", "exit"] {
        let mut helper = Helper::start(death);
        let since = Instant::now();
        helper.end_input();
        helper.expect_nothing(since);
    }
}

#[test]
fn it_is_killed_with_its_whole_group() {
    // As a terminal or a supervisor does it: nobody of ours is in that group but drawspan.
    let helper = Helper::start("eof");
    let since = Instant::now();
    helper.signal(Signal::STOP);
    helper.signal(Signal::KILL);
    helper.expect_nothing(since);
}
