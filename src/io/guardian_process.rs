//! The guardian itself: what the process does that `guardian` starts (Linux).
//!
//! | state       | input                          | next        | what happens                    |
//! |-------------|--------------------------------|-------------|---------------------------------|
//! | Serving     | `T`                            | Serving     | SIGTERM to everything           |
//! | Serving     | the end of drawspan, SIGTERM   | Closing     | its pipes are closed: end of input |
//! | Closing     | the server ends, or time       | Terminating | SIGTERM to everything           |
//! | Terminating | time                           | Killing     | SIGKILL to everything           |
//! | any         | `K`                            | Killing     | SIGKILL to everything           |
//! | Killing     | a process ends, or a tick      | Killing     | SIGKILL to what came to light   |
//! | any         | a process ends                 | same        | reaped; the server's end is reported |
//! | any         | no child is left               | gone        | the guardian exits              |
//! | Killing     | `GIVE_UP`                      | gone        | the guardian exits              |
//!
//! "Everything" is the server's process group and every child of ours: whoever has lost its parent
//! below us is one. Killing goes from the top down, so that after each round what was below comes
//! up. And a child of ours cannot be a stranger: its number is in use until we reap it.
//!
//! Two watches for the end of drawspan, each of which fails where the other holds: the socket ends,
//! unless someone has inherited the other end of it; the parent-death signal comes, unless drawspan
//! was started with other rights. The guardian has a session of its own, so that Ctrl-C and the end
//! of a terminal reach drawspan alone.
//!
//! Never: touches what the server reads and writes.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send,
};
use rustix::process::{
    Pid, WaitOptions, WaitStatus, getpgid, getpid, getppid, kill_process, kill_process_group,
    set_child_subreaper, set_parent_process_death_signal, setsid, wait,
};
use rustix::stdio::stdin;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook_mio::v1_0::Signals;

use super::guardian::{KILL, Order, Report, START, TERM};
use crate::link::ExitReport;

/// Between the end of input and SIGTERM, and again before SIGKILL, when drawspan is gone. (While it
/// is there it has its own times.) Together well under the three seconds in which all must be gone. No
/// limits, here and below: a guardian outlives the program whose settings it would need, and the sum is what
/// is promised.
const GRACE: Duration = Duration::from_millis(700);

/// How often everything is killed again: what was out of sight the last time may have come up.
const KILL_TICK: Duration = Duration::from_millis(20);

/// A process that SIGKILL has not ended after this hangs in the kernel.
const GIVE_UP: Duration = Duration::from_secs(10);

const CONTROL: Token = Token(0);
const SIGNALS: Token = Token(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Serving,
    Closing { until: Instant },
    Terminating { until: Instant },
    Killing { tick: Instant, until: Instant },
}

struct Guardian {
    parent: Option<Pid>,
    /// The server; its group has the same number.
    server: Pid,
    /// The server has been reaped.
    ended: bool,
    state: State,
}

