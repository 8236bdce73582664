//! Lists that are long, endless, restless or partly broken, and their pages through a bridge: c18, c20, c21, c22, f08.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::era::in_era;
use crate::world::{ERAS, Run, World, case, expect_words, text_of};

/// A configuration with all servers of a case.
fn servers(world: &World, era: &str, input: &Value) -> Value {
    let mut servers = json!({});
    for server in in_era(era, input)["servers"].as_array().unwrap() {
        let name = server["name"].as_str().unwrap();
        servers[name] = world.entry(name, &server["steps"], json!({"protocol": era}));
    }
    servers
}

#[test]
fn c18_cursor_loops() {
    for era in ERAS {
        let world = World::new(&format!("c18-{era}"));
        let config = world.config(servers(&world, era, &case("c18-cursor-loops")["input"]));
        let run = world.run(&["probe", "--config", &config, "--json"]);
        let run = run.expect_prompt();
        let probed = &run.json()["servers"];
        // Pages that are needed to see the repetition, and how many may be asked for.
        for (name, tools, pages) in [
            ("same-cursor", json!(["a", "b"]), 2..=3),
            ("a-b-a", json!(["a", "b", "c"]), 3..=4),
            ("ever-new", json!(["t"]), 100..=101),
            ("good", json!(["echo"]), 1..=1),
        ] {
            assert_eq!(probed[name]["toolNames"], tools, "{name}: {run:?}");
            let asked = world.heard(name).of("tools/list").len();
            assert!(pages.contains(&asked), "{name}: {asked} pages");
        }
        run.expect_diagnostic("same-cursor", &["cursor repeated"]);
        run.expect_diagnostic("a-b-a", &["cursor repeated"]);
        run.expect_diagnostic("ever-new", &["100"]);
        assert_eq!(run.diagnostics_of("good"), Vec::<Value>::new());
        world.expect_nobody();
    }
}

#[test]
fn c18_one_deadline_for_the_whole_walk() {
    let world = World::new("c18-deadline");
    let input = &case("c18-cursor-loops")["input"];
    let mut steps = input["servers"][2]["steps"].clone();
    assert_eq!(input["servers"][2]["name"], "ever-new");
    let page = steps[0]["table"]["tools/list"][0]["steps"][0].clone();
    steps[0]["table"]["tools/list"][0]["steps"] = json!([{"do": "sleep", "ms": 200}, page]);
    let keys = json!({"protocol": "legacy", "listTimeoutMs": 1_000});
    let config = world.config(json!({"s": world.entry("s", &steps, keys)}));
    let run = world.run(&["probe", "--config", &config, "--json"]);
    run.expect_diagnostic("s", &["timed out after 1000 ms"]);
    let asked = world.heard("s").of("tools/list").len();
    assert!(
        (2..=6).contains(&asked),
        "{asked} pages of 200 ms in 1000 ms"
    );
    world.expect_nobody();
}

#[test]
fn c20_5000_tools() {
    for era in ERAS {
        let world = World::new(&format!("c20-{era}"));
        let mut all = servers(&world, era, &case("c20-5000-tools")["input"]);
        for (_, entry) in all.as_object_mut().unwrap() {
            // So many in a program without optimisation, on a busy machine.
            entry["listTimeoutMs"] = 30_000.into();
        }
        let config = world.config(all.clone());
        for name in ["one-page", "fifty-pages"] {
            let run = world.run(&["list", name, "--config", &config, "--json"]);
            let run = run.expect_code(0);
            let tools = run.tools();
            assert_eq!(tools.len(), 5_000, "{name}");
            let want = (0..5_000).map(|i| format!("tool_{i:05}"));
            assert!(
                want.zip(&tools).all(|(want, found)| want == *found),
                "{name}: its order"
            );
            assert_eq!(run.diagnostics(), Vec::<Value>::new());
        }
        let run = world.run(&["probe", "--config", &config, "--json"]);
        let run = run.expect_code(0);
        let json = run.json();
        assert_eq!(json["servers"]["fifty-pages"]["tools"], 5_000);
        assert_eq!(json["tools"].as_array().unwrap().len(), 10_000);

        let config = world.config_with(all, json!({"limits": {"tools_max": 1_200}}));
        for name in ["one-page", "fifty-pages"] {
            let run = world.run(&["list", name, "--config", &config, "--json"]);
            let run = run.expect_prompt().expect_code(0);
            assert_eq!(run.tools().len(), 1_200, "{name}");
            assert_eq!(run.tools()[1_199], "tool_01199", "{name}");
            run.expect_diagnostic(name, &["1200"]);
            assert_eq!(run.diagnostics().len(), 1, "{name}");
        }
        let run = world.run(&["list", "one-page", "--config", &config, "--json"]);
        run.expect_diagnostic("one-page", &["1200", "5000"]);
        world.expect_nobody();
    }
}

#[test]
fn c21_list_changed_storm() {
    for era in ERAS {
        for declared in [true, false] {
            let world = World::new(&format!("c21-{era}-{declared}"));
            let input = in_era(era, &case("c21-list-changed-storm")["input"]);
            let mut steps = input["steps"].clone();
            steps[1]["result"]["capabilities"]["tools"]["listChanged"] = declared.into();
            let entry = world.entry("s", &steps, json!({"protocol": era}));
            let config = world.config(json!({"s": entry}));
            let run = world.run(&["call", "s", "echo", "--config", &config, "--json"]);
            let run = run.expect_prompt().expect_code(0);
            assert_eq!(run.text(), "done", "a call in flight is not hurt");
            let lists = world.heard("s").of("tools/list").len();
            assert!((1..=3).contains(&lists), "{lists} lists");
            world.expect_nobody();
        }
    }
}

