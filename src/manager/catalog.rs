//! The tools of one runtime, by the names they are shown under: what is ready is there, while other servers
//! are still connecting, failed or paused.
//!
//! A server's part is replaced as a whole by [`Catalog::publish`], with the tools of one finished walk. A walk
//! begins with [`Catalog::begin`]; when the server's part was [invalidated](Catalog::invalidate) meanwhile
//! (it was connected to anew), its tools are not published. A change that a server announces during a walk
//! invalidates nothing: it leads to one more walk, see [`ListChanges`].
//!
//! Order: tools by the bytes of their shown names; one server's tools as the server lists them.

mod changes;
mod tool;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use self::changes::ListChanges;
pub use self::tool::{Remark, Tool, ToolSet};
pub use self::walk::{ListWalk, PagedList, WalkStep};
use crate::diagnostic::Level;
use crate::manager::diagnostic::ServerDiagnostic;
use crate::manager::error::Phase;
use crate::manager::server_config::ServerKey;
use crate::secret::Quoted;

/// Names in one diagnostic about changed tools.
const NAMED_MAX: usize = 8;

/// Tools that are gone and whose digests are kept, beside those that are shown. No limit of its own: 32 bytes
/// each, for one diagnostic.
const GONE_MAX: usize = 1_024;

/// A walk under way. Given to [`Catalog::publish`] with what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkTicket(u64);

/// What a new listing changed, by the server's own names in byte order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Tools that were not shown before.
    pub added: Vec<String>,
    /// Tools that are shown no more.
    pub removed: Vec<String>,
    /// Tools whose description or schemas differ from what they were when last shown.
    pub changed: Vec<String>,
}

/// A tool as it was found by its shown name.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Whose.
    pub server: &'a ServerKey,
    /// The tool.
    pub tool: &'a Arc<Tool>,
}

/// A tool behind the name it is shown under.
pub type Shown = (String, Arc<Tool>);

/// The tools of one runtime.
#[derive(Debug, Default)]
pub struct Catalog {
    servers: BTreeMap<ServerKey, Part>,
    by_name: BTreeMap<String, (ServerKey, usize)>,
    /// Tools of several servers have one shown name, or had.
    shadows: bool,
    generation: u64,
}

/// The tools of one server.
#[derive(Debug, Default)]
struct Part {
    /// Moves when walks under way become worthless.
    epoch: u64,
    /// Moves with each change of what is shown.
    generation: u64,
    /// `None` until the first listing.
    tools: Option<Vec<Shown>>,
    /// Tools that are not to be used, by the names they would be shown under, and why.
    refused: Vec<(String, String)>,
    filtered: usize,
    /// Digests by name, of tools that are gone too: one that comes back different has changed.
    digests: BTreeMap<Box<str>, [u8; 32]>,
}

impl Catalog {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A walk begins.
    pub fn begin(&mut self, server: &ServerKey) -> WalkTicket {
        WalkTicket(self.part(server).epoch)
    }

    /// Walks of this server that are under way are worthless: it was connected to anew, or closed. What is
    /// shown stays.
    pub fn invalidate(&mut self, server: &ServerKey) {
        let part = self.part(server);
        part.epoch += 1;
    }

