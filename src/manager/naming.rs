//! Names that every MCP client and model provider takes: letters, digits, `_` and `-`, a letter first, 64 at
//! most.
//!
//! The functions are OpenClaw's (`sanitizeServerName`, `buildSafeToolName`); the order in which they are
//! applied is ours, so that neither the order of the configuration nor that of the answers matters: servers
//! in byte order of their keys, tools in byte order of their names, and what a tool was once called it is
//! called as long as [`Names`] lives.

use std::collections::{BTreeMap, BTreeSet};

use crate::manager::server_config::ServerKey;

/// Longest safe server name. Unit: bytes. Source: OpenClaw.
pub const SERVER_NAME_MAX: usize = 30;

/// Longest shown tool name. Unit: bytes. Source: OpenClaw; the model providers' own limit.
pub const TOOL_NAME_MAX: usize = 64;

/// Between the server's and the tool's part of a shown name.
pub const SEPARATOR: &str = "__";

/// The names in use in one runtime.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Lower-case names that are not ours to give: those of tools beside ours.
    reserved: BTreeSet<String>,
    servers: BTreeMap<ServerKey, ServerNames>,
    tools_max: usize,
}

#[derive(Clone, Debug)]
struct ServerNames {
    safe: String,
    /// The server's own name of a tool → the shown one.
    tools: BTreeMap<String, String>,
}

impl Names {
    /// No names yet. `reserved` are names of other tools that are shown beside these; for each server the
    /// names of at most `tools_max` tools that it no longer has are remembered (`Limits::tools_max`).
    #[must_use]
    pub fn new<'a>(reserved: impl IntoIterator<Item = &'a str>, tools_max: usize) -> Self {
        Self {
            reserved: reserved_names(reserved),
            servers: BTreeMap::new(),
            tools_max,
        }
    }

    /// Names the servers that have none yet. Give all of a configuration at once.
    pub fn name_servers<'a>(&mut self, keys: impl IntoIterator<Item = &'a ServerKey>) {
        let new: BTreeSet<&ServerKey> = keys
            .into_iter()
            .filter(|key| !self.servers.contains_key(*key))
            .collect();
        for key in new {
            let mut safe = safe_server_name(key.as_str(), |name| self.is_server(name));
            if self.nests(&safe.to_ascii_lowercase()) {
                // A number cannot separate `a__b` from `a`: it would be part of a tool's name then.
                let apart = safe.replace(SEPARATOR, "_-");
                let taken = |name: &str| self.is_server(name) || self.nests(name);
                safe = numbered("", &apart, SERVER_NAME_MAX, &mut 1, taken);
            }
            let tools = BTreeMap::new();
            self.servers
                .insert(key.clone(), ServerNames { safe, tools });
        }
    }

    /// The safe name of a server; `None` when it was never named.
    #[must_use]
    pub fn server(&self, key: &ServerKey) -> Option<&str> {
        Some(&self.servers.get(key)?.safe)
    }

    /// Names the tools that a server lists now, all of them; the shown names come in the order of `tools`.
    /// Two tools of one name share the shown one. A server that was never named is named first.
    pub fn name_tools(&mut self, key: &ServerKey, tools: &[&str]) -> Vec<String> {
        self.name_servers([key]);
        let Some(mut server) = self.servers.remove(key) else {
            return Vec::new();
        };
        let mut taken = self.reserved.clone();
        for names in self.servers.values().chain([&server]) {
            taken.extend(names.tools.values().map(|name| name.to_ascii_lowercase()));
        }
        let listed: BTreeSet<&str> = tools.iter().copied().collect();
        // Where the search for a free number goes on: ten thousand names that become one would otherwise
        // cost fifty million looks.
        let mut numbers: BTreeMap<String, u64> = BTreeMap::new();
        let start = format!("{}{SEPARATOR}", server.safe);
        for tool in &listed {
            if !server.tools.contains_key(*tool) {
                let mut base = safe_tool_name(tool);
                base.truncate(TOOL_NAME_MAX.saturating_sub(start.len()).max(1));
                let number = numbers.entry(base.to_ascii_lowercase()).or_insert(1);
                let is_taken = |name: &str| taken.contains(name);
                let shown = numbered(&start, &base, TOOL_NAME_MAX, number, is_taken);
                taken.insert(shown.to_ascii_lowercase());
                server.tools.insert((*tool).to_owned(), shown);
            }
        }
        let shown = tools.iter().filter_map(|tool| server.tools.get(*tool));
        let shown = shown.cloned().collect();
        if server.tools.len() > listed.len() + self.tools_max {
            server
                .tools
                .retain(|tool, _| listed.contains(tool.as_str()));
        }
        self.servers.insert(key.clone(), server);
        shown
    }

    /// The same for tools that keep their own names: only those whose name is reserved are named.
    pub fn name_reserved(&mut self, key: &ServerKey, tools: &[&str]) -> Vec<String> {
        let is_named = |tool: &&&str| {
            self.tool(key, tool).is_some() || self.reserved.contains(&tool.to_ascii_lowercase())
        };
        let named: Vec<&str> = tools.iter().filter(is_named).copied().collect();
        if !named.is_empty() {
            self.name_tools(key, &named);
        }
        let shown = |tool: &&str| self.tool(key, tool).unwrap_or(tool).to_owned();
        tools.iter().map(shown).collect()
    }

    /// Names that are not ours to give, from now on, in lower case. Those that were given are given no more.
    pub fn reserve(&mut self, names: BTreeSet<String>) {
        self.reserved = names;
        for server in self.servers.values_mut() {
            let free = |shown: &str| !self.reserved.contains(&shown.to_ascii_lowercase());
            server.tools.retain(|_, shown| free(shown));
        }
    }

    /// The shown name of a tool; `None` when it was never named.
    #[must_use]
    pub fn tool(&self, key: &ServerKey, tool: &str) -> Option<&str> {
        Some(self.servers.get(key)?.tools.get(tool)?)
    }

    fn is_server(&self, name: &str) -> bool {
        let mut servers = self.servers.values();
        servers.any(|server| server.safe.eq_ignore_ascii_case(name))
    }

    /// Whether tools under this safe name could be taken for tools of another server: with servers `a` and
    /// `a__b` the name `a__b__c` could mean two tools, and whoever answers first would get it.
    fn nests(&self, name: &str) -> bool {
        let inside = |longer: &str, shorter: &str| {
            let rest = longer.strip_prefix(shorter);
            rest.is_some_and(|rest| rest.starts_with(SEPARATOR))
        };
        self.servers.values().any(|server| {
            let other = server.safe.to_ascii_lowercase();
            inside(&other, name) || inside(name, &other)
        })
    }
}

