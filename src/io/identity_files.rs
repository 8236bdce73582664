//! The device identity, its token and secret files on disk.
//!
//! Files are written whole, beside their place and then moved into it, so that OpenClaw, which
//! shares them, never reads half of one. Directories get mode 0700, files 0600. A `device.json`
//! that cannot be used is left alone, and nothing is stored for the key that takes its place.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::clock::Now;
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::entropy::Entropy;
use crate::gateway::identity::{self, DeviceIdentity, IdentityError, ROLE, StoredToken};
use crate::secret::Secret;

/// Longest secret file that is read. Unit: bytes. Source: OpenClaw 2026.6.11.
pub const SECRET_FILE_BYTES_MAX: u64 = 16_384;

/// Longest identity file that is read; real ones are far below 1 KiB a role. Unit: bytes.
const IDENTITY_FILE_BYTES_MAX: u64 = 256 * 1024;

/// What went wrong with a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system said so.
    Io {
        /// What was tried: read, write, create.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// A secret file that does not qualify.
    Secret {
        /// What it should hold, such as `token`.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        fault: SecretFault,
    },
}

/// Why a file is not taken for a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretFault {
    /// A symbolic link, which somebody else may point elsewhere.
    Symlink,
    /// A directory, pipe or device.
    NotRegular,
    /// The file has other names too; how many in all.
    Linked(u64),
    /// More than [`SECRET_FILE_BYTES_MAX`]; how many bytes.
    TooLong(u64),
    /// White space only.
    Empty,
    /// Bytes that are not UTF-8.
    NotText,
    /// Another file took its place while it was opened.
    Replaced,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io {
                action,
                path,
                error,
            } => write!(f, "cannot {action} {}: {error}", path.display()),
            Self::Secret { what, path, fault } => {
                write!(f, "gateway {what} file {} {fault}", path.display())
            }
        }
    }
}

impl fmt::Display for SecretFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symlink => f.write_str("must not be a symlink; name the file itself"),
            Self::NotRegular => f.write_str("must be a regular file"),
            Self::Linked(count) => write!(f, "must have one name only (found {count} hard links)"),
            Self::TooLong(bytes) => {
                write!(f, "exceeds {SECRET_FILE_BYTES_MAX} bytes (found {bytes})")
            }
            Self::Empty => f.write_str("is empty; write the secret into it"),
            Self::NotText => f.write_str("is not UTF-8 text"),
            Self::Replaced => f.write_str("was replaced while it was opened; try again"),
        }
    }
}

impl std::error::Error for FileError {}

/// Reads a secret from a file of its own; `what` says what it is, for the error.
///
/// # Errors
/// When the file is not there, is not a plain file of one name, is too long, empty or no text.
pub fn read_secret_file(what: &'static str, path: &Path) -> Result<Secret<String>, FileError> {
    let failed = |fault| FileError::Secret {
        what,
        path: path.to_owned(),
        fault,
    };
    let named = fs::symlink_metadata(path).map_err(io_error("read", path))?;
    check_secret(&named).map_err(failed)?;
    let file = open_plain(path).map_err(io_error("read", path))?;
    let opened = file.metadata().map_err(io_error("read", path))?;
    if !same_file(&named, &opened) {
        return Err(failed(SecretFault::Replaced));
    }
    let bytes = read_up_to(file, SECRET_FILE_BYTES_MAX + 1).map_err(io_error("read", path))?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if length > SECRET_FILE_BYTES_MAX {
        return Err(failed(SecretFault::TooLong(length)));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| failed(SecretFault::NotText))?;
    match text.trim() {
        "" => Err(failed(SecretFault::Empty)),
        secret => Ok(Secret::new(secret.to_owned())),
    }
}

