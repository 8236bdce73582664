//! The house rules that a machine can check: arrows between layers point down, the world is touched in
//! `src/io/` only, one heavy crate lives in one file, nothing unfinished is left behind.
//!
//! Each check also runs against a made-up offender, so that it is known to be able to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The layer map: which top-level modules a module may name. A leaf may name other leaves.
const LAYERS: &[(&str, &[&str])] = &[
    ("codec", LEAVES),
    ("protocol", &["codec"]),
    ("gateway", &["codec"]),
    ("link", &["codec", "protocol"]),
    ("gate", &["codec"]),
    ("bridge", &["codec", "protocol", "gateway", "gate"]),
    ("local", &["codec", "protocol", "gate"]),
    ("manager", &["codec", "protocol", "link", "gate"]),
    ("embedded", &["codec", "gateway", "link"]),
    (
        "hub",
        &[
            "codec", "protocol", "gateway", "link", "gate", "bridge", "local", "manager",
        ],
    ),
    ("io", &["codec", "gateway", "link"]),
    ("config", &["gateway", "hub", "link", "manager"]),
    ("logging", &[]),
    (
        "cli",
        &[
            "bridge", "codec", "config", "embedded", "gate", "gateway", "hub", "io", "link",
            "logging", "manager", "protocol",
        ],
    ),
    ("main", &["drawspan"]),
];

const LEAVES: &[&str] = &[
    "backoff",
    "clock",
    "crypto",
    "diagnostic",
    "entropy",
    "ids",
    "limits",
    "secret",
];

/// Words that stand for the outside world, and where they may be used.
const WORLD: &[(&str, &[&str])] = &[
    ("Instant::now", &["src/io/"]),
    ("SystemTime", &["src/io/"]),
    ("std::net", &["src/io/"]),
    ("std::thread", &["src/io/"]),
    ("std::process::Command", &["src/io/"]),
    ("std::fs", &["src/io/", "src/cli", "src/config.rs"]),
    (
        "std::env",
        &["src/io/", "src/cli", "src/config.rs", "src/main.rs"],
    ),
    ("SystemRandom", &["src/io/system.rs"]),
    ("mio::", &["src/io/"]),
    ("rustix::", &["src/io/"]),
    ("signal_hook", &["src/io/"]),
    ("println!", &[]),
    ("eprintln!", &[]),
    ("dbg!", &[]),
    ("todo!", &[]),
    ("unimplemented!", &[]),
];

/// One heavy crate, one home.
const HOMES: &[(&str, &[&str])] = &[
    ("httparse", &["src/codec/http1.rs"]),
    ("tungstenite", &["src/codec/websocket.rs"]),
    ("ring", &["src/crypto.rs", "src/io/system.rs"]),
    ("rustls", &["src/io/tls.rs"]),
    ("rustls_native_certs", &["src/io/tls.rs"]),
    ("clap", &["src/cli"]),
    ("clap_complete", &["src/cli"]),
    ("env_logger", &["src/logging.rs"]),
    ("json5", &["src/config.rs"]),
    ("jsonschema", &["src/protocol/schema"]),
    ("basic_toml", &["src/config.rs"]),
];

#[test]
fn arrows_between_layers_point_down() {
    let mut found = Vec::new();
    for (path, code) in sources() {
        found.extend(upward(&path, &code));
    }
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(
        upward(
            "src/codec/scan.rs",
            "use crate::hub::Hub;\nlet x = crate::limits::A;"
        ),
        ["src/codec/scan.rs names hub, which is not below codec"]
    );
}

#[test]
fn the_world_is_touched_in_io_only() {
    let mut found = Vec::new();
    for (path, code) in sources() {
        found.extend(worldly(&path, &code));
    }
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(
        worldly("src/hub/mod.rs", "let t = std::time::Instant::now();"),
        ["src/hub/mod.rs uses Instant::now"]
    );
}

/// A configuration that people copy is the one that is tested.
#[test]
fn the_readme_shows_the_tested_nginx_configuration() {
    let readme = include_str!("../README.md");
    let template = include_str!("peers/nginx/nginx.conf.template");
    let shown = readme
        .split_once("```nginx\n")
        .and_then(|(_, rest)| rest.split_once("```"));
    let (shown, _) = shown.expect("a block of nginx");
    for (shown, tested) in shown.lines().zip(template.lines()) {
        assert_eq!(shown, tested);
    }
    assert_eq!(shown, template);
}

#[test]
fn heavy_crates_have_one_home() {
    let mut found = Vec::new();
    for (path, code) in sources() {
        found.extend(homeless(&path, &code));
    }
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(
        homeless("src/link/x.rs", "use tungstenite::Message;"),
        ["src/link/x.rs names tungstenite"]
    );
    assert!(
        homeless(
            "src/link/x.rs",
            "string::b(); wiring::x(); rustls::crypto::ring::y()"
        )
        .len()
            == 1
    );
}

