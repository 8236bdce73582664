//! Everything stdin and stdout can be.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::pipe::PipeFlags;
use serde_json::Value;

use crate::world::{
    DRAWSPAN, EMBEDDED, HELLO, Home, Lines, Process, expect_words, parse, skips_peers, text,
};

/// A whole session. The last line has no line end, and the last call but one waits for what never
/// comes.
fn session() -> String {
    let call = |id: u64, tool: &str, arguments: &str| {
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
    };
    let lines = [
        HELLO.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#.to_owned(),
        call(2, "conversations_list", "{}"),
        call(
            3,
            "events_wait",
            r#"{"timeout_ms":300000,"after_cursor":1000}"#,
        ),
        call(
            4,
            "messages_read",
            r#"{"session_key":"agent:main:telegram:direct:ada"}"#,
        ),
    ];
    lines.join("\n")
}

/// Each request of [`session`] has its answer, and nothing else is there.
#[track_caller]
fn expect_session(messages: &[Value]) {
    assert_eq!(messages.len(), 5, "{messages:#?}");
    let result = |id: u64| {
        let answer = messages.iter().find(|message| message["id"] == id);
        &answer.unwrap_or_else(|| panic!("no answer to {id}: {messages:#?}"))["result"]
    };
    assert_eq!(result(0)["serverInfo"]["name"], "openclaw");
    assert_eq!(result(1)["tools"].as_array().map(Vec::len), Some(9));
    expect_words(text(result(2)), &["conversations: 2"]);
    assert_eq!(
        result(3)["structuredContent"]["event"],
        Value::Null,
        "{}",
        result(3)
    );
    expect_words(text(result(4)), &["sample conversation"]);
}

#[test]
fn what_is_asked_before_the_end_of_a_pipe_is_answered() {
    let home = Home::new("pipe");
    let mut serve = home.serve_embedded();
    serve
        .stdin
        .as_mut()
        .unwrap()
        .write_all(session().as_bytes())
        .unwrap();
    let finished = serve.finish().expect_code(0).expect_silence();
    expect_session(&finished.messages());
}

#[test]
fn requests_that_come_in_one_piece_are_answered_while_input_is_open() {
    // More than may be open at once, but each of them is done on the spot.
    const EACH: u64 = 100;
    let home = Home::new("piece");
    let mut serve = home.serve_embedded();
    serve.meet();
    let request = |id: u64, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    };
    let mut lines = Vec::new();
    for id in 1..=EACH {
        let call = r#"{"name":"events_poll","arguments":{}}"#;
        lines.push(request(1_000 + id, "tools/list", "{}"));
        lines.push(request(2_000 + id, "tools/call", call));
    }
    serve.send(&lines.join("\n"));
    for id in (1..=EACH).flat_map(|id| [1_000 + id, 2_000 + id]) {
        let answer = serve.answer(id);
        assert!(answer["result"].is_object(), "{answer}");
        assert_ne!(answer["result"]["isError"], true, "{answer}");
    }
    // The one in front has no answer that would take the other along.
    let wait = r#"{"name":"events_wait","arguments":{}}"#;
    let lines = [request(1, "tools/call", wait), request(2, "ping", "{}")];
    serve.send(&lines.join("\n"));
    serve.answer(2);
    serve.finish().expect_code(0).expect_silence();
}

#[test]
fn one_socket_is_both() {
    let home = Home::new("socket");
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut command = home.drawspan(&EMBEDDED);
    command.stdin(OwnedFd::from(theirs.try_clone().unwrap()));
    let serve = Process::serve(command.stdout(OwnedFd::from(theirs)));
    drop(command);
    ours.write_all(session().as_bytes()).unwrap();
    ours.shutdown(Shutdown::Write).unwrap();
    let lines = Lines::new("the socket", Some(ours)).all();
    serve.finish().expect_code(0).expect_silence();
    expect_session(&lines.iter().map(|line| parse(line)).collect::<Vec<_>>());
}

#[test]
fn files_on_both_sides() {
    let home = Home::new("files");
    home.write("in", &session());
    let mut command = home.drawspan(&EMBEDDED);
    command.stdin(File::open(home.path("in")).unwrap());
    command.stdout(File::create(home.path("out")).unwrap());
    Process::serve(&mut command)
        .finish()
        .expect_code(0)
        .expect_silence();
    let out = std::fs::read_to_string(home.path("out")).unwrap();
    expect_session(&out.lines().map(parse).collect::<Vec<_>>());
}

