//! Schemas that are recursive, of other dialects, or cannot be used: g01, g02, g03, g05.

use serde_json::{Value, json};

use crate::era::in_era;
use crate::world::{ERAS, Run, World, case, serve};

/// Every schema of a case as a tool `s0`, `s1` …, which gives its arguments back as its result.
struct Tools {
    world: World,
    config: String,
    /// The case's entries.
    schemas: Vec<Value>,
}

impl Tools {
    fn of(id: &str, era: &str) -> Self {
        let world = World::new(&format!("{}-{era}", &id[..3]));
        let schemas = case(id)["input"]["schemas"].as_array().unwrap().clone();
        let tools: Vec<Value> = schemas
            .iter()
            .enumerate()
            .map(|(n, s)| tool(n, s))
            .collect();
        let mut input = case("c07-late-answer-after-cancel")["input"].clone();
        let table = &mut input["steps"][0]["table"];
        table["tools/list"]["result"]["tools"] = tools.into();
        let result = json!({"content": [], "structuredContent": "$arguments"});
        table["tools/call"] = json!({"result": result});
        let steps = in_era(era, &input)["steps"].clone();
        let entry = world.entry("s", &steps, json!({"protocol": era}));
        let config = world.config(json!({"s": entry}));
        Self {
            world,
            config,
            schemas,
        }
    }

    #[track_caller]
    fn list(&self) -> Run {
        let run = self
            .world
            .run(&["list", "s", "--config", &self.config, "--json"]);
        let run = run.expect_prompt().expect_code(0);
        let json = run.json();
        let shown = json["tools"].as_array().unwrap();
        assert_eq!(shown.len(), self.schemas.len(), "every tool stays: {run:?}");
        for (n, (shown, schema)) in shown.iter().zip(&self.schemas).enumerate() {
            let mut want = tool(n, schema);
            if want["inputSchema"].get("properties").is_none() {
                // The one thing that may be added.
                let added = shown["inputSchema"]["properties"].is_object();
                let properties = want["inputSchema"].as_object_mut().unwrap();
                properties.extend(added.then(|| ("properties".to_owned(), json!({}))));
            }
            assert_eq!(*shown, want, "as the server wrote it");
        }
        run
    }

    /// How often the server was called since the log began.
    fn called(&self) -> usize {
        self.world.heard("s").of("tools/call").len()
    }

    #[track_caller]
    fn call(&self, n: usize, arguments: &Value) -> Run {
        let (tool, arguments) = (format!("s{n}"), arguments.to_string());
        let args = [
            "call",
            "s",
            &tool,
            "--args",
            &arguments,
            "--config",
            &self.config,
            "--json",
        ];
        self.world.run(&args).expect_prompt()
    }

    #[track_caller]
    fn expect_valid(&self, n: usize, instance: &Value) -> Run {
        let run = self.call(n, instance);
        assert_eq!(
            run.code, 0,
            "{instance} fits s{n} {}: {run:#?}",
            self.schemas[n]
        );
        assert_eq!(run.json()["structuredContent"], *instance);
        run
    }

    #[track_caller]
    fn expect_invalid(&self, n: usize, instance: &Value) {
        let before = self.called();
        let run = self.call(n, instance);
        let what = format!("{instance} does not fit s{n} {}: {run:#?}", self.schemas[n]);
        if place(&self.schemas[n]) == "outputSchema" {
            assert_eq!(run.code, 6, "{what}");
        } else {
            assert_eq!(run.code, 5, "{what}");
            assert_eq!(self.called(), before, "nothing is sent: {what}");
        }
        run.expect_error(&["s", &format!("s{n}")]);
    }

    /// What cannot be checked is not, and somebody is told.
    #[track_caller]
    fn expect_unchecked(&self, n: usize, instance: &Value) {
        let run = self.expect_valid(n, instance);
        let tool = format!("s{n}");
        let told = run
            .stderr
            .lines()
            .filter(|line| line.contains(&tool))
            .count();
        assert_eq!(told, 1, "{run:#?}");
    }

    #[track_caller]
    fn expect_instances(&self, n: usize) {
        let instances = |name| {
            self.schemas[n][name]
                .as_array()
                .cloned()
                .unwrap_or_default()
        };
        for instance in instances("valid") {
            let run = self.expect_valid(n, &instance);
            assert_eq!(run.stderr, "", "{run:#?}");
        }
        for instance in instances("invalid") {
            self.expect_invalid(n, &instance);
        }
    }
}

fn place(schema: &Value) -> &str {
    schema["where"].as_str().unwrap_or("inputSchema")
}

fn tool(n: usize, schema: &Value) -> Value {
    let mut tool = json!({"name": format!("s{n}"), "inputSchema": {"type": "object"}});
    tool[place(schema)] = match schema.get("schema") {
        Some(schema) => schema.clone(),
        None => json!({"type": "object"}),
    };
    tool
}

