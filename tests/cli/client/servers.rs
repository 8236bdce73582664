//! The servers behind the commands: one with everything, and a small script that says what a test wants.

use std::path::Path;

use serde_json::Value;

use crate::common::example;
use crate::world::{Finished, Home, Process};

/// A stdio server of the older era in plain shell. `RESULT` is the result of every request it does not know,
/// `TOOLS` and `CAPABILITIES` are what they say. `BEFORE` is run first, `CALL` when a tool is called, `AFTER` at the end
/// of the input. Every line it reads goes to `heard`.
const SERVER: &str = r#"#!/bin/sh
[ -n "$TOOLS" ] || TOOLS='[]'
[ -n "$RESULT" ] || RESULT='{}'
[ -n "$CAPABILITIES" ] || CAPABILITIES='{"tools":{}}'
[ -n "$LISTED" ] || LISTED='"result":{"tools":'$TOOLS'}'
[ -n "$OTHER" ] || OTHER='"result":'$RESULT
[ -n "$REVISION" ] || REVISION=2025-06-18
answer() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
printf 'args %s\nkey %s\ncwd %s\n' "$*" "$API_KEY" "$PWD" >> "$HOME/heard"
eval "$BEFORE"
while IFS= read -r line; do
  printf '%s\n' "$line" >> "$HOME/heard"
  id=${line#*\"id\":}; id=${id%%[!0-9]*}
  case $line in
    *'"method":"notifications/'*) ;;
    *'"method":"server/discover"'*) answer '"error":{"code":-32601,"message":"no such method"}' ;;
    *'"method":"initialize"'*)
      answer '"result":{"protocolVersion":"'$REVISION'","capabilities":'"$CAPABILITIES"',"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"method":"tools/list"'*) answer "$LISTED" ;;
    *'"method":"tools/call"'*) eval "$CALL"; answer '"result":'"$RESULT" ;;
    *) answer "$OTHER" ;;
  esac
done
eval "$AFTER"
"#;

/// A home with the script in it, and what a test wants of it.
pub(crate) struct Shop {
    pub(crate) home: Home,
    env: Vec<(&'static str, String)>,
}

impl Shop {
    pub(crate) fn new(test: &str) -> Self {
        let home = Home::new(test);
        home.write("server", SERVER);
        make_executable(&home.path("server"));
        let env = Vec::new();
        Self { home, env }
    }

    /// The script's variable of this name has this value.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.env.push((name, value.to_owned()));
        self
    }

    /// An entry of a configuration for the script.
    pub(crate) fn entry(&self) -> Value {
        let env = self.env.iter();
        let env = env.map(|(name, value)| ((*name).to_owned(), value.clone().into()));
        let env: serde_json::Map<String, Value> = env.collect();
        serde_json::json!({"command": self.home.path("server"), "env": env})
    }

    /// Runs `drawspan ARGS -- ./server`.
    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        let env: Vec<String> = self.env.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let mut all = args.to_vec();
        all.extend(env.iter().flat_map(|pair| ["-e", pair]));
        all.extend(["--", "./server"]);
        self.home.run(&all)
    }

    /// The lines that it has read, with how it was started in front.
    pub(crate) fn heard(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.home.path("heard")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// How many of them hold this.
    pub(crate) fn heard_times(&self, what: &str) -> usize {
        self.heard().iter().filter(|l| l.contains(what)).count()
    }
}

pub(crate) fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The example server.
pub(crate) fn everything() -> String {
    example("everything_server")
}

/// The example server over HTTP, and its URL.
pub(crate) fn everything_http(home: &Home) -> (Process, String) {
    let args = ["--listen", "http://127.0.0.1:0/mcp"];
    Process::listening(&mut home.program(&everything(), &args))
}

/// The one JSON document on stdout.
#[track_caller]
pub(crate) fn document(finished: &Finished) -> Value {
    let text = finished.stdout.join("\n");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

/// The error that stderr ends with; stdout is empty.
#[track_caller]
pub(crate) fn error(finished: &Finished) -> Value {
    assert_eq!(finished.stdout, Vec::<String>::new());
    let last = finished.stderr.last().expect("an error");
    let document: Value = serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {last:?}"));
    let error = document["error"].clone();
    assert!(error["code"].is_i64() && error["message"].is_string() && error["data"].is_object());
    error
}
