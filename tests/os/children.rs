//! Real programs.

use std::path::Path;

use drawspan::ids::WireId;
use drawspan::link::{ChildSpec, ExitReport, FaultKind, IoRequest, OpenSpec, Signal};

use crate::probe::{PATIENCE, Probe, Seen, World, assert_fault, child, pattern, shell};

fn run(spec: OpenSpec) -> World {
    let mut world = World::new(Probe::new());
    world.probe.open(1, spec);
    world
}

/// Signals the group of wire 1.
fn signal(world: &mut World, signal: Signal) {
    world.probe.ask(IoRequest::Signal(WireId(1), signal));
}

#[test]
fn cat_sends_back_and_ends_with_its_input() {
    let mut world = run(child("cat", &[]));
    world.probe.send(1, b"hello");
    world.until("the echo", |p| p.bytes(1) == b"hello");
    world.probe.close_write(1);
    world.until("exit and end", |p| {
        p.exit(1).is_some() && p.saw(1, &Seen::Eof)
    });
    assert_eq!(world.probe.exit(1), Some(ExitReport::Code(0)));
    assert_eq!(world.probe.wires[&1].seen[0], Seen::Opened);
}

#[test]
fn a_megabyte_through_cat_both_ways_at_once() {
    let sent = pattern(8 * 1024 * 1024);
    let mut world = run(child("cat", &[]));
    world.probe.send(1, &sent);
    world.probe.close_write(1);
    world.until("the end", |p| p.saw(1, &Seen::Eof));
    assert!(world.probe.bytes(1) == sent, "bytes differ");
    assert!(world.probe.saw(1, &Seen::Drained));
}

#[test]
#[cfg(target_os = "linux")]
fn a_steady_exchange_costs_one_wait_one_read_and_one_write() {
    const ROUNDS: u64 = 500;
    let mut world = run(child("cat", &[]));
    world.probe.send(1, b"warm up");
    world.until("the echo", |p| p.bytes(1).len() == 7);
    world.probe.wire(1).bytes.clear();
    let before = world.events.system_calls();
    for round in 1..=ROUNDS {
        world.probe.send(1, &[b'x'; 64]);
        world.until("the echo", |p| p.bytes(1).len() as u64 == 64 * round);
    }
    let calls = world.events.system_calls().since(before);
    assert_eq!((calls.reads, calls.writes), (ROUNDS, ROUNDS));
    // A turn that begins with a write does not sleep.
    assert!(calls.waits <= 2 * ROUNDS, "{calls:?}");
}

#[test]
fn output_comes_before_the_exit_code() {
    let mut world = run(shell("echo out; echo err >&2; exit 7"));
    world.until("the exit", |p| p.exit(1).is_some());
    assert_eq!(world.probe.exit(1), Some(ExitReport::Code(7)));
    assert_eq!(world.probe.bytes(1), b"out\n");
    assert_eq!(world.probe.wires[&1].stderr, b"err\n");
    let story = world.probe.story(1);
    let exit = story.iter().position(|s| matches!(s, Seen::Exited(_)));
    assert!(
        exit > story.iter().position(|s| *s == Seen::Bytes),
        "{story:?}"
    );
}

#[test]
fn a_signal_reaches_the_whole_group() {
    let mut world = run(shell("sleep 1000 & echo $!; wait"));
    world.until("the grandchild", |p| p.bytes(1).ends_with(b"\n"));
    let grandchild = pid(world.probe.bytes(1));
    signal(&mut world, Signal::Term);
    world.until("exit and end", |p| {
        p.exit(1).is_some() && p.saw(1, &Seen::Eof)
    });
    assert_eq!(world.probe.exit(1), Some(ExitReport::Signal(15)));
    assert_ends(grandchild);
}

#[test]
fn who_ignores_term_does_not_ignore_kill() {
    let mut world = run(shell("trap '' TERM; echo ready; while :; do read x; done"));
    world.until("ready", |p| p.bytes(1) == b"ready\n");
    signal(&mut world, Signal::Term);
    world.probe.send(1, b"still there?\n");
    world.until("the line was taken", |p| p.saw(1, &Seen::Drained));
    assert_eq!(world.probe.exit(1), None);
    signal(&mut world, Signal::Kill);
    world.until("the exit", |p| p.exit(1).is_some());
    assert_eq!(world.probe.exit(1), Some(ExitReport::Signal(9)));
}

#[test]
fn a_child_that_never_reads_does_not_hold_up_the_loop() {
    let mut world = run(shell("echo ready; sleep 1000"));
    world.probe.send(1, &pattern(4 * 1024 * 1024));
    world.until("ready", |p| p.bytes(1) == b"ready\n");
    assert!(!world.probe.saw(1, &Seen::Drained));
    assert!(
        world.probe.wires[&1].out.len() > 1024 * 1024,
        "it cannot all be in the pipe"
    );
}

