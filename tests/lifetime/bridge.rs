//! The real program with a before-tool-call hook that hangs and has a daemon: nothing of it is left,
//! whatever ends the program.

use std::time::Instant;

use rustix::process::{Pid, Signal};

use crate::census::{GONE, children};
use crate::common::{Home, Process, running, until, until_gone};
use crate::servers::DAEMON;

/// Starts it and one call; returns when hook and daemon run.
fn serve(home: &Home) -> (Process, Vec<Pid>) {
    home.write(
        "drawspan.json",
        r#"{"limits":{"shutdown_timeout_ms":200},
            "hooks":{"beforeToolCall":{"command":["sh","hook.sh"],"timeoutMs":600000}}}"#,
    );
    home.write("hook.sh", &format!("{DAEMON} exec sleep 2000"));
    let mut serve = home.serve_embedded();
    serve.hello();
    serve.begin("conversations_list", "{}");
    until("hook and daemon", || {
        let found = home.processes();
        // drawspan, the hook, and at least the two that have left it
        let named = |word: &str| found.iter().any(|line| line.starts_with(word));
        (named("sleep 2000") && named("sleep 1000") && found.len() >= 4)
            .then_some(())
            .ok_or_else(|| format!("{found:?}"))
    });
    let guardians: Vec<Pid> = children(serve.pid())
        .into_iter()
        .map(|(pid, _)| pid)
        .collect();
    assert_eq!(guardians.len(), 1, "the guardian of the hook");
    (serve, guardians)
}

#[track_caller]
fn expect_nothing(home: &Home, guardians: &[Pid], since: Instant) {
    until_gone(GONE.saturating_sub(since.elapsed()), || {
        // A guardian has nothing of our environment.
        let mut left = running(|_, arguments| arguments.len() > 1);
        left.retain(|(pid, _)| guardians.contains(pid));
        left.extend(home.running());
        left
    });
}

#[test]
fn it_is_killed() {
    let home = Home::new("hook-kill");
    let (mut serve, guardians) = serve(&home);
    let since = Instant::now();
    serve.signal(Signal::KILL);
    serve.wait();
    expect_nothing(&home, &guardians, since);
}

#[test]
fn it_is_asked_to_end() {
    for (name, signal) in [("hook-term", Signal::TERM), ("hook-int", Signal::INT)] {
        let home = Home::new(name);
        let (mut serve, guardians) = serve(&home);
        let since = Instant::now();
        serve.signal(signal);
        serve.wait();
        expect_nothing(&home, &guardians, since);
    }
}

#[test]
fn its_input_ends() {
    let home = Home::new("hook-eof");
    let (mut serve, guardians) = serve(&home);
    let since = Instant::now();
    drop(serve.stdin.take());
    serve.wait();
    expect_nothing(&home, &guardians, since);
}

#[test]
fn a_guardian_that_nobody_talks_to_ends() {
    let home = Home::new("guard-alone");
    let finished = home.run(&["guard"]);
    finished
        .expect_code(1)
        .expect_stderr(&["error: `drawspan guard`", "servers"]);
}
