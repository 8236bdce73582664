//! Our end of a guardian: the small process between us and one program that we start (Linux).
//!
//! A guardian is this program run again with a few words of its own. The kernel makes it the parent
//! of every orphan below it (`PR_SET_CHILD_SUBREAPER`), so that what a server leaves behind, however
//! it forks, is found and ended; and it outlives us, so that this happens whatever ends us. There is
//! one for each server: an orphan does not say whose it was, its parent does.
//!
//! The two talk over a socket pair that keeps packets apart:
//!
//! | from     | packet                  | meaning                                             |
//! |----------|-------------------------|-----------------------------------------------------|
//! | us       | `S`, four descriptors   | start: stdin, stdout, stderr, the order (see below) |
//! | us       | `T`                     | SIGTERM to everything                               |
//! | us       | `K`                     | SIGKILL to everything, until nothing is left        |
//! | us       | end                     | we are gone: end of input, SIGTERM, SIGKILL         |
//! | guardian | `S`, process id         | the server runs                                     |
//! | guardian | `F`, errno              | it could not be started                             |
//! | guardian | `X`, exit code          | it has ended; descendants may be left               |
//! | guardian | `G`, signal             | the same, by a signal                               |
//! | guardian | end                     | nothing is left, and the guardian is gone too       |
//!
//! The order is a file in memory, so that its size has no limit and the guardian itself runs in an
//! empty environment: a server's `LD_LIBRARY_PATH` is none of its business.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, send, sendmsg, socketpair,
};

use super::child::ChildPipes;
use crate::link::{ChildSpec, ExitReport, Signal};

/// Packets from us.
pub(super) const START: u8 = b'S';
pub(super) const TERM: u8 = b'T';
pub(super) const KILL: u8 = b'K';

/// Packets from the guardian: one of these and a number.
pub(super) const STARTED: u8 = b'S';
pub(super) const REFUSED: u8 = b'F';
pub(super) const EXITED: u8 = b'X';
pub(super) const SIGNALLED: u8 = b'G';

/// What a guardian says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The server runs and has this process id.
    Started(i32),
    /// It could not be started: errno.
    Refused(i32),
    /// It has ended.
    Exited(ExitReport),
    /// The guardian has.
    Gone,
}

impl Report {
    #[cfg(any(test, feature = "cli"))]
    pub(super) fn packet(self) -> Option<[u8; 5]> {
        let (word, number) = match self {
            Self::Started(pid) => (STARTED, pid),
            Self::Refused(errno) => (REFUSED, errno),
            Self::Exited(ExitReport::Code(code)) => (EXITED, code),
            Self::Exited(ExitReport::Signal(signal)) => (SIGNALLED, signal),
            Self::Gone => return None,
        };
        let [a, b, c, d] = number.to_le_bytes();
        Some([word, a, b, c, d])
    }

    fn read(packet: &[u8]) -> Option<Self> {
        let [word, number @ ..] = packet else {
            return Some(Self::Gone);
        };
        let number = i32::from_le_bytes(number.try_into().ok()?);
        match *word {
            STARTED => Some(Self::Started(number)),
            REFUSED => Some(Self::Refused(number)),
            EXITED => Some(Self::Exited(ExitReport::Code(number))),
            SIGNALLED => Some(Self::Exited(ExitReport::Signal(number))),
            _ => None,
        }
    }
}

/// How guardians are started.
#[derive(Clone, Debug)]
pub(super) struct Guardians {
    pub(super) program: std::path::PathBuf,
    pub(super) args: Vec<String>,
}

/// Our end of the socket pair. Dropping it is our end for the guardian.
#[derive(Debug)]
pub(super) struct Control(OwnedFd);