#[test]
fn c22_one_bad_schema() {
    for era in ERAS {
        let world = World::new(&format!("c22-{era}"));
        let input = in_era(era, &case("c22-one-bad-schema")["input"]);
        let entry = world.entry("s", &input["steps"], json!({"protocol": era}));
        let config = world.config(json!({"s": entry}));
        let run = world
            .run(&["list", "s", "--config", &config, "--json"])
            .expect_code(0);
        let sent = &input["steps"][0]["table"]["tools/list"]["result"]["tools"];
        let sent = |name: &str| {
            let tools = sent.as_array().unwrap().iter();
            tools
                .into_iter()
                .find(|tool| tool["name"] == name)
                .unwrap()
                .clone()
        };
        let repaired = ["rootOneOf", "noType", "emptySchema", "noSchema"];
        let left_out = ["nullSchema", "arrayRoot", "trueSchema"];
        let mut want = vec![sent("good1")];
        for name in repaired {
            let mut tool = sent(name);
            let schema = &mut tool["inputSchema"];
            if schema.is_null() {
                *schema = json!({});
            }
            schema["type"] = "object".into();
            if schema.get("properties").is_none() {
                schema["properties"] = json!({});
            }
            want.push(tool);
        }
        want.push(sent("good2"));
        assert_eq!(
            run.json()["tools"],
            Value::Array(want),
            "nothing else is changed"
        );

        for name in repaired.into_iter().chain(left_out) {
            expect_told(&run, name);
        }
        let nameless = 4;
        let all = run.diagnostics();
        assert_eq!(
            all.len(),
            repaired.len() + left_out.len() + nameless,
            "{all:#?}"
        );
        assert!(all.iter().all(|one| one["level"] != "error"), "{all:#?}");
        assert!(all.iter().all(|one| one["phase"] == "list"), "{all:#?}");

        let run = world
            .run(&["probe", "--config", &config, "--json"])
            .expect_code(0);
        assert_eq!(run.json()["servers"]["s"]["tools"], 6);
        let run = world.run(&["call", "s", "arrayRoot", "--config", &config, "--json"]);
        run.expect_code(5).expect_error(&["s", "arrayRoot"]);
        world.expect_nobody();
    }
}

/// One diagnostic is about this tool, and says so in its text.
#[track_caller]
fn expect_told(run: &Run, tool: &str) {
    let mut about = run.diagnostics();
    about.retain(|one| one["tool"] == tool);
    assert_eq!(about.len(), 1, "{tool}: {about:#?}");
    expect_words(&text_of(&about[0]["message"]), &[tool]);
}

/// A client that says all this at once, before `drawspan serve` with these arguments; what it got, by id.
fn bridged(world: &World, args: &[&str], lines: &[&str]) -> Vec<Value> {
    let mut all = vec!["serve"];
    all.extend(args);
    let mut child = world
        .drawspan(&all)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let began = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    for line in [hello, began].iter().chain(lines) {
        writeln!(input, "{line}").unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut answers: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|message: &Value| message["id"].is_u64() && message["id"] != 0)
        .collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    answers
}

#[test]
fn f08_cursor_forwarded() {
    for era in ERAS {
        let world = World::new(&format!("f08-{era}"));
        let case = case("f08-cursor-forwarded");
        let input = in_era(era, &case["input"]);
        let mut lines: Vec<&str> = case["input"]["client_sends"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line.as_str().unwrap())
            .collect();
        let more = r#"{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{ "limit":1e1,"x":[null,12345678901234567890], "cursor":"k:\u0038","_meta":{"v":"\/"} }}"#;
        lines.push(more);
        let mut args = vec!["--protocol".to_owned(), era.to_owned(), "--".to_owned()];
        args.extend(world.command("s", &input["steps"]));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let answers = bridged(&world, &args, &lines);
        let names = |answer: &Value| answer["result"]["tools"][0]["name"].clone();
        assert_eq!(answers.len(), 4, "{answers:?}");
        assert_eq!(names(&answers[0]), "p1");
        assert_eq!(answers[0]["result"]["nextCursor"], "k:8");
        assert_eq!(names(&answers[1]), "p2");
        assert_eq!(answers[1]["result"].get("nextCursor"), None);
        let heard = world.heard("s");
        let asked = heard.of("tools/list");
        assert_eq!(asked.len(), 4, "nobody but the client asks");
        let cursors: Vec<&Value> = asked.iter().map(|one| &one["params"]["cursor"]).collect();
        assert_eq!(
            cursors,
            [&Value::Null, &"k:8".into(), &"bogus".into(), &"k:8".into()]
        );
        let last = &asked[3]["params"];
        for member in ["limit", "x"] {
            let sent: Value = serde_json::from_str(more).unwrap();
            assert_eq!(last[member].to_string(), sent["params"][member].to_string());
        }
        assert_eq!(last["_meta"]["v"], "/");
        world.expect_nobody();
    }
}