#[test]
fn no_input_is_the_end() {
    let home = Home::new("no-input");
    let finished = home.run(&EMBEDDED).expect_code(0).expect_silence();
    assert_eq!(finished.stdout, Vec::<String>::new());
    for closed in [
        r#"exec "$@" <&-"#,
        r#"exec "$@" <&- >&-"#,
        r#"exec "$@" <&- >&- 2>&-"#,
    ] {
        let finished = Process::serve(&mut home.shell(closed, &EMBEDDED)).finish();
        let finished = finished.expect_code(0).expect_silence();
        assert_eq!(finished.stdout, Vec::<String>::new());
    }
}

#[test]
fn input_that_fails_is_an_error() {
    let home = Home::new("directory");
    let mut command = home.drawspan(&EMBEDDED);
    command.stdin(File::open(home.path(".")).unwrap());
    let finished = Process::serve(&mut command).finish().expect_code(1);
    finished.expect_stderr(&["error: cannot read from stdin: is a directory"]);
}

#[test]
fn output_that_is_lost_is_an_error() {
    let home = Home::new("full");
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut command = home.drawspan(&EMBEDDED);
    let mut serve = Process::serve(command.stdout(full()));
    serve.send(HELLO);
    let words = ["error: cannot write to stdout: no space left on device"];
    serve.end().expect_code(1).expect_stderr(&words);

    for args in [
        &["limits"][..],
        &["version"],
        &["completions", "bash"],
        &["demo"],
    ] {
        let mut command = home.drawspan(args);
        let finished = Process::start(command.stdout(full())).finish();
        finished
            .expect_code(1)
            .expect_stderr(&["error: cannot write to stdout"]);
    }
}

#[test]
fn a_stderr_that_takes_nothing_is_nobodys_problem() {
    let home = Home::new("mute");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = home.drawspan(&["serve", "--gateway", "ws://127.0.0.1:1", "--token", "x"]);
    home.write(
        "drawspan.json",
        r#"{"limits":{"gateway_ready_timeout_ms":50}}"#,
    );
    let mut serve = Process::serve(command.stderr(full));
    serve.hello();
    let result = serve.call("conversations_list", "{}");
    expect_words(text(&result), &["gateway not connected"]);
    serve.finish().expect_code(0);
}

#[test]
fn a_reader_that_leaves_is_noticed_while_idle() {
    let home = Home::new("idle");
    let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let mut command = home.drawspan(&EMBEDDED);
    let mut serve = Process::serve(command.stdout(ours));
    drop(command);
    serve.send(HELLO);
    let mut first = [0];
    File::from(theirs).read_exact(&mut first).unwrap();
    // Its stdin stays open.
    serve.end().expect_code(0).expect_silence();
}

#[test]
fn a_reader_that_leaves_in_the_middle_of_an_answer() {
    let home = Home::new("mid-write");
    let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let mut command = home.drawspan(&EMBEDDED);
    let mut serve = Process::serve(command.stdout(ours));
    drop(command);
    let mut stdin = serve.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        let request = format!("{}\n", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        // Until nobody reads it any more.
        while stdin.write_all(request.as_bytes()).is_ok() {}
    });
    // More than the pipe holds, so the rest of it waits in the program.
    let mut some = vec![0; 3 * 1024 * 1024];
    let mut theirs = File::from(theirs);
    theirs.read_exact(&mut some).unwrap();
    drop(theirs);
    serve.end().expect_code(0).expect_silence();
    writer.join().unwrap();
}

