//! One session's view of the servers: which connections are its own, what tools it sees, and when it was
//! last used.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Uptime;
use crate::ids::TicketId;
use crate::manager::catalog::Catalog;
use crate::manager::naming::Names;
use crate::manager::server_config::ServerKey;
use crate::manager::wishes::Wishes;

/// A connection of the manager, counted up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UpstreamId(pub(super) u32);

/// See the module page.
#[derive(Debug)]
pub(super) struct Runtime {
    /// The connection to each server; shared ones stand in several runtimes.
    pub(super) upstreams: BTreeMap<ServerKey, UpstreamId>,
    pub(super) catalog: Catalog,
    /// What its own servers are told, where that differs from what all others are told.
    pub(super) capabilities: Option<String>,
    pub(super) prefix: Prefix,
    pub(super) names: Names,
    /// The same for prompts: what is a tool's name may be a prompt's, too.
    pub(super) prompt_names: Names,
    /// Whether the tools of a server have its name in front: decided at its first listing, for good, so that
    /// a second server in the configuration does not rename the tools of the first.
    pub(super) prefixed: BTreeMap<ServerKey, bool>,
    /// The tools of its servers are not fetched by themselves.
    pub(super) tools_left: bool,
    /// It was asked to be connected to all servers there are, those that come later included.
    pub(super) wants_all: bool,
    /// Whoever must not be cut off although nothing of theirs is open.
    pub(super) leases: u32,
    pub(super) wishes: Wishes,
    pub(super) last_used: Uptime,
    /// When it is looked at whether it is idle: not later than it is, where it is at all.
    pub(super) look_at: Option<Uptime>,
    pub(super) open: BTreeSet<TicketId>,
    /// Questions of its servers that wait for an answer.
    pub(super) questions: usize,
    /// Calls by shown name that wait until it is known where the name leads.
    pub(super) undecided: Vec<Undecided>,
}

/// How the names of tools are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefix {
    /// `server__tool`, safe for every model. OpenClaw: the names of its client runtime.
    Always,
    /// The server's own names where there is one server, else as `Always`. A name that is
    /// [reserved](super::Manager::reserve) is as `Always`.
    #[default]
    Auto,
    /// The server's own names. Of two tools with one name the one of the first server is reached. A name
    /// that is [reserved](super::Manager::reserve) is as `Always`.
    Never,
}

/// Names that nothing of a server's is shown under, in lower case.
#[derive(Clone, Debug, Default)]
pub(super) struct Reserved {
    pub(super) tools: BTreeSet<String>,
    pub(super) prompts: BTreeSet<String>,
}

/// A call whose tool is not known yet while some server has not said what it has.
#[derive(Debug)]
pub(super) struct Undecided {
    pub(super) ticket: TicketId,
    pub(super) call: crate::gate::GatedCall,
    pub(super) options: crate::manager::job::Options,
}

impl Runtime {
    pub(super) fn new(prefix: Prefix, reserved: &Reserved, tools_max: usize, now: Uptime) -> Self {
        let names = |reserved: &BTreeSet<String>| {
            Names::new(reserved.iter().map(String::as_str), tools_max)
        };
        Self {
            upstreams: BTreeMap::new(),
            catalog: Catalog::new(),
            capabilities: None,
            prefix,
            names: names(&reserved.tools),
            prompt_names: names(&reserved.prompts),
            prefixed: BTreeMap::new(),
            tools_left: false,
            wants_all: false,
            leases: 0,
            wishes: Wishes::default(),
            last_used: now,
            look_at: None,
            open: BTreeSet::new(),
            questions: 0,
            undecided: Vec::new(),
        }
    }

    /// Names the servers that have no name yet.
    pub(super) fn name_servers<'a>(&mut self, keys: impl Iterator<Item = &'a ServerKey> + Clone) {
        self.names.name_servers(keys.clone());
        self.prompt_names.name_servers(keys);
    }

    /// Whether names of this server's tools and prompts have its own in front; `one`: it is the only one.
    pub(super) fn prefixes(&mut self, key: &ServerKey, one: bool) -> bool {
        match self.prefix {
            Prefix::Always => true,
            Prefix::Auto => *self.prefixed.entry(key.clone()).or_insert(!one),
            Prefix::Never => false,
        }
    }

    /// Nobody is using it.
    pub(super) fn is_idle(&self) -> bool {
        self.leases == 0 && self.open.is_empty() && self.questions == 0
    }
}
