//! One session's view of the servers: which connections are its own, what tools it sees, and when it was
//! last used.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Uptime;
use crate::ids::TicketId;
use crate::manager::catalog::Catalog;
use crate::manager::naming::Names;
use crate::manager::server_config::ServerKey;

/// A connection of the manager, counted up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UpstreamId(pub(super) u32);

/// See the module page.
#[derive(Debug)]
pub(super) struct Runtime {
    /// The connection to each server; shared ones stand in several runtimes.
    pub(super) upstreams: BTreeMap<ServerKey, UpstreamId>,
    pub(super) catalog: Catalog,
    pub(super) prefix: Prefix,
    pub(super) names: Names,
    /// Whether the tools of a server have its name in front: decided at its first listing, for good, so that
    /// a second server in the configuration does not rename the tools of the first.
    pub(super) prefixed: BTreeMap<ServerKey, bool>,
    /// It was asked to be connected to all servers there are, those that come later included.
    pub(super) wants_all: bool,
    /// Whoever must not be cut off although nothing of theirs is open.
    pub(super) leases: u32,
    pub(super) last_used: Uptime,
    pub(super) open: BTreeSet<TicketId>,
    /// Calls by shown name that wait until it is known where the name leads.
    pub(super) undecided: Vec<Undecided>,
}

/// How the names of tools are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefix {
    /// `server__tool`, safe for every model. OpenClaw: the names of its client runtime.
    Always,
    /// The server's own names where there is one server, else as `Always`.
    #[default]
    Auto,
    /// The server's own names. Of two tools with one name the one of the first server is reached.
    Never,
}

/// A call whose tool is not known yet while some server has not said what it has.
#[derive(Debug)]
pub(super) struct Undecided {
    pub(super) ticket: TicketId,
    pub(super) call: crate::gate::GatedCall,
    pub(super) options: crate::manager::job::Options,
}

impl Runtime {
    pub(super) fn new(prefix: Prefix, tools_max: usize, now: Uptime) -> Self {
        Self {
            upstreams: BTreeMap::new(),
            catalog: Catalog::new(),
            prefix,
            names: Names::new([], tools_max),
            prefixed: BTreeMap::new(),
            wants_all: false,
            leases: 0,
            last_used: now,
            open: BTreeSet::new(),
            undecided: Vec::new(),
        }
    }

    /// Nobody is using it.
    pub(super) fn is_idle(&self) -> bool {
        self.leases == 0 && self.open.is_empty()
    }
}
