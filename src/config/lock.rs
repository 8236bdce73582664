//! The key `lock`: which tools of the servers may be used.

use super::{ConfigError, Node};
use crate::manager::lock::LockMode;

/// What the file says of the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockConfig {
    /// `file`, as it stands there; `None` for `drawspan.lock.json` beside the configuration, if that is there.
    pub file: Option<String>,
    /// `mode`: what is done about a tool that has changed.
    pub mode: LockMode,
}

impl LockConfig {
    pub(super) fn read(lock: &Node<'_>) -> Result<Self, ConfigError> {
        let mode = match lock.get("mode") {
            None => LockMode::Refuse,
            Some(node) => match node.value.as_str() {
                Some("refuse") => LockMode::Refuse,
                Some("warn") => LockMode::Warn,
                Some(_) | None => return Err(node.error("\"refuse\" or \"warn\"")),
            },
        };
        Ok(Self {
            file: lock.text("file")?.filter(|file| !file.is_empty()),
            mode,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn a_lock_section_is_read_whole() {
        let read = |text: &str| Config::parse(text).map(|config| config.lock);
        let lock = read("{lock: {file: 'tools.json', mode: 'warn'}}").expect("good");
        assert_eq!(lock.file.as_deref(), Some("tools.json"));
        assert_eq!(lock.mode, LockMode::Warn);
        assert_eq!(read("{lock: {}}").expect("good"), LockConfig::default());
        let error = read("{lock: {mode: 'off'}}")
            .expect_err("no mode")
            .to_string();
        assert_eq!(
            error,
            "lock.mode must be \"refuse\" or \"warn\" (found a string)"
        );
    }
}