#[test]
fn a_child_that_closes_its_input_is_noticed_without_a_write() {
    let mut world = run(shell("exec <&-; sleep 1000"));
    world.until("word of it", |p| p.saw(1, &Seen::WriteClosed));
    assert_eq!(world.probe.story(1), [Seen::Opened, Seen::WriteClosed]);
}

#[test]
fn the_exit_is_seen_while_a_grandchild_holds_the_pipe() {
    let mut world = run(shell("sleep 1000 & exit 3"));
    world.until("the exit", |p| p.exit(1).is_some());
    assert_eq!(world.probe.exit(1), Some(ExitReport::Code(3)));
    assert!(!world.probe.saw(1, &Seen::Eof), "the pipe is still held");
    // The group outlives its leader and can be signalled.
    signal(&mut world, Signal::Kill);
    world.until("the end", |p| p.saw(1, &Seen::Eof));
}

#[test]
fn a_program_that_cannot_start_says_why() {
    let dir = std::env::temp_dir();
    let script = dir.join(format!("drawspan-os-{}", std::process::id()));
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let path = script.to_str().unwrap().to_owned();
    let mut world = World::new(Probe::new());
    world.probe.open(1, child("no-such-program-anywhere", &[]));
    world.probe.open(2, child("/no/such/program", &[]));
    world.probe.open(3, child(&path, &[]));
    world.until("three faults", |p| (1..=3).all(|w| p.fault(w).is_some()));
    let unreachable = FaultKind::Unreachable;
    let faults = &world.probe;
    assert_fault(
        faults.fault(1),
        unreachable,
        &["no-such-program-anywhere", "no such program in PATH"],
    );
    assert_fault(
        faults.fault(2),
        unreachable,
        &["/no/such/program: no such program"],
    );
    assert_fault(faults.fault(3), unreachable, &[&path, "permission denied"]);

    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    world.probe.open(4, child(&path, &[]));
    world.until("the fourth fault", |p| p.fault(4).is_some());
    assert_fault(world.probe.fault(4), unreachable, &[&path, "interpreter"]);
    std::fs::remove_file(&script).unwrap();
}

#[test]
fn the_environment_is_the_given_one_alone() {
    let mut world = run(OpenSpec::Child(ChildSpec {
        program: "/usr/bin/env".to_owned(),
        args: Vec::new(),
        env: vec![("ONLY".to_owned(), "this".to_owned())],
        cwd: None,
    }));
    world.until("the end", |p| p.saw(1, &Seen::Eof));
    assert_eq!(world.probe.bytes(1), b"ONLY=this\n");
}

#[test]
fn nothing_is_left_when_the_loop_is_dropped() {
    let mut world = run(shell("trap '' TERM HUP; sleep 1000 & echo $$ $!; wait"));
    world.probe.open(
        2,
        shell("trap '' TERM HUP; echo $$; read x; exec sleep 1000"),
    );
    world.until("both", |p| {
        p.bytes(1).ends_with(b"\n") && p.bytes(2).ends_with(b"\n")
    });
    let mut pids: Vec<u32> = text(world.probe.bytes(1))
        .split_whitespace()
        .map(number)
        .collect();
    pids.push(pid(world.probe.bytes(2)));
    // The second has lost its wire, but not its reaper.
    world.probe.ask(IoRequest::Close(WireId(2)));
    world.probe.send(1, b"x");
    world.until("the close", |p| p.saw(1, &Seen::Drained));
    drop(world);
    for pid in pids {
        assert_ends(pid);
    }
}

#[test]
fn a_closed_child_is_reaped_when_it_ends() {
    let mut world = run(shell("echo $$; read x"));
    let mut other = world.adopt(2);
    world.until("its number", |p| p.bytes(1).ends_with(b"\n"));
    let child = pid(world.probe.bytes(1));
    // Closing the wire closes its input, so it ends by itself.
    world.probe.ask(IoRequest::Close(WireId(1)));
    let mut round = 0;
    while Path::new(&format!("/proc/{child}")).exists() {
        round += 1;
        std::io::Write::write_all(&mut other, b"x").unwrap();
        world.until("another turn", |p| p.bytes(2).len() >= round);
    }
    assert_eq!(
        world.probe.exit(1),
        None,
        "nothing is heard of a closed wire"
    );
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn number(text: &str) -> u32 {
    text.trim().parse().unwrap()
}

fn pid(bytes: &[u8]) -> u32 {
    number(text(bytes))
}

/// A killed process needs a moment to go.
#[track_caller]
fn assert_ends(pid: u32) {
    let since = std::time::Instant::now();
    while runs(pid) {
        assert!(since.elapsed() < PATIENCE, "{pid} runs on");
        std::thread::yield_now();
    }
}

/// Whether a process does anything any more. One that was killed but belongs to init, which has not
/// reaped it yet, does not.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}
