//! Unix sockets: the file of a listener, and who gets in.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Barrier};

use drawspan::ids::WireId;
use drawspan::io::EventLoop;
use drawspan::limits::Limits;
use drawspan::link::{FaultKind, IoRequest, OpenSpec};
use rustix::process::{Pid, Signal, kill_process};

use crate::deserted::leave_dead_socket;
use crate::probe::{PATIENCE, Probe, Seen, World, assert_fault};
use crate::stdio::{PATH, helper_command, said, say, story};

/// A directory of its own for each test, removed at its end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("drawspan-{}-{test}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("sock")
    }

    /// What is in it.
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap();
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        names
            .map(|entry| name(entry).into_string().unwrap())
            .collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn listen(path: &Path) -> OpenSpec {
    OpenSpec::ListenUnix {
        path: path.to_owned(),
    }
}

/// A loop with a listener on `path` as wire 1.
fn listening(path: &Path) -> World {
    let mut world = World::new(Probe::new());
    world.probe.open(1, listen(path));
    world.settle();
    assert!(path.exists(), "{:?}", world.probe.fault(1));
    world
}

/// What a loop says that cannot listen on `path`.
#[track_caller]
fn refused(path: &Path, words: &str) {
    let mut world = World::new(Probe::new());
    world.probe.open(1, listen(path));
    world.until("the fault", |p| p.fault(1).is_some());
    let words = format!("cannot listen on unix:{}: {words}", path.display());
    assert_fault(world.probe.fault(1), FaultKind::Exhausted, &[&words]);
}

/// The helper: listens on the path in its environment until a signal comes.
pub(crate) fn listen_until_a_signal(path: &Path) {
    let mut world = listening(path);
    world.events.watch_signals().unwrap();
    say("ready");
    loop {
        world.turn();
        if let Some(signal) = world.events.take_signal() {
            drop(world);
            return say(&format!("story: {signal:?}"));
        }
    }
}

/// The helper: connects, and tells whether it was let in.
pub(crate) fn knock(path: &Path) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut word = Vec::new();
    let heard = stream.read_to_end(&mut word);
    say(&format!("story: {heard:?}"));
}

#[test]
fn both_ways_through_a_socket_file() {
    let dir = Scratch::new("both-ways");
    let path = dir.socket();
    let mut world = listening(&path);
    world.probe.accepts = 1;
    let found = fs::symlink_metadata(&path).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.mode() & 0o777, 0o600);
    assert_eq!(dir.names(), ["sock"], "no draft is left");
    assert_eq!(world.events.local_port(0, WireId(1)), None);

    world.probe.open(2, OpenSpec::Unix { path: path.clone() });
    world.probe.send(2, b"hello");
    world.until("hello", |p| p.bytes(100) == b"hello");
    world.probe.send(100, b"welcome");
    world.until("welcome", |p| p.bytes(2) == b"welcome");
    assert_eq!(world.probe.story(2), [Seen::Opened, Seen::Bytes]);
    let uid = rustix::process::geteuid().as_raw();
    let peer = format!("unix:uid={uid},pid={}", std::process::id());
    assert_eq!(world.probe.accepted, [(100, peer)]);
}

#[test]
fn the_file_goes_with_its_listener() {
    let dir = Scratch::new("goes");
    let path = dir.socket();
    let mut world = listening(&path);
    world.probe.accepts = 1;
    let mut client = UnixStream::connect(&path).unwrap();
    world.until("the connection", |p| p.accepted.len() == 1);
    world.probe.ask(IoRequest::Close(WireId(1)));
    world.settle();
    assert_eq!(dir.names(), [""; 0]);
    // Who was accepted is served on.
    client.write_all(b"still here").unwrap();
    world.until("its bytes", |p| p.bytes(100) == b"still here");

    let world = listening(&path);
    drop(world);
    assert_eq!(dir.names(), [""; 0]);
}

#[test]
fn a_file_that_is_no_longer_ours_stays() {
    let dir = Scratch::new("not-ours");
    let path = dir.socket();
    let world = listening(&path);
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    drop(world);
    assert_eq!(dir.names(), ["sock"]);
    drop(other);
}

#[test]
fn the_file_of_a_dead_process_is_replaced() {
    let dir = Scratch::new("stale");
    let path = dir.socket();
    leave_dead_socket(&path);
    let mut world = listening(&path);
    world.probe.accepts = 1;
    let _client = UnixStream::connect(&path).unwrap();
    world.until("the connection", |p| p.accepted.len() == 1);
    assert_eq!(dir.names(), ["sock"]);
}

#[test]
fn a_live_listener_is_left_alone() {
    let dir = Scratch::new("live");
    let path = dir.socket();
    let live = UnixListener::bind(&path).unwrap();
    refused(&path, "another process listens there");
    // A queue that is full is alive as well.
    rustix::net::listen(&live, 0).unwrap();
    live.set_nonblocking(true).unwrap();
    let waiting = std::iter::from_fn(|| try_connect(&path)).count();
    refused(&path, "another process listens there");
    assert!((0..waiting).all(|_| live.accept().is_ok()));
    assert_eq!(dir.names(), ["sock"]);
}

/// Connects if that is possible without waiting.
fn try_connect(path: &Path) -> Option<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::io::ioctl_fionbio(&socket, true).unwrap();
    let address = SocketAddrUnix::new(path).unwrap();
    rustix::net::connect(&socket, &address).ok()?;
    Some(socket)
}

