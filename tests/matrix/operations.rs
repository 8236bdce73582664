//! What is done in each cell of the table, and how one sees that it worked.

use std::time::Instant;

use drawspan::protocol::client::peer::{CallFault, ListKind};
use drawspan::protocol::message::LogLevel;
use serde_json::{Value, json};

use crate::client::Client;
use crate::common::PATIENCE;

/// What went wrong.
pub(crate) type Outcome = Result<(), String>;

/// One thing that clients do.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    /// Its row.
    pub(crate) name: &'static str,
    pub(crate) check: fn(&mut Client) -> Outcome,
}

/// All of them, in the order in which they are done.
pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        name: "the server's name and capabilities",
        check: introduction,
    },
    Operation {
        name: "tools: list, call, error results, unknown names",
        check: tools,
    },
    Operation {
        name: "structured results",
        check: structured,
    },
    Operation {
        name: "resources: list, templates, read",
        check: resources,
    },
    Operation {
        name: "resources: subscribe, updated",
        check: updates,
    },
    Operation {
        name: "prompts: list, get",
        check: prompts,
    },
    Operation {
        name: "completion",
        check: completion,
    },
    Operation {
        name: "log messages, by level",
        check: logging,
    },
    Operation {
        name: "progress, on the call's own stream",
        check: progress,
    },
    Operation {
        name: "cancel reaches the server",
        check: cancel,
    },
    Operation {
        name: "list_changed: tools",
        check: tools_changed,
    },
    Operation {
        name: "list_changed: resources, prompts",
        check: others_changed,
    },
    Operation {
        name: "question in mid-call: sampling",
        check: sampling,
    },
    Operation {
        name: "question in mid-call: elicitation",
        check: elicitation,
    },
    Operation {
        name: "question in mid-call: roots",
        check: roots,
    },
    Operation {
        name: "several questions, at once and in rounds",
        check: several,
    },
];

macro_rules! expect {
    ($holds:expr, $($found:tt)+) => {
        if !$holds {
            return Err(format!("{}: {}", stringify!($holds), format_args!($($found)+)));
        }
    };
}

fn result(outcome: Result<Value, CallFault>) -> Result<Value, String> {
    outcome.map_err(|fault| format!("{fault:?}"))
}

fn text(result: &Value) -> Result<&str, String> {
    let text = result["content"][0]["text"].as_str();
    text.ok_or_else(|| format!("no text in {result}"))
}

/// The code and the message of the error that must have come.
fn refusal(outcome: Result<Value, CallFault>) -> Result<(i64, String), String> {
    match outcome {
        Err(CallFault::Remote(error)) => Ok((error.code, error.message)),
        other => Err(format!("no error of JSON-RPC: {other:?}")),
    }
}

fn names(list: &Value, member: &str) -> Vec<String> {
    let entries = list.as_array().into_iter().flatten();
    entries
        .filter_map(|entry| entry[member].as_str().map(str::to_owned))
        .collect()
}

/// The entry of a list that has this name.
fn entry(list: &Value, name: &str) -> Value {
    let found = list
        .as_array()
        .into_iter()
        .flatten()
        .find(|one| one["name"] == name);
    found.cloned().unwrap_or_default()
}

fn introduction(client: &mut Client) -> Outcome {
    let spoken = client.revision_spoken();
    expect!(spoken == client.revision, "{spoken}");
    let info = client.server_info();
    expect!(info["name"] == "everything", "{info}");
    let capabilities = client.server_capabilities();
    for feature in ["tools", "resources", "prompts", "completions", "logging"] {
        expect!(
            capabilities[feature].is_object(),
            "{feature} in {capabilities}"
        );
    }
    expect!(
        capabilities["resources"]["subscribe"] == true,
        "{capabilities}"
    );
    expect!(
        capabilities["tools"]["listChanged"] == true,
        "{capabilities}"
    );
    Ok(())
}

fn tools(client: &mut Client) -> Outcome {
    let list = result(client.ask("tools/list", "{}"))?;
    let names = names(&list["tools"], "name");
    expect!(
        names.iter().any(|name| name == "test_simple_text"),
        "{names:?}"
    );
    let simple = entry(&list["tools"], "test_simple_text");
    expect!(simple["title"] == "Simple text", "{simple}");
    let called = result(client.call("test_simple_text", "{}"))?;
    let said = text(&called)?;
    expect!(
        said == "This is a simple text response for testing.",
        "{said}"
    );
    let called = result(client.call("test_error_handling", "{}"))?;
    expect!(called["isError"] == true, "{called}");
    let said = text(&called)?;
    expect!(said.contains("intentionally returns an error"), "{said}");
    let (code, message) = refusal(client.call("no_such_tool", "{}"))?;
    expect!(
        code == -32_602 && message.contains("no_such_tool"),
        "{code} {message}"
    );
    Ok(())
}

