//! The five protocol revisions and what they differ in.
//!
//! Every difference is a named predicate here; no other file compares versions.
//! Source: mcp-eras (the specification's changelog pages, 2024-11-05 to 2026-07-28).

use std::fmt;

/// One revision of the Model Context Protocol, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// The first one: handshake, stdio and HTTP with SSE.
    V2024_11_05,
    /// Streamable HTTP, batches.
    V2025_03_26,
    /// No batches, elicitation, structured output.
    V2025_06_18,
    /// The last one with a handshake.
    V2025_11_25,
    /// Stateless: metadata on every request, no handshake.
    V2026_07_28,
}

impl Revision {
    /// All of them, newest first: the order in which they are offered.
    pub const NEWEST_FIRST: [Self; 5] = [
        Self::V2026_07_28,
        Self::V2025_11_25,
        Self::V2025_06_18,
        Self::V2025_03_26,
        Self::V2024_11_05,
    ];

    /// What an `initialize` of ours asks for.
    pub const NEWEST_WITH_HANDSHAKE: Self = Self::V2025_11_25;

    /// What a stateless request of ours names.
    pub const NEWEST_STATELESS: Self = Self::V2026_07_28;

    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The revision with this spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::NEWEST_FIRST
            .into_iter()
            .find(|revision| revision.as_str() == text)
    }

    /// What an `initialize` that asks for `asked` is answered with: the same revision where it has a
    /// handshake, else the newest that has one. Design: a modern, unknown or ancient version (2024-10-07
    /// too) gets 2025-11-25.
    #[must_use]
    pub fn negotiate(asked: &str) -> Self {
        match Self::parse(asked) {
            Some(revision) if !revision.is_stateless() => revision,
            _ => Self::V2025_11_25,
        }
    }

    /// Metadata comes with every request, nothing is remembered between requests, results state their
    /// type, and `initialize`, `ping` and `logging/setLevel` do not exist.
    #[must_use]
    pub const fn is_stateless(self) -> bool {
        matches!(self, Self::V2026_07_28)
    }

    /// A JSON array of messages is a batch, not an error.
    #[must_use]
    pub const fn has_batches(self) -> bool {
        matches!(self, Self::V2025_03_26)
    }

    /// `notifications/progress` may say what is going on.
    #[must_use]
    pub const fn progress_has_message(self) -> bool {
        !matches!(self, Self::V2024_11_05)
    }

    /// The server may send requests of its own; later it asks by a result that wants input.
    #[must_use]
    pub const fn server_may_ask(self) -> bool {
        !matches!(self, Self::V2026_07_28)
    }

    /// Changes are told only on streams that were asked for, by `subscriptions/listen`.
    #[must_use]
    pub const fn has_listen_streams(self) -> bool {
        matches!(self, Self::V2026_07_28)
    }

    /// Whether a resource that is not there has a code of its own (-32002). Spec: 2026-07-28 server/resources
    /// (Error Handling) uses -32602.
    #[must_use]
    pub const fn has_resource_not_found(self) -> bool {
        !self.is_stateless()
    }

    /// The newest of our revisions that `offered` names, among those with a handshake or those without.
    #[must_use]
    pub fn newest_common(offered: &[String], stateless: bool) -> Option<Self> {
        Self::NEWEST_FIRST.into_iter().find(|revision| {
            revision.is_stateless() == stateless
                && offered.iter().any(|name| name == revision.as_str())
        })
    }

    /// Losing the connection on which a request came cancels the request.
    #[must_use]
    pub const fn disconnect_cancels(self) -> bool {
        matches!(self, Self::V2026_07_28)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_revision_is_of_the_wanted_era() {
        let offered = ["2027-01-15", "2025-03-26", "2026-07-28", "2024-11-05"];
        let offered = offered.map(str::to_owned);
        let newest = |stateless| Revision::newest_common(&offered, stateless);
        assert_eq!(newest(true), Some(Revision::V2026_07_28));
        assert_eq!(newest(false), Some(Revision::V2025_03_26));
        assert_eq!(Revision::newest_common(&offered[..1], true), None);
        assert!(!Revision::NEWEST_WITH_HANDSHAKE.is_stateless());
        assert!(Revision::NEWEST_STATELESS.is_stateless());
    }

    #[test]
    fn negotiation_never_yields_a_stateless_revision() {
        for revision in Revision::NEWEST_FIRST {
            assert_eq!(Revision::parse(revision.as_str()), Some(revision));
            let answer = Revision::negotiate(revision.as_str());
            assert!(!answer.is_stateless());
            assert!(revision.is_stateless() || answer == revision);
        }
        for asked in ["2024-10-07", "2026-07-28", "1999-01-01", "", "2025-11-25 "] {
            assert_eq!(
                Revision::negotiate(asked),
                Revision::V2025_11_25,
                "{asked:?}"
            );
        }
    }
}