#[test]
fn g01_recursive_ref() {
    for era in ERAS {
        let tools = Tools::of("g01-recursive-ref", era);
        let listed = tools.list();
        for (n, schema) in tools.schemas.iter().enumerate() {
            if schema.get("usable").is_some() {
                tools.expect_unchecked(n, &json!({"x": 1}));
                let about = listed.diagnostics();
                let about = about.iter().filter(|one| one["tool"] == format!("s{n}"));
                assert_eq!(about.count(), 1, "s{n}: {listed:#?}");
            } else {
                tools.expect_instances(n);
            }
        }
        tools.world.expect_nobody();
    }
}

/// Data that is nested deeper than any stack is refused, not followed.
#[test]
fn g01_deep_data() {
    let world = World::new("g01-deep");
    let schemas = case("g01-recursive-ref")["input"]["schemas"].clone();
    let depth = schemas[6]["data_depth"].as_u64().unwrap() as usize;
    let schema = &schemas[0]["schema"];
    let next = r#"{"v":1,"next":"#;
    let data = format!(
        "{{\"root\":{}null{}}}",
        next.repeat(depth),
        "}".repeat(depth)
    );
    let mut input = case("e05-get-not-offered")["input"].clone();
    let exchanges = input["exchanges"].as_array_mut().unwrap();
    let answer = r#"{"jsonrpc":"2.0","id":{{id}},"result":{"content":[],"structuredContent":"#;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let tool = json!({"name": "echo", "inputSchema": {"type": "object"}, "outputSchema": schema});
    let list = format!(
        r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{}}}"#,
        json!({"tools": [tool]})
    );
    exchanges.splice(
        0..0,
        [
            json!({"when": {"rpc": "tools/call"}, "head": head, "body": [answer, data, "}}"]}),
            json!({"when": {"rpc": "tools/list"}, "head": head, "body": [list]}),
        ],
    );
    let peer = serve(&input);
    let run = world.run(&[
        "call",
        &peer.url(),
        "echo",
        "--protocol",
        "legacy",
        "--json",
    ]);
    let run = run.expect_prompt().expect_failure();
    let message = run.error()["message"].to_string();
    let said = ["depth", "deep", "nest"]
        .iter()
        .any(|word| message.contains(word));
    assert!(said, "{run:?}");
}

#[test]
fn g02_dialects() {
    for era in ERAS {
        let tools = Tools::of("g02-dialects", era);
        let listed = tools.list();
        for (n, schema) in tools.schemas.iter().enumerate() {
            match schema["note"].as_str().unwrap() {
                "no $schema means 2020-12" => tools.expect_unchecked(n, &json!({"p": ["x"]})),
                "unknown dialect" => {
                    tools.expect_unchecked(n, &json!({"anything": 1}));
                    let about = listed.diagnostics();
                    let about = about.iter().filter(|one| one["tool"] == format!("s{n}"));
                    assert_eq!(about.count(), 1, "{listed:#?}");
                }
                _ => tools.expect_instances(n),
            }
        }
        tools.world.expect_nobody();
    }
}

#[test]
fn g03_patterns_formats() {
    for era in ERAS {
        let tools = Tools::of("g03-patterns-formats", era);
        tools.list();
        for (n, schema) in tools.schemas.iter().enumerate() {
            match schema["note"].as_str().unwrap() {
                "escape legal only without the u flag" => {
                    tools.expect_valid(n, &json!({"u": "https://x"}));
                }
                "Python named group" => drop(tools.expect_valid(n, &json!({"u": "abc"}))),
                "lookahead" => drop(tools.expect_valid(n, &json!({"u": "a1"}))),
                "unbalanced" | "huge repetition" => {
                    tools.expect_unchecked(n, &json!({"u": "x"}));
                    tools.expect_invalid(n, &json!({"u": 1}));
                }
                // Whatever the answer, it comes at once: `call` expects that.
                "catastrophic" => {
                    let run = tools.call(n, &schema["data"]);
                    assert!(run.code == 5 || run.code == 0, "{run:#?}");
                }
                "unknown and known formats" => tools.expect_instances(n),
                "patternProperties with a bad key" => {
                    tools.expect_unchecked(n, &json!({"x": "y"}));
                }
                other => panic!("{other}"),
            }
            // None of it matters to a call that does not use it.
            tools.expect_valid(n, &json!({}));
        }
        tools.world.expect_nobody();
    }
}

#[test]
fn g05_root_composition() {
    for era in ERAS {
        let tools = Tools::of("g05-root-composition", era);
        // Shown as written, so what fits stays what it was.
        let run = tools.list();
        assert_eq!(run.diagnostics(), Vec::<Value>::new());
        for n in 0..tools.schemas.len() {
            tools.expect_instances(n);
        }
        tools.world.expect_nobody();
    }
}
