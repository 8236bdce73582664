//! A file that only grows, with one writer.
//!
//! A regular file is locked while it is open, so that two processes cannot mix their lines; a device or a pipe
//! is not. Nothing here waits: a pipe that is full fails like a full disk.

use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

use super::fault::words;

/// What has become of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is as we left it.
    Same,
    /// It is empty: somebody has copied it and cut it off.
    Emptied,
    /// Somebody else has written to it, or has cut it off in the middle.
    Touched,
    /// It was moved away: its path leads nowhere or elsewhere.
    Moved,
    /// It was deleted: what is written to it, nobody will ever read.
    Deleted,
}

/// See the module page.
#[derive(Debug)]
pub struct AppendFile {
    file: File,
    path: PathBuf,
    /// No device, pipe or socket.
    regular: bool,
    length: u64,
}

impl AppendFile {
    /// Opens the file, or makes it, readable for its owner only.
    ///
    /// # Errors
    /// When that cannot be done, or another process writes to it: in plain words, without the path.
    pub fn open(path: &Path) -> Result<Self, String> {
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::CLOEXEC
            | OFlags::NONBLOCK
            | OFlags::NOCTTY;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = File::from(open(path, flags, mode).map_err(plain)?);
        let found = file.metadata().map_err(|error| words(&error))?;
        let regular = found.is_file();
        if regular {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    return Err("another process writes to it; give each its own file".to_owned());
                }
                // Some network file systems have no locks.
                Err(Errno::NOTSUP | Errno::NOLCK | Errno::NOSYS) => {}
                Err(error) => return Err(plain(error)),
            }
        }
        Ok(Self {
            file,
            path: path.to_owned(),
            regular,
            length: found.len(),
        })
    }

    /// The last bytes, `most` at most, and whether they are all there are. Of what is no regular file: none.
    ///
    /// # Errors
    /// As the system says.
    pub fn tail(&self, most: usize) -> Result<(Vec<u8>, bool), String> {
        if !self.regular {
            return Ok((Vec::new(), true));
        }
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let start = self.length.saturating_sub(most);
        let mut bytes = vec![0; usize::try_from(self.length - start).unwrap_or(0)];
        let read = self.file.read_exact_at(&mut bytes, start);
        read.map_err(|error| words(&error))?;
        Ok((bytes, start == 0))
    }

    /// Writes at the end, once; gives how much of it went in.
    ///
    /// # Errors
    /// As the system says.
    pub fn append(&mut self, bytes: &[u8]) -> Result<usize, String> {
        loop {
            match self.file.write(bytes) {
                Ok(0) => return Err("nothing goes in".to_owned()),
                Ok(written) => {
                    self.length += u64::try_from(written).unwrap_or(0);
                    return Ok(written);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(words(&error)),
            }
        }
    }

    /// Waits until what was written is on the disk. What is no regular file has none.
    ///
    /// # Errors
    /// As the system says.
    pub fn sync(&self) -> Result<(), String> {
        match self.regular {
            true => self.file.sync_data().map_err(|error| words(&error)),
            false => Ok(()),
        }
    }

    /// What has become of it. `path_too`: whether its path still leads to it, which is one question more.
    #[must_use]
    pub fn fate(&self, path_too: bool) -> Fate {
        if !self.regular && !path_too {
            return Fate::Same;
        }
        let Ok(found) = self.file.metadata() else {
            return Fate::Touched;
        };
        if self.regular && found.nlink() == 0 {
            return Fate::Deleted;
        }
        if path_too && !self.is_at_its_path(&found) {
            return Fate::Moved;
        }
        match found.len() {
            length if length == self.length || !self.regular => Fate::Same,
            0 => Fate::Emptied,
            _ => Fate::Touched,
        }
    }

    fn is_at_its_path(&self, opened: &Metadata) -> bool {
        let named = std::fs::metadata(&self.path);
        named.is_ok_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino()))
    }

    /// Takes note that it was [emptied](Fate::Emptied).
    pub const fn emptied(&mut self) {
        self.length = 0;
    }
}

fn plain(error: Errno) -> String {
    words(&io::Error::from(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that goes with the test.
    struct Dir(PathBuf);

    impl Dir {
        fn new(test: &str) -> Self {
            let name = format!("drawspan-append-{}-{test}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir(&dir).expect("a directory");
            Self(dir)
        }

        fn file(&self) -> PathBuf {
            self.0.join("log")
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn it_grows_and_its_end_is_read_back() {
        let dir = Dir::new("grows");
        let path = dir.file();
        let mut file = AppendFile::open(&path).expect("made");
        assert_eq!(file.tail(10), Ok((Vec::new(), true)));
        assert_eq!(file.append(b"one two"), Ok(7));
        drop(file);
        let mut file = AppendFile::open(&path).expect("there");
        assert_eq!(file.tail(3), Ok((b"two".to_vec(), false)));
        assert_eq!(file.tail(7), Ok((b"one two".to_vec(), true)));
        assert_eq!(file.append(b"!"), Ok(1));
        assert_eq!(file.fate(true), Fate::Same);
        assert_eq!(file.sync(), Ok(()));
        assert_eq!(std::fs::read(&path).expect("read"), b"one two!");
        let mode = std::fs::metadata(&path).expect("there").mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn one_process_writes_at_a_time() {
        let dir = Dir::new("locked");
        let first = AppendFile::open(&dir.file()).expect("made");
        let why = AppendFile::open(&dir.file()).expect_err("locked");
        assert!(why.starts_with("another process writes to it"), "{why}");
        drop(first);
        AppendFile::open(&dir.file()).expect("free again");
    }

    #[test]
    fn whatever_happens_to_it_is_seen() {
        let dir = Dir::new("fates");
        let path = dir.file();
        let elsewhere = dir.0.join("elsewhere");
        let made = || {
            let mut file = AppendFile::open(&path).expect("made");
            file.append(b"line\n").expect("written");
            file
        };
        let mut file = made();
        std::fs::write(&path, b"").expect("emptied");
        assert_eq!(file.fate(false), Fate::Emptied);
        file.emptied();
        assert_eq!(file.fate(true), Fate::Same);
        std::fs::write(&path, b"other\n").expect("written");
        assert_eq!(file.fate(false), Fate::Touched);
        drop(file);
        let file = made();
        std::fs::rename(&path, &elsewhere).expect("moved");
        assert_eq!(
            (file.fate(false), file.fate(true)),
            (Fate::Same, Fate::Moved)
        );
        std::fs::remove_file(&elsewhere).expect("deleted");
        assert_eq!(file.fate(false), Fate::Deleted);
    }

    #[test]
    fn a_full_device_and_a_missing_directory_say_so() {
        let mut full = AppendFile::open(Path::new("/dev/full")).expect("opens");
        assert_eq!(full.tail(10), Ok((Vec::new(), true)), "it is endless");
        let why = full.append(b"x").expect_err("full");
        assert_eq!(why, "no space left on device");
        assert_eq!(full.fate(true), Fate::Same);
        let missing = AppendFile::open(Path::new("/no/such/directory/log"));
        assert_eq!(missing.expect_err("missing"), "no such file or directory");
        let directory = AppendFile::open(&std::env::temp_dir());
        assert_eq!(directory.expect_err("a directory"), "is a directory");
    }
}