fn structured(client: &mut Client) -> Outcome {
    let list = result(client.ask("tools/list", "{}"))?;
    let tool = entry(&list["tools"], "test_structured_content");
    expect!(tool["outputSchema"]["required"][0] == "celsius", "{tool}");
    let called = result(client.call("test_structured_content", "{}"))?;
    expect!(
        called["structuredContent"] == json!({"celsius": 21.5}),
        "{called}"
    );
    Ok(())
}

fn resources(client: &mut Client) -> Outcome {
    let list = result(client.ask("resources/list", "{}"))?;
    let uris = names(&list["resources"], "uri");
    expect!(
        uris.iter().any(|uri| uri == "test://static-text"),
        "{uris:?}"
    );
    let list = result(client.ask("resources/templates/list", "{}"))?;
    let templates = names(&list["resourceTemplates"], "uriTemplate");
    expect!(templates == ["test://template/{id}/data"], "{templates:?}");
    let read = result(client.ask("resources/read", r#"{"uri":"test://static-text"}"#))?;
    let said = &read["contents"][0]["text"];
    expect!(
        *said == "This is the content of the static text resource.",
        "{said}"
    );
    let read = result(client.ask("resources/read", r#"{"uri":"test://template/7/data"}"#))?;
    let said = read["contents"][0]["text"].as_str().unwrap_or_default();
    expect!(said.contains("Data for ID: 7"), "{said}");
    let (code, _) = refusal(client.ask("resources/read", r#"{"uri":"test://none"}"#))?;
    expect!(code == -32_002 || code == -32_602, "{code}");
    Ok(())
}

fn updates(client: &mut Client) -> Outcome {
    client
        .subscribe("test://watched-resource")
        .map_err(|fault| format!("{fault:?}"))?;
    client.told().notifications.clear();
    result(client.call("test_trigger_resource_update", "{}"))?;
    hears(client, "notifications/resources/updated", |params| {
        params["uri"] == "test://watched-resource"
    })
}

fn prompts(client: &mut Client) -> Outcome {
    let list = result(client.ask("prompts/list", "{}"))?;
    let names = names(&list["prompts"], "name");
    expect!(
        names.iter().any(|name| name == "test_simple_prompt"),
        "{names:?}"
    );
    let params = r#"{"name":"test_prompt_with_arguments","arguments":{"arg1":"a","arg2":"b"}}"#;
    let got = result(client.ask("prompts/get", params))?;
    let said = &got["messages"][0]["content"]["text"];
    expect!(
        *said == "Prompt with arguments: arg1='a', arg2='b'",
        "{said}"
    );
    Ok(())
}

fn completion(client: &mut Client) -> Outcome {
    let params = concat!(
        r#"{"ref":{"type":"ref/prompt","name":"test_prompt_with_arguments"},"#,
        r#""argument":{"name":"arg1","value":"par"}}"#
    );
    let done = result(client.ask("completion/complete", params))?;
    let values = &done["completion"]["values"];
    expect!(*values == json!(["paris", "party"]), "{values}");
    Ok(())
}

/// A message that is below the level would stand before those of the last call.
fn logging(client: &mut Client) -> Outcome {
    const LOG: &str = "notifications/message";
    client.told().notifications.clear();
    for (level, count) in [
        (LogLevel::Info, 1),
        (LogLevel::Error, 1),
        (LogLevel::Debug, 2),
    ] {
        client
            .set_log_level(level)
            .map_err(|fault| format!("{fault:?}"))?;
        result(client.call("test_logging_tool", "{}"))?;
        hears_times(client, LOG, count, |params| {
            params["data"] == "The tool was called"
        })?;
    }
    barrier(client)?;
    let logged = |(method, _): &&(String, Value)| method == LOG;
    let count = client.told().notifications.iter().filter(logged).count();
    expect!(count == 2, "{count}");
    Ok(())
}

fn progress(client: &mut Client) -> Outcome {
    let told = client.told();
    (told.strays, told.progress) = (0, Vec::new());
    let params = r#"{"name":"test_tool_with_progress","arguments":{}}"#;
    let id = client.begin("tools/call", params, true);
    result(client.answer(id))?;
    let told = client.told();
    let of_it = told.progress.iter().filter(|(of, _)| *of == id);
    let steps: Vec<Option<f64>> = of_it
        .map(|(_, params)| params["progress"].as_f64())
        .collect();
    expect!(
        steps == [0.0, 50.0, 100.0].map(Some),
        "{steps:?} {:?}",
        told.progress
    );
    expect!(told.strays == 0, "{}", told.strays);
    Ok(())
}

fn cancel(client: &mut Client) -> Outcome {
    let held = |client: &mut Client| {
        let held = result(client.call("test_held", "{}"))?;
        let count = |name: &str| held["structuredContent"][name].as_u64();
        count("waiting")
            .zip(count("takenBack"))
            .ok_or_else(|| held.to_string())
    };
    let (_, before) = held(client)?;
    let params = r#"{"name":"test_hold","arguments":{}}"#;
    let id = client.begin("tools/call", params, true);
    client.until("the call to arrive", |told| {
        told.progress.iter().any(|(of, _)| *of == id)
    });
    // Nobody waits for it but who has made it.
    expect!(held(client)? == (1, before), "{before}");
    client.cancel(id);
    within(client, "the server to hear of it", |client| {
        let (waiting, gone) = held(client)?;
        Ok(waiting == 0 && gone == before + 1)
    })?;
    let outcome = client.raw_answer(id);
    expect!(outcome == Err(CallFault::Cancelled), "{outcome:?}");
    Ok(())
}

fn tools_changed(client: &mut Client) -> Outcome {
    changed(client, "test_trigger_tool_change", ListKind::Tools)
}

fn others_changed(client: &mut Client) -> Outcome {
    changed(client, "test_trigger_resource_change", ListKind::Resources)?;
    changed(client, "test_trigger_prompt_change", ListKind::Prompts)
}

fn changed(client: &mut Client, trigger: &str, list: ListKind) -> Outcome {
    client.told().changed.clear();
    result(client.call(trigger, "{}"))?;
    within(client, "word of the change", |client| {
        Ok(client.told().changed.contains(&list))
    })
}

fn sampling(client: &mut Client) -> Outcome {
    asks(
        client,
        "test_sampling",
        r#"{"prompt":"Capital?"}"#,
        "sampling/createMessage",
        "Paris",
    )
}

fn elicitation(client: &mut Client) -> Outcome {
    let tool = "test_input_required_result_elicitation";
    asks(client, tool, "{}", "elicitation/create", "Hello, Alice!")
}

fn roots(client: &mut Client) -> Outcome {
    let tool = "test_input_required_result_list_roots";
    asks(client, tool, "{}", "roots/list", "file:///matrix")
}

fn several(client: &mut Client) -> Outcome {
    client.told().asked.clear();
    let called = result(client.call("test_input_required_result_multiple_inputs", "{}"))?;
    let said = text(&called)?;
    expect!(
        said.starts_with("Alice is greeted by ") && said.contains("file:///matrix"),
        "{said}"
    );
    let mut asked = std::mem::take(&mut client.told().asked);
    asked.sort();
    expect!(
        asked == ["elicitation/create", "roots/list", "sampling/createMessage"],
        "{asked:?}"
    );
    let called = result(client.call("test_input_required_result_multi_round", "{}"))?;
    let said = text(&called)?;
    expect!(said == "Alice likes red.", "{said}");
    expect!(client.told().asked.len() == 2, "{:?}", client.told().asked);
    Ok(())
}

/// A tool asks the client something, and its answer says what came of it.
fn asks(client: &mut Client, tool: &str, arguments: &str, method: &str, answer: &str) -> Outcome {
    client.told().asked.clear();
    let called = result(client.call(tool, arguments))?;
    let said = text(&called)?;
    expect!(said.contains(answer), "{said}");
    // What nobody but the client knew has gone through unread.
    let exact = method != "sampling/createMessage" || said.contains("12345678901234567890");
    expect!(exact, "{said}");
    expect!(client.told().asked == [method], "{:?}", client.told().asked);
    Ok(())
}

/// A round trip: what was said to the client before it, on the same way, has come.
fn barrier(client: &mut Client) -> Outcome {
    result(client.call("test_simple_text", "{}")).map(drop)
}

/// Asks again and again whether something has happened: for a long time where it must, only a few times
/// where nobody expects it.
fn within(
    client: &mut Client,
    what: &str,
    mut done: impl FnMut(&mut Client) -> Result<bool, String>,
) -> Outcome {
    const FEW: usize = 6;
    let since = Instant::now();
    let mut rounds = 0;
    while !done(client)? {
        let gives_up = match client.hopes {
            true => since.elapsed() > PATIENCE,
            false => rounds == FEW,
        };
        if gives_up {
            return Err(format!("waited in vain for {what}: {:?}", client.told()));
        }
        barrier(client)?;
        rounds += 1;
    }
    Ok(())
}

fn hears(client: &mut Client, method: &str, fits: impl Fn(&Value) -> bool) -> Outcome {
    hears_times(client, method, 1, fits)
}

fn hears_times(
    client: &mut Client,
    method: &str,
    count: usize,
    fits: impl Fn(&Value) -> bool,
) -> Outcome {
    within(client, method, |client| {
        let heard = client.told().notifications.iter();
        let fitting = heard.filter(|(of, params)| of == method && fits(params));
        Ok(fitting.count() >= count)
    })
}
