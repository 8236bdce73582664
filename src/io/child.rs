//! Programs we start: spawn, exit, signal, reap.
//!
//! A child leads a process group of its own, so that what it starts can be signalled with it. On
//! Linux a program can name a guardian (see `guardian`), which then is the child's parent, tells how
//! it ended, and finds what has left the group too. Without one we are its parent.
//!
//! A child gets its three pipes and nothing else that we have opened: all of that is closed on exec.
//! Descriptors that we were given ourselves beside our own three, and that whoever started us had not
//! marked so, pass through to it: to mark or close what is known by its number only is not possible
//! in safe code. A supervisor that starts us gives none.
//!
//! The exit of a child of ours is seen through a pidfd (Linux 5.3); elsewhere the loop asks on a
//! tick. The exit is *read* first and *reaped* only when the wire is closed: until then its number,
//! which is its group's number too, cannot be given to a stranger, and a signal to the group cannot
//! hit one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::Key;
use super::fault::fault;
#[cfg(target_os = "linux")]
use super::guardian::{self, Control, Guardians, Report};
use crate::link::{ChildSpec, ExitReport, FaultKind, IoFault, Signal};
use crate::secret::Quoted;

/// A child that has not been reaped.
#[derive(Debug)]
pub(super) struct ChildProcess {
    /// The program, or its guardian.
    child: Child,
    keeper: Keeper,
    /// What it is called in messages.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "for guardians"))]
    label: String,
    /// The wire it belongs to; `None` once that is closed, and then it is reaped as soon as it
    /// ends.
    pub(super) wire: Option<Key>,
    /// Its exit was told to the machine.
    pub(super) exit_told: bool,
    /// Its exit has waited a turn for what was to be read first.
    pub(super) exit_waited: bool,
    /// It was killed, with all it has started.
    killed: bool,
    /// The poll does not tell of it.
    unwatched: bool,
}

/// Who keeps hold of the program and of what it starts.
#[derive(Debug)]
enum Keeper {
    /// We are its parent.
    Us {
        pid: Pid,
        /// Readable once it has ended; `None` where the system has no such thing.
        pidfd: Option<OwnedFd>,
    },
    /// A guardian is.
    #[cfg(target_os = "linux")]
    Guardian {
        control: Control,
        /// The program, once it runs; its group has the same number.
        server: Option<Pid>,
        exit: Option<ExitReport>,
        /// The guardian has ended.
        gone: bool,
    },
}

/// What there is to tell of a child.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "for guardians"))]
#[derive(Debug)]
pub(super) enum News {
    /// It runs.
    Started,
    /// It could not be started, or nobody keeps hold of it any more.
    Failed(IoFault),
    /// It has ended; it stays unreaped.
    Exited(ExitReport),
}

