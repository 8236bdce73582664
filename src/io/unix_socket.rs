//! Unix sockets: the file a listener is found by, and who may connect.
//!
//! A listener is made under a name of its own (`PATH.PID-N`), with mode 0600, and linked into place
//! once it listens. So nobody meets one that is half made, and of two processes that start at once
//! only one gets the name. A file that refuses connections belongs to a dead process. It is replaced
//! in one step, so that the name is never without a file, and by one process only: by whoever could
//! make the name `PATH.new`, which is a second name of its own listener while it does so.
//!
//! Source: unix(7); the same steps are known from OpenSSH's connection sharing.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use super::fault::words;
use crate::secret::Quoted;

/// The longest path of a socket: the field of the address, less its closing zero. Linux: unix(7).
const PATH_BYTES_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Connections that may wait for us to accept them; as for TCP, the system has a bound of its own.
const BACKLOG: i32 = 4_096;

/// Attempts at a name that others are after, too.
const TRIES_MAX: u32 = 4;

/// What is added to a path while its dead file is replaced. No longer than the shortest end of a draft.
const CLAIM: &str = ".new";

const TAKEN: &str = "another process listens there";

/// How messages call a socket.
pub(super) fn label(path: &Path) -> String {
    format!("unix:{}", Quoted(&path.to_string_lossy()))
}

/// The name of a socket in a directory, removed with this value as long as it is ours.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

/// Which file it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    /// A number may be given to the next file; not so within the same nanosecond.
    made: (i64, i64),
}

impl SocketFile {
    fn of(path: PathBuf) -> io::Result<Self> {
        let identity = Identity::of(&std::fs::symlink_metadata(&path)?);
        Ok(Self { path, identity })
    }
}

impl std::fmt::Display for SocketFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&label(&self.path))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| Identity::of(&found) == self.identity) {
            // Fails when the directory has changed hands; the next one to listen sees to it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Identity {
    fn of(found: &std::fs::Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            made: (found.mtime(), found.mtime_nsec()),
        }
    }
}

/// What bears the name that a listener is to have.
enum Found {
    Nothing,
    Live,
    Stale(Identity),
}

/// Listens on `path`. The second value removes the file; it must go before the first.
pub(super) fn listen(path: &Path) -> Result<(OwnedFd, SocketFile), String> {
    let own = beside(path);
    let bytes = own.as_os_str().len();
    if bytes > PATH_BYTES_MAX {
        let suffix = bytes - path.as_os_str().len();
        return Err(format!(
            "the path has {} bytes, a socket's may have {}",
            path.as_os_str().len(),
            PATH_BYTES_MAX - suffix
        ));
    }
    let say = |error: io::Error| words(&error);
    let (socket, draft) = make(&own).map_err(say)?;
    let named = SocketFile {
        path: std::path::absolute(path).map_err(say)?,
        identity: draft.identity,
    };
    for _ in 0..TRIES_MAX {
        match std::fs::hard_link(&draft.path, path) {
            Ok(()) => return Ok((socket, named)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(say(error)),
        }
        match probe(path)? {
            Found::Nothing => {}
            Found::Live => return Err(TAKEN.to_owned()),
            Found::Stale(refused) => {
                if take_place(&draft.path, path, refused)? {
                    return Ok((socket, named));
                }
            }
        }
    }
    Err("others are after the same name".to_owned())
}

/// Puts the draft where the file is that refused; whether it is there now. Without the claim two
/// processes might find the same dead file, and the second replace the listener of the first.
fn take_place(draft: &Path, path: &Path, refused: Identity) -> Result<bool, String> {
    let say = |error: io::Error| format!("a dead process left a socket there: {}", words(&error));
    let mut claim = OsString::from(path);
    claim.push(CLAIM);
    let claim = PathBuf::from(claim);
    match std::fs::hard_link(draft, &claim) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return match probe(&claim)? {
                Found::Live => Err(TAKEN.to_owned()),
                Found::Nothing => Ok(false),
                // Its maker was killed in the middle of this.
                Found::Stale(_) => remove(&claim).map(|()| false).map_err(say),
            };
        }
        Err(error) => return Err(say(error)),
    }
    let there = std::fs::symlink_metadata(path);
    let same = there.is_ok_and(|there| Identity::of(&there) == refused);
    let replaced = if same {
        std::fs::rename(draft, path)
    } else {
        Ok(())
    };
    remove(&claim).and(replaced).map_err(say)?;
    Ok(same)
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A name that nobody else uses, in the same directory and so on the same file system.
fn beside(path: &Path) -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let mut name = OsString::from(path);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}-{number}", std::process::id()));
    PathBuf::from(name)
}

/// A listening socket that only our user may connect to.
fn make(own: &Path) -> io::Result<(OwnedFd, SocketFile)> {
    let socket = stream_socket()?;
    let address = SocketAddrUnix::new(own)?;
    match rustix::net::bind(&socket, &address) {
        Ok(()) => {}
        // Left by a process that had our number and was killed in the middle of this.
        Err(Errno::ADDRINUSE) if matches!(probe(own), Ok(Found::Stale(_))) => {
            std::fs::remove_file(own)?;
            rustix::net::bind(&socket, &address)?;
        }
        Err(error) => return Err(error.into()),
    }
    let draft = SocketFile::of(std::path::absolute(own)?)?;
    std::fs::set_permissions(own, std::fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((socket, draft))
}

fn probe(path: &Path) -> Result<Found, String> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(words(&error)),
    };
    if !found.file_type().is_socket() {
        return Err("there is a file that is no socket".to_owned());
    }
    let socket = stream_socket().map_err(|e| words(&e))?;
    let address = SocketAddrUnix::new(path).map_err(|e| words(&e.into()))?;
    match rustix::net::connect(&socket, &address) {
        // `AGAIN`: so many wait already that it must be alive.
        Ok(()) | Err(Errno::AGAIN) => Ok(Found::Live),
        Err(Errno::CONNREFUSED) => Ok(Found::Stale(Identity::of(&found))),
        Err(Errno::NOENT) => Ok(Found::Nothing),
        Err(error) => {
            let error = words(&error.into());
            Err(format!("there is a socket that cannot be asked: {error}"))
        }
    }
}

