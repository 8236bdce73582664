//! `drawspan list`, `read` and `prompt`.

use serde_json::{Value, json};

use super::servers::{Shop, document, error, everything};
use crate::world::{Home, expect_words};

#[test]
fn tools_are_the_servers_objects() {
    let tools = r#"[{"name":"b","inputSchema":{"type":"object","properties":{}},"x-new":1.0},{"name":"a","inputSchema":{}}]"#;
    let shop = Shop::new("list-tools").with("TOOLS", tools);
    let finished = shop
        .run(&["list", "--json"])
        .expect_code(0)
        .expect_silence();
    expect_words(&finished.stdout.join("\n"), &[r#""x-new":1.0"#]);
    let listed = document(&finished);
    assert_eq!(listed["server"], "server");
    assert_eq!(listed["protocolVersion"], "2025-06-18");
    let repaired = json!({"name": "a", "inputSchema": {"type": "object", "properties": {}}});
    assert_eq!(
        listed["tools"][1], repaired,
        "the server's order, and an object schema"
    );
    assert!(listed["diagnostics"].is_array());
    let finished = shop.run(&["list", "--tools"]).expect_code(0);
    assert_eq!(finished.stdout, ["b", "a"]);
}

#[test]
fn pages_are_walked() {
    let listed =
        r#""result":{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"nextCursor":"c"}"#;
    let shop = Shop::new("list-pages").with("LISTED", listed);
    let finished = shop.run(&["list", "--json"]).expect_code(0);
    assert_eq!(shop.heard_times(r#""cursor":"c""#), 1);
    expect_words(
        &document(&finished)["diagnostics"].to_string(),
        &["cursor repeated"],
    );
    assert_eq!(document(&finished)["nextCursor"], Value::Null);
}

#[test]
fn resources_have_templates_beside_them() {
    let home = Home::new("list-resources");
    let server = everything();
    let listed = home
        .run(&["list", "--resources", "--json", "--", &server])
        .expect_code(0);
    let listed = document(&listed.expect_silence());
    assert_eq!(listed["resources"][0]["uri"], "test://static-text");
    assert_eq!(
        listed["resourceTemplates"][0]["uriTemplate"],
        "test://template/{id}/data"
    );
    assert_eq!(listed["tools"], Value::Null);
    // People see what they can ask for.
    let shown = home
        .run(&["list", "--resources", "--", &server])
        .expect_code(0)
        .expect_silence();
    expect_words(&shown.stdout[0], &["test://static-text: "]);
    expect_words(
        shown.stdout.last().unwrap(),
        &["test://template/{id}/data: "],
    );
    let prompts = home
        .run(&["list", "--prompts", "--json", "--", &server])
        .expect_code(0);
    expect_words(
        &document(&prompts)["prompts"].to_string(),
        &["test_simple_prompt"],
    );
}

#[test]
fn templates_that_a_server_does_not_know_are_none() {
    let script = r#"case $line in *templates*) answer '"error":{"code":-32601,"message":"?"}' ;;
        *) answer '"result":{"resources":[{"uri":"a:1","name":"n"}]}' ;; esac"#;
    let shop = Shop::new("list-no-templates");
    let text = std::fs::read_to_string(shop.home.path("server")).unwrap();
    shop.home
        .write("server", &text.replace(r#"answer "$OTHER""#, script));
    let shop = shop.with("CAPABILITIES", r#"{"resources":{}}"#);
    let listed = shop
        .run(&["list", "--resources", "--json"])
        .expect_code(0)
        .expect_silence();
    let listed = document(&listed);
    assert_eq!(listed["resources"], json!([{"uri": "a:1", "name": "n"}]));
    assert_eq!(listed["resourceTemplates"], Value::Null);
}

#[test]
fn a_list_that_a_server_does_not_have_is_empty() {
    let shop = Shop::new("list-none").with("CAPABILITIES", "{}");
    for what in ["tools", "resources", "prompts"] {
        let flag = format!("--{what}");
        let listed = shop
            .run(&["list", &flag, "--json"])
            .expect_code(0)
            .expect_silence();
        let listed = document(&listed);
        assert_eq!(listed[what], json!([]));
        let said = &listed["diagnostics"][0];
        assert_eq!(
            (&said["level"], &said["phase"]),
            (&"info".into(), &"list".into())
        );
        let finished = shop.run(&["list", &flag]).expect_code(0);
        assert_eq!(finished.stdout, Vec::<String>::new());
        finished.expect_stderr(&["info: server server says that it has no", what]);
    }
    // A server that declares nothing at all is asked for tools, and for nothing else.
    for list in ["resources/list", "prompts/list"] {
        assert_eq!(shop.heard_times(list), 0, "{list} was asked");
    }
}

#[test]
fn noise_is_counted_and_masked() {
    let noise = "echo starting token=abcdef; echo Bearer abcdef; echo three";
    let shop = Shop::new("list-noise").with("BEFORE", noise);
    let listed = shop
        .run(&["list", "--json"])
        .expect_code(0)
        .expect_silence();
    assert!(!listed.stdout.join("").contains("abcdef"));
    let said = document(&listed)["diagnostics"].take();
    assert_eq!(said.as_array().unwrap().len(), 1, "{said}");
    assert_eq!(said[0]["code"], "stdout-noise");
    assert_eq!(said[0]["count"], 3);
    assert_eq!(said[0]["sample"], "starting token=***");
    assert_eq!(said[0]["serverName"], "server");
    let finished = shop.run(&["list"]).expect_code(0);
    finished.expect_stderr(&["warning: server server: its stdout holds more than messages"]);
}

#[test]
fn a_resource_is_printed_or_given_as_it_is() {
    let home = Home::new("read");
    let server = everything();
    let read = |words: &[&str]| home.run(&[&["read"], words, &["--", &server]].concat());
    let finished = read(&["test://static-text"])
        .expect_code(0)
        .expect_silence();
    assert!(!finished.stdout.join("").is_empty());
    let finished = read(&["test://static-binary"])
        .expect_code(0)
        .expect_silence();
    expect_words(
        &finished.stdout[0],
        &["[test://static-binary, image/png, ", " bytes]"],
    );
    let finished = read(&["test://template/7/data", "--json"])
        .expect_code(0)
        .expect_silence();
    assert_eq!(
        document(&finished)["contents"][0]["uri"],
        "test://template/7/data"
    );
    let finished = read(&["test://nowhere", "--json"]);
    let finished = finished.expect_code(5);
    assert_eq!(error(&finished)["code"], -32602);
    expect_words(
        error(&finished)["message"].as_str().unwrap(),
        &["test://nowhere"],
    );
}

#[test]
fn a_prompt_takes_text() {
    let home = Home::new("prompt");
    let server = everything();
    let args = [
        "prompt",
        "test_prompt_with_arguments",
        "arg1=1",
        "arg2=a=b",
        "--",
        &server,
    ];
    let finished = home.run(&args).expect_code(0).expect_silence();
    assert_eq!(
        finished.stdout,
        ["user: Prompt with arguments: arg1='1', arg2='a=b'"]
    );
    let args = ["prompt", "--json", "test_simple_prompt", "--", &server];
    let finished = home.run(&args).expect_code(0).expect_silence();
    assert_eq!(document(&finished)["messages"][0]["role"], "user");

    let shop = Shop::new("prompt-words").with("CAPABILITIES", r#"{"prompts":{}}"#);
    shop.run(&["prompt", "p", "a=1", "b=x", "a=2"])
        .expect_code(0);
    let sent = r#""params":{"name":"p","arguments":{"b":"x","a":"2"}"#;
    assert_eq!(shop.heard_times(sent), 1, "{:#?}", shop.heard());
}
