//! `drawspan approvals`: the calls that wait for a person at a server that runs, and the person's answers.

use std::path::PathBuf;

use serde_json::Value;

use super::running::{ask, socket};
use super::{ApprovalsArgs, ApprovalsRequest, CommandResult, Exit, Failure, print};
use crate::codec::json_object::JsonObject;
use crate::gate::Answer;
use crate::hub::{APPROVALS_LIST_METHOD, APPROVALS_RESOLVE_METHOD};
use crate::secret::Quoted;

pub(super) fn run(args: &ApprovalsArgs) -> CommandResult {
    let Some(address) = &args.connect else {
        let message = "which server? give --connect unix:/PATH, where `drawspan serve --listen unix:/PATH` listens";
        return Err(Failure::new(Exit::Usage, message));
    };
    let path = socket(address)?;
    let (ids, answer, reason) = match &args.request {
        None | Some(ApprovalsRequest::List) => return list(path, args.json),
        Some(ApprovalsRequest::Allow { ids }) => (ids, Answer::AllowOnce, None),
        Some(ApprovalsRequest::AllowAlways { ids }) => (ids, Answer::AllowAlways, None),
        Some(ApprovalsRequest::Deny { ids, reason }) => (ids, Answer::Deny, reason.as_deref()),
    };
    let mut answered = Vec::new();
    for id in ids {
        let mut params = JsonObject::new();
        params.text("id", id);
        params.text("decision", answer.as_str());
        params.maybe_text("reason", reason);
        answered.push(ask(path.clone(), APPROVALS_RESOLVE_METHOD, &params.end())?);
        if !args.json {
            print(&format!("{}: {}\n", answer.as_str(), escaped(id)))?;
        }
    }
    if args.json {
        let document = serde_json::json!({ "answered": answered });
        return print(&format!("{document}\n"));
    }
    Ok(Exit::Ok)
}

fn list(path: PathBuf, json: bool) -> CommandResult {
    let document = ask(path, APPROVALS_LIST_METHOD, "{}")?;
    let Some(rows) = document["approvals"].as_array() else {
        return Err(Failure::new(Exit::Failed, "answered no list of approvals"));
    };
    if json {
        return print(&format!("{document}\n"));
    }
    if rows.is_empty() {
        return print("no call waits for approval\n");
    }
    print(&rows.iter().map(shown).collect::<String>())
}

/// One held call, for a terminal.
fn shown(row: &Value) -> String {
    let text = |name: &str| Quoted(row[name].as_str().unwrap_or_default()).to_string();
    let seconds = row["expiresInMs"].as_u64().unwrap_or(0).div_ceil(1_000);
    let caller = match text("caller") {
        name if name.is_empty() => text("principal"),
        name => format!("{name}, {}", text("principal")),
    };
    let mut lines = format!(
        "{}  {} of {}, called by {caller}, refused in {seconds} s\n",
        text("id"),
        text("tool"),
        text("server"),
    );
    for name in ["title", "description"] {
        let text = text(name);
        if !text.is_empty() {
            lines.push_str(&format!("    {text}\n"));
        }
    }
    let arguments = match (&row["arguments"], &row["argumentsStart"]) {
        (Value::Null, start) => {
            let bytes = row["argumentsBytes"].as_u64().unwrap_or(0);
            format!("{}… ({bytes} bytes)", start.as_str().unwrap_or_default())
        }
        (arguments, _) => arguments.to_string(),
    };
    lines.push_str(&format!("    arguments {}\n", escaped(&arguments)));
    lines
}

/// All of a text, with what a terminal would act on escaped.
fn escaped(text: &str) -> String {
    let mut buffer = [0; 4];
    text.chars()
        .map(|c| Quoted(c.encode_utf8(&mut buffer)).to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_all_of_the_arguments_and_nothing_acts() {
        let text = "x".repeat(300);
        let row = serde_json::json!({
            "id": "hold-1", "tool": "a\u{1b}[2J", "server": "s", "caller": "", "principal": "stdio",
            "title": "Sure?", "description": "", "arguments": {"t": text, "\u{202e}": 1},
            "expiresInMs": 1_001,
        });
        let lines = shown(&row);
        let first = "hold-1  a\\u{1b}[2J of s, called by stdio, refused in 2 s\n    Sure?\n";
        assert!(lines.starts_with(first), "{lines}");
        assert!(
            lines.contains(&text) && lines.contains("\\u{202e}"),
            "{lines}"
        );
    }

    #[test]
    fn long_arguments_say_how_long_they_are() {
        let row = serde_json::json!({
            "caller": "c", "argumentsStart": "{\"a", "argumentsBytes": 20_000,
        });
        assert!(shown(&row).ends_with("    arguments {\"a… (20000 bytes)\n"));
    }
}