/// Our ends of a child's three pipes, in non-blocking mode.
#[derive(Debug)]
pub(super) struct ChildPipes {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

impl ChildPipes {
    /// Each end of a pipe is an open file description of its own: the child's end stays as it was.
    pub(super) fn unblock(&self) -> io::Result<()> {
        for fd in [&self.stdin, &self.stdout, &self.stderr] {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        Ok(())
    }
}

/// How a child is called in messages.
pub(super) fn label(spec: &ChildSpec) -> String {
    Quoted(&spec.program).to_string()
}

/// Starts `spec` for the wire `key`. Whether it runs, [`ChildProcess::news`] tells.
pub(super) fn spawn(key: Key, spec: &ChildSpec) -> Result<(ChildProcess, ChildPipes), IoFault> {
    let path = resolve(spec)?;
    let mut command = Command::new(&path);
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
    {
        use std::os::unix::process::CommandExt;
        command.arg0(&spec.program).process_group(0);
    }
    let mut child = command.spawn().map_err(|e| start_fault(&label(spec), &e))?;

    let pid = Pid::from_child(&child);
    super::rlimit::hand_down(pid);
    let pipes = take_pipes(&mut child);
    let mut process = ChildProcess {
        child,
        keeper: Keeper::Us {
            pid,
            pidfd: pidfd(pid),
        },
        label: label(spec),
        wire: Some(key),
        exit_told: false,
        exit_waited: false,
        killed: false,
        unwatched: false,
    };
    match pipes {
        Ok(pipes) => Ok((process, pipes)),
        Err(error) => {
            let what = format!("cannot start {}", label(spec));
            process.signal(Signal::Kill);
            process.wait();
            Err(fault(FaultKind::Exhausted, &what, &error))
        }
    }
}

/// Has a guardian start it.
#[cfg(target_os = "linux")]
pub(super) fn spawn_guarded(
    guardians: &Guardians,
    key: Key,
    spec: &ChildSpec,
) -> Result<(ChildProcess, ChildPipes), IoFault> {
    let path = resolve(spec)?;
    let label = label(spec);
    let started = guardian::spawn(guardians, spec, &path);
    let (child, control, pipes) = started.map_err(|error| {
        fault(
            FaultKind::Exhausted,
            &format!("cannot start a guardian for {label}"),
            &error,
        )
    })?;
    let process = ChildProcess {
        child,
        keeper: Keeper::Guardian {
            control,
            server: None,
            exit: None,
            gone: false,
        },
        label,
        wire: Some(key),
        exit_told: false,
        exit_waited: false,
        killed: false,
        unwatched: false,
    };
    Ok((process, pipes))
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
    pipes.unblock()?;
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

/// Where programs are looked for when the child's environment has no PATH. As the C library does.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The file that `spec` means: the first of its name that can be run in the PATH of its own
/// environment. Looked for beforehand, so that what is wrong is told as it is.
fn resolve(spec: &ChildSpec) -> Result<PathBuf, IoFault> {
    let refuse = |why: &str| IoFault {
        kind: FaultKind::Unreachable,
        message: format!("cannot start {}: {why}", label(spec)),
    };
    // What is relative is so to where the child starts.
    let base = spec.cwd.as_deref().unwrap_or_else(|| Path::new(""));
    if let Some(cwd) = spec.cwd.as_deref().filter(|cwd| !cwd.is_dir()) {
        let shown = cwd.to_string_lossy();
        return Err(refuse(&format!("no such directory: {}", Quoted(&shown))));
    }
    let program = spec.program.as_str();
    if program.contains('/') {
        return match runnable(&base.join(program)) {
            // The child is given the path as it stands: it may say it of itself.
            Ok(()) => Ok(program.into()),
            Err(Errno::NOENT) => Err(refuse("no such program")),
            Err(Errno::ISDIR) => Err(refuse("it is a directory")),
            Err(error) => Err(start_fault(&label(spec), &error.into())),
        };
    }
    let path = spec.env.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map_or(DEFAULT_PATH, |(_, path)| path.as_str());
    let mut in_the_way = None;
    for folder in path.split(':').filter(|_| !program.is_empty()) {
        let file = Path::new(folder).join(program);
        match runnable(&base.join(&file)) {
            // An empty folder is the child's own; without a slash it would be looked for again.
            Ok(()) if folder.is_empty() => return Ok(Path::new(".").join(program)),
            Ok(()) => return Ok(file),
            Err(Errno::ACCESS) => in_the_way = in_the_way.or(Some(file)),
            Err(_) => {}
        }
    }
    Err(match in_the_way {
        Some(file) => {
            let shown = file.to_string_lossy();
            refuse(&format!("{}: permission denied", Quoted(&shown)))
        }
        None => refuse("no such program in PATH"),
    })
}

/// Whether there is a file that we may run.
fn runnable(path: &Path) -> Result<(), Errno> {
    let found = std::fs::metadata(path)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOENT))?;
    if found.is_dir() {
        return Err(Errno::ISDIR);
    }
    access(path, Access::EXEC_OK)
}

/// Names the program and what is wrong with it, which was there a moment ago.
fn start_fault(label: &str, error: &io::Error) -> IoFault {
    let what = format!("cannot start {label}");
    let why = match Errno::from_io_error(error) {
        Some(Errno::NOENT) => "the interpreter it names does not exist",
        Some(Errno::TXTBSY) => "its file is open for writing",
        Some(Errno::NOEXEC) => "its file is not a program, and does not begin with #!",
        Some(Errno::TOOBIG) => "its arguments and environment are too large",
        _ => return fault(FaultKind::Unreachable, &what, error),
    };
    IoFault {
        kind: FaultKind::Unreachable,
        message: format!("{what}: {why}"),
    }
}

impl ChildProcess {
    /// What becomes readable when there is news; `None` where one has to ask.
    pub(super) fn watched(&self) -> Option<BorrowedFd<'_>> {
        match &self.keeper {
            Keeper::Us { pidfd, .. } => pidfd.as_ref().map(AsFd::as_fd),
            #[cfg(target_os = "linux")]
            Keeper::Guardian { control, .. } => Some(control.as_fd()),
        }
    }

