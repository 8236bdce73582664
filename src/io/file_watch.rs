//! A file that is read again when it changes: told by the system, never asked for on a tick.
//!
//! Its directory is watched, not the file: editors and deployments put a new file in its place. On systems
//! without inotify nothing is told; SIGHUP is the way there.

use std::io;
use std::path::Path;

#[cfg(target_os = "linux")]
pub(super) use self::watched::FileWatch;

#[cfg(target_os = "linux")]
mod watched {
    use std::ffi::OsString;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt as _;

    use mio::unix::SourceFd;
    use mio::{Interest, Registry, Token};
    use rustix::fs::inotify;

    use super::{Path, io};

    /// The watched files.
    #[derive(Debug)]
    pub(in crate::io) struct FileWatch {
        inotify: OwnedFd,
        names: Vec<OsString>,
    }

    impl FileWatch {
        /// Watches nothing yet.
        pub(in crate::io) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
            let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
            let inotify = inotify::init(flags)?;
            registry.register(
                &mut SourceFd(&inotify.as_raw_fd()),
                token,
                Interest::READABLE,
            )?;
            Ok(Self {
                inotify,
                names: Vec::new(),
            })
        }

        /// Watches `path`, too; its directory must be there, the file need not. A file of the same name in the
        /// directory of another watched file is taken for it.
        pub(in crate::io) fn watch(&mut self, path: &Path) -> io::Result<()> {
            let name = path
                .file_name()
                .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
            let directory = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                Some(_) | None => Path::new("."),
            };
            let changes = inotify::WatchFlags::CLOSE_WRITE
                | inotify::WatchFlags::MOVED_TO
                | inotify::WatchFlags::MOVED_FROM
                | inotify::WatchFlags::DELETE;
            inotify::add_watch(&self.inotify, directory, changes)?;
            self.names.push(name.to_owned());
            Ok(())
        }

        /// Whether one of the files was written, replaced or removed since the last call.
        pub(in crate::io) fn has_changed(&self) -> bool {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
            let mut changed = false;
            // Ends with WOULDBLOCK, when all of them were read.
            while let Ok(event) = reader.next() {
                let ours = event
                    .file_name()
                    .is_some_and(|name| self.is_watched(name.to_bytes()));
                let lost = event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW);
                changed |= ours || lost;
            }
            changed
        }

        fn is_watched(&self, name: &[u8]) -> bool {
            self.names.iter().any(|known| known.as_bytes() == name)
        }
    }
}

/// Watches nothing.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) struct FileWatch;

#[cfg(not(target_os = "linux"))]
impl FileWatch {
    pub(super) fn new(_: &mio::Registry, _: mio::Token) -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) fn watch(&mut self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn has_changed(&self) -> bool {
        false
    }
}