    /// Puts the tools of a finished walk in place of the server's earlier ones. `shows` is its filter; `names`
    /// gives the shown names of the tools that pass it, in their order, and is asked once. Of two tools with
    /// one shown name the first is reached: the server's own order, and servers by their keys. A tool for which
    /// `refusal` has a reason is not shown, but keeps its name: [`Catalog::refusal`].
    ///
    /// `None` when the walk is worthless by now; nothing was changed then.
    pub fn publish(
        &mut self,
        server: &ServerKey,
        ticket: WalkTicket,
        tools: Vec<impl Into<Arc<Tool>>>,
        shows: impl Fn(&str) -> bool,
        refusal: impl Fn(&str) -> Option<String>,
        names: impl FnOnce(&[&str]) -> Vec<String>,
    ) -> Option<Difference> {
        if self.part(server).epoch != ticket.0 {
            return None;
        }
        let all = tools.len();
        let shown: Vec<Arc<Tool>> = tools
            .into_iter()
            .map(Into::into)
            .filter(|tool: &Arc<Tool>| shows(tool.name()))
            .collect();
        let own: Vec<&str> = shown.iter().map(|tool| tool.name()).collect();
        let names = names(&own);
        let filtered = all - shown.len();
        let (mut usable, mut refused) = (Vec::with_capacity(shown.len()), Vec::new());
        for (name, tool) in names.into_iter().zip(shown) {
            match refusal(tool.name()) {
                Some(why) => refused.push((name, why)),
                None => usable.push((name, tool)),
            }
        }
        let shown: Vec<Shown> = usable;
        let difference = self.part(server).difference(&shown);
        self.unname(server);
        for (at, (name, _)) in shown.iter().enumerate() {
            self.name(name, server, at);
        }
        let part = self.part(server);
        let same = part.filtered == filtered && part.shows_the_same(&shown);
        part.filtered = filtered;
        part.refused = refused;
        part.remember(shown);
        if !same {
            part.generation += 1;
            self.generation += 1;
        }
        Some(difference)
    }

    /// Takes a server out: it is no longer configured.
    pub fn remove(&mut self, server: &ServerKey) {
        self.unname(server);
        if self.servers.remove(server).is_some() {
            self.generation += 1;
        }
    }

    /// The tool of this shown name.
    #[must_use]
    pub fn find(&self, shown: &str) -> Option<Found<'_>> {
        let (server, at) = self.by_name.get(shown)?;
        self.found(server, *at)
    }

    /// Whose tool this is, and why it may not be used, when that is so.
    #[must_use]
    pub fn refusal(&self, shown: &str) -> Option<(&ServerKey, &str)> {
        let mut all = self.servers.iter().flat_map(|(server, part)| {
            let refused = part.refused.iter();
            refused.map(move |(name, why)| (server, name, why))
        });
        let (server, _, why) = all.find(|(_, name, _)| *name == shown)?;
        Some((server, why))
    }

    /// All tools, by the bytes of their shown names.
    pub fn tools(&self) -> impl Iterator<Item = (&str, Found<'_>)> {
        self.by_name
            .iter()
            .filter_map(|(name, (server, at))| Some((name.as_str(), self.found(server, *at)?)))
    }

    /// One server's tools with their shown names, as the server lists them; `None` before its first listing.
    #[must_use]
    pub fn tools_of(&self, server: &ServerKey) -> Option<&[Shown]> {
        self.servers.get(server)?.tools.as_deref()
    }

    /// How many tools of a server its filter hides.
    #[must_use]
    pub fn filtered(&self, server: &ServerKey) -> usize {
        self.servers.get(server).map_or(0, |part| part.filtered)
    }

    /// Moves with each change of what is shown of any server.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Moves with each change of what is shown of this server; 0 before its first listing.
    #[must_use]
    pub fn generation_of(&self, server: &ServerKey) -> u64 {
        self.servers.get(server).map_or(0, |part| part.generation)
    }

    fn found(&self, server: &ServerKey, at: usize) -> Option<Found<'_>> {
        let (server, part) = self.servers.get_key_value(server)?;
        let (_, tool) = part.tools.as_ref()?.get(at)?;
        Some(Found { server, tool })
    }

    fn part(&mut self, server: &ServerKey) -> &mut Part {
        self.servers.entry(server.clone()).or_default()
    }

    /// Of two servers' tools with one shown name the first server's is reached, whoever was there first.
    fn name(&mut self, name: &str, server: &ServerKey, at: usize) {
        let owner = self.by_name.get(name).map(|(owner, _)| owner);
        self.shadows |= owner.is_some_and(|owner| owner != server);
        if owner.is_none_or(|owner| owner > server) {
            self.by_name.insert(name.to_owned(), (server.clone(), at));
        }
    }

    /// Frees the shown names of a server's tools.
    fn unname(&mut self, server: &ServerKey) {
        let Self {
            servers, by_name, ..
        } = self;
        let tools = servers.get(server).and_then(|part| part.tools.as_ref());
        for (name, _) in tools.into_iter().flatten() {
            if by_name.get(name).is_some_and(|(owner, _)| owner == server) {
                by_name.remove(name);
            }
        }
        if !self.shadows {
            return;
        }
        // What stood in the shadow of these comes out.
        let others: Vec<(String, ServerKey, usize)> = self
            .servers
            .iter()
            .filter(|(key, _)| *key != server)
            .flat_map(|(key, part)| {
                part.tools
                    .iter()
                    .flatten()
                    .enumerate()
                    .map(move |x| (key, x))
            })
            .filter(|(_, (_, (name, _)))| !self.by_name.contains_key(name))
            .map(|(key, (at, (name, _)))| (name.clone(), key.clone(), at))
            .collect();
        for (name, key, at) in others {
            self.name(&name, &key, at);
        }
    }
}