#[test]
fn what_cannot_be_a_listener_says_why() {
    let dir = Scratch::new("why");
    let path = dir.socket();
    fs::write(&path, "precious").unwrap();
    refused(&path, "there is a file that is no socket");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    assert_eq!(dir.names(), ["sock"]);
    refused(&dir.0.join("no/sock"), "no such file or directory");
    let long = dir.0.join("x".repeat(119 - dir.0.as_os_str().len()));
    refused(&long, "the path has 120 bytes, a socket's may have ");
}

#[test]
fn what_cannot_be_connected_to_says_why() {
    let dir = Scratch::new("nobody");
    let path = dir.socket();
    let mut world = World::new(Probe::new());
    world.probe.open(1, OpenSpec::Unix { path: path.clone() });
    world.until("no file", |p| p.fault(1).is_some());
    leave_dead_socket(&path);
    world.probe.open(2, OpenSpec::Unix { path: path.clone() });
    world.until("no listener", |p| p.fault(2).is_some());
    let long = PathBuf::from("x".repeat(108));
    world.probe.open(3, OpenSpec::Unix { path: long });
    world.until("a long path", |p| p.fault(3).is_some());
    let what = format!("cannot connect to unix:{}", path.display());
    for (wire, words) in [
        (1, [what.as_str(), "no such file or directory"]),
        (2, [what.as_str(), "connection refused"]),
        (3, ["cannot connect to unix:xxx", "the path has 108 bytes"]),
    ] {
        assert_fault(world.probe.fault(wire), FaultKind::Unreachable, &words);
        assert_eq!(world.probe.story(wire).len(), 1, "nothing follows a fault");
    }
}

#[test]
fn of_all_who_start_at_once_one_gets_the_name() {
    const STARTERS: usize = 4;
    let dir = Scratch::new("at-once");
    let path = dir.socket();
    for round in 0..50 {
        if round % 2 == 0 {
            leave_dead_socket(&path);
        }
        let (start, end) = (
            Arc::new(Barrier::new(STARTERS)),
            Arc::new(Barrier::new(STARTERS)),
        );
        let starters: Vec<_> = (0..STARTERS)
            .map(|_| {
                let (path, start, end) = (path.clone(), Arc::clone(&start), Arc::clone(&end));
                std::thread::spawn(move || {
                    let mut events = EventLoop::new(&Limits::default()).unwrap();
                    let mut probe = Probe::new();
                    probe.open(1, listen(&path));
                    start.wait();
                    events.settle(&mut [&mut probe]);
                    end.wait();
                    // A fault is told in the next turn, which therefore does not sleep.
                    probe.deadline_at_once();
                    events.turn(&mut [&mut probe]).unwrap();
                    probe.fault(1).cloned()
                })
            })
            .collect();
        let faults: Vec<_> = starters
            .into_iter()
            .filter_map(|starter| starter.join().unwrap())
            .collect();
        assert_eq!(faults.len(), STARTERS - 1, "round {round}: {faults:?}");
        assert_eq!(dir.names(), [""; 0], "round {round}");
    }
}

#[test]
fn a_signal_leaves_no_file_and_a_kill_leaves_one_for_the_next() {
    let dir = Scratch::new("signal");
    let path = dir.socket();
    for signal in [Signal::TERM, Signal::KILL] {
        if signal == Signal::TERM && cfg!(not(feature = "cli")) {
            // Nobody listens for it in this build.
            continue;
        }
        let mut command = helper_command("listen-unix");
        let mut child = command.env(PATH, &path).spawn().unwrap();
        said(&mut child, "ready");
        assert!(path.exists());
        kill_process(Pid::from_child(&child), signal).unwrap();
        if signal == Signal::TERM {
            assert_eq!(story(&mut child), "Terminate");
            assert_eq!(dir.names(), [""; 0]);
        } else {
            child.wait().unwrap();
            assert_eq!(dir.names(), ["sock"]);
        }
    }
    drop(listening(&path));
    assert_eq!(dir.names(), [""; 0]);
}

#[test]
#[cfg(target_os = "linux")]
fn another_user_is_turned_away() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return say("skipped: only root can try as another user");
    }
    let dir = Scratch::new("stranger");
    let path = dir.socket();
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o755)).unwrap();
    let mut world = listening(&path);
    world.probe.accepts = 1;
    // The mode keeps strangers out already; here it is someone's careless chmod.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    // Nobody may not read the build directory.
    let program = dir.0.join("helper");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut stranger = std::process::Command::new(&program);
    crate::stdio::as_helper(&mut stranger, "knock");
    let mut stranger = stranger
        .env(PATH, &path)
        .current_dir(&dir.0)
        .stdin(Stdio::null())
        .uid(NOBODY)
        .gid(NOBODY)
        .spawn()
        .unwrap();
    let heard = std::thread::spawn(move || story(&mut stranger));
    while !heard.is_finished() {
        world.probe.deadline_soon(&world.events);
        world.turn();
    }
    assert_eq!(heard.join().unwrap(), "Ok(0)", "closed without a word");
    assert_eq!((world.probe.accepted.len(), world.probe.refused), (0, 0));
    // Our own user gets in all the same.
    let _client = UnixStream::connect(&path).unwrap();
    world.until("our own", |p| p.accepted.len() == 1);
}
