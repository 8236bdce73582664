//! Our own stdin and stdout, and what else needs a process of its own.
//!
//! The tests run this test program again with only [`helper`] in it. The harness of that run prints
//! a few lines of its own to stdout before the helper takes it over; [`MARK`] tells where they end.
//! What the helper heard it says on stderr.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use drawspan::clock::Deadline;
use drawspan::ids::WireId;
use drawspan::io::journal::Journal;
use drawspan::link::{FaultKind, IoRequest, OpenSpec};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};

use crate::probe::{Probe, Seen, World, assert_fault, pattern, shell, tcp};

/// The first thing a helper sends.
const MARK: &[u8] = b"<<mark>>";

/// What the helper is to do.
const MODE: &str = "DRAWSPAN_OS_HELPER";

/// A file the helper puts on its stdout before it starts.
const STDOUT: &str = "DRAWSPAN_OS_STDOUT";

/// The socket of a helper that has to do with one.
pub(crate) const PATH: &str = "DRAWSPAN_OS_PATH";

/// The port a helper connects to.
pub(crate) const PORT: &str = "DRAWSPAN_OS_PORT";

fn path() -> PathBuf {
    PathBuf::from(std::env::var_os(PATH).unwrap())
}

#[test]
#[ignore = "the other tests of this file run it, as a process of its own"]
fn helper() {
    let Ok(mode) = std::env::var(MODE) else {
        return;
    };
    if let Ok(path) = std::env::var(STDOUT) {
        let file = File::options().write(true).open(path).unwrap();
        rustix::stdio::dup2_stdout(&file).unwrap();
    }
    match mode.as_str() {
        "starve" => starve(),
        "listen-unix" => crate::unix_sockets::listen_until_a_signal(&path()),
        "crowd" => crate::scale::crowd(std::env::var(PORT).unwrap().parse().unwrap()),
        #[cfg(target_os = "linux")]
        "scale" => crate::scale::scale(),
        #[cfg(target_os = "linux")]
        "hub-scale" => crate::hub::scale(),
        "hub-crowd" => crate::hub::crowd(std::env::var(PORT).unwrap().parse().unwrap()),
        "limits" => descriptor_limits(),
        "knock" => crate::unix_sockets::knock(&path()),
        "signals" => signals(),
        "small-disk" => small_disk(),
        "orphan" => echo(true),
        _ => echo(false),
    }
}

/// Sends stdin back to stdout until both are done.
fn echo(watch_parent: bool) {
    let mut world = World::new(Probe::echo());
    if watch_parent {
        world.events.watch_parent().unwrap();
    }
    world.probe.open(1, OpenSpec::HostStdio);
    world.probe.send(1, MARK);
    world.probe.open(2, OpenSpec::HostStdio);
    world.until("the end", |p| {
        let done = p.saw(1, &Seen::Eof) && p.wires[&1].out.is_empty();
        done || p.fault(1).is_some() || p.saw(1, &Seen::WriteClosed)
    });
    assert_fault(world.probe.fault(2), FaultKind::Exhausted, &["in use"]);
    say(&format!("story: {:?}", world.probe.story(1)));
}

fn signals() {
    let mut world = World::new(Probe::new());
    world.events.watch_signals().unwrap();
    world.probe.open(1, OpenSpec::HostStdio);
    world.probe.send(1, MARK);
    loop {
        world.turn();
        if let Some(signal) = world.events.take_signal() {
            say(&format!("story: {signal:?}"));
            return;
        }
    }
}