/// Runs a guardian on the socket that is its stdin, to its end. Returns the exit code of the
/// process: 0 unless it could not do its work.
#[must_use]
pub fn run() -> u8 {
    match guard() {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn guard() -> io::Result<()> {
    // Its name would be that of `/proc/self/exe`.
    let _ = fs::write("/proc/self/comm", "drawspan-guard");
    let parent = getppid();
    // Fails for who already leads a group, as a debugger may have it.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    set_parent_process_death_signal(Some(rustix::process::Signal::USR1))?;

    let mut signals = Signals::new([SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
    let mut poll = Poll::new()?;
    let registry = poll.registry();
    registry.register(&mut signals, SIGNALS, Interest::READABLE)?;
    let control = stdin().as_raw_fd();
    registry.register(&mut SourceFd(&control), CONTROL, Interest::READABLE)?;

    let Some(descriptors) = receive()? else {
        return Ok(());
    };
    let server = match start(descriptors) {
        Ok(server) => server,
        Err(error) => {
            report(Report::Refused(error.raw_os_error().unwrap_or(0)));
            return Ok(());
        }
    };
    report(Report::Started(server.as_raw_nonzero().get()));
    let mut guardian = Guardian {
        parent,
        server,
        ended: false,
        state: State::Serving,
    };
    let mut events = Events::with_capacity(4);
    // What happened before the first wait is looked for, not waited for.
    loop {
        let now = Instant::now();
        guardian.obey(now);
        for signal in signals.pending() {
            guardian.handle_signal(now, signal);
        }
        if guardian.reap(now) == Left::Nothing || guardian.step(now) == Left::Nothing {
            return Ok(());
        }
        let timeout = guardian.deadline().map(|at| at.duration_since(now));
        match poll.poll(&mut events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
}

/// Waits for the first packet. `None` when drawspan is gone before it came.
fn receive() -> io::Result<Option<Vec<OwnedFd>>> {
    let mut word = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut words = [io::IoSliceMut::new(&mut word)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(stdin(), &mut words, &mut ancillary, flags)?;
    let mut descriptors = Vec::with_capacity(4);
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok((word == [START]).then_some(descriptors))
}

/// Starts the server. Our copies of its pipes are closed by that.
fn start(descriptors: Vec<OwnedFd>) -> io::Result<Pid> {
    let Ok([input, output, errors, order]) = <[OwnedFd; 4]>::try_from(descriptors) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let order = Order::open(order)?;
    if let Some(most) = order.descriptors_max {
        super::rlimit::lower(most);
    }
    let mut command = Command::new(&order.program);
    command
        .arg0(&order.name)
        .args(&order.args)
        .env_clear()
        .envs(order.env)
        .process_group(0)
        .stdin(Stdio::from(input))
        .stdout(Stdio::from(output))
        .stderr(Stdio::from(errors));
    if !order.cwd.is_empty() {
        command.current_dir(&order.cwd);
    }
    // Set before the start, so that even its first child has it; then taken back.
    let ours = order.oom_score_adj.and_then(raise_oom_score);
    let child = command.spawn();
    if let Some(ours) = ours {
        let _ = fs::write(OOM_SCORE, ours);
    }
    Ok(Pid::from_child(&child?))
}

const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// Makes what we start the first to go when memory runs out. Returns what to go back to, if there is
/// anything to go back to.
fn raise_oom_score(score: u16) -> Option<String> {
    let ours = fs::read_to_string(OOM_SCORE).ok()?;
    let lower = ours
        .trim()
        .parse::<i32>()
        .is_ok_and(|n| n < i32::from(score));
    (lower && fs::write(OOM_SCORE, score.to_string()).is_ok()).then_some(ours)
}

fn report(report: Report) {
    if let Some(packet) = report.packet() {
        // Fails when drawspan is gone, and then nobody wants to know.
        let _ = send(stdin(), &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Something,
    Nothing,
}

impl Guardian {
    /// Does what drawspan says.
    fn obey(&mut self, now: Instant) {
        loop {
            let mut word = [0];
            match recv(stdin(), &mut word[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return self.close(now),
                Ok(_) if word == [TERM] => self.terminate(),
                Ok(_) if word == [KILL] => self.kill(now),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => return self.close(now),
            }
        }
    }

    fn handle_signal(&mut self, now: Instant, signal: i32) {
        match signal {
            SIGCHLD => {}
            // The parent-death signal also comes when the thread that started us ends.
            SIGUSR1 => {
                if getppid() != self.parent {
                    self.close(now);
                }
            }
            _ => self.close(now),
        }
    }

    /// Drawspan is gone, and its ends of the pipes with it.
    fn close(&mut self, now: Instant) {
        if self.state == State::Serving {
            let until = now + GRACE;
            self.state = State::Closing { until };
        }
    }

    fn kill(&mut self, now: Instant) {
        if !matches!(self.state, State::Killing { .. }) {
            self.state = State::Killing {
                tick: now,
                until: now + GIVE_UP,
            };
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Serving => None,
            State::Closing { until } | State::Terminating { until } => Some(until),
            State::Killing { tick, .. } => Some(tick),
        }
    }

    /// Reaps whoever has ended.
    fn reap(&mut self, now: Instant) -> Left {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid == self.server && !self.ended {
                        self.ended = true;
                        report(Report::Exited(exit_report(status)));
                    }
                    // Its children are ours now.
                    if let State::Killing { until, .. } = self.state {
                        self.state = State::Killing { tick: now, until };
                    }
                }
                Ok(None) => return Left::Something,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Left::Nothing,
            }
        }
    }

    /// Does what is due.
    fn step(&mut self, now: Instant) -> Left {
        match self.state {
            State::Serving => {}
            State::Closing { until } => {
                if self.ended || until <= now {
                    self.terminate();
                    let until = now + GRACE;
                    self.state = State::Terminating { until };
                }
            }
            State::Terminating { until } => {
                if until <= now {
                    self.kill(now);
                    return self.step(now);
                }
            }
            State::Killing { tick, until } => {
                if until <= now {
                    return Left::Nothing;
                }
                if tick <= now {
                    self.signal(rustix::process::Signal::KILL);
                    let tick = now + KILL_TICK;
                    self.state = State::Killing { tick, until };
                }
            }
        }
        Left::Something
    }

    fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Signals everything: the group at once, then those who have left it.
    fn signal(&self, signal: rustix::process::Signal) {
        let children = children();
        let in_group = |pid: &Pid| getpgid(Some(*pid)).is_ok_and(|group| group == self.server);
        // The group's number is its own while one of our children, reaped by nobody but us, is in
        // it. A member below a stranger to the group comes up when that one has ended.
        if !self.ended || children.iter().any(in_group) {
            let _ = kill_process_group(self.server, signal);
        }
        for child in children.iter().filter(|child| !in_group(child)) {
            let _ = kill_process(*child, signal);
        }
    }
}

fn exit_report(status: WaitStatus) -> ExitReport {
    match status.terminating_signal() {
        Some(signal) => ExitReport::Signal(signal),
        None => ExitReport::Code(status.exit_status().unwrap_or(0)),
    }
}

/// Our children, as far as they are seen: the list may miss one that comes or goes meanwhile, and
/// there is none without `/proc`. That nobody is left says [`wait`] alone.
fn children() -> Vec<Pid> {
    let listed = match fs::read_to_string("/proc/thread-self/children") {
        Ok(listed) => listed,
        // A kernel without CONFIG_PROC_CHILDREN.
        Err(_) => children_by_parent().unwrap_or_default(),
    };
    listed
        .split_ascii_whitespace()
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}

fn children_by_parent() -> io::Result<String> {
    let ours = getpid().as_raw_nonzero().to_string();
    let mut found = String::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
        // The name may hold blanks and brackets; behind it come the state and the parent.
        let parent = stat.rsplit_once(") ").and_then(|(head, rest)| {
            let (pid, _) = head.split_once(' ')?;
            (rest.split(' ').nth(1)? == ours).then_some(pid)
        });
        if let Some(pid) = parent {
            found.push_str(pid);
            found.push(' ');
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_list_children_find_the_same() {
        let mut child = Command::new("sleep")
            .arg("1000")
            .spawn()
            .expect("works here");
        let pid = child.id().to_string();
        let listed = children_by_parent().expect("works here");
        assert!(listed.split(' ').any(|found| found == pid), "{listed}");
        let ours = children();
        assert!(ours.contains(&Pid::from_child(&child)), "{ours:?}");
        child.kill().expect("works here");
        child.wait().expect("works here");
    }
}
