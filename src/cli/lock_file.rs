//! The lock file: where it is, what is in it, and how it is written.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::{Exit, Failure};
use crate::manager::lock::{Lock, LockMode, LockRule};
use crate::secret::Quoted;

/// Its name, where none is given.
pub(super) const NAME: &str = "drawspan.lock.json";

/// Longest lock file that is read: ten thousand tools of 500 bytes, and more. Unit: bytes.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The lock of `drawspan serve`.
#[derive(Debug)]
pub(super) struct LockFile {
    pub(super) path: PathBuf,
    mode: LockMode,
    /// The servers it is for; `None` for all.
    only: Option<BTreeSet<String>>,
}

impl LockFile {
    /// The lock that is asked for: by `flag`, for every server; else by the configuration, or because it lies
    /// beside it, for the servers that are `configured`.
    pub(super) fn find(
        flag: Option<&PathBuf>,
        settings: &super::connection::LockSettings,
    ) -> Option<Self> {
        let mode = settings.mode;
        if let Some(path) = flag {
            return Some(Self {
                path: path.clone(),
                mode,
                only: None,
            });
        }
        let beside = settings.beside.as_ref().filter(|path| path.is_file());
        let path = settings.file.as_ref().or(beside)?;
        Some(Self {
            path: path.clone(),
            mode,
            only: Some(settings.configured.clone()),
        })
    }

    /// What it says now.
    ///
    /// # Errors
    /// Why it cannot be used, in one line.
    pub(super) fn rule(&self) -> Result<LockRule, String> {
        Ok(LockRule {
            lock: read(&self.path)?,
            mode: self.mode,
            only: self.only.clone(),
        })
    }
}

/// Reads a lock file.
///
/// # Errors
/// Why it cannot be used, in one line.
pub(super) fn read(path: &Path) -> Result<Lock, String> {
    let name = label(path);
    let length = std::fs::metadata(path).map(|found| found.len());
    let text = match length {
        Ok(length) if length > BYTES_MAX => {
            return Err(format!(
                "lock file {name} is {length} bytes long, limit {BYTES_MAX}"
            ));
        }
        Ok(_) => std::fs::read_to_string(path),
        Err(error) => Err(error),
    };
    let text = text.map_err(|error| format!("lock file {name} cannot be read: {error}"))?;
    Lock::parse(&text).map_err(|error| format!("lock file {name} {error}"))
}

/// Writes it whole, beside its place, and moves it there: who reads it meanwhile finds the old one or the new.
///
/// # Errors
/// When that cannot be done.
pub(super) fn write(path: &Path, lock: &Lock) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        let name = label(path);
        Failure::new(
            Exit::Failed,
            format!("cannot write lock file {name}: {error}"),
        )
    };
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = std::fs::File::create(&beside).and_then(|mut file| {
        file.write_all(lock.to_json().as_bytes())?;
        file.sync_all()
    });
    let moved = written.and_then(|()| std::fs::rename(&beside, path));
    if moved.is_err() {
        // There may be none.
        let _ = std::fs::remove_file(&beside);
    }
    moved.map_err(failed)
}

pub(super) fn label(path: &Path) -> String {
    Quoted(&path.display().to_string()).to_string()
}