/// Runs out of descriptors while ten clients want to connect.
fn starve() {
    const CLIENTS: u32 = 10;
    const FREE: usize = 4;
    let mut world = World::new(Probe::new());
    world.probe.accepts = CLIENTS;
    let port = world.listen("127.0.0.1");
    let mut other = world.adopt(2);
    let spare: Vec<OwnedFd> = (0..FREE)
        .map(|_| rustix::io::dup(std::io::stderr()).unwrap())
        .collect();
    let highest = std::os::fd::AsRawFd::as_raw_fd(spare.last().unwrap());
    drop(spare);
    let limit = Some(u64::try_from(highest).unwrap() + 1);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit,
            maximum: limit,
        },
    )
    .unwrap();
    say(&format!("port {port}"));

    // All that fit are in, then the loop rests; three pauses are far from one turn a microsecond.
    world.until("the first clients", |p| p.accepted.len() == FREE);
    world.probe.open(50, shell("true"));
    world.probe.open(51, tcp("127.0.0.1", port));
    world.until("both faults", |p| {
        p.fault(50).is_some() && p.fault(51).is_some()
    });
    for wire in [50, 51] {
        let fault = world.probe.fault(wire);
        assert_fault(fault, FaultKind::Exhausted, &["too many open files"]);
    }
    // Who is in is served meanwhile.
    other.write_all(b"served").unwrap();
    world.until("the other wire", |p| p.bytes(2) == b"served");
    let before = world.probe.turns;
    let at = world.events.now().after(Duration::from_millis(250));
    world.probe.deadline = Some(Deadline::new(at, "three pauses"));
    world.until("three pauses", |p| !p.rung.is_empty());
    let turns = world.probe.turns - before;
    assert!(turns <= 10, "{turns} turns in 250 ms");

    // One by one the others are served.
    let mut closed = 0;
    while closed < CLIENTS {
        world.until("the next client", |p| p.accepted.len() > closed as usize);
        world.probe.ask(IoRequest::Close(WireId(100 + closed)));
        closed += 1;
    }
    say("story: all served");
}

/// Tells how many descriptors we may have, and how many a program may that we start.
fn descriptor_limits() {
    let mut world = World::new(Probe::new());
    world.probe.open(1, shell("read x; ulimit -Sn; ulimit -Hn"));
    world.until("the child", |p| p.saw(1, &Seen::Opened));
    world.probe.send(1, b"\n");
    world.until("its end", |p| p.saw(1, &Seen::Eof));
    let child = String::from_utf8_lossy(world.probe.bytes(1)).replace('\n', " ");
    say(&format!(
        "story: {} {child}",
        world.events.descriptors_max()
    ));
}

/// Writes a journal where ten bytes fit.
fn small_disk() {
    let dir = std::env::temp_dir().join(format!("drawspan-os-full-{}", std::process::id()));
    let (mut journal, _) = Journal::open(&dir).unwrap();
    let limit = Some(10);
    setrlimit(
        Resource::Fsize,
        Rlimit {
            current: limit,
            maximum: limit,
        },
    )
    .unwrap();
    journal.append(b"first\n").unwrap();
    let fault = journal.append(b"too long\n").unwrap_err();
    journal.append(b"ok\n").unwrap();
    drop(journal);
    let (_, found) = Journal::open(&dir).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(found, b"first\nok\n");
    say(&format!("story: {}", fault.message));
}

#[expect(clippy::print_stderr, reason = "the helper's report to its test")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}

/// This program again, as a helper.
pub(crate) fn helper_command(mode: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    as_helper(&mut command, mode);
    command
}

/// The helper, run by a shell script as `"$@"`.
fn helper_in_shell(script: &str, mode: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", script, "sh"])
        .arg(std::env::current_exe().unwrap());
    as_helper(&mut command, mode);
    command
}

pub(crate) fn as_helper(command: &mut Command, mode: &str) {
    command
        .args(["--exact", "stdio::helper", "--ignored", "--nocapture"])
        .env(MODE, mode)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
}

