//! The map of upstream servers in a file, whatever program the file was written for.

use std::path::PathBuf;
use std::time::Duration;

use super::document::Document;

/// The servers of a file, or of several files of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerMap {
    /// The file; the first of several. `None` before anything was read.
    pub path: Option<PathBuf>,
    /// Key and raw JSON of each entry, in the order of the file. An entry may be no object:
    /// `manager::entry` says so.
    pub servers: Vec<(String, String)>,
    /// `mcp.sessionIdleTtlMs`: `None` when it is not set, `Some(None)` for never.
    pub runtime_idle_ttl: Option<Option<Duration>>,
    /// What was left out, one line each.
    pub notes: Vec<String>,
}

/// Top-level members of our own file. A file without a map of servers but with one of these is no bare map.
const OURS: [&str; 7] = [
    "audit",
    "gateway",
    "hooks",
    "limits",
    "lock",
    "mcp",
    "pluginTools",
];

impl ServerMap {
    /// `mcpServers`, `servers` and `mcp.servers`, in this order; a name that comes again is left out. A
    /// document without any of them may be a map of servers itself. OpenClaw: extractMcpServerMap, which
    /// stops at the first map.
    pub(super) fn of(root: &Document) -> Self {
        let mut map = Self::default();
        let mcp = root.get("mcp").filter(|mcp| !mcp.is_null());
        let places = [
            ("mcpServers", root.get("mcpServers")),
            ("servers", root.get("servers")),
            ("mcp.servers", mcp.and_then(|mcp| mcp.get("servers"))),
        ];
        let mut found = false;
        for (name, place) in places {
            let Some(place) = place.filter(|place| !place.is_null()) else {
                continue;
            };
            found = true;
            match place.members() {
                Some(members) => map.add(members.iter().map(|(key, entry)| (key.as_str(), entry))),
                None => map
                    .notes
                    .push(format!("{name} must be an object and was ignored")),
            }
        }
        if !found {
            map.add(bare(root));
        }
        map.runtime_idle_ttl = mcp.and_then(|mcp| map.idle_ttl(mcp));
        map
    }

    /// Adds entries whose names are new.
    pub(super) fn add<'a>(&mut self, entries: impl Iterator<Item = (&'a str, &'a Document)>) {
        for (key, entry) in entries {
            if self.servers.iter().any(|(other, _)| other == key) {
                let key = crate::secret::Quoted(key);
                self.notes
                    .push(format!("server {key} is there twice; the first one counts"));
            } else {
                self.servers.push((key.to_owned(), entry.json()));
            }
        }
    }

    /// Adds what a further file of the same program says; what is there already counts.
    pub(super) fn merge(&mut self, other: Self) {
        for (key, raw) in other.servers {
            if self.servers.iter().all(|(ours, _)| *ours != key) {
                self.servers.push((key, raw));
            }
        }
        self.path = self.path.take().or(other.path);
        self.runtime_idle_ttl = self.runtime_idle_ttl.or(other.runtime_idle_ttl);
        self.notes.extend(other.notes);
    }

    /// OpenClaw: resolveSessionMcpRuntimeIdleTtlMs. A number of at least 0, rounded down; 0 is never.
    fn idle_ttl(&mut self, mcp: &Document) -> Option<Option<Duration>> {
        let value = mcp
            .get("sessionIdleTtlMs")
            .filter(|value| !value.is_null())?;
        let millis = match value {
            Document::Scalar(value) => value.as_f64().filter(|ms| *ms >= 0.0),
            Document::Object(_) | Document::Array(_) => None,
        };
        let time = millis.and_then(|ms| Duration::try_from_secs_f64(ms.floor() / 1_000.0).ok());
        if time.is_none() {
            let note = "mcp.sessionIdleTtlMs must be a number of at least 0 and was ignored";
            self.notes.push(note.to_owned());
        }
        time.map(|time| (!time.is_zero()).then_some(time))
    }
}

