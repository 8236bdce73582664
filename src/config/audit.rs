//! The key `audit`: where a line for each tool call is kept.

use super::{ConfigError, Node};

/// What the file says of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditConfig {
    /// `file`, as it stands there: `None` for no log. See [`Config::path_beside`](super::Config::path_beside).
    pub file: Option<String>,
    /// `required`: calls whose lines cannot be written are refused.
    pub required: bool,
    /// `sync`: every write is on the disk before anything goes on.
    pub sync: bool,
}

impl AuditConfig {
    pub(super) fn read(audit: &Node<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            file: audit.text("file")?.filter(|file| !file.is_empty()),
            required: audit.flag("required")?,
            sync: audit.flag("sync")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn an_audit_section_is_read_whole() {
        let read = |text: &str| Config::parse(text).map(|config| config.audit);
        let audit = read("{audit: {file: 'audit.jsonl', required: true, sync: true}}");
        let audit = audit.expect("good");
        assert_eq!(audit.file.as_deref(), Some("audit.jsonl"));
        assert!(audit.required && audit.sync);
        assert_eq!(read("{}").expect("good"), super::AuditConfig::default());
        for (text, key) in [
            ("{audit: 'x'}", "audit must be an object"),
            ("{audit: {file: 7}}", "audit.file must be a string"),
            ("{audit: {required: 'yes'}}", "audit.required must be true"),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.starts_with(key), "{error}");
        }
    }
}
