//! A person at a terminal: asked by servers, told what is waited for. And nobody there.
//!
//! `script` gives a command a new terminal; `DRAWSPAN_SKIP_PEERS=1` leaves those tests out.

use std::io::Write;

use super::servers::{Shop, everything};
use crate::world::{DRAWSPAN, Home, Process, expect_words, skips_peers};

/// Runs a shell line on a terminal of its own.
fn on_terminal(home: &Home, line: &str) -> Process {
    let mut command = home.program("script", &["-q", "-e", "-c", line, "/dev/null"]);
    let mut process = Process::start(command.env("SHELL", "/bin/sh"));
    assert_eq!(process.stdout.expect("its start"), "ready");
    process
}

#[test]
fn a_form_is_asked_and_answered() {
    if skips_peers("a form at a terminal") {
        return;
    }
    let home = Home::new("terminal-form");
    let server = everything();
    for era in ["legacy", "modern"] {
        let line = format!(
            "stty -echo; echo ready; '{DRAWSPAN}' call test_elicitation 'message=Who are you?' \
             --protocol {era} -- '{server}' 2>/dev/tty; echo code=$?; grep flags: /proc/$$/fdinfo/0"
        );
        let mut process = on_terminal(&home, &line);
        let asked = process.stdout.expect("the question");
        expect_words(&asked, &["everything_server asks: Who are you?"]);
        expect_words(&process.stdout.expect("how"), &["`.` alone declines"]);
        let stdin = process.stdin.as_mut().unwrap();
        stdin.write_all(b"alice\nalice@example.com\n").unwrap();
        let mut said = String::new();
        while !said.contains("code=") {
            said.push_str(&process.stdout.expect("the result"));
            said.push('\n');
        }
        expect_words(&said, &["accept", "alice", "code=0"]);
        let flags = process.stdout.expect("the terminal's flags");
        let flags = u32::from_str_radix(flags.rsplit('\t').next().unwrap(), 8).unwrap();
        assert_eq!(flags & 0o4000, 0, "O_NONBLOCK was left on the terminal");
        process.finish().expect_code(0);
        home.expect_processes(0);
    }
}

#[test]
fn a_dot_declines() {
    if skips_peers("a form that is declined") {
        return;
    }
    let home = Home::new("terminal-decline");
    let server = everything();
    let line = format!(
        "stty -echo; echo ready; '{DRAWSPAN}' call test_elicitation message=Sure -- '{server}'; echo code=$?"
    );
    let mut process = on_terminal(&home, &line);
    process.stdout.expect("the question");
    process.stdin.as_mut().unwrap().write_all(b".\n").unwrap();
    let mut said = String::new();
    while !said.contains("code=") {
        said.push_str(&process.stdout.expect("the result"));
    }
    expect_words(&said, &["decline"]);
    process.finish();
}

#[test]
fn where_nobody_can_be_asked_nothing_is_offered() {
    let home = Home::new("terminal-nobody");
    for era in ["legacy", "modern"] {
        let args = [
            "call",
            "test_elicitation",
            "message=x",
            "--protocol",
            era,
            "--",
            &everything(),
        ];
        let finished = home.run(&args);
        assert_ne!(finished.status.code(), Some(0), "{:?}", finished.stdout);
        let said = finished.stdout.join("") + &finished.stderr.join("");
        expect_words(&said, &["elicitation"]);
    }
}

#[test]
fn what_takes_long_is_shown_to_people_only() {
    let shop = Shop::new("terminal-progress").with("BEFORE", "sleep 2.5");
    shop.run(&["list"]).expect_code(0).expect_silence();
    if skips_peers("progress at a terminal") {
        return;
    }
    let line = format!(
        "echo ready; '{DRAWSPAN}' list -e 'BEFORE=sleep 2.5' -- ./server; echo; echo code=$?"
    );
    let mut process = on_terminal(&shop.home, &line);
    let said = process.stdout.expect("what is waited for");
    expect_words(&said, &["connecting … 1 s"]);
    process.finish().expect_code(0);
}
