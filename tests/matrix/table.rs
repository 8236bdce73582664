//! The table: what works between a client and a server, and what is done about the rest.

use drawspan::protocol::revision::Revision;

use crate::operations::Operation;

/// What an operation must come to in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Works,
    /// Not done yet. Fails the test as soon as it works, so that the mark goes.
    #[allow(dead_code, reason = "nothing may be pending")]
    Pending(&'static str),
}

/// The two kinds of revisions, as far as the table differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Handshake,
    Stateless,
}

impl Era {
    pub(crate) const fn of(revision: Revision) -> Self {
        match revision.is_stateless() {
            true => Self::Stateless,
            false => Self::Handshake,
        }
    }
}

use Era::{Handshake, Stateless};

/// What is not done yet: rows by the beginning of their name, client, server.
const PENDING: &[(&str, Era, Era)] = &[
    ("the server's name", Handshake, Handshake),
    ("the server's name", Handshake, Stateless),
    ("the server's name", Stateless, Handshake),
    ("the server's name", Stateless, Stateless),
    ("resources: subscribe", Handshake, Handshake),
    ("resources: subscribe", Handshake, Stateless),
    ("resources: subscribe", Stateless, Handshake),
    ("resources: subscribe", Stateless, Stateless),
    ("log messages", Handshake, Handshake),
    ("log messages", Handshake, Stateless),
    ("log messages", Stateless, Handshake),
    ("log messages", Stateless, Stateless),
    ("list_changed", Handshake, Handshake),
    ("list_changed", Handshake, Stateless),
    ("list_changed", Stateless, Handshake),
    ("list_changed", Stateless, Stateless),
    ("question", Handshake, Handshake),
    ("question", Handshake, Stateless),
    ("question", Stateless, Handshake),
    ("question", Stateless, Stateless),
    ("several", Handshake, Handshake),
    ("several", Handshake, Stateless),
    ("several", Stateless, Handshake),
    ("several", Stateless, Stateless),
];

/// What must come of an operation.
pub(crate) fn expected(operation: &Operation, client: Revision, server: Revision) -> Expected {
    let eras = (Era::of(client), Era::of(server));
    let pending = PENDING.iter().find(|(row, client, server)| {
        operation.name.starts_with(row) && (*client, *server) == eras
    });
    match pending {
        Some((row, ..)) => Expected::Pending(row),
        None => Expected::Works,
    }
}
