//! Every way to end: signals, a parent that dies, and what is owed before and left behind after.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use serde_json::Value;

use crate::world::{
    DRAWSPAN, EMBEDDED, HELLO, Home, Lines, Process, expect_words, parse, text, until,
};

/// With it, whoever waits for the limit instead of the last answer is found out.
const NO_LIMIT: &str = r#"{"limits":{"shutdown_timeout_ms":600000}}"#;

#[test]
fn a_signal_ends_it_with_every_call_answered() {
    for signal in [Signal::TERM, Signal::INT] {
        let home = Home::new(&format!("signal-{}", signal.as_raw()));
        home.write(
            "drawspan.json",
            r#"{"limits":{"shutdown_timeout_ms":600000,"wait_progress_interval_ms":20},
                "hooks":{"beforeToolCall":{"command":["sh","hook.sh"],"timeoutMs":600000}}}"#,
        );
        home.write(
            "hook.sh",
            r#"case "$(cat)" in
                *hold*) echo '{"requireApproval":{"title":"held","timeoutMs":600000}}' ;;
                *hang*) exec sleep 1000 ;;
                *) echo '{}' ;;
            esac"#,
        );
        let mut serve = home.serve_embedded();
        serve.hello();
        // A call that is held is an event; it is one of those that this does not wait for.
        let wait =
            r#"{"name":"events_wait","arguments":{"after_cursor":9},"_meta":{"progressToken":7}}"#;
        let waiting = serve.request("tools/call", wait);
        let held = serve.begin("conversations_list", r#"{"test":"hold"}"#);
        let asked = serve.begin("permissions_list_open", r#"{"test":"hang"}"#);
        serve.message("progress", |message| {
            message["method"] == "notifications/progress"
        });
        until("the hook that hangs to be the last", || {
            let found = home.processes();
            let hangs = found.iter().any(|process| process.starts_with("sleep"));
            if hangs && found.len() == 2 {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        });
        serve.signal(signal);
        let result = serve.answer(waiting)["result"].take();
        assert_eq!(
            result["structuredContent"]["event"],
            Value::Null,
            "{result}"
        );
        for call in [held, asked] {
            let result = serve.answer(call)["result"].take();
            assert_eq!(result["isError"], true, "{result}");
            expect_words(text(&result), &["drawspan is shutting down"]);
        }
        serve.end().expect_code(0).expect_silence();
        home.expect_processes(0);
    }
}

#[test]
fn a_gateway_that_is_silent_does_not_hold_up_the_end() {
    let home = Home::new("silent-gateway");
    home.write("drawspan.json", r#"{"limits":{"shutdown_timeout_ms":200}}"#);
    let gateway = home.gateway();
    let mut serve = home.serve(&gateway);
    serve.meet();
    gateway.process.signal(Signal::STOP);
    let call = serve.begin("conversations_list", "{}");
    serve.sync();
    serve.signal(Signal::TERM);
    let result = serve.answer(call)["result"].take();
    assert_eq!(result["isError"], true);
    serve.end().expect_code(0).expect_silence();

    // One that takes the connection and says nothing at all.
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", hole.local_addr().unwrap());
    let mut serve = Process::serve(&mut home.drawspan(&["serve", "--gateway", &url]));
    serve.hello();
    let call = serve.begin("conversations_list", "{}");
    serve.sync();
    let _connection = hole.accept().unwrap();
    serve.signal(Signal::TERM);
    assert_eq!(serve.answer(call)["result"]["isError"], true);
    serve.end().expect_code(0).expect_silence();
}

#[test]
fn answers_that_nobody_reads_wait_for_the_limit_and_no_longer() {
    let home = Home::new("unread");
    home.write("drawspan.json", r#"{"limits":{"shutdown_timeout_ms":200}}"#);
    let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let mut command = home.drawspan(&EMBEDDED);
    let mut serve = Process::serve(command.stdout(ours));
    drop(command);
    let mut stdin = serve.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        while writeln!(stdin, r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list"}}"#).is_ok() {}
    });
    // More than its output pipe holds, so the rest is stuck.
    let mut theirs = File::from(theirs);
    theirs.read_exact(&mut vec![0; 3 * 1024 * 1024]).unwrap();
    serve.signal(Signal::TERM);
    serve.end().expect_code(0).expect_silence();
    writer.join().unwrap();
}

#[test]
fn a_hangup_is_the_end_where_nothing_can_be_read_again() {
    let home = Home::new("hangup");
    let mut serve = home.serve_embedded();
    serve.meet();
    let waiting = serve.begin("events_wait", "{}");
    serve.sync();
    serve.signal(Signal::HUP);
    serve.answer(waiting);
    serve.end().expect_code(0).expect_silence();
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let home = Home::new("nohup");
    let mut args = vec![DRAWSPAN];
    args.extend(EMBEDDED);
    let mut serve = Process::serve(&mut home.program("nohup", &args));
    serve.hello();
    serve.signal(Signal::HUP);
    serve.sync();
    serve.signal(Signal::TERM);
    serve.end().expect_code(0).expect_silence();
}

#[test]
fn signals_that_mean_nothing_to_us_change_nothing() {
    let home = Home::new("storm");
    let mut serve = home.serve_embedded();
    serve.meet();
    let waiting = serve.begin("events_wait", "{}");
    serve.sync();
    for _ in 0..200 {
        for signal in [
            Signal::USR1,
            Signal::CHILD,
            Signal::WINCH,
            Signal::CONT,
            Signal::PIPE,
        ] {
            serve.signal(signal);
        }
    }
    serve.sync();
    let post = home.run(&["gateway", "post", "--store", "store", "still there?"]);
    post.expect_code(0);
    let event = serve.answer(waiting)["result"].take();
    expect_words(&event.to_string(), &["still there?"]);
    serve.finish().expect_code(0).expect_silence();
}

#[test]
fn the_end_of_the_parent_is_the_end_though_the_pipe_is_open() {
    let home = Home::new("orphan");
    home.write("drawspan.json", NO_LIMIT);
    // The shell hands our pipe on and is killed; we keep our end open.
    let script = r#"exec 3<&0; "$@" <&3 & exec 3<&-; wait"#;
    let mut shell = Process::start(&mut home.shell(script, &EMBEDDED));
    shell.hello();
    let waiting = shell.begin("events_wait", "{}");
    shell.sync();
    shell.signal(Signal::KILL);
    let result = shell.answer(waiting)["result"].take();
    assert_eq!(result["structuredContent"]["event"], Value::Null);
    assert_eq!(shell.stdout.next(), None);
    shell.wait();
    home.expect_processes(0);
}

#[test]
fn what_others_share_with_us_stays_blocking() {
    let home = Home::new("blocking");
    let (their_stdin, our_stdin) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (our_stdout, their_stdout) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let shared: Vec<OwnedFd> = [&their_stdin, &their_stdout]
        .map(|fd| fd.try_clone().unwrap())
        .into();
    let mut command = home.drawspan(&EMBEDDED);
    let serve = Process::serve(command.stdin(their_stdin).stdout(their_stdout));
    drop(command);
    serve_and_look(serve, File::from(our_stdin), our_stdout.into(), &shared);

    let (ours, theirs) = UnixStream::pair().unwrap();
    let shared = [OwnedFd::from(theirs.try_clone().unwrap())];
    let mut command = home.drawspan(&EMBEDDED);
    command.stdin(OwnedFd::from(theirs.try_clone().unwrap()));
    let serve = Process::serve(command.stdout(OwnedFd::from(theirs)));
    drop(command);
    let from = File::from(OwnedFd::from(ours.try_clone().unwrap()));
    serve_and_look(serve, File::from(OwnedFd::from(ours)), from, &shared);
}

/// One exchange, and a look at the flags of what is shared: during it and after the end.
#[track_caller]
fn serve_and_look(mut serve: Process, mut to: File, from: File, shared: &[OwnedFd]) {
    writeln!(to, "{HELLO}").unwrap();
    let mut lines = Lines::new("its output", Some(from));
    parse(&lines.expect("the handshake"));
    let look = || {
        for fd in shared {
            let flags = fcntl_getfl(fd.as_fd()).unwrap();
            assert!(!flags.contains(OFlags::NONBLOCK), "{flags:?}");
        }
    };
    look();
    serve.signal(Signal::TERM);
    serve.wait();
    look();
}