impl Control {
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The next thing it has said; `None` when there is nothing new. What it says unintelligibly is
    /// passed over.
    pub(super) fn hear(&self) -> Option<Report> {
        loop {
            let mut packet = [0; 5];
            match recv(&self.0, &mut packet[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => match Report::read(&packet[..length]) {
                    Some(report) => return Some(report),
                    None => continue,
                },
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => return None,
                Err(_) => return Some(Report::Gone),
            }
        }
    }

    /// Tells it to signal everything. A guardian that is gone has nothing left to signal.
    pub(super) fn signal(&self, signal: Signal) {
        let word = match signal {
            Signal::Term => TERM,
            Signal::Kill => KILL,
        };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if let Err(error) = send(&self.0, &[word], flags) {
            log::debug!("guardian: {error}");
        }
    }
}

/// Starts a guardian, and has it start `spec` from the file `program`. Whether that went well it
/// reports.
pub(super) fn spawn(
    guardians: &Guardians,
    spec: &ChildSpec,
    program: &Path,
) -> io::Result<(Child, Control, ChildPipes)> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
    let (stdin, stdin_ours) = pipe()?;
    let (stdout_ours, stdout) = pipe()?;
    let (stderr_ours, stderr) = pipe()?;
    let pipes = ChildPipes {
        stdin: stdin_ours,
        stdout: stdout_ours,
        stderr: stderr_ours,
    };
    pipes.unblock()?;
    let order = Order::of(spec, program).seal()?;

    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), order.as_fd()];
    let pushed = control.push(SendAncillaryMessage::ScmRights(&descriptors));
    debug_assert!(pushed, "the buffer was made for four");
    let words = [IoSlice::new(&[START])];
    sendmsg(&ours, &words, &mut control, SendFlags::NOSIGNAL)?;

    let child = Command::new(&guardians.program)
        .arg0("drawspan")
        .args(&guardians.args)
        // For who looks at a list of processes.
        .arg(&spec.program)
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok((child, Control(ours), pipes))
}

/// What a guardian is to start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// The file.
    pub(super) program: OsString,
    /// What the program is told it is called.
    pub(super) name: OsString,
    /// Where it starts; empty for where the guardian does.
    pub(super) cwd: OsString,
    /// The soft limit of descriptors to start it with.
    pub(super) descriptors_max: Option<u64>,
    /// What the kernel is told for the case that memory runs out.
    pub(super) oom_score_adj: Option<u16>,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
}

/// A server is ended before we are when memory runs out. As OpenClaw, which has a switch too.
const OOM_SCORE_ADJ: u16 = 1000;
const OOM_SWITCH: &str = "OPENCLAW_CHILD_OOM_SCORE_ADJ";

impl Order {
    fn of(spec: &ChildSpec, program: &Path) -> Self {
        let off = |value: &str| {
            let value = value.trim().to_ascii_lowercase();
            matches!(value.as_str(), "0" | "false" | "no" | "off")
        };
        let kept = spec.env.iter().any(|(k, v)| k == OOM_SWITCH && off(v));
        Self {
            program: program.into(),
            name: spec.program.clone().into(),
            cwd: spec.cwd.clone().map_or(OsString::new(), Into::into),
            descriptors_max: super::rlimit::given(),
            oom_score_adj: (!kept).then_some(OOM_SCORE_ADJ),
            args: spec.args.iter().map(OsString::from).collect(),
            env: spec.env.iter().map(|(k, v)| (k.into(), v.into())).collect(),
        }
    }