/// The entries of a document that is the map itself: objects with a `command` or a `url`.
fn bare(root: &Document) -> impl Iterator<Item = (&str, &Document)> {
    let members = root.members().unwrap_or_default();
    let ours = members
        .iter()
        .any(|(name, _)| OURS.contains(&name.as_str()));
    let is_entry = move |entry: &Document| {
        !ours && (entry.get("command").is_some() || entry.get("url").is_some())
    };
    members
        .iter()
        .map(|(name, entry)| (name.as_str(), entry))
        .filter(move |(_, entry)| is_entry(entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn read(text: &str) -> ServerMap {
        Config::parse(text).expect(text).servers
    }

    fn keys(map: &ServerMap) -> Vec<&str> {
        map.servers.iter().map(|(key, _)| key.as_str()).collect()
    }

    #[test]
    fn each_shape_is_read_in_the_order_of_the_file() {
        for text in [
            "{mcpServers: {z: {command: 'x'}, a: {url: 'http://h'}, '10': 5}}",
            "{servers: {z: {command: 'x'}, a: {url: 'http://h'}, '10': 5}, inputs: []}",
            "// OpenClaw\n{mcp: {servers: {z: {command: 'x'}, a: {url: 'http://h'}, '10': 5}}, gateway: {},}",
        ] {
            let map = read(text);
            assert_eq!(keys(&map), ["z", "a", "10"], "{text}");
            assert_eq!(map.servers[0].1, r#"{"command":"x"}"#);
            assert_eq!(map.servers[2].1, "5");
            assert!(map.notes.is_empty());
        }
        let bare = read("{z: {command: 'x'}, $schema: 'x', a: {url: 'http://h'}, o: {n: 1}}");
        assert_eq!(keys(&bare), ["z", "a"]);
        assert!(keys(&read("{gateway: {}, x: {command: 'x'}}")).is_empty());
    }

    #[test]
    fn entries_stay_as_written() {
        let map = read(
            "{servers: {s: {url: 'x', b: 1, a: [1.5, null, \"\\u00e9\"], n: 1e3, i: Infinity}}}",
        );
        assert_eq!(
            map.servers[0].1,
            r#"{"url":"x","b":1,"a":[1.5,null,"é"],"n":1000.0,"i":null}"#
        );
    }

    #[test]
    fn depth_is_bounded() {
        let of = |levels: usize| format!("{{a: {}1{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(Config::parse(&of(60)).is_ok());
        let error = Config::parse(&of(1_000_000))
            .expect_err("too deep")
            .to_string();
        assert!(error.contains("more than 64 levels"), "{error}");
    }

    #[test]
    fn several_maps_are_one_and_the_first_entry_counts() {
        let map = read(
            "{mcp: {servers: {b: {command: '3'}, c: {}}}, servers: [], mcpServers: {a: {}, b: {command: '1'}, a: {}}}",
        );
        assert_eq!(keys(&map), ["a", "b", "c"]);
        assert_eq!(map.servers[1].1, r#"{"command":"1"}"#);
        assert_eq!(
            map.notes,
            [
                "server a is there twice; the first one counts",
                "servers must be an object and was ignored",
                "server b is there twice; the first one counts",
            ]
        );
    }

    #[test]
    fn the_idle_time_is_a_number() {
        let of = |value: &str| read(&format!("{{mcp: {{sessionIdleTtlMs: {value}}}}}"));
        assert_eq!(of("0").runtime_idle_ttl, Some(None));
        let time = |map: ServerMap| map.runtime_idle_ttl;
        assert_eq!(time(of("1500.9")), Some(Some(Duration::from_millis(1_500))));
        assert_eq!(of("null"), ServerMap::default());
        for bad in ["-1", "'1'", "[]", "1e300"] {
            let map = of(bad);
            assert_eq!(map.runtime_idle_ttl, None, "{bad}");
            assert_eq!(map.notes.len(), 1, "{bad}");
        }
    }
}