/// Opens without following a symlink and without waiting for the other end of a pipe, should one
/// have taken the file's place since it was looked at.
#[cfg(unix)]
fn open_plain(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

#[cfg(not(unix))]
fn open_plain(path: &Path) -> io::Result<File> {
    File::open(path)
}

fn check_secret(found: &fs::Metadata) -> Result<(), SecretFault> {
    if found.file_type().is_symlink() {
        return Err(SecretFault::Symlink);
    }
    if !found.is_file() {
        return Err(SecretFault::NotRegular);
    }
    match link_count(found) {
        1 => {}
        count => return Err(SecretFault::Linked(count)),
    }
    match found.len() {
        bytes if bytes > SECRET_FILE_BYTES_MAX => Err(SecretFault::TooLong(bytes)),
        _ => Ok(()),
    }
}

/// The identity files of one state directory.
#[derive(Clone, Debug)]
pub struct IdentityFiles {
    dir: PathBuf,
    device_id: String,
    /// False for a key that is not in the files: its tokens must not replace those of the key that
    /// is.
    stores: bool,
}

/// What the identity files held.
#[derive(Debug)]
pub struct LoadedIdentity {
    /// For storing tokens later.
    pub files: IdentityFiles,
    /// The device.
    pub identity: DeviceIdentity,
    /// What the Gateway gave it earlier.
    pub token: Option<StoredToken>,
    /// What went wrong and was worked around.
    pub warnings: Vec<Diagnostic>,
}

impl IdentityFiles {
    /// Reads the files under `state_dir`, and creates the device at first use. A device that cannot
    /// be read or written is a warning, and a new key takes its place until the process ends.
    pub fn load(state_dir: &Path, entropy: &mut dyn Entropy, now: Now) -> LoadedIdentity {
        let dir = state_dir.join("identity");
        let device = dir.join(DEVICE_FILE);
        let mut warnings = Vec::new();
        let kept = match read_device(&device) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => create_device(&dir, entropy, now),
            Err(error) => Err(error),
        };
        let (identity, stores) = match kept {
            Ok(found) => {
                if found.outdated {
                    let created = found.created_at_ms.unwrap_or(now.unix_ms);
                    let text = identity::format_device(&found.identity, created);
                    if let Err(error) = write_whole(&device, text.expose(), Existing::Replace) {
                        warnings.push(warning(&error.to_string()));
                    }
                }
                (found.identity, true)
            }
            Err(why) => {
                warnings.push(warning(&format!(
                    "{why}; a new device key is used until this process ends, and the gateway may ask \
                     to pair it; move the file away to get a lasting one"
                )));
                (DeviceIdentity::generate(entropy), false)
            }
        };
        let files = Self {
            dir,
            device_id: identity.device_id().to_owned(),
            stores,
        };
        let token = match files.read_tokens() {
            Ok(text) => text.and_then(|text| identity::parse_token(&text, &files.device_id)),
            Err(error) => {
                warnings.push(warning(&error.to_string()));
                None
            }
        };
        LoadedIdentity {
            files,
            identity,
            token,
            warnings,
        }
    }

    /// Stores a token that the Gateway issued; nothing for a key that is not in the files.
    ///
    /// # Errors
    /// When the file cannot be written. The session goes on; the next start will have the older
    /// token.
    pub fn store_token(&self, token: &StoredToken) -> Result<(), FileError> {
        if !self.stores {
            return Ok(());
        }
        let old = self.read_tokens().unwrap_or(None);
        let text = identity::with_token(old.as_deref(), &self.device_id, token);
        write_whole(&self.tokens_path(), text.expose(), Existing::Replace)
    }

    /// Takes out the token of this device, which the Gateway no longer takes.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn forget_token(&self) -> Result<(), FileError> {
        let Some(old) = self.read_tokens()? else {
            return Ok(());
        };
        match identity::without_token(&old, &self.device_id, ROLE) {
            Some(text) => write_whole(&self.tokens_path(), text.expose(), Existing::Replace),
            None => Ok(()),
        }
    }

    fn tokens_path(&self) -> PathBuf {
        self.dir.join("device-auth.json")
    }

    fn read_tokens(&self) -> Result<Option<String>, FileError> {
        read_text(&self.tokens_path())
    }
}

const DEVICE_FILE: &str = "device.json";

fn read_device(path: &Path) -> Result<Option<identity::DeviceFile>, DeviceFault> {
    let Some(text) = read_text(path)? else {
        return Ok(None);
    };
    match identity::parse_device(&text) {
        Ok(found) => Ok(Some(found)),
        Err(error) => Err(DeviceFault::Content(path.to_owned(), error)),
    }
}

/// Makes the device and its file; when another process was quicker, that one's device.
fn create_device(
    dir: &Path,
    entropy: &mut dyn Entropy,
    now: Now,
) -> Result<identity::DeviceFile, DeviceFault> {
    let path = dir.join(DEVICE_FILE);
    let identity = DeviceIdentity::generate(entropy);
    let text = identity::format_device(&identity, now.unix_ms);
    match write_whole(&path, text.expose(), Existing::Keep) {
        Ok(()) => Ok(identity::DeviceFile {
            identity,
            created_at_ms: Some(now.unix_ms),
            outdated: false,
        }),
        Err(FileError::Io { error, .. }) if error.kind() == io::ErrorKind::AlreadyExists => {
            let gone = io::Error::from(io::ErrorKind::NotFound);
            read_device(&path)?.ok_or_else(|| DeviceFault::File(io_error("read", &path)(gone)))
        }
        Err(error) => Err(DeviceFault::File(error)),
    }
}

