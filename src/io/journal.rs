//! The append-only file behind the embedded Gateway's store.
//!
//! A record is whole once [`Journal::append`] has returned: it is with the operating system then
//! and survives the end of this process by any signal. (Not the loss of power: nothing is forced to
//! the disk.) A record that was being written when the process ended may be cut off; whoever reads
//! the bytes back decides that and cuts the file with [`Journal::truncate`].

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::fault::words;
use crate::link::{FaultKind, IoFault};

/// The journal's name inside the store's directory.
pub const FILE_NAME: &str = "journal";

/// Why a store cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process has it open.
    InUse {
        /// The store's directory.
        dir: PathBuf,
    },
    /// The system refused.
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { dir } => write!(
                f,
                "store {} is in use by another process; end that one or choose another directory",
                dir.display()
            ),
            Self::Io {
                action,
                path,
                error,
            } => write!(f, "cannot {action} {}: {}", path.display(), words(error)),
        }
    }
}

impl std::error::Error for JournalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::InUse { .. } => None,
            Self::Io { error, .. } => Some(error),
        }
    }
}

/// An open journal, locked against other processes until it is dropped or the process ends.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Bytes of whole records.
    len: u64,
    /// A record stands half-written and could not be cut off: appending more would hide the damage.
    torn: bool,
}

impl Journal {
    /// Opens the journal in `dir`, making both when they are missing (readable by the owner only),
    /// and returns it with the bytes it holds.
    ///
    /// # Errors
    /// [`JournalError::InUse`] when another process has it open, else what the system refused.
    pub fn open(dir: &Path) -> Result<(Self, Vec<u8>), JournalError> {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};

        let at = |action, path: &Path| {
            let path = path.to_owned();
            move |error| JournalError::Io {
                action,
                path,
                error,
            }
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(at("make the store", dir))?;
        let path = dir.join(FILE_NAME);
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(at("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN) => {
                return Err(JournalError::InUse {
                    dir: dir.to_owned(),
                });
            }
            Err(error) => return Err(at("lock", &path)(error.into())),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(at("read", &path))?;
        let journal = Self {
            file,
            path,
            len: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            torn: false,
        };
        Ok((journal, bytes))
    }

    /// Cuts the file to its first `len` bytes; does nothing when it is not longer. For the torn
    /// record at the end, before the first append.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn truncate(&mut self, len: u64) -> Result<(), IoFault> {
        if len < self.len {
            self.file.set_len(len).map_err(|e| self.fault(&e))?;
            self.len = len;
        }
        Ok(())
    }

    /// Appends all of `record`, or nothing of it.
    ///
    /// # Errors
    /// When the system refuses (disk full, quota); the file is then as it was.
    pub fn append(&mut self, record: &[u8]) -> Result<(), IoFault> {
        if self.torn {
            let error = io::Error::other("an earlier record could not be taken back");
            return Err(self.fault(&error));
        }
        match self.file.write_all(record) {
            Ok(()) => {
                self.len += u64::try_from(record.len()).unwrap_or(u64::MAX);
                Ok(())
            }
            Err(error) => {
                // Part of it may be there; the next record must not be glued to it.
                self.torn = self.file.set_len(self.len).is_err();
                Err(self.fault(&error))
            }
        }
    }

    fn fault(&self, error: &io::Error) -> IoFault {
        let what = format!("cannot write {}", self.path.display());
        super::fault::fault(FaultKind::Broken, &what, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of its own for each test, removed at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("drawspan-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            Self(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn records_are_there_again_after_reopening() {
        let dir = Scratch::new("reopen");
        let (mut journal, found) = Journal::open(&dir.0).expect("a new store");
        assert!(found.is_empty());
        journal.append(b"one\n").expect("first");
        journal.append(b"two\n").expect("second");
        drop(journal);

        let (mut journal, found) = Journal::open(&dir.0).expect("the store again");
        assert_eq!(found, b"one\ntwo\n");
        journal.truncate(4).expect("cut");
        journal.append(b"three\n").expect("third");
        drop(journal);
        let (_, found) = Journal::open(&dir.0).expect("the store once more");
        assert_eq!(found, b"one\nthree\n");
    }

    #[test]
    fn a_store_belongs_to_one_at_a_time() {
        let dir = Scratch::new("lock");
        let (first, _) = Journal::open(&dir.0).expect("a new store");
        let error = Journal::open(&dir.0).expect_err("it is open");
        assert!(
            error.to_string().contains("in use by another process"),
            "{error}"
        );
        drop(first);
        assert!(
            Journal::open(&dir.0).is_ok(),
            "the lock ends with its owner"
        );
    }

    #[test]
    fn only_the_owner_may_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = Scratch::new("mode");
        let (_journal, _) = Journal::open(&dir.0).expect("a new store");
        let mode = |path: &Path| path.metadata().expect("exists").permissions().mode() & 0o077;
        assert_eq!(mode(&dir.0), 0);
        assert_eq!(mode(&dir.0.join(FILE_NAME)), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_named_and_a_hole_is_never_bridged() {
        let full = OpenOptions::new().write(true).open("/dev/full");
        let mut journal = Journal {
            file: full.expect("Linux has it"),
            path: PathBuf::from("/dev/full"),
            len: 0,
            torn: false,
        };
        let fault = journal.append(b"x").expect_err("it is full");
        assert_eq!(
            fault.message,
            "cannot write /dev/full: no space left on device"
        );
        // A device cannot be cut, so nothing more is appended to it.
        let fault = journal.append(b"y").expect_err("a hole is in it");
        assert!(
            fault.message.contains("earlier record"),
            "{}",
            fault.message
        );
    }

    #[test]
    fn a_store_that_cannot_be_made_names_its_path() {
        let error = Journal::open(Path::new("/dev/null/store")).expect_err("no directory");
        assert!(error.to_string().contains("/dev/null/store"), "{error}");
    }
}