#[cfg(not(target_vendor = "apple"))]
fn stream_socket() -> io::Result<OwnedFd> {
    use rustix::net::SocketFlags;

    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    Ok(rustix::net::socket_with(family, kind, flags, None)?)
}

#[cfg(target_vendor = "apple")]
fn stream_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket(family, kind, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// Connects to `path`; a Unix socket does that at once or not at all.
pub(super) fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = stream_socket()?;
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > PATH_BYTES_MAX {
        return Err(io::Error::other(format!(
            "the path has {bytes} bytes, a socket's may have {PATH_BYTES_MAX}"
        )));
    }
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(socket),
        Err(Errno::AGAIN) => Err(io::Error::other("too many wait there already")),
        Err(error) => Err(error.into()),
    }
}

/// Who connected, for messages and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) uid: u32,
    pub(super) pid: i32,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unix:uid={},pid={}", self.uid, self.pid)
    }
}

impl Peer {
    /// Whether it may use a socket of the user `ours`: that user and the superuser may.
    pub(super) const fn may_enter(self, ours: u32) -> bool {
        self.uid == ours || self.uid == 0
    }
}

/// Who is at the other end, as of the moment it connected. Linux: unix(7), `SO_PEERCRED`.
#[cfg(target_os = "linux")]
pub(super) fn peer(socket: impl AsFd) -> io::Result<Option<Peer>> {
    let found = rustix::net::sockopt::socket_peercred(socket)?;
    Ok(Some(Peer {
        uid: found.uid.as_raw(),
        pid: found.pid.as_raw_pid(),
    }))
}

/// Elsewhere the file's mode is what keeps strangers out.
#[cfg(not(target_os = "linux"))]
pub(super) fn peer(_socket: impl AsFd) -> io::Result<Option<Peer>> {
    Ok(None)
}

/// The user we act for.
pub(super) fn our_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(path: &Path) -> u64 {
        std::fs::symlink_metadata(path).expect("it exists").ino()
    }

    #[test]
    fn a_place_is_taken_from_the_one_that_refused_and_from_no_other() {
        let dir = std::env::temp_dir().join(format!("drawspan-take-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a new directory");
        let (path, own, claim) = (dir.join("sock"), dir.join("own"), dir.join("sock.new"));
        let (_socket, draft) = make(&own).expect("a free name");
        let nobody = Identity {
            device: 0,
            inode: 0,
            made: (0, 0),
        };
        assert_eq!(
            take_place(&own, &path, nobody),
            Ok(false),
            "nothing is there"
        );

        let (_live, live) = listen(&path).expect("a free name");
        let (theirs, ours) = (inode(&path), inode(&own));
        assert_eq!(
            take_place(&own, &path, nobody),
            Ok(false),
            "it is left alone"
        );
        assert_eq!((inode(&path), inode(&own)), (theirs, ours));

        // While someone else is about to take it, nobody does.
        let (other, taking) = make(&claim).expect("a free name");
        let refused = live.identity;
        assert_eq!(take_place(&own, &path, refused), Err(TAKEN.to_owned()));
        // Who was killed meanwhile is in nobody's way.
        std::mem::forget(taking);
        drop(other);
        assert_eq!(take_place(&own, &path, refused), Ok(false));
        assert!(!claim.exists() && inode(&path) == theirs);

        assert_eq!(
            take_place(&own, &path, refused),
            Ok(true),
            "this is the one"
        );
        assert_eq!(inode(&path), ours);
        drop(live);
        assert_eq!(inode(&path), ours, "not the other's to remove");
        drop(draft);
        std::fs::remove_file(&path).expect("it is there");
        std::fs::remove_dir(&dir).expect("nothing else is left");
    }

    #[test]
    fn what_a_killed_namesake_left_behind_is_in_nobodys_way() {
        let own = std::env::temp_dir().join(format!("drawspan-make-{}", std::process::id()));
        let dead = stream_socket().expect("a socket");
        let address = SocketAddrUnix::new(&own).expect("a short name");
        rustix::net::bind(&dead, &address).expect("a free name");
        let (_socket, draft) = make(&own).expect("a stale draft is replaced");
        drop(draft);
        std::fs::write(&own, "precious").expect("a free name");
        assert!(make(&own).is_err(), "it is no socket");
        std::fs::remove_file(&own).expect("still there");
    }

    #[test]
    fn our_user_and_root_may_enter() {
        let peer = |uid| Peer { uid, pid: 1 };
        assert!(peer(1_000).may_enter(1_000));
        assert!(peer(0).may_enter(1_000));
        assert!(!peer(1_001).may_enter(1_000));
        assert!(!peer(1_000).may_enter(0));
        assert_eq!(peer(7).to_string(), "unix:uid=7,pid=1");
    }
}
