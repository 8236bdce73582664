//! What one may ask to be told of, one by one.

/// A resource of a server, or a task of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// Its URI. Spec: 2025-11-25 server/resources, 2026-07-28 basic/patterns/subscriptions.
    Resource(String),
    /// Its id; in the stateless era only. Spec: extension io.modelcontextprotocol/tasks.
    Task(String),
}

impl Topic {
    /// The URI, where it is a resource.
    #[must_use]
    pub fn resource(&self) -> Option<&str> {
        match self {
            Self::Resource(uri) => Some(uri),
            Self::Task(_) => None,
        }
    }

    /// The id, where it is a task.
    #[must_use]
    pub fn task(&self) -> Option<&str> {
        match self {
            Self::Task(id) => Some(id),
            Self::Resource(_) => None,
        }
    }
}
