//! The gate: the before-tool-call seam, and the only maker of a [`GatedCall`].

use crate::ids::CallId;

/// A tool call as a client made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Its number in the ledger.
    pub id: CallId,
    /// The exposed name of the tool.
    pub tool: String,
    /// The arguments: a raw JSON object, `{}` when the client sent none.
    pub arguments: Box<str>,
    /// Who calls: a short name for logs, hooks and the audit.
    pub caller: String,
    /// Whether the client asked for progress notifications.
    pub wants_progress: bool,
}

/// A call that has passed the gate. Executors take nothing else, and only this file can make one.
#[derive(Debug)]
pub struct GatedCall(ToolCall);

impl GatedCall {
    /// Its number in the ledger.
    #[must_use]
    pub const fn id(&self) -> CallId {
        self.0.id
    }

    /// The exposed name of the tool.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.0.tool
    }

    /// The arguments, possibly replaced by a hook: a raw JSON object.
    #[must_use]
    pub fn arguments(&self) -> &str {
        &self.0.arguments
    }

    /// Whether the client asked for progress notifications.
    #[must_use]
    pub const fn wants_progress(&self) -> bool {
        self.0.wants_progress
    }
}