impl Part {
    fn difference(&self, shown: &[Shown]) -> Difference {
        let mut difference = Difference::default();
        let new: BTreeMap<&str, &Arc<Tool>> =
            shown.iter().map(|(_, tool)| (tool.name(), tool)).collect();
        let old: BTreeMap<&str, &Arc<Tool>> = self
            .tools
            .iter()
            .flatten()
            .map(|(_, tool)| (tool.name(), tool))
            .collect();
        for (name, tool) in &new {
            if !old.contains_key(name) {
                difference.added.push((*name).to_owned());
            }
            let known = self.digests.get(*name);
            if known.is_some_and(|digest| digest != tool.digest()) {
                difference.changed.push((*name).to_owned());
            }
        }
        let gone = old.keys().filter(|name| !new.contains_key(*name));
        difference
            .removed
            .extend(gone.map(|name| (*name).to_owned()));
        difference
    }

    /// Whether these are the tools that are shown, to the last byte.
    fn shows_the_same(&self, shown: &[Shown]) -> bool {
        let same = |(a, b): (&Shown, &Shown)| a.0 == b.0 && a.1.raw() == b.1.raw();
        let old = self.tools.as_deref();
        old.is_some_and(|old| old.len() == shown.len() && old.iter().zip(shown).all(same))
    }

    /// Takes the tools in.
    fn remember(&mut self, tools: Vec<Shown>) {
        // A server that changes all its names each time must not fill the memory.
        if self.digests.len() > tools.len() + GONE_MAX {
            let shown: BTreeSet<&str> = tools.iter().map(|(_, tool)| tool.name()).collect();
            self.digests.retain(|name, _| shown.contains(&**name));
        }
        for (_, tool) in &tools {
            self.digests.insert(tool.name().into(), *tool.digest());
        }
        self.tools = Some(tools);
    }
}

/// What is said of a listing that changed tools people already know, as one line; `None` when none did.
#[must_use]
pub fn drift(server: &ServerKey, difference: &Difference) -> Option<ServerDiagnostic> {
    let changed = &difference.changed;
    if changed.is_empty() {
        return None;
    }
    let named: Vec<String> = changed
        .iter()
        .take(NAMED_MAX)
        .map(|name| Quoted(name).to_string())
        .collect();
    let more = match changed.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!("description or schema changed: {}{more}", named.join(", "));
    let mut one = ServerDiagnostic::new(server, Phase::List, Level::Warning, message);
    one.count = u64::try_from(changed.len()).ok();
    if let [only] = changed.as_slice() {
        one.tool = Some(Quoted(only).to_string());
    }
    Some(one.with_code("tool-changed"))
}

impl Remark {
    /// The remark as a diagnostic of a server.
    #[must_use]
    pub fn of(self, server: &ServerKey) -> ServerDiagnostic {
        let mut one = ServerDiagnostic::new(server, Phase::List, self.level, self.message);
        one.code = Some(self.code);
        one.tool = self.tool;
        one
    }
}

#[cfg(test)]
mod tests;
