//! What people write into a configuration, and what a child inherits: i01, i02.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::world::{Run, World, case, expect_words, serve};

fn world(test: &str) -> World {
    let mut world = World::new(test);
    let env = case("i01-config-forms")["input"]["env"].clone();
    for (name, value) in env.as_object().unwrap() {
        world
            .env
            .push((name.into(), value.as_str().unwrap().into()));
    }
    world
}

/// Nothing that must not be shown is shown.
#[track_caller]
fn expect_discreet(run: &Run) {
    for secret in ["t0ken", "u:secret", "token=secret", "Bearer a b"] {
        let shown = run.stdout.contains(secret) || run.stderr.contains(secret);
        assert!(!shown, "{secret}: {run:#?}");
    }
}

/// The row of a server in the output of `status` and `doctor`.
#[track_caller]
fn row(json: &Value, server: &str) -> Value {
    let rows = json["servers"].as_array().unwrap();
    let found: Vec<&Value> = rows.iter().filter(|row| row["name"] == server).collect();
    assert_eq!(found.len(), 1, "{server}: {json}");
    found[0].clone()
}

#[test]
fn i01_status() {
    let world = world("i01-status");
    let servers = case("i01-config-forms")["input"]["servers"].clone();
    let config = world.config(servers.clone());
    let run = world
        .run(&["status", "--config", &config, "--json"])
        .expect_code(0);
    expect_discreet(&run);
    let json = run.json();
    assert_eq!(json["path"], config);
    assert_eq!(
        json["servers"].as_array().unwrap().len(),
        servers.as_object().unwrap().len()
    );
    for name in servers.as_object().unwrap().keys() {
        let row = row(&json, name);
        assert_eq!(row["configured"], true, "{row}");
        assert_eq!(
            row["enabled"],
            name != "disabled" && name != "enabled-false",
            "{row}"
        );
    }
    for name in ["alias-type", "alias-transport"] {
        let row = row(&json, name);
        assert_eq!(row["transport"], "streamable-http", "{row}");
        assert_eq!(row["ok"], true, "{row}");
    }
    for name in [
        "wrong-key",
        "env-missing",
        "header-injection",
        "args-string",
    ] {
        assert_eq!(row(&json, name)["ok"], false, "{name}");
    }
    for name in [
        "url-only",
        "env-in-header",
        "header-number",
        "args-with-spaces",
        "bad-timeout",
    ] {
        assert_eq!(row(&json, name)["ok"], true, "{name}");
    }
    assert_eq!(row(&json, "bad-timeout")["requestTimeoutMs"], 60_000);

    // In the order of the file, which is not that of the names.
    let file = r#"{"mcpServers": {"z": {"command": "a"}, "a": {"url": 1}, "m": {"command": "b"}}}"#;
    std::fs::write(&config, file).unwrap();
    let json = world
        .run(&["status", "--config", &config, "--json"])
        .expect_code(0)
        .json();
    let names: Vec<&Value> = json["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["name"])
        .collect();
    assert_eq!(names, ["z", "a", "m"]);
}

#[test]
fn i01_doctor() {
    let world = world("i01-doctor");
    let config = world.config(case("i01-config-forms")["input"]["servers"].clone());
    let run = world
        .run(&["doctor", "--config", &config, "--json"])
        .expect_code(1);
    expect_discreet(&run);
    let json = run.json();
    assert_eq!(json["ok"], false);
    for (server, level, words) in [
        (
            "wrong-key",
            "error",
            &["url is missing (found baseUrl)"][..],
        ),
        ("both", "", &["command", "url"]),
        ("http-with-command", "", &["transport", "command"]),
        ("env-missing", "error", &["NOT_SET_ANYWHERE"]),
        ("header-injection", "error", &["X-A"]),
        ("header-number", "warning", &["X-Null"]),
        ("args-string", "error", &["args"]),
        ("bad-timeout", "warning", &["requestTimeoutMs"]),
    ] {
        let row = row(&json, server);
        let issues = row["issues"].as_array().unwrap();
        let says = |issue: &&Value| {
            let message = issue["message"].as_str().unwrap();
            words.iter().all(|word| message.contains(word))
        };
        let found: Vec<&Value> = issues.iter().filter(says).collect();
        assert_eq!(found.len(), 1, "{server}, {words:?}: {row}");
        if !level.is_empty() {
            assert_eq!(found[0]["level"], level, "{row}");
        }
        // A command that is not there is an error of its own, so a warning alone says nothing here.
        if level == "error" {
            assert_eq!(row["ok"], false, "{row}");
        }
    }
    for server in ["alias-type", "alias-transport", "url-only", "env-in-header"] {
        let row = row(&json, server);
        let errors = row["issues"].as_array().unwrap().iter();
        assert_eq!(
            errors.filter(|issue| issue["level"] == "error").count(),
            0,
            "{row}"
        );
    }
    // One alone, and nothing wrong with it.
    let run = world.run(&["doctor", "alias-type", "--config", &config, "--json"]);
    assert_eq!(run.expect_code(0).json()["ok"], true);
}

#[test]
fn i01_probe() {
    let world = world("i01-probe");
    let servers = case("i01-config-forms")["input"]["servers"].clone();
    let config = world.config(servers.clone());
    let run = world
        .run(&["probe", "--config", &config, "--json"])
        .expect_prompt()
        .expect_code(1);
    expect_discreet(&run);
    let json = run.json();
    let probed = json["servers"].as_object().unwrap();
    for name in servers.as_object().unwrap().keys() {
        let disabled = name == "disabled" || name == "enabled-false";
        let state = if disabled { "disabled" } else { "failed" };
        assert_eq!(probed[name]["state"], state, "{name}: {json}");
        assert_eq!(probed[name]["ok"], false, "{name}: {json}");
        let told = run.diagnostics_of(name);
        let error = |one: &Value| one.get("level").is_none_or(|level| level == "error");
        let errors = told.iter().filter(|one| error(one)).count();
        assert_eq!(errors, usize::from(!disabled), "{name}: {told:#?}");
    }
    let phase = |name, words| run.expect_diagnostic(name, words)["phase"].clone();
    assert_eq!(
        phase(
            "wrong-key",
            &["wrong-key", "url is missing (found baseUrl)"]
        ),
        "config"
    );
    assert_eq!(
        phase("env-missing", &["env-missing", "NOT_SET_ANYWHERE"]),
        "config"
    );
    assert_eq!(phase("args-string", &["args-string", "args"]), "config");

    // One alone, by the code of its failure.
    for (name, code) in [("alias-type", 4), ("args-with-spaces", 4)] {
        let run = world.run(&["probe", name, "--config", &config, "--json"]);
        let probed = run.expect_code(code).json()["servers"].clone();
        assert_eq!(probed.as_object().unwrap().len(), 1, "{probed}");
    }
}

#[test]
fn i01_what_reaches_the_server() {
    let world = world("i01-live");
    let mut servers = case("i01-config-forms")["input"]["servers"].clone();
    let input = case("e05-get-not-offered")["input"].clone();
    let names = [
        "env-in-header",
        "env-missing",
        "header-injection",
        "header-number",
        "both",
    ];
    let peers = names.map(|name| {
        let peer = serve(&input);
        servers[name]["url"] = peer.url().into();
        servers[name]["protocol"] = "legacy".into();
        peer
    });
    let steps = &case("c07-late-answer-after-cancel")["input"]["steps"];
    let tricky = &mut servers["args-with-spaces"];
    let args = tricky["args"].as_array().unwrap().clone();
    let mut entry = world.entry("args", steps, json!({"protocol": "legacy"}));
    let own = entry["args"].as_array_mut().unwrap();
    own.push("--".into());
    own.extend(args.clone());
    *tricky = entry;
    let config = world.config(servers);
    let list = |name| {
        world
            .run(&["list", name, "--config", &config, "--json"])
            .expect_prompt()
    };

    let run = list("env-in-header").expect_code(0);
    expect_discreet(&run);
    for request in peers[0].got() {
        assert_eq!(request.field("authorization"), Some("Bearer t0ken"));
    }
    let run = list("env-missing").expect_failure();
    run.expect_error(&["env-missing", "NOT_SET_ANYWHERE"]);
    assert_eq!(
        peers[1].got().len(),
        0,
        "not even the literal text was sent"
    );
    let run = list("header-injection").expect_failure();
    run.expect_error(&["header-injection", "X-A"]);
    assert_eq!(peers[2].got().len(), 0);
    list("header-number").expect_code(0);
    for request in peers[3].got() {
        assert_eq!(request.field("x-n"), Some("5"));
        assert_eq!(request.field("x-null"), None);
    }
    // `both` has a command, which wins or is refused; the URL is not tried in silence.
    let run = list("both").expect_failure();
    expect_words(run.error()["message"].as_str().unwrap(), &["both"]);
    assert_eq!(peers[4].got().len(), 0);

    let run = list("args-with-spaces").expect_code(0);
    assert_eq!(run.tools(), ["echo"]);
    let heard = world.heard("args");
    let found = heard.starts()[0]["args"].as_array().unwrap();
    assert!(found.ends_with(&args), "{found:?}");
    world.expect_nobody();
}

/// The descriptors of this process that every program it starts gets, whoever opened them.
fn passed_on() -> BTreeSet<u64> {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
        // Gone meanwhile: opened by another test, which closes it on exec too.
        let info = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.map(|flags| u32::from_str_radix(flags.trim(), 8).unwrap());
        if flags.is_some_and(|flags| flags & CLOSE_ON_EXEC == 0) {
            let name = entry.file_name();
            found.insert(name.to_str().unwrap().parse().unwrap());
        }
    }
    found
}