/// Reads the harness's lines away.
fn skip_to_mark(from: &mut impl Read) {
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while !seen.ends_with(MARK) {
        from.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
}

/// Waits until the helper has said `word`, and returns the rest of that line.
pub(crate) fn said(child: &mut Child, word: &str) -> String {
    // Byte by byte: what comes after the line is for someone else.
    let stderr = child.stderr.as_mut().unwrap();
    let (mut line, mut byte) = (Vec::new(), [0]);
    loop {
        assert_eq!(stderr.read(&mut byte).unwrap(), 1, "the helper died");
        if byte[0] != b'\n' {
            line.push(byte[0]);
            continue;
        }
        if let Some(rest) = line.strip_prefix(word.as_bytes()) {
            return String::from_utf8(rest.to_vec()).unwrap();
        }
        line.clear();
    }
}

/// What the helper said it heard; waits for its end.
pub(crate) fn story(child: &mut Child) -> String {
    let mut said = String::new();
    let stderr = child.stderr.as_mut().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    let story = said.lines().find_map(|line| line.strip_prefix("story: "));
    let Some(story) = story.filter(|_| status.success()) else {
        panic!("{status}: {said}");
    };
    story.to_owned()
}

#[test]
fn pipes_carry_megabytes_and_stay_blocking_for_others() {
    const TOTAL: usize = 6 * 1024 * 1024;
    let close_on_exec = rustix::pipe::PipeFlags::CLOEXEC;
    let (their_stdin, our_end) = rustix::pipe::pipe_with(close_on_exec).unwrap();
    let shared = their_stdin.try_clone().unwrap();
    let mut child = helper_command("echo").stdin(their_stdin).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    skip_to_mark(&mut stdout);
    let flags = fcntl_getfl(&shared).unwrap();
    assert!(!flags.contains(OFlags::NONBLOCK), "{flags:?}");
    let writer = std::thread::spawn(move || {
        File::from(our_end).write_all(&pattern(TOTAL)).unwrap();
    });
    let mut back = Vec::new();
    stdout.read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert!(back == pattern(TOTAL), "bytes differ");
    assert_eq!(story(&mut child), "[Opened, Bytes, Eof]");
}

#[test]
fn a_socket_stays_blocking_for_others() {
    const TOTAL: usize = 3 * 1024 * 1024;
    let (ours, theirs) = UnixStream::pair().unwrap();
    let shared = theirs.try_clone().unwrap();
    let mut child = helper_command("echo")
        .stdin(OwnedFd::from(theirs.try_clone().unwrap()))
        .stdout(OwnedFd::from(theirs))
        .spawn()
        .unwrap();
    let mut stdout = ours.try_clone().unwrap();
    skip_to_mark(&mut stdout);
    let flags = fcntl_getfl(&shared).unwrap();
    assert!(!flags.contains(OFlags::NONBLOCK), "{flags:?}");
    let writer = std::thread::spawn(move || {
        let mut ours = ours;
        ours.write_all(&pattern(TOTAL)).unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut back = vec![0; TOTAL];
    stdout.read_exact(&mut back).unwrap();
    writer.join().unwrap();
    assert!(back == pattern(TOTAL), "bytes differ");
    assert_eq!(story(&mut child), "[Opened, Bytes, Eof]");
}

#[test]
fn files_on_both_sides() {
    const TOTAL: usize = 1024 * 1024 + 17;
    let path = std::env::temp_dir().join(format!("drawspan-os-stdio-{}", std::process::id()));
    let out_path = path.with_extension("out");
    std::fs::write(&path, pattern(TOTAL)).unwrap();
    std::fs::write(&out_path, b"").unwrap();
    let mut child = helper_command("echo")
        .stdin(File::open(&path).unwrap())
        .env(STDOUT, &out_path)
        .spawn()
        .unwrap();
    assert_eq!(story(&mut child), "[Opened, Bytes, Eof]");
    let back = std::fs::read(&out_path).unwrap();
    assert!(back.starts_with(MARK) && back[MARK.len()..] == pattern(TOTAL));
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&out_path).unwrap();
}

#[test]
fn no_input_is_the_end_of_input() {
    let mut null = helper_command("echo").stdin(Stdio::null()).spawn().unwrap();
    assert_eq!(story(&mut null), "[Opened, Eof]");
    let closed = helper_in_shell(r#"exec "$@" <&-"#, "echo").spawn();
    assert_eq!(story(&mut closed.unwrap()), "[Opened, Eof]");
}

#[test]
fn a_full_device_is_a_fault_with_its_reason() {
    let mut child = helper_command("echo")
        .env(STDOUT, "/dev/full")
        .spawn()
        .unwrap();
    let story = story(&mut child);
    assert!(
        story.contains("cannot write to stdout: no space left on device"),
        "{story}"
    );
}

#[test]
fn a_reader_that_leaves_is_noticed_without_a_write() {
    let mut child = helper_command("echo").spawn().unwrap();
    let _open = child.stdin.take();
    let mut stdout = child.stdout.take().unwrap();
    skip_to_mark(&mut stdout);
    drop(stdout);
    assert_eq!(story(&mut child), "[Opened, WriteClosed]");
}

#[test]
fn the_end_of_the_parent_is_the_end_of_stdin() {
    // The shell starts the helper, passes our pipe on to it, and is killed; we keep the pipe open.
    let script = r#"exec 3<&0; "$@" <&3 & exec 3<&-; wait"#;
    let mut shell = helper_in_shell(script, "orphan").spawn().unwrap();
    let mut stdin = shell.stdin.take().unwrap();
    let mut stdout = shell.stdout.take().unwrap();
    skip_to_mark(&mut stdout);
    stdin.write_all(b"last words").unwrap();
    let pid = Pid::from_child(&shell);
    kill_process(pid, Signal::KILL).unwrap();
    let mut back = Vec::new();
    stdout.read_to_end(&mut back).unwrap();
    assert_eq!(back, b"last words");
    let mut said = String::new();
    shell
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(said.contains("story: [Opened, Bytes, Eof]"), "{said}");
    shell.wait().unwrap();
}

#[test]
fn a_terminal_serves_line_by_line() {
    if std::env::var_os("DRAWSPAN_SKIP_PEERS").is_some() {
        say("skipped: stdin and stdout on a terminal (DRAWSPAN_SKIP_PEERS is set)");
        return;
    }
    // `script` runs a command on a new terminal and passes its own input to it.
    let exe = std::env::current_exe().unwrap();
    let line = format!(
        "stty -echo; '{}' --exact stdio::helper --ignored --nocapture",
        exe.display()
    );
    let mut script = Command::new("script")
        .args(["-q", "-e", "-c", &line, "/dev/null"])
        .env(MODE, "echo")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`script` of util-linux; DRAWSPAN_SKIP_PEERS=1 leaves it out");
    let mut stdout = script.stdout.take().unwrap();
    let mut stdin = script.stdin.take().unwrap();
    skip_to_mark(&mut stdout);
    // Two lines at once: a terminal gives them to two reads.
    stdin.write_all(b"one\ntwo\n").unwrap();
    let mut lines = BufReader::new(stdout).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    assert_eq!(lines.next().unwrap().unwrap(), "two");
    drop(stdin);
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let rest = rest.join("\n");
    assert!(rest.contains("story: [Opened, Bytes, Eof]"), "{rest}");
    script.wait().unwrap();
}

#[test]
#[cfg(feature = "cli")]
fn signals_are_heard_unless_they_were_ignored_at_start() {
    let mut child = helper_command("signals").spawn().unwrap();
    skip_to_mark(&mut child.stdout.as_mut().unwrap());
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    assert_eq!(story(&mut child), "Hangup");

    let mut child = helper_in_shell(r#"trap "" HUP; exec "$@""#, "signals")
        .spawn()
        .unwrap();
    skip_to_mark(&mut child.stdout.as_mut().unwrap());
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(story(&mut child), "Terminate");
}

#[test]
fn without_descriptors_the_loop_rests_and_recovers() {
    let mut child = helper_command("starve").spawn().unwrap();
    let port: u16 = said(&mut child, "port ").parse().unwrap();
    let clients: Vec<_> = (0..10)
        .map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap())
        .collect();
    assert_eq!(story(&mut child), "all served");
    drop(clients);
}

#[test]
#[cfg(target_os = "linux")]
fn the_loop_takes_all_descriptors_and_its_children_what_was_given() {
    let script = r#"ulimit -Sn 300; ulimit -Hn 400; exec "$@""#;
    let mut child = helper_in_shell(script, "limits").spawn().unwrap();
    assert_eq!(story(&mut child), "400 300 400 ");
}

#[test]
fn a_record_that_does_not_fit_leaves_no_trace() {
    let script = r#"trap "" XFSZ; exec "$@""#;
    let mut child = helper_in_shell(script, "small-disk").spawn().unwrap();
    let story = story(&mut child);
    assert!(story.ends_with("journal: file too large"), "{story}");
}

#[test]
fn what_others_print_stays_out_of_the_protocol() {
    let mut child = helper_command("echo").stdin(Stdio::null()).spawn().unwrap();
    let stdout = child.stdout.as_mut().unwrap();
    skip_to_mark(stdout);
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    // The harness prints its result at the end, to the stdout that is /dev/null by then.
    assert_eq!(rest, b"", "{}", String::from_utf8_lossy(&rest));
    assert_eq!(story(&mut child), "[Opened, Eof]");
}
