//! What the person who runs drawspan is told besides results: one line each, never a backtrace.

use std::fmt;

/// How much a diagnostic matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Good to know.
    Info,
    /// Something is off and was worked around.
    Warning,
    /// Something asked for did not happen.
    Error,
}

impl Level {
    /// The word in front of the line on stderr.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Which part of the work a diagnostic is about. Source: cli-json §3 (phases).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The link to the OpenClaw Gateway.
    Gateway,
    /// The MCP client we serve.
    Downstream,
    /// The before-tool-call hook.
    Hook,
    /// The gate, and calls that wait for a person.
    Gate,
    /// The channel bridge: queue, approvals, permissions.
    Bridge,
    /// An upstream MCP server.
    Upstream,
    /// A tool that is a command.
    Plugin,
}

/// One line for a person. `message` is lower case, without a full stop, with untrusted text escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How much it matters.
    pub level: Level,
    /// What it is about.
    pub subject: Subject,
    /// What happened, the limit and the value, and the next step.
    pub message: String,
}

impl Diagnostic {
    /// A diagnostic of the given level.
    pub fn new(level: Level, subject: Subject, message: impl Into<String>) -> Self {
        Self {
            level,
            subject,
            message: message.into(),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.level.as_str(), self.message)
    }
}