#[test]
fn i02_child_env() {
    let mut world = World::new("i02");
    let input = case("i02-child-env")["input"].clone();
    let parent = input["parent_env"].as_object().unwrap();
    for (name, value) in parent {
        world
            .env
            .push((name.into(), value.as_str().unwrap().into()));
    }
    let steps = &case("c07-late-answer-after-cancel")["input"]["steps"];
    let mut servers = json!({});
    for (name, entry) in input["servers"].as_object().unwrap() {
        let mut keys = json!({"protocol": "legacy"});
        if let Some(env) = entry.get("env") {
            keys["env"] = env.clone();
        }
        servers[name] = world.entry(name, steps, keys);
    }
    let config = world.config(servers);
    let given = passed_on();
    let run = world
        .run(&["probe", "--config", &config, "--json"])
        .expect_prompt()
        .expect_code(0);
    let inherited = |name: &str| {
        let heard = world.heard(name);
        let started = heard.starts()[0].clone();
        let env = started["env"].as_object().unwrap().clone();
        for (name, value) in [
            ("PATH", "/made/bin"),
            ("HOME", world.home().to_str().unwrap()),
        ] {
            assert_eq!(env[name], value);
        }
        let open = started["descriptors"].as_array().unwrap();
        // Beside its own three it has at most what drawspan was given, whose close-on-exec is not
        // drawspan's to say, and nothing that drawspan has opened.
        let mut open = open.iter().map(|n| n.as_u64().unwrap());
        let own = open.find(|n| *n > 2 && !given.contains(n));
        assert_eq!(
            own, None,
            "a descriptor of drawspan; it was given {given:?}"
        );
        env
    };
    let plain = inherited("plain");
    let allowed = "PATH HOME LANG LOGNAME SHELL TERM USER TMPDIR LC_ALL LC_CTYPE TZ";
    let allowed: BTreeSet<&str> = allowed.split(' ').collect();
    for name in plain.keys() {
        assert!(allowed.contains(name.as_str()), "it inherits {name}");
    }
    let declared = inherited("declared");
    assert_eq!(declared["MY_FLAG"], "1");
    assert_eq!(declared["EXTRA"], "1");
    let more: BTreeSet<&String> = declared
        .keys()
        .filter(|k| !plain.contains_key(*k))
        .collect();
    assert_eq!(more.len(), 2, "{more:?}");

    let bad = inherited("bad-name");
    assert!(bad.keys().eq(plain.keys()), "{bad:?}");
    assert_eq!(
        run.json()["servers"]["bad-name"]["ok"],
        true,
        "it starts all the same"
    );
    let told = run.diagnostics_of("bad-name");
    assert!(
        !told.is_empty() && told.iter().all(|one| one["level"] == "warning"),
        "{told:#?}"
    );
    assert_eq!(run.diagnostics_of("declared"), Vec::<Value>::new());
    world.expect_nobody();
}
