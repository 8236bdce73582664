//! The house rules that a machine can check: arrows between layers point down, the world is touched in
//! `src/io/` only, one heavy crate lives in one file, nothing unfinished is left behind.
//!
//! Each check also runs against a made-up offender, so that it is known to be able to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The layer map: which top-level modules a module may name. A leaf may name other leaves.
const LAYERS: &[(&str, &[&str])] = &[
    ("codec", LEAVES),
    ("audit", &["codec"]),
    ("protocol", &["codec"]),
    ("gateway", &["codec"]),
    ("link", &["codec", "protocol"]),
    ("gate", &["codec", "protocol"]),
    ("bridge", &["codec", "protocol", "gateway", "gate"]),
    ("local", &["codec", "protocol", "gate"]),
    ("manager", &["codec", "protocol", "link", "gate"]),
    ("embedded", &["codec", "gateway", "link"]),
    (
        "hub",
        &[
            "audit", "codec", "protocol", "gateway", "link", "gate", "bridge", "local", "manager",
        ],
    ),
    ("io", &["codec", "gateway", "link"]),
    ("config", &["gate", "gateway", "hub", "link", "manager"]),
    ("logging", &[]),
    (
        "cli",
        &[
            "audit", "bridge", "codec", "config", "embedded", "gate", "gateway", "hub", "io",
            "link", "logging", "manager", "protocol",
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
    ("wide", &["src/codec/plain.rs"]),
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

/// Each limit that concerns a listener or its clients, or an upstream server, the file with the test at its edge, and what names the
/// test there: a function, or the limit itself in a transcript.
const EDGES: &[(&str, &str, &str)] = &[
    ("message_bytes_max", HTTP_LIMITS, "fn message_bytes_max("),
    (
        "message_bytes_max",
        "protocol-fixtures/legacy/limits/line.jsonl",
        "message_bytes_max",
    ),
    (
        "json_depth_max",
        "protocol-fixtures/legacy/limits/depth.jsonl",
        "json_depth_max",
    ),
    ("id_bytes_max", PEER, "fn id_bytes_max("),
    (
        "batch_messages_max",
        "protocol-fixtures/legacy/limits/batch.jsonl",
        "batch_messages_max",
    ),
    ("requests_open_max", DOOR, "fn requests_open_max("),
    ("calls_open_max", DOOR, "fn calls_open_max("),
    (
        "audit_queue_bytes_max",
        "src/hub/audit.rs",
        "fn audit_queue_bytes_max(",
    ),
    (
        "subscriptions_open_max",
        PEER,
        "fn requests_open_max_and_subscriptions_open_max(",
    ),
    (
        "resource_subscriptions_max",
        PEER,
        "fn resource_subscriptions_max_of_a_session(",
    ),
    (
        "task_subscriptions_max",
        PEER,
        "fn resource_subscriptions_max_and_task_subscriptions_max(",
    ),
    (
        "out_high_bytes",
        HTTP_LIMITS,
        "fn out_high_bytes_stops_reading",
    ),
    ("out_low_bytes", HTTP_LIMITS, "and_out_low_bytes_starts_it("),
    ("parked_calls_max", QUESTIONS, "fn parked_calls_max("),
    ("parked_bytes_max", QUESTIONS, "fn parked_bytes_max("),
    (
        "turn_bytes_max",
        "tests/os/sockets.rs",
        "fn a_slow_reader_bounds_what_waits(",
    ),
    (
        "turn_accepts_max",
        "tests/os/sockets.rs",
        "fn turn_accepts_max(",
    ),
    (
        "accept_pause_interval_ms",
        "tests/os/stdio.rs",
        "fn without_descriptors_the_loop_rests",
    ),
    (
        "finish_timeout_ms",
        "tests/os/scale.rs",
        "fn who_never_ends_is_cut_in_time(",
    ),
    (
        "finishing_max",
        "tests/os/scale.rs",
        "fn of_too_many_that_never_end_the_oldest_is_cut(",
    ),
    (
        "input_ended_timeout_ms",
        "protocol-fixtures/gateway/end/with-a-silent-gateway.jsonl",
        "input_ended_timeout_ms",
    ),
    (
        "shutdown_timeout_ms",
        "protocol-fixtures/gateway/end/stopped-while-stalled.jsonl",
        "shutdown_timeout",
    ),
    ("head_bytes_max", HTTP_LIMITS, "fn head_bytes_max("),
    ("head_fields_max", HTTP_LIMITS, "fn head_fields_max("),
    ("target_bytes_max", HTTP_LIMITS, "fn target_bytes_max("),
    (
        "chunk_extension_bytes_max",
        HTTP_LIMITS,
        "fn chunk_extension_bytes_max(",
    ),
    ("trailer_bytes_max", HTTP_LIMITS, "fn trailer_bytes_max("),
    (
        "pipelined_requests_max",
        HTTP_LIMITS,
        "fn pipelined_requests_max(",
    ),
    ("pipelined_requests_max", DOOR, "fn pipelined_requests_max("),
    (
        "header_timeout_ms",
        HTTP_TIME,
        "has_header_timeout_for_its_first_head(",
    ),
    (
        "body_timeout_ms",
        HTTP_TIME,
        "fn a_body_has_body_timeout_from_its_acceptance(",
    ),
    (
        "idle_timeout_ms",
        HTTP_TIME,
        "fn an_idle_connection_has_idle_timeout",
    ),
    (
        "write_stall_timeout_ms",
        HTTP_TIME,
        "fn a_client_that_takes_nothing_is_dropped(",
    ),
    (
        "buffer_trim_interval_ms",
        HTTP_LIMITS,
        "fn buffer_trim_interval(",
    ),
    (
        "body_buffer_bytes_max",
        HTTP_LIMITS,
        "fn body_buffer_bytes_max(",
    ),
    (
        "text_buffer_bytes_max",
        "src/codec/shared_text.rs",
        "fn text_buffer_bytes_max(",
    ),
    (
        "half_close_probe_interval_ms",
        HTTP_LIMITS,
        "half_close_probe_interval(",
    ),
    (
        "half_close_probes_max",
        HTTP_LIMITS,
        "fn half_close_probes_max",
    ),
    ("connections_max", DOOR, "fn connections_max"),
    (
        "connections_surplus_max",
        DOOR,
        "and_connections_surplus_max(",
    ),
    (
        "param_headers_max",
        "src/link/http_rules/tests.rs",
        "fn param_headers_max(",
    ),
    (
        "socket_clients_max",
        "src/hub/socket_door/tests.rs",
        "fn one_client_too_many_is_told_so",
    ),
    ("sessions_max", DOOR, "fn sessions_max("),
    ("session_idle_ttl_ms", DOOR, "fn session_idle_ttl("),
    (
        "streams_per_session_max",
        DOOR,
        "fn streams_per_session_max(",
    ),
    ("sse_replay_events_max", DOOR, "fn sse_replay_events_max("),
    (
        "sse_replay_bytes_max",
        SESSIONS,
        "fn events_are_kept_up_to_their_bytes",
    ),
    (
        "sse_replay_total_bytes_max",
        SESSIONS,
        "fn sse_replay_total_bytes_max(",
    ),
    (
        "sse_keepalive_interval_ms",
        DOOR,
        "and_sse_keepalive_interval_and",
    ),
    (
        "stream_start_interval_ms",
        DOOR,
        "fn stream_start_interval_and",
    ),
    ("sse_retry_interval_ms", DOOR, "and_sse_retry_interval("),
    (
        "list_page_entries_max",
        "src/local/shelf.rs",
        "list_page_entries_max:",
    ),
    (
        "list_page_bytes_max",
        "src/local/shelf.rs",
        "list_page_bytes_max:",
    ),
    (
        "upstream_message_bytes_max",
        WIRES,
        "fn a_body_over_the_limit_ends_that_request_only(",
    ),
    (
        "upstream_message_bytes_max",
        RESUME,
        "fn an_event_over_the_limit_costs_that_event_only(",
    ),
    (
        "upstream_out_bytes_max",
        MANAGER,
        "fn upstream_out_bytes_max",
    ),
    (
        "upstream_requests_open_max",
        MANAGER,
        "fn upstream_requests_open_max(",
    ),
    (
        "upstream_questions_open_max",
        MANAGER,
        "fn upstream_questions_open_max(",
    ),
    (
        "connect_timeout_ms",
        "src/manager/tests/connect.rs",
        "fn servers_connect_side_by_side_and_each_has_its_own_time(",
    ),
    ("discover_timeout_ms", MANAGER, "fn discover_timeout("),
    ("list_timeout_ms", MANAGER, "fn list_timeout"),
    ("request_timeout_ms", MANAGER, "fn request_timeout("),
    (
        "request_total_timeout_ms",
        MANAGER,
        "fn request_total_timeout",
    ),
    ("tools_max", CATALOG, "and_the_surplus_is_counted("),
    ("list_pages_max", CATALOG, "fn pages_are_bounded("),
    ("list_bytes_max", MANAGER, "fn list_bytes_max("),
    ("tool_name_bytes_max", CATALOG, "fn what_just_fits_is_kept("),
    (
        "tool_description_bytes_max",
        CATALOG,
        "fn what_just_fits_is_kept(",
    ),
    (
        "tool_schema_bytes_max",
        CATALOG,
        "fn what_just_fits_is_kept(",
    ),
    (
        "list_changed_quiet_interval_ms",
        MANAGER,
        "fn list_changed_quiet_interval(",
    ),
    (
        "children_max",
        "tests/lifetime/faults.rs",
        "fn the_number_of_children_is_bounded(",
    ),
    ("runtimes_max", MANAGER, "fn runtimes_max("),
    (
        "runtime_idle_ttl_ms",
        "src/manager/tests/ending.rs",
        "fn an_idle_runtime_lets_go",
    ),
    ("failure_pause_after", MANAGER, "fn failure_pause_after"),
    ("failure_pause_ms", MANAGER, "_and_failure_pause("),
    (
        "upstream_notes_open_max",
        CONVERSATION,
        "fn notifications_on_their_way_are_bounded",
    ),
    (
        "session_begin_timeout_ms",
        CONVERSATION,
        "fn they_do_not_wait_for_ever(",
    ),
    (
        "session_renew_timeout_ms",
        "src/manager/tests/http.rs",
        "fn what_is_open_in_a_lost_session_has_a_second",
    ),
    (
        "session_end_timeout_ms",
        CONVERSATION,
        "fn a_server_that_does_not_answer_delete_is_left(",
    ),
    (
        "redirects_max",
        "src/link/http_client/tests/redirects.rs",
        "fn there_is_an_end_to_it(",
    ),
    (
        "resume_attempts_max",
        RESUME,
        "fn a_server_that_keeps_cutting_is_asked_three_times(",
    ),
    (
        "pool_connections_max",
        WIRES,
        "fn so_many_are_kept_so_long(",
    ),
    ("pool_idle_ttl_ms", WIRES, "fn so_many_are_kept_so_long("),
];

const HTTP_LIMITS: &str = "src/link/http_server/tests/limits.rs";
const HTTP_TIME: &str = "src/link/http_server/tests/time.rs";
const PEER: &str = "src/protocol/server/tests.rs";
const DOOR: &str = "src/hub/http/tests/edges.rs";
const MANAGER: &str = "src/manager/tests/edges.rs";
const QUESTIONS: &str = "src/hub/span/questions/tests.rs";
const CATALOG: &str = "src/manager/catalog/tests.rs";
const WIRES: &str = "src/link/http_client/tests/wires.rs";
const RESUME: &str = "src/link/http_client/tests/resume.rs";
const CONVERSATION: &str = "src/link/http_client/tests/conversation.rs";
const SESSIONS: &str = "src/hub/http/sessions/tests.rs";

/// What a limit is called that concerns no listener: the Gateway and what is kept of it, tools and tasks of the
/// program, hooks, children, the embedded Gateway, and one that only a bug of ours reaches.
const NO_LISTENER: &[&str] = &[
    "approval",
    "child_",
    "embedded_",
    "events_queued_",
    "gate_",
    "gateway_",
    "hold_",
    "hook_",
    "input_re",
    "input_ro",
    "notifications_held_",
    "plugin_",
    "permission_",
    "reconnect_",
    "request_state_",
    "stderr_",
    "task_p",
    "task_r",
    "task_t",
    "tasks_",
    "turn_steps_",
    "wait",
];

#[test]
fn every_limit_of_a_listener_or_an_upstream_is_tested_at_its_edge() {
    for (limit, file, test) in EDGES {
        let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        assert!(text.contains(test), "{limit}: no {test} in {file}");
    }
    let untested = |name: &str| {
        let elsewhere = NO_LISTENER.iter().any(|start| name.starts_with(start));
        !elsewhere && !EDGES.iter().any(|(limit, ..)| *limit == name)
    };
    let entries = drawspan::limits::Limits::DEFAULT.entries();
    let missing: Vec<&str> = entries
        .iter()
        .map(|entry| entry.name)
        .filter(|name| untested(name))
        .collect();
    assert_eq!(missing, [""; 0], "no test at the edge of these");
    for (limit, ..) in EDGES {
        assert!(
            entries.iter().any(|entry| entry.name == *limit),
            "no limit is called {limit}"
        );
    }
    assert!(untested("a_new_limit_max"));
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
    let tests = files(&root().join("tests/cases"), "rs");
    let cases: String = tests
        .iter()
        .map(|file| std::fs::read_to_string(file).expect("readable"))
        .collect();
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
            "http/",
            "openclaw-client/",
        ]
        .iter()
        .any(|area| path.starts_with(area));
        // Each case is asked for by its name.
        let named = path
            .strip_prefix("cases/")
            .and_then(|name| name.strip_suffix(".json"))
            .is_some_and(|name| cases.contains(&format!("\"{name}\"")));
        if !replayed && !named && !path.ends_with("README.md") {
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
