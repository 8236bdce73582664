//! Programs we start: spawn, exit, signal, reap.
//!
//! A child leads a process group of its own, so that what it starts can be signalled with it. Its
//! exit is seen through a pidfd (Linux 5.3); elsewhere the loop asks on a tick. The exit is *read*
//! first and *reaped* only when the wire is closed: until then its number, which is its group's
//! number too, cannot be given to a stranger, and a signal to the group cannot hit one.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::Key;
use super::fault::fault;
use crate::link::{ChildSpec, ExitReport, FaultKind, IoFault, Signal};
use crate::secret::Quoted;

/// A child that has not been reaped.
#[derive(Debug)]
pub(super) struct ChildProcess {
    child: Child,
    pid: Pid,
    /// The wire it belongs to; `None` once that is closed, and then it is reaped as soon as it
    /// ends.
    pub(super) wire: Option<Key>,
    /// Its exit was told to the machine.
    pub(super) exit_told: bool,
    /// Readable once it has ended; `None` where the system has no such thing.
    pub(super) pidfd: Option<OwnedFd>,
}

/// Our ends of a child's three pipes, in non-blocking mode.
#[derive(Debug)]
pub(super) struct ChildPipes {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// How a child is called in messages.
pub(super) fn label(spec: &ChildSpec) -> String {
    Quoted(&spec.program).to_string()
}

/// Starts `spec` for the wire `key`.
pub(super) fn spawn(key: Key, spec: &ChildSpec) -> Result<(ChildProcess, ChildPipes), IoFault> {
    let mut command = Command::new(&spec.program);
    command
        .args(&spec.args)
        .env_clear()
        .envs(spec.env.iter().map(|(k, v)| (k, v)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(cwd) = &spec.cwd {
        command.current_dir(cwd);
    }
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().map_err(|e| spawn_fault(spec, &e))?;

    let pid = Pid::from_child(&child);
    super::rlimit::hand_down(pid);
    let pipes = take_pipes(&mut child);
    let process = ChildProcess {
        child,
        pid,
        wire: Some(key),
        exit_told: false,
        pidfd: pidfd(pid),
    };
    match pipes {
        Ok(pipes) => Ok((process, pipes)),
        Err(error) => {
            let what = format!("cannot start {}", label(spec));
            process.signal(Signal::Kill);
            let mut process = process;
            process.wait();
            Err(fault(FaultKind::Exhausted, &what, &error))
        }
    }
}

fn take_pipes(child: &mut Child) -> io::Result<ChildPipes> {
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::Error::other("a pipe is missing"));
    };
    let pipes = ChildPipes {
        stdin: stdin.into(),
        stdout: stdout.into(),
        stderr: stderr.into(),
    };
    // Each end of a pipe is an open file description of its own: the child's end stays as it was.
    for fd in [&pipes.stdin, &pipes.stdout, &pipes.stderr] {
        rustix::io::ioctl_fionbio(fd, true)?;
    }
    Ok(pipes)
}

#[cfg(target_os = "linux")]
pub(super) fn pidfd(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn pidfd(_pid: Pid) -> Option<OwnedFd> {
    None
}

/// Names the program and what is wrong with it.
fn spawn_fault(spec: &ChildSpec, error: &io::Error) -> IoFault {
    let what = format!("cannot start {}", label(spec));
    let unreachable = |why: &str| IoFault {
        kind: FaultKind::Unreachable,
        message: format!("{what}: {why}"),
    };
    if error.kind() != io::ErrorKind::NotFound {
        return fault(FaultKind::Unreachable, &what, error);
    }
    if !spec.program.contains('/') {
        unreachable("no such program in PATH")
    } else if std::path::Path::new(&spec.program).exists() {
        unreachable("the interpreter it names does not exist")
    } else {
        unreachable("no such program")
    }
}

impl ChildProcess {
    /// How it ended, if it has; it stays unreaped.
    pub(super) fn exit(&self) -> Option<ExitReport> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.pid), options) {
            Ok(Some(status)) => Some(match status.terminating_signal() {
                Some(signal) => ExitReport::Signal(signal),
                None => ExitReport::Code(status.exit_status().unwrap_or(0)),
            }),
            Ok(None) => None,
            // Someone else reaped it (a handler of the embedding program): it is gone, code
            // unknown.
            Err(Errno::CHILD) => Some(ExitReport::Code(-1)),
            Err(_) => None,
        }
    }

    /// Signals its whole group. A group that is gone is what was wanted.
    pub(super) fn signal(&self, signal: Signal) {
        let signal = match signal {
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
        };
        if let Err(error) = kill_process_group(self.pid, signal) {
            log::debug!("group {}: {error}", self.pid.as_raw_nonzero());
        }
    }

    /// Reaps it if it has ended.
    pub(super) fn try_reap(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end and reaps it; only after a KILL.
    fn wait(&mut self) {
        let _ = self.child.wait();
    }
}