/// Why there is no lasting device.
enum DeviceFault {
    File(FileError),
    Content(PathBuf, IdentityError),
}

impl From<FileError> for DeviceFault {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl fmt::Display for DeviceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => write!(f, "{error}"),
            Self::Content(path, error) => write!(f, "cannot use {}: {error}", path.display()),
        }
    }
}

fn warning(message: &str) -> Diagnostic {
    Diagnostic::new(Level::Warning, Subject::Gateway, message)
}

fn io_error<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> FileError + 'a {
    move |error| FileError::Io {
        action,
        path: path.to_owned(),
        error,
    }
}

/// The text of a file; `None` when there is no such file.
fn read_text(path: &Path) -> Result<Option<String>, FileError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("read", path)(error)),
    };
    let bytes = read_up_to(file, IDENTITY_FILE_BYTES_MAX).map_err(io_error("read", path))?;
    // What is not UTF-8 or was cut is not JSON either, and is refused as such.
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn read_up_to(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What to do about a file that is there already.
#[derive(Clone, Copy)]
enum Existing {
    Replace,
    /// Fail with `AlreadyExists`.
    Keep,
}

/// Writes a file of mode 0600 whole or not at all, its directories included.
fn write_whole(path: &Path, text: &str, existing: Existing) -> Result<(), FileError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    create_dirs(dir).map_err(io_error("create", dir))?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = PathBuf::from(beside);
    let moved = write_new(&beside, text).and_then(|()| match existing {
        Existing::Replace => fs::rename(&beside, path),
        Existing::Keep => link_new(&beside, path),
    });
    // After a rename there is nothing to remove.
    let _ = fs::remove_file(&beside);
    moved.map_err(io_error("write", path))
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = match options.open(path) {
        // A process of the same number died here once.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            options.open(path)?
        }
        other => other?,
    };
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Gives `from` the name `to` unless that is taken. A rename would take it from its holder.
fn link_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        // Some file systems have no hard links, and say so in one of these ways.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
            ) =>
        {
            fs::rename(from, to)
        }
        other => other,
    }
}