/// A server's key as a safe name. `taken` is asked with lower-case names; a name that is taken gets `-2`,
/// `-3` and so on.
#[must_use]
pub fn safe_server_name(key: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut base = fragment(key, "mcp");
    base.truncate(SERVER_NAME_MAX);
    numbered("", &base, SERVER_NAME_MAX, &mut 1, taken)
}

/// A tool's name as a safe one, without its server's.
#[must_use]
pub fn safe_tool_name(name: &str) -> String {
    fragment(name, "tool")
}

/// `server__tool`, at most [`TOOL_NAME_MAX`] long and not taken. `server` is a safe name; `taken` is asked
/// with lower-case names.
#[must_use]
pub fn shown_tool_name(server: &str, tool: &str, taken: impl Fn(&str) -> bool) -> String {
    let start = format!("{server}{SEPARATOR}");
    numbered(&start, &safe_tool_name(tool), TOOL_NAME_MAX, &mut 1, taken)
}

/// Names as they are compared: trimmed, in lower case, without the empty ones.
#[must_use]
pub fn reserved_names<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    names
        .into_iter()
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty())
        .collect()
}

/// One `-` for each UTF-16 unit outside the safe set, as JavaScript counts, and a letter first.
fn fragment(text: &str, fallback: &str) -> String {
    let text = text.trim();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
            out.push(c);
        } else {
            out.extend(std::iter::repeat_n('-', c.len_utf16()));
        }
    }
    if out.is_empty() {
        return fallback.to_owned();
    }
    if !out.starts_with(|c: char| c.is_ascii_alphabetic()) {
        out.insert_str(0, &format!("{fallback}-"));
    }
    out
}

