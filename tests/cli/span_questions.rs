//! Questions of servers in mid-call through `drawspan serve TARGET`: each era of client before each era of
//! server, over stdio and HTTP. The server is `examples/everything_server`, which asks by whatever its client
//! knows; so the bridge in between must make the same of both.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::client::servers::{everything, everything_http};
use crate::world::{Home, PATIENCE, Process, expect_words, text};

/// Tools that ask: one question, three at once, one after the other.
const TOOLS: [&str; 4] = [
    "test_streaming_elicitation",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_elicitation_and_sampling",
];

fn capabilities() -> Value {
    json!({"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}})
}

/// What a client answers.
fn answer(method: &str, params: &Value) -> Value {
    match method {
        "roots/list" => json!({"roots": [{"uri": "file:///tmp", "name": "tmp"}]}),
        "sampling/createMessage" => json!({"role": "assistant", "model": "m",
            "content": {"type": "text", "text": "Paris"}}),
        _ => {
            let fields = params["requestedSchema"]["properties"].as_object();
            let fill = |(name, field): (&String, &Value)| {
                let value = match field["type"].as_str() {
                    Some("boolean") => json!(true),
                    Some("integer" | "number") => json!(7),
                    _ => json!("Alice"),
                };
                (name.clone(), value)
            };
            let content: serde_json::Map<_, _> = fields.into_iter().flatten().map(fill).collect();
            json!({"action": "accept", "content": content})
        }
    }
}

fn serve(home: &Home, era: &str, target: &[&str], more: &[&str]) -> Process {
    let args = [&["serve", "--protocol", era], more, target].concat();
    Process::start(&mut home.drawspan(&args))
}

/// Calls a tool as a client of the handshake era, and answers what it is asked meanwhile. Gives the result,
/// and how often it was asked.
fn call_old(client: &mut Process, tool: &str) -> (Value, usize) {
    let id = client.begin(tool, "{}");
    let mut asked = 0;
    loop {
        let message = client.message("a question or the answer", |message| {
            message["id"] == id || (message.get("id").is_some() && message["method"].is_string())
        });
        let Some(method) = message["method"].as_str() else {
            return (message["result"].clone(), asked);
        };
        asked += 1;
        let result = answer(method, &message["params"]);
        client.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string());
    }
}

fn shake_hands(client: &mut Process, revision: &str, capabilities: &Value) {
    let info = json!({"name": "tester", "version": "1"});
    let params = json!({"protocolVersion": revision, "capabilities": capabilities,
        "clientInfo": info});
    let opened = client.request("initialize", &params.to_string());
    assert_eq!(client.answer(opened)["result"]["protocolVersion"], revision);
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
}

/// One request over HTTP on a connection of its own, and its answer, whatever it comes in.
fn post(address: &str, tool: &str, message: &Value) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = message.to_string();
    let length = body.len();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nConnection: close\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let lines = answer.lines().map(|line| line.trim_start_matches("data: "));
    let found = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = found.filter(|found| found["id"] == message["id"]);
    found
        .next()
        .unwrap_or_else(|| panic!("no answer in {answer}"))
}

/// Calls a tool as a stateless client, which comes back with what the results ask for.
fn call_stateless(
    tool: &str,
    capabilities: &Value,
    mut send: impl FnMut(&Value) -> Value,
) -> (Value, usize) {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities});
    let mut params = json!({"name": tool, "arguments": {}, "_meta": meta});
    let mut asked = 0;
    for id in 1_000.. {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let answered = send(&request);
        let result = &answered["result"];
        if result["resultType"] != "input_required" {
            return (answered, asked);
        }
        let mut responses = json!({});
        for (key, question) in result["inputRequests"].as_object().unwrap() {
            asked += 1;
            responses[key] = answer(question["method"].as_str().unwrap(), &question["params"]);
        }
        params["inputResponses"] = responses;
        params["requestState"] = result["requestState"].clone();
        if params["requestState"].is_null() {
            params.as_object_mut().unwrap().remove("requestState");
        }
    }
    unreachable!("it asks for ever")
}

#[test]
fn every_client_is_asked_by_every_server() {
    let home = Home::new("span-questions");
    let program = everything();
    let (_server, url) = everything_http(&home);
    let stdio = ["--", program.as_str()];
    let http = [url.as_str()];
    let mut results: Vec<Vec<String>> = vec![Vec::new(); TOOLS.len()];
    for era in ["legacy", "modern"] {
        for target in [&stdio[..], &http[..]] {
            let label = format!("{era} {target:?}");
            // The handshake revisions that know every question; older ones are served in the same way.
            let mut old = serve(&home, era, target, &[]);
            shake_hands(&mut old, "2025-11-25", &capabilities());
            let mut door = serve(&home, era, target, &["--listen", "http://127.0.0.1:0"]);
            let address = door.address();
            for (tool, all) in TOOLS.iter().zip(&mut results) {
                let (result, asked) = call_old(&mut old, tool);
                assert!(asked > 0, "{label} {tool}: {result}");
                all.push(text(&result).to_owned());
                let send = |message: &Value| post(&address, tool, message);
                let (answered, asked) = call_stateless(tool, &capabilities(), send);
                assert!(asked > 0, "{label} {tool}: {answered}");
                all.push(text(&answered["result"]).to_owned());
            }
            old.finish().expect_code(0).expect_silence();
        }
    }
    for (tool, all) in TOOLS.iter().zip(results) {
        assert!(all.iter().all(|text| *text == all[0]), "{tool}: {all:#?}");
    }
}

#[test]
fn older_handshakes_carry_questions_too() {
    let home = Home::new("span-questions-old");
    let program = everything();
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18"] {
        for era in ["legacy", "modern"] {
            let mut client = serve(&home, era, &["--", &program], &[]);
            shake_hands(&mut client, revision, &capabilities());
            let tool = "test_input_required_result_list_roots";
            let (result, asked) = call_old(&mut client, tool);
            assert_eq!(asked, 1, "{revision} {era}: {result}");
            expect_words(text(&result), &["file:///tmp"]);
            client.finish().expect_code(0).expect_silence();
        }
    }
    home.expect_processes(0);
}

#[test]
fn what_a_client_lacks_is_one_error() {
    let home = Home::new("span-questions-none");
    let program = everything();
    let tool = "test_input_required_result_sampling";
    for era in ["legacy", "modern"] {
        let mut client = serve(&home, era, &["--", &program], &[]);
        shake_hands(&mut client, "2025-11-25", &json!({}));
        let id = client.begin(tool, "{}");
        let answer = client.message("the answer", |message| message.get("id").is_some());
        assert_eq!(answer["id"], id, "it is asked nothing: {answer}");
        expect_words(&answer.to_string(), &["sampling"]);
        let failed = answer.get("error").is_some() || answer["result"]["isError"] == true;
        assert!(failed, "{answer}");
        // The other calls are not harmed.
        expect_words(text(&client.call("test_simple_text", "{}")), &["text"]);
        let send = |message: &Value| {
            client.send(&message.to_string());
            client.message("the answer", |answer| answer["id"] == message["id"])
        };
        let (answered, asked) = call_stateless(tool, &json!({}), send);
        assert_eq!(asked, 0);
        expect_words(&answered.to_string(), &["sampling"]);
        client.finish().expect_code(0);
    }
    home.expect_processes(0);
}
