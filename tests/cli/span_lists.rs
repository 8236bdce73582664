//! What several servers, channel tools and commands are together: one list each, and a way to everything in it.

use serde_json::{Value, json};

use crate::client::servers::Shop;
use crate::world::{EMBEDDED, Process, expect_words, text};

const TOOLS: &str = r#"[{"name":"echo","inputSchema":{"type":"object"},"x":1.0},{"name":"messages_send","inputSchema":{"type":"object"}}]"#;

/// What the script answers to everything else: whatever is listed or read, it is in here.
const RESULT: &str = r#"{"prompts":[{"name":"greet"}],"resources":[{"uri":"x:1","name":"r","n":1e0}],"resourceTemplates":[{"uriTemplate":"t:{id}","name":"t"}],"content":[{"type":"text","text":"hi"}]}"#;

fn shop(test: &str) -> Shop {
    Shop::new(test)
        .with("TOOLS", TOOLS)
        .with("RESULT", RESULT)
        .with(
            "CAPABILITIES",
            r#"{"tools":{},"prompts":{},"resources":{}}"#,
        )
}

fn ask(process: &mut Process, method: &str, params: &Value) -> Value {
    let id = process.request(method, &params.to_string());
    process.answer(id)
}

fn ids(process: &mut Process, method: &str) -> Vec<String> {
    let answer = ask(process, method, &json!({}));
    let lists = answer["result"].as_object().unwrap().values();
    let list = lists.filter_map(Value::as_array).next().unwrap();
    let id = |entry: &Value| {
        let id = ["uriTemplate", "uri", "name"].iter();
        let id = id.filter_map(|member| entry[member].as_str()).next();
        id.unwrap().to_owned()
    };
    list.iter().map(id).collect()
}

#[test]
fn lists_of_several_servers_are_one() {
    let shop = shop("lists-several");
    let config = json!({"mcpServers": {
        "broken": {"command": "/nonexistent/server"},
        "one": shop.entry(),
        "two": shop.entry(),
    }});
    shop.home.write("drawspan.json", &config.to_string());
    let mut serve = Process::serve(&mut shop.home.drawspan(&["serve"]));
    serve.hello();
    for (method, all) in [
        (
            "tools/list",
            &[
                "one__echo",
                "one__messages_send",
                "two__echo",
                "two__messages_send",
            ][..],
        ),
        ("prompts/list", &["one__greet", "two__greet"]),
        ("resources/list", &["x:1"]),
        ("resources/templates/list", &["t:{id}"]),
    ] {
        assert_eq!(ids(&mut serve, method), all, "{method}");
        let bogus = ask(&mut serve, method, &json!({"cursor": "bogus"}));
        assert_eq!(bogus["error"]["code"], -32602, "{method}");
    }
    let got = ask(&mut serve, "prompts/get", &json!({"name": "two__greet"}));
    assert_eq!(got["result"]["content"][0]["text"], "hi");
    assert_eq!(
        shop.heard_times(r#""method":"prompts/get","params":{"name":"greet"}"#),
        1
    );
    for uri in ["x:1", "t:7"] {
        let read = ask(&mut serve, "resources/read", &json!({ "uri": uri }));
        assert_eq!(
            read["result"]["resources"][0]["n"].to_string(),
            "1.0",
            "{read}"
        );
    }
    let finished = serve.finish().expect_code(0);
    let said = |words: &str| {
        finished
            .stderr
            .iter()
            .filter(|line| line.contains(words))
            .count()
    };
    assert_eq!(said("broken"), 1, "{:?}", finished.stderr);
    assert_eq!(said("x:1"), 1, "{:?}", finished.stderr);
    shop.home.expect_processes(0);
}

#[test]
fn channel_tools_and_commands_stand_before_the_servers() {
    let shop = shop("lists-mixed");
    let config = json!({
        "mcpServers": {"one": shop.entry()},
        "pluginTools": {"echo": {
            "command": "sh",
            "args": ["-c", "cat > /dev/null; echo from the command"],
            "description": "A command",
        }},
    });
    shop.home.write("drawspan.json", &config.to_string());
    let mut args = EMBEDDED.to_vec();
    args.extend(["--config", "drawspan.json"]);
    let mut serve = Process::serve(&mut shop.home.drawspan(&args));
    serve.hello();
    let tools = ids(&mut serve, "tools/list");
    assert_eq!(tools.len(), 9 + 1 + 2, "{tools:?}");
    assert_eq!(tools[0], "conversations_list");
    assert_eq!(tools[9..], ["echo", "one__echo", "one__messages_send"]);
    assert_eq!(text(&serve.call("one__messages_send", "{}")), "hi");
    assert_eq!(text(&serve.call("one__echo", "{}")), "hi");
    expect_words(text(&serve.call("echo", "{}")), &["from the command"]);
    let conversations = serve.call("conversations_list", "{}");
    expect_words(text(&conversations), &["conversations"]);
    assert_eq!(ids(&mut serve, "prompts/list"), ["greet"]);
    assert_eq!(ids(&mut serve, "resources/list"), ["x:1"]);
    let read = ask(&mut serve, "resources/read", &json!({"uri": "x:1"}));
    assert_eq!(read["result"]["content"][0]["text"], "hi");
    serve.finish().expect_code(0);
    shop.home.expect_processes(0);
}