#[test]
fn every_module_has_a_place_in_the_layer_map() {
    let known: BTreeSet<&str> = LAYERS
        .iter()
        .map(|(name, _)| *name)
        .chain(LEAVES.iter().copied())
        .collect();
    for (path, _) in sources() {
        let module = module_of(&path);
        assert!(
            module == "lib" || known.contains(module.as_str()),
            "{path} is in no layer"
        );
    }
}

#[test]
fn every_fixture_is_read_by_a_test() {
    let root = root().join("protocol-fixtures");
    let mut stray = Vec::new();
    for file in files(&root, "") {
        let path = file
            .strip_prefix(&root)
            .expect("below the root")
            .to_string_lossy()
            .replace('\\', "/");
        let replayed = [
            "legacy/",
            "modern/",
            "gateway/",
            "client/",
            "codec/",
            "openclaw-client/",
        ]
        .iter()
        .any(|area| path.starts_with(area));
        if !replayed && !path.ends_with("README.md") {
            stray.push(path);
        }
    }
    assert_eq!(stray, Vec::<String>::new(), "no test reads these");
}

#[test]
fn nothing_names_a_machine() {
    let root = root();
    let mut found = Vec::new();
    for folder in ["src", "tests", "benches", "examples", "protocol-fixtures"] {
        for file in files(&root.join(folder), "") {
            if file.to_string_lossy().contains("corpora") {
                continue;
            }
            let Ok(text) = std::fs::read_to_string(&file) else {
                continue;
            };
            // Spelled in two parts, or this file would find itself.
            for word in [concat!("/ro", "ot/"), concat!("/wo", "rk/")] {
                if text.contains(word) {
                    found.push(format!("{} says {word}", file.display()));
                }
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

fn upward(path: &str, code: &str) -> Vec<String> {
    let module = module_of(path);
    let below: BTreeMap<&str, &[&str]> = LAYERS.iter().copied().collect();
    let may: BTreeSet<&str> = below
        .get(module.as_str())
        .into_iter()
        .flat_map(|names| names.iter().copied())
        .collect();
    let mut found = BTreeSet::new();
    if module == "lib" || module == "main" {
        return Vec::new();
    }
    for named in named_modules(code) {
        if named != module && !may.contains(named.as_str()) && !LEAVES.contains(&named.as_str()) {
            found.insert(format!("{path} names {named}, which is not below {module}"));
        }
    }
    found.into_iter().collect()
}

/// The top-level modules that code names by `crate::…`, groups in braces included.
fn named_modules(code: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let group = rest
            .strip_prefix('{')
            .map(|inner| inner.split('}').next().unwrap_or(""));
        for item in group.unwrap_or(rest).split(',') {
            let word: String = item
                .trim()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            if word.starts_with(|c: char| c.is_lowercase()) {
                named.insert(word);
            }
            if group.is_none() {
                break;
            }
        }
    }
    named
}

fn worldly(path: &str, code: &str) -> Vec<String> {
    let allowed = |homes: &[&str]| homes.iter().any(|home| path.starts_with(home));
    let used = WORLD
        .iter()
        .filter(|(word, homes)| uses(code, word) && !allowed(homes));
    used.map(|(word, _)| format!("{path} uses {word}"))
        .collect()
}

fn homeless(path: &str, code: &str) -> Vec<String> {
    let allowed = |homes: &[&str]| homes.iter().any(|home| path.starts_with(home));
    let named = HOMES
        .iter()
        .filter(|(name, homes)| names_crate(code, name) && !allowed(homes));
    named
        .map(|(name, _)| format!("{path} names {name}"))
        .collect()
}

/// Whether `word` stands in the code, not as the end of a longer word.
fn uses(code: &str, word: &str) -> bool {
    code.match_indices(word)
        .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Whether a path in the code begins with this crate.
fn names_crate(code: &str, name: &str) -> bool {
    code.match_indices(&format!("{name}::"))
        .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
}

fn module_of(path: &str) -> String {
    let inner = path.strip_prefix("src/").unwrap_or(path);
    inner.split(['/', '.']).next().unwrap_or("").to_owned()
}

/// The sources without comments and without their tests, with paths from the project's root.
fn sources() -> Vec<(String, String)> {
    let root = root();
    let mut sources = Vec::new();
    for file in files(&root.join("src"), "rs") {
        let path = file
            .strip_prefix(&root)
            .expect("below the root")
            .to_string_lossy()
            .replace('\\', "/");
        let text = std::fs::read_to_string(&file).expect("readable");
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or("");
        let code: Vec<&str> = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        if !path.ends_with("tests.rs") && !path.contains("/tests/") {
            sources.push((path, code.join("\n")));
        }
    }
    assert!(sources.len() > 30, "found only {} sources", sources.len());
    sources
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return found;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if extension.is_empty() || path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