    /// Fields one after another, each with a zero behind it. None can hold one: they are arguments
    /// of system calls that end there.
    fn bytes(&self) -> io::Result<Vec<u8>> {
        let number = |n: Option<u64>| n.map_or(OsString::new(), |n| n.to_string().into());
        let (most, oom) = (
            number(self.descriptors_max),
            number(self.oom_score_adj.map(u64::from)),
        );
        let count = OsString::from(self.args.len().to_string());
        let mut fields: Vec<&OsStr> =
            vec![&self.program, &self.name, &self.cwd, &most, &oom, &count];
        fields.extend(self.args.iter().map(OsString::as_os_str));
        for (name, value) in &self.env {
            fields.extend([name.as_os_str(), value.as_os_str()]);
        }
        let mut bytes = Vec::with_capacity(fields.iter().map(|field| field.len() + 1).sum());
        for field in fields {
            if field.as_bytes().contains(&0) {
                let why = "an argument or environment variable holds a zero byte";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            bytes.extend_from_slice(field.as_bytes());
            bytes.push(0);
        }
        Ok(bytes)
    }

    fn seal(&self) -> io::Result<File> {
        let mut file = File::from(memfd_create("order", MemfdFlags::CLOEXEC)?);
        file.write_all(&self.bytes()?)?;
        file.rewind()?;
        Ok(file)
    }

    /// Reads it back.
    #[cfg(any(test, feature = "cli"))]
    pub(super) fn open(file: OwnedFd) -> io::Result<Self> {
        use std::io::Read;
        let mut bytes = Vec::new();
        File::from(file).read_to_end(&mut bytes)?;
        Self::parse(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    #[cfg(any(test, feature = "cli"))]
    fn parse(bytes: &[u8]) -> Option<Self> {
        use std::os::unix::ffi::OsStringExt;
        let mut fields = bytes
            .split(|byte| *byte == 0)
            .map(|field| OsString::from_vec(field.to_vec()));
        let number = |field: OsString| field.to_str().and_then(|text| text.parse().ok());
        let (program, name, cwd) = (fields.next()?, fields.next()?, fields.next()?);
        let descriptors_max = number(fields.next()?);
        let oom_score_adj = number(fields.next()?).and_then(|n| u16::try_from(n).ok());
        let count = usize::try_from(number(fields.next()?)?).ok()?;
        let args: Vec<OsString> = fields.by_ref().take(count).collect();
        let mut env = Vec::new();
        // The last field has a zero behind it too, so an empty one follows it.
        while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
            env.push((name, value));
        }
        (args.len() == count).then_some(Self {
            program,
            name,
            cwd,
            descriptors_max,
            oom_score_adj,
            args,
            env,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ChildSpec {
        ChildSpec {
            program: "server".into(),
            args: vec![String::new(), "--all".into()],
            env: vec![("A".into(), "a=b".into()), ("EMPTY".into(), String::new())],
            cwd: None,
        }
    }

    #[test]
    fn an_order_is_read_as_it_was_written() {
        for cwd in [None, Some("/tmp".into())] {
            let order = Order::of(&ChildSpec { cwd, ..spec() }, Path::new("/bin/server"));
            let sealed = order.seal().expect("works here");
            assert_eq!(Order::open(sealed.into()).expect("works here"), order);
        }
        let bytes = Order::of(&spec(), Path::new("/bin/server"))
            .bytes()
            .expect("works here");
        assert_eq!(Order::parse(&bytes[..4]), None, "cut short");
    }

    #[test]
    fn a_zero_byte_is_refused_before_anything_is_started() {
        let args = vec!["a\0b".to_owned()];
        let order = Order::of(&ChildSpec { args, ..spec() }, Path::new("/x"));
        assert!(order.bytes().is_err());
    }

    #[test]
    fn the_memory_score_has_a_switch() {
        let score = |value: &str| {
            let env = vec![(OOM_SWITCH.to_owned(), value.to_owned())];
            Order::of(&ChildSpec { env, ..spec() }, Path::new("/x")).oom_score_adj
        };
        assert_eq!(score("1"), Some(OOM_SCORE_ADJ));
        assert_eq!(score(" Off "), None);
    }

    #[test]
    fn reports_survive_the_packet() {
        for report in [
            Report::Started(4711),
            Report::Refused(2),
            Report::Exited(ExitReport::Code(255)),
            Report::Exited(ExitReport::Signal(9)),
        ] {
            assert_eq!(
                Report::read(&report.packet().expect("works here")),
                Some(report)
            );
        }
        assert_eq!(Report::read(b""), Some(Report::Gone));
        assert_eq!(Report::read(b"S12"), None);
    }
}