#[test]
fn a_slow_reader_costs_a_bounded_amount_and_nobody_else() {
    const REQUESTS: usize = 4_000;
    let home = Home::new("slow");
    // One piece of input is answered whole; of this size it has 2 MB of answers.
    home.write("drawspan.json", r#"{"limits":{"turn_bytes_max":16384}}"#);
    let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let quiet = [&EMBEDDED[..], &["--claude-channel-mode", "off"]].concat();
    let mut command = home.drawspan(&quiet);
    let mut serve = Process::serve(command.stdout(ours));
    drop(command);
    let mut theirs = File::from(theirs);
    serve.send(HELLO);
    serve.begin("conversations_list", "{}");
    expect_words(&one_line(&mut theirs), &["serverInfo"]);
    expect_words(&one_line(&mut theirs), &["conversations: 2"]);
    let before = serve.memory_kib("VmHWM");
    let grown = |serve: &Process| serve.memory_kib("VmHWM") - before;

    let mut stdin = serve.stdin.take().unwrap();
    let pipe = stdin.as_fd().try_clone_to_owned().unwrap();
    let writer = std::thread::spawn(move || {
        for id in 1..=REQUESTS {
            writeln!(
                stdin,
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#
            )
            .unwrap();
        }
        stdin
    });
    // Nobody reads. In time the program reads no more either, but its Gateway takes messages.
    let (mut unread, mut posts) = (0, 0);
    loop {
        posts += 1;
        let message = format!("message {posts}");
        let post = home.run(&["gateway", "post", "--store", "store", &message]);
        post.expect_code(0);
        let before = std::mem::replace(&mut unread, rustix::io::ioctl_fionread(&pipe).unwrap());
        if unread > 0 && unread == before {
            break;
        }
    }
    drop(pipe);
    assert!(
        grown(&serve) < 8 * 1024,
        "{} KiB more, 20 MB of answers",
        grown(&serve)
    );

    // Now it is read, and nothing is missing.
    let mut lines = Lines::new("stdout", Some(theirs));
    for id in 1..=REQUESTS {
        assert_eq!(parse(&lines.expect("the next list"))["id"], id);
    }
    serve.stdin = Some(writer.join().unwrap());
    serve.begin("events_poll", "{}");
    let events = lines.expect("the events");
    expect_words(&events, &["message 1", &format!("message {posts}")]);
    assert!(
        grown(&serve) < 8 * 1024,
        "{} KiB more, 20 MB of answers",
        grown(&serve)
    );
    serve.finish().expect_code(0).expect_silence();
}

/// Reads a line and not a byte more.
fn one_line(from: &mut impl Read) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while byte != *b"\n" {
        from.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

#[test]
fn each_bad_line_costs_one_error_and_the_next_line_is_served() {
    let home = Home::new("bad-lines");
    let deep = "[".repeat(100_000);
    let long = "x".repeat(5 * 1024 * 1024);
    let rows: [(&[u8], i64); 10] = [
        (b"{\"jsonrpc\":\"2.0\",\"id\":9,\"met", -32700),
        (b"\xff\xfe\x00{", -32700),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"\xed\xa0\x80\"}",
            -32700,
        ),
        (deep.as_bytes(), -32700),
        (long.as_bytes(), -32600),
        (b"42", -32600),
        (b"{}", -32600),
        (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600),
        (
            br#"{"jsonrpc":"2.0","id":9,"id":9,"method":"ping"}"#,
            -32600,
        ),
    ];
    let mut serve = home.serve_embedded();
    serve.hello();
    for (line, code) in rows {
        let stdin = serve.stdin.as_mut().unwrap();
        stdin.write_all(line).unwrap();
        stdin.write_all(b"\n").unwrap();
        let shown = String::from_utf8_lossy(&line[..line.len().min(60)]);
        let error = serve.message("an error", |message| message["error"].is_object());
        assert_eq!(
            (&error["error"]["code"], &error["id"]),
            (&code.into(), &Value::Null),
            "{shown}"
        );
        assert!(
            error.to_string().len() < 1_000,
            "{shown}: it quotes too much"
        );
        serve.sync();
    }
    let finished = serve.finish().expect_code(0);
    assert_eq!(finished.stdout.len(), 1 + 2 * rows.len(), "one error each");
}

#[test]
fn a_terminal_is_served_and_left_as_it_was() {
    if skips_peers("stdin and stdout on a terminal") {
        return;
    }
    let home = Home::new("terminal");
    // `script` runs a command on a new terminal and passes its own input to it; flags in octal.
    let line = format!(
        "stty -echo; echo ready; '{DRAWSPAN}' {} 2>stderr; echo code=$?; \
         grep flags: /proc/$$/fdinfo/0",
        EMBEDDED.join(" ")
    );
    let mut command = home.program("script", &["-q", "-e", "-c", &line, "/dev/null"]);
    let mut script = Process::start(command.env("SHELL", "/bin/sh"));
    assert_eq!(script.stdout.expect("its start"), "ready");
    script.hello();
    let result = script.call("conversations_list", "{}");
    expect_words(text(&result), &["conversations: 2"]);
    // Control-D at the start of a line is the end of input.
    script.stdin.as_mut().unwrap().write_all(b"\x04").unwrap();
    assert_eq!(script.stdout.expect("the exit code"), "code=0");
    let flags = script.stdout.expect("the terminal's flags");
    let flags = u32::from_str_radix(flags.rsplit('\t').next().unwrap(), 8).unwrap();
    assert_eq!(flags & 0o4000, 0, "O_NONBLOCK was left on the terminal");
    script.finish().expect_code(0);
    assert_eq!(std::fs::read_to_string(home.path("stderr")).unwrap(), "");
}