    /// The poll refuses it: from now on one has to ask.
    pub(super) fn unwatch(&mut self) {
        self.unwatched = true;
    }

    /// Whether one has to ask for its end now and then.
    pub(super) fn needs_asking(&mut self) -> bool {
        match &self.keeper {
            Keeper::Us { pidfd, .. } => self.unwatched || pidfd.is_none(),
            // Its socket ends a moment before it can be reaped.
            #[cfg(target_os = "linux")]
            Keeper::Guardian { gone: true, .. } => !self.try_reap(),
            #[cfg(target_os = "linux")]
            Keeper::Guardian { gone: false, .. } => self.unwatched,
        }
    }

    /// Whether it runs from the start on, without news of that.
    pub(super) fn runs_at_once(&self) -> bool {
        match &self.keeper {
            Keeper::Us { .. } => true,
            #[cfg(target_os = "linux")]
            Keeper::Guardian { .. } => false,
        }
    }

    /// The next thing there is to tell.
    pub(super) fn news(&mut self) -> Option<News> {
        match &mut self.keeper {
            Keeper::Us { pid, .. } => exit(*pid).map(News::Exited),
            #[cfg(target_os = "linux")]
            Keeper::Guardian {
                control,
                server,
                exit,
                gone,
            } => loop {
                if *gone {
                    return exit.map(News::Exited);
                }
                match control.hear() {
                    None => return exit.map(News::Exited),
                    Some(Report::Started(pid)) => {
                        *server = Pid::from_raw(pid);
                        return Some(News::Started);
                    }
                    Some(Report::Refused(errno)) => {
                        let error = io::Error::from_raw_os_error(errno);
                        return Some(News::Failed(start_fault(&self.label, &error)));
                    }
                    Some(Report::Exited(report)) => *exit = Some(report),
                    Some(Report::Gone) => {
                        *gone = true;
                        if exit.is_some() {
                            continue;
                        }
                        // Somebody has killed it. What is left has lost its parent a moment ago,
                        // too short for its number to have come round.
                        if let Some(server) = *server {
                            let _ = kill_process_group(server, rustix::process::Signal::KILL);
                        }
                        return Some(News::Failed(IoFault {
                            kind: FaultKind::Broken,
                            message: format!("{}: its guardian is gone", self.label),
                        }));
                    }
                }
            },
        }
    }

    /// Signals its whole group, and whoever has left it where a guardian knows them. A group that
    /// is gone is what was wanted.
    pub(super) fn signal(&self, signal: Signal) {
        match &self.keeper {
            Keeper::Us { pid, .. } => signal_group(*pid, signal),
            #[cfg(target_os = "linux")]
            Keeper::Guardian { control, .. } => control.signal(signal),
        }
    }

    /// Kills it with all it has started, once.
    pub(super) fn kill(&mut self) {
        if !std::mem::replace(&mut self.killed, true) {
            self.signal(Signal::Kill);
        }
    }

    pub(super) const fn is_killed(&self) -> bool {
        self.killed
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

/// How a child of ours ended, if it has; it stays unreaped.
fn exit(pid: Pid) -> Option<ExitReport> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(pid), options) {
        Ok(Some(status)) => Some(match status.terminating_signal() {
            Some(signal) => ExitReport::Signal(signal),
            None => ExitReport::Code(status.exit_status().unwrap_or(0)),
        }),
        Ok(None) => None,
        // Someone else reaped it (a handler of the embedding program): it is gone, code unknown.
        Err(Errno::CHILD) => Some(ExitReport::Code(-1)),
        Err(_) => None,
    }
}

fn signal_group(group: Pid, signal: Signal) {
    let signal = match signal {
        Signal::Term => rustix::process::Signal::TERM,
        Signal::Kill => rustix::process::Signal::KILL,
    };
    if let Err(error) = kill_process_group(group, signal) {
        log::debug!("group {}: {error}", group.as_raw_nonzero());
    }
}