/// `start` and `base`, cut to `max`, with the first suffix that is free; at least one byte of `base` stays.
/// The search begins at `number`, where 1 is no suffix, and leaves there the one it took.
fn numbered(
    start: &str,
    base: &str,
    max: usize,
    number: &mut u64,
    taken: impl Fn(&str) -> bool,
) -> String {
    loop {
        let suffix = match *number {
            1 => String::new(),
            number => format!("-{number}"),
        };
        let room = max.saturating_sub(start.len() + suffix.len()).max(1);
        let name = format!("{start}{}{suffix}", &base[..base.len().min(room)]);
        if !taken(&name.to_ascii_lowercase()) {
            return name;
        }
        *number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ServerKey {
        ServerKey(text.into())
    }

    fn named(names: &mut Names, server: &str, tools: &[&str]) -> Vec<String> {
        names.name_tools(&key(server), tools)
    }

    #[test]
    fn neither_order_matters() {
        let servers = ["docs", "Docs", "a b", "a-b"].map(key);
        let mut forward = Names::new([], 10);
        forward.name_servers(&servers);
        let mut backward = Names::new([], 10);
        backward.name_servers(servers.iter().rev());

        named(&mut forward, "docs", &["x", "X", "y"]);
        named(&mut forward, "Docs", &["x"]);
        named(&mut backward, "Docs", &["x"]);
        named(&mut backward, "docs", &["y", "X", "x"]);

        for server in &servers {
            assert_eq!(forward.server(server), backward.server(server));
            for tool in ["x", "X", "y"] {
                assert_eq!(forward.tool(server, tool), backward.tool(server, tool));
            }
        }
        assert_eq!(
            forward.server(&key("docs")),
            Some("docs-2"),
            "D sorts first"
        );
        assert_eq!(forward.tool(&key("docs"), "x"), Some("docs-2__x-2"));
    }

    #[test]
    fn a_name_once_given_stays() {
        let mut names = Names::new([], 10);
        assert_eq!(
            named(&mut names, "s", &["b.c", "b-d"]),
            ["s__b-c", "s__b-d"]
        );
        assert_eq!(
            named(&mut names, "s", &["b c", "b.c"]),
            ["s__b-c-2", "s__b-c"],
            "`b c` sorts first but comes late"
        );
        assert_eq!(named(&mut names, "s", &["b-d"]), ["s__b-d"]);
        names.name_servers(&[key("S")]);
        assert_eq!(names.server(&key("s")), Some("s"));
        assert_eq!(names.server(&key("S")), Some("S-2"));
    }

    #[test]
    fn names_people_give_become_safe() {
        let mut names = Names::new([], 100);
        let long = "x".repeat(200);
        let rows = [
            ("files", "READ", "files__READ"),
            ("files", "read", "files__read-2"),
            ("files", "admin.tools.list", "files__admin-tools-list"),
            ("files", "ns/read:all", "files__ns-read-all"),
            ("files", "天気", "files__tool---"),
            ("files", "naïve", "files__na-ve"),
            ("files", "3d_render", "files__tool-3d_render"),
            ("files", "_private", "files__tool-_private"),
            ("files", &long, &format!("files__{}", "x".repeat(57))),
            ("12306", "query-tickets", "mcp-12306__query-tickets"),
            ("天眼查-中文", "go", "mcp-------__go"),
            ("  spaced name ", "go", "spaced-name__go"),
        ];
        for server in ["files", "12306", "天眼查-中文", "  spaced name "] {
            let of_server = rows.iter().filter(|row| row.0 == server);
            let (tools, shown): (Vec<&str>, Vec<&str>) =
                of_server.map(|row| (row.1, row.2)).unzip();
            assert_eq!(named(&mut names, server, &tools), shown);
        }
    }

    #[test]
    fn names_of_other_tools_are_left_alone() {
        let mut names = Names::new([" S__Read "], 10);
        assert_eq!(named(&mut names, "s", &["read"]), ["s__read-2"]);
    }

    #[test]
    fn own_names_give_way_to_reserved_ones() {
        let mut names = Names::new(["read"], 10);
        let own = ["Read", "write"];
        assert_eq!(names.name_reserved(&key("s"), &own), ["s__Read", "write"]);
        names.reserve(reserved_names(["s__READ", "write"]));
        assert_eq!(
            names.name_reserved(&key("s"), &own),
            ["Read", "s__write"],
            "the name that was given is taken by somebody else now"
        );
        names.reserve(BTreeSet::new());
        assert_eq!(
            names.name_reserved(&key("s"), &own),
            ["Read", "s__write"],
            "a name once given stays"
        );
    }

    #[test]
    fn a_tool_cannot_take_a_name_of_another_server() {
        let all = ["a", "a__b"].map(key);
        for order in [["a", "a__b"], ["a__b", "a"]] {
            let mut names = Names::new([], 10);
            names.name_servers(&all);
            for server in order {
                named(&mut names, server, &["b__c", "c"]);
            }
            assert_eq!(names.tool(&all[0], "b__c"), Some("a__b__c"));
            assert_eq!(names.tool(&all[1], "c"), Some("a_-b__c"));
        }
    }

    #[test]
    fn a_server_that_renames_its_tools_for_ever_is_forgotten() {
        let mut names = Names::new([], 3);
        for i in 0..100 {
            named(&mut names, "s", &[&format!("t{i}")]);
        }
        let kept = names.servers[&key("s")].tools.len();
        assert!(kept <= 4, "{kept} names are kept");
        assert_eq!(names.tool(&key("s"), "t99"), Some("s__t99"));
    }

    #[test]
    fn ten_thousand_names_that_become_one_are_told_apart() {
        let tools: Vec<String> = ('一'..).take(10_000).map(String::from).collect();
        let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
        let shown = named(&mut Names::new([], 10_000), "s", &tools);
        let different: BTreeSet<&String> = shown.iter().collect();
        assert_eq!(different.len(), 10_000);
        assert_eq!(shown[9_999], "s__tool---10000");
    }

    #[test]
    fn every_name_is_safe() {
        for text in ["", "😀", "1", "a\u{0}b", &"é".repeat(100), "__", "-"] {
            let server = safe_server_name(text, |_| false);
            let shown = shown_tool_name(&server, text, |name| !name.ends_with("-12"));
            assert!(server.len() <= SERVER_NAME_MAX && shown.len() <= TOOL_NAME_MAX);
            assert!(
                shown.starts_with(|c: char| c.is_ascii_alphabetic()),
                "{shown}"
            );
            assert!(
                shown
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
            );
        }
    }
}