fn create_dirs(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

#[cfg(unix)]
fn link_count(found: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(found)
}

#[cfg(not(unix))]
fn link_count(_found: &fs::Metadata) -> u64 {
    1
}

#[cfg(unix)]
fn same_file(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn same_file(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    (a.len(), a.modified().ok()) == (b.len(), b.modified().ok())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::entropy::Seeded;

    /// A directory that goes with the test.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let name = format!("drawspan-identity-{}-{name}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir(&dir).expect("a directory of our own");
            Self(dir)
        }

        fn file(&self, name: &str, content: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().expect("inside the directory")).expect("made");
            fs::write(&path, content).expect("written");
            path
        }

        fn load(&self, seed: u64) -> LoadedIdentity {
            let now = Now {
                unix_ms: 1_796_025_982_043,
                ..Now::default()
            };
            IdentityFiles::load(&self.0, &mut Seeded::new(seed), now)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn token(text: &str) -> StoredToken {
        StoredToken {
            token: Secret::new(text.to_owned()),
            role: ROLE.to_owned(),
            scopes: vec!["operator.read".to_owned()],
            updated_at_ms: 7,
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    #[test]
    fn the_first_start_makes_a_device_and_the_second_finds_it() {
        let dir = Dir::new("first");
        let first = dir.load(1);
        assert!(first.warnings.is_empty(), "{:?}", first.warnings);
        assert!(first.token.is_none());
        let device = dir.0.join("identity/device.json");
        assert_eq!(
            (mode(&device), mode(&dir.0.join("identity"))),
            (0o600, 0o700)
        );

        first.files.store_token(&token("T")).expect("stored");
        assert_eq!(mode(&dir.0.join("identity/device-auth.json")), 0o600);

        let second = dir.load(2);
        assert_eq!(second.identity.device_id(), first.identity.device_id());
        assert_eq!(second.token, Some(token("T")));

        second.files.forget_token().expect("forgotten");
        assert_eq!(dir.load(3).token, None);
        let left = fs::read_dir(dir.0.join("identity")).expect("there").count();
        assert_eq!(left, 2, "no temporary file stays");
    }

    #[test]
    fn a_broken_device_file_is_left_alone_and_keeps_its_tokens() {
        let dir = Dir::new("broken");
        let device = dir.file("identity/device.json", b"{\"version\":1}");
        let tokens = dir.file("identity/device-auth.json", b"{}");
        let loaded = dir.load(1);
        assert_eq!(loaded.warnings.len(), 1);
        let warning = &loaded.warnings[0].message;
        assert!(
            warning.contains("device.json") && warning.contains("move the file"),
            "{warning}"
        );
        loaded
            .files
            .store_token(&token("T"))
            .expect("nothing to do");
        assert_eq!(fs::read(device).expect("there"), b"{\"version\":1}");
        assert_eq!(fs::read(tokens).expect("there"), b"{}");
        assert_ne!(
            dir.load(2).identity.device_id(),
            loaded.identity.device_id()
        );
    }

    #[test]
    fn the_older_shape_is_written_again() {
        let dir = Dir::new("older");
        let raw = br#"{"deviceId":"76194a1041ec9eca237792ccc3cc2a2b9cfc2bbf98acef70fd1b05a216ade61e","publicKey":"xUukkjHfPG7mjB-zPbuMj-fKczoULEKAAXm1nLGW6os","privateKey":"hbbqJRZwUP9nhkIuUNyqRR1MjVVXzgAXthYD8V7LYBU"}"#;
        let device = dir.file("identity/device.json", raw);
        let loaded = dir.load(1);
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        let text = fs::read_to_string(device).expect("there");
        assert!(
            text.contains("BEGIN PRIVATE KEY") && text.contains("\"version\": 1"),
            "{text}"
        );
        assert_eq!(
            dir.load(2).identity.device_id(),
            loaded.identity.device_id()
        );
    }

    #[test]
    fn a_directory_that_cannot_be_made_costs_the_lasting_key_only() {
        let dir = Dir::new("blocked");
        dir.file("identity", b"a file where the directory should be");
        let loaded = dir.load(1);
        assert!(!loaded.warnings.is_empty());
        assert_eq!(loaded.identity.device_id().len(), 64);
    }

    #[test]
    fn of_two_first_starts_one_device_remains() {
        let dir = Dir::new("race");
        let mine = DeviceIdentity::generate(&mut Seeded::new(1));
        let other = identity::format_device(&mine, 0);
        let device = dir.file("identity/device.json", other.expose().as_bytes());
        // The file was not there when it was looked for, and is when it is to be written.
        let found = create_device(&dir.0.join("identity"), &mut Seeded::new(2), Now::default());
        let found = found
            .map_err(|error| error.to_string())
            .expect("the other's device");
        assert_eq!(found.identity.device_id(), mine.device_id());
        assert_eq!(fs::read_to_string(device).expect("there"), *other.expose());
    }

    #[test]
    fn a_leftover_of_a_dead_process_is_no_obstacle() {
        let dir = Dir::new("leftover");
        let beside = format!("identity/device.json.{}.tmp", std::process::id());
        dir.file(&beside, b"half");
        assert!(dir.load(1).warnings.is_empty());
        assert!(!dir.0.join(beside).exists());
    }

    #[test]
    fn secret_files_are_plain_files_of_one_name() {
        let dir = Dir::new("secrets");
        let good = dir.file("good", b"  s3cret\n");
        let secret = read_secret_file("token", &good).expect("good");
        assert_eq!(secret.expose(), "s3cret");

        let limit = usize::try_from(SECRET_FILE_BYTES_MAX).expect("small");
        let full = dir.file("full", &vec![b'x'; limit]);
        assert!(read_secret_file("token", &full).is_ok());

        let link = dir.0.join("link");
        symlink(&good, &link).expect("linked");
        let twice = dir.file("twice", b"x");
        fs::hard_link(&twice, dir.0.join("again")).expect("linked");
        let rows = [
            (link, "must not be a symlink"),
            (dir.0.clone(), "must be a regular file"),
            (twice, "must have one name only (found 2 hard links)"),
            (
                dir.file("long", &vec![b'x'; limit + 1]),
                "exceeds 16384 bytes (found 16385)",
            ),
            (dir.file("empty", b" \n"), "is empty"),
            (dir.file("binary", &[0xff]), "is not UTF-8"),
            (dir.0.join("absent"), "cannot read"),
        ];
        for (path, why) in rows {
            let error = read_secret_file("token", &path).expect_err(why).to_string();
            assert!(error.contains(why), "{error} says {why}");
            let name = path
                .file_name()
                .expect("named")
                .to_string_lossy()
                .into_owned();
            assert!(error.contains(&name), "{error} names {name}");
        }
    }
}
