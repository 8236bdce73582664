//! The nine channel tools: names, schemas as sent, and the reading of their arguments.
//!
//! Names, argument names, bounds and schemas are OpenClaw's (`openclaw-serve` §3.2); the
//! descriptions are ours. Arguments are read strictly: a wrong type, a missing argument or a value
//! out of bounds is an error that names argument, rule and value. Unknown arguments are ignored, as
//! OpenClaw does.

use std::time::Duration;

use serde_json::value::RawValue;

use super::approvals::Kind;
use super::raw_json::{is_string, members, number, string, trim};
use crate::codec::json_text::write_string;
use crate::secret::Quoted;

/// One tool as a client sees it in `tools/list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolDef {
    /// Its name, before any prefix.
    pub name: &'static str,
    /// One sentence.
    pub description: &'static str,
    /// Its JSON Schema: a raw JSON object.
    pub input_schema: &'static str,
}

impl ToolDef {
    /// Appends the whole list entry as a JSON object, under the name `name`. The `execution` member
    /// says that none of these tools runs as a task; OpenClaw sends it to every client, whatever
    /// its revision.
    pub fn write_json(&self, out: &mut String, name: &str) {
        out.push_str("{\"name\":");
        write_string(out, name);
        out.push_str(",\"description\":");
        write_string(out, self.description);
        out.push_str(",\"inputSchema\":");
        out.push_str(self.input_schema);
        out.push_str(",\"execution\":{\"taskSupport\":\"forbidden\"}}");
    }
}

/// The tools in the order of OpenClaw's list.
pub(super) static TOOLS: [ToolDef; 9] = [
    ToolDef {
        name: "conversations_list",
        description: "Lists the conversations a reply can be sent to, newest first.",
        input_schema: concat!(
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","#,
            r#""properties":{"limit":{"type":"integer","minimum":1,"maximum":500},"#,
            r#""search":{"type":"string"},"channel":{"type":"string"},"#,
            r#""includeDerivedTitles":{"type":"boolean"},"#,
            r#""includeLastMessage":{"type":"boolean"}}}"#,
        ),
    },
    ToolDef {
        name: "conversation_get",
        description: "Shows one conversation and the route its replies take.",
        input_schema: concat!(
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","#,
            r#""properties":{"session_key":{"type":"string","minLength":1}},"#,
            r#""required":["session_key"]}"#,
        ),
    },
    ToolDef {
        name: "messages_read",
        description: "Reads the latest messages of a conversation, oldest first.",
        input_schema: concat!(
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","#,
            r#""properties":{"session_key":{"type":"string","minLength":1},"#,
            r#""limit":{"type":"integer","minimum":1,"maximum":200}},"#,
            r#""required":["session_key"]}"#,
        ),
    },
    ToolDef {
        name: "attachments_fetch",
        description: "Fetches the parts of one message that are not text, such as images.",
        input_schema: concat!(
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","#,
            r#""properties":{"session_key":{"type":"string","minLength":1},"#,
            r#""message_id":{"type":"string","minLength":1},"limit":{"type":"integer","#,
            r#""minimum":1,"maximum":200}},"required":["session_key","message_id"]}"#,
        ),
    },
    ToolDef {
        name: "events_poll",
        description: "Returns the queued events after a cursor at once, without consuming them.",
        input_schema: concat!(
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","#,
            r#""properties":{"after_cursor":{"type":"integer","minimum":0,"#,
            r#""maximum":9007199254740991},"session_key":{"type":"string"},"#,
            r#""limit":{"type":"integer","minimum":1,"maximum":200}}}"#,
        ),
    },
    ToolDef {
        name: "events_wait",
        description: "Waits for the next event after a cursor; answers nothing when time is up.",
        input_schema: concat!(
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","#,
            r#""properties":{"after_cursor":{"type":"integer","minimum":0,"#,
            r#""maximum":9007199254740991},"session_key":{"type":"string"},"#,
            r#""timeout_ms":{"type":"integer","minimum":1,"maximum":300000}}}"#,
        ),
    },
    ToolDef {
        name: "messages_send",
        description: "Sends a text to a conversation along its stored route.",
        input_schema: concat!(
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","#,
            r#""properties":{"session_key":{"type":"string","minLength":1},"#,
            r#""text":{"type":"string","minLength":1}},"required":["session_key","text"]}"#,
        ),
    },
    ToolDef {
        name: "permissions_list_open",
        description: "Lists the approvals that wait for a decision.",
        input_schema: concat!(
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","#,
            r#""properties":{}}"#,
        ),
    },
    ToolDef {
        name: "permissions_respond",
        description: "Decides one pending approval: allow once, allow always, or deny.",
        input_schema: concat!(
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","#,
            r#""properties":{"kind":{"type":"string","enum":["exec","plugin"]},"#,
            r#""id":{"type":"string","minLength":1},"decision":{"type":"string","#,
            r#""enum":["allow-once","allow-always","deny"]}},"required":["kind","id","#,
            r#""decision"]}"#,
        ),
    },
];

/// The text of the error result for a tool that nobody offers. Its first words are a wire fact.
#[must_use]
pub fn not_found(tool: &str) -> String {
    format!("MCP error -32602: Tool {} not found", Quoted(tool))
}

/// A call whose arguments have been read.
#[derive(Debug)]
pub(super) enum Invocation {
    /// Needs the Gateway.
    Ask(Ask),
    /// `events_poll`.
    Poll {
        /// Only events after this cursor.
        after: u64,
        /// Only events of this session; never blank.
        session: Option<String>,
        /// At most so many.
        limit: usize,
    },
    /// `events_wait`.
    Wait {
        /// Only events after this cursor.
        after: u64,
        /// Only events of this session; never blank.
        session: Option<String>,
        /// How long to wait.
        timeout: Duration,
    },
    /// `permissions_list_open`.
    ListOpen,
}

/// A call that needs the Gateway. Texts that only pass through stay raw JSON strings.
#[derive(Debug)]
pub(super) enum Ask {
    /// `conversations_list`.
    List {
        /// At most so many sessions, before any filter of ours.
        limit: u64,
        /// The Gateway's own filter, a raw JSON string.
        search: Option<Box<RawValue>>,
        /// Only conversations of this channel; lower case, never blank.
        channel: Option<String>,
        /// Whether the Gateway derives titles.
        titles: bool,
        /// Whether the Gateway adds the start of the last message.
        previews: bool,
    },
    /// `conversation_get`.
    Get {
        /// The key as given.
        session_key: String,
    },
    /// `messages_read`.
    Read {
        /// The key as given, a raw JSON string.
        session_key: Box<RawValue>,
        /// At most so many messages.
        limit: u64,
    },
    /// `attachments_fetch`.
    Attachments {
        /// The key as given, a raw JSON string.
        session_key: Box<RawValue>,
        /// Which message.
        message_id: String,
        /// How far back to look, in messages.
        limit: u64,
    },
    /// `messages_send`.
    Send {
        /// The key as given.
        session_key: String,
        /// What to send, a raw JSON string.
        text: Box<RawValue>,
    },
    /// `permissions_respond`.
    Respond {
        /// Which approval system.
        kind: Kind,
        /// Id of the approval, a raw JSON string.
        id: Box<RawValue>,
        /// The decision, one of the words the Gateway knows.
        decision: &'static str,
    },
}

/// Largest integer that JavaScript keeps exact; the bound of a cursor in the schema.
const SAFE_INTEGER_MAX: u64 = 9_007_199_254_740_991;

/// Reads the arguments of `tool`.
///
/// # Errors
/// The whole text of the error result: for an unknown tool, or for arguments that break a rule.
pub(super) fn read(tool: &str, arguments: &str) -> Result<Invocation, String> {
    match tool {
        "conversations_list" => conversations_list(tool, arguments),
        "conversation_get" => {
            let mut args = Arguments::read(tool, arguments, ["session_key"])?;
            let session_key = args.required_text("session_key");
            args.finish(|| Ask::Get { session_key }.into())
        }
        "messages_read" => {
            let mut args = Arguments::read(tool, arguments, ["session_key", "limit"])?;
            let session_key = args.required_raw("session_key");
            let limit = args.integer("limit", 1, 200, 20);
            args.finish(|| Ask::Read { session_key, limit }.into())
        }
        "attachments_fetch" => {
            let names = ["session_key", "message_id", "limit"];
            let mut args = Arguments::read(tool, arguments, names)?;
            let session_key = args.required_raw("session_key");
            let message_id = args.required_text("message_id");
            let limit = args.integer("limit", 1, 200, 100);
            args.finish(|| {
                Invocation::Ask(Ask::Attachments {
                    session_key,
                    message_id,
                    limit,
                })
            })
        }
        "events_poll" => {
            let names = ["after_cursor", "session_key", "limit"];
            let mut args = Arguments::read(tool, arguments, names)?;
            let after = args.integer("after_cursor", 0, SAFE_INTEGER_MAX, 0);
            let session = args.filter("session_key");
            let limit = args.integer("limit", 1, 200, 20);
            args.finish(|| Invocation::Poll {
                after,
                session,
                limit: usize::try_from(limit).unwrap_or(usize::MAX),
            })
        }
        "events_wait" => {
            let names = ["after_cursor", "session_key", "timeout_ms"];
            let mut args = Arguments::read(tool, arguments, names)?;
            let after = args.integer("after_cursor", 0, SAFE_INTEGER_MAX, 0);
            let session = args.filter("session_key");
            let timeout = args.integer("timeout_ms", 1, 300_000, 30_000);
            args.finish(|| Invocation::Wait {
                after,
                session,
                timeout: Duration::from_millis(timeout),
            })
        }
        "messages_send" => {
            let mut args = Arguments::read(tool, arguments, ["session_key", "text"])?;
            let session_key = args.required_text("session_key");
            let text = args.required_raw("text");
            args.finish(|| Ask::Send { session_key, text }.into())
        }
        "permissions_list_open" => {
            Arguments::read(tool, arguments, [])?.finish(|| Invocation::ListOpen)
        }
        "permissions_respond" => permissions_respond(tool, arguments),
        other => Err(not_found(other)),
    }
}

impl From<Ask> for Invocation {
    fn from(ask: Ask) -> Self {
        Self::Ask(ask)
    }
}

fn conversations_list(tool: &str, arguments: &str) -> Result<Invocation, String> {
    let names = [
        "limit",
        "search",
        "channel",
        "includeDerivedTitles",
        "includeLastMessage",
    ];
    let mut args = Arguments::read(tool, arguments, names)?;
    let limit = args.integer("limit", 1, 500, 50);
    let search = args.optional_raw("search");
    let channel = args.filter("channel").map(|channel| channel.to_lowercase());
    let titles = args.boolean("includeDerivedTitles", true);
    let previews = args.boolean("includeLastMessage", true);
    args.finish(|| {
        Invocation::Ask(Ask::List {
            limit,
            search,
            channel,
            titles,
            previews,
        })
    })
}

fn permissions_respond(tool: &str, arguments: &str) -> Result<Invocation, String> {
    let mut args = Arguments::read(tool, arguments, ["kind", "id", "decision"])?;
    let kinds = [Kind::Exec.as_str(), Kind::Plugin.as_str()];
    let kind = args.one_of("kind", kinds);
    let id = args.required_raw("id");
    let decision = args.one_of("decision", ["allow-once", "allow-always", "deny"]);
    args.finish(|| {
        Invocation::Ask(Ask::Respond {
            kind: if kind == Kind::Plugin.as_str() {
                Kind::Plugin
            } else {
                Kind::Exec
            },
            id,
            decision,
        })
    })
}

/// What a required string must be, in words.
const TEXT_RULE: &str = "a string of at least 1 character";

/// The known arguments of one call, and what is wrong with them. The readers return a stand-in for
/// an argument at fault, which [`Arguments::finish`] then keeps from being used.
struct Arguments<'a, const N: usize> {
    tool: &'a str,
    names: [&'static str; N],
    found: [Option<&'a RawValue>; N],
    faults: Vec<String>,
}

impl<'a, const N: usize> Arguments<'a, N> {
    fn read(tool: &'a str, json: &'a str, names: [&'static str; N]) -> Result<Self, String> {
        let Ok(found) = members(json, names) else {
            let fault = format!("arguments must be an object (found {})", Quoted(json));
            return Err(refusal(tool, &fault));
        };
        Ok(Self {
            tool,
            names,
            found,
            faults: Vec::new(),
        })
    }

    fn get(&self, name: &str) -> Option<&'a RawValue> {
        let at = self.names.iter().position(|known| *known == name);
        at.and_then(|at| self.found[at])
    }

    fn fault(&mut self, name: &str, rule: &str, found: Option<&RawValue>) {
        self.faults.push(match found {
            Some(raw) => format!("{name} must be {rule} (found {})", Quoted(raw.get())),
            None => format!("{name} is missing, it must be {rule}"),
        });
    }

    fn integer(&mut self, name: &str, min: u64, max: u64, default: u64) -> u64 {
        let Some(raw) = self.get(name) else {
            return default;
        };
        // JavaScript cannot tell 5.0 from 5, so neither do we.
        match number(raw) {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "bounds are at most 2^53 - 1, and the value has been checked against them"
            )]
            Some(value) if value.fract() == 0.0 && value >= min as f64 && value <= max as f64 => {
                value as u64
            }
            Some(_) | None => {
                let rule = format!("an integer from {min} to {max}");
                self.fault(name, &rule, Some(raw));
                min
            }
        }
    }

    fn boolean(&mut self, name: &str, default: bool) -> bool {
        let raw = self.get(name);
        match raw.map(RawValue::get) {
            None => default,
            Some("true") => true,
            Some("false") => false,
            Some(_) => {
                self.fault(name, "true or false", raw);
                default
            }
        }
    }

    fn optional_raw(&mut self, name: &str) -> Option<Box<RawValue>> {
        let raw = self.get(name)?;
        if is_string(raw) {
            Some(raw.to_owned())
        } else {
            self.fault(name, "a string", Some(raw));
            None
        }
    }

    /// An optional string to compare with: trimmed, blank is as good as absent.
    fn filter(&mut self, name: &str) -> Option<String> {
        let raw = self.optional_raw(name)?;
        let text = string(&raw)?;
        let trimmed = trim(&text);
        (!trimmed.is_empty()).then(|| trimmed.to_owned())
    }

    fn required_raw(&mut self, name: &str) -> Box<RawValue> {
        match self.get(name) {
            Some(raw) if is_string(raw) && raw.get() != "\"\"" => raw.to_owned(),
            other => {
                self.fault(name, TEXT_RULE, other);
                RawValue::NULL.to_owned()
            }
        }
    }

    fn required_text(&mut self, name: &str) -> String {
        string(&self.required_raw(name)).map_or_else(String::new, |text| text.into_owned())
    }

    fn one_of<const M: usize>(&mut self, name: &str, words: [&'static str; M]) -> &'static str {
        let raw = self.get(name);
        let text = raw.and_then(string);
        let known = words.into_iter().find(|word| text.as_deref() == Some(word));
        known.unwrap_or_else(|| {
            let rule = format!("one of {}", words.join(", "));
            self.fault(name, &rule, raw);
            ""
        })
    }

    fn finish(self, call: impl FnOnce() -> Invocation) -> Result<Invocation, String> {
        if self.faults.is_empty() {
            Ok(call())
        } else {
            Err(refusal(self.tool, &self.faults.join("; ")))
        }
    }
}

/// The text of the result for bad arguments. All up to the tool's name is a wire fact.
fn refusal(tool: &str, faults: &str) -> String {
    format!("MCP error -32602: Input validation error: Invalid arguments for tool {tool}: {faults}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(tool: &str, arguments: &str) -> String {
        let text = read(tool, arguments).expect_err(arguments);
        let start = format!(
            "MCP error -32602: Input validation error: Invalid arguments for tool {tool}: "
        );
        text.strip_prefix(&start).expect(&text).to_owned()
    }

    #[test]
    fn defaults_are_those_of_openclaw() {
        let list = read("conversations_list", "{}").expect("no argument is needed");
        assert!(matches!(
            list,
            Invocation::Ask(Ask::List {
                limit: 50,
                search: None,
                channel: None,
                titles: true,
                previews: true,
            })
        ));
        let poll = read("events_poll", "{}").expect("no argument is needed");
        assert!(matches!(
            poll,
            Invocation::Poll {
                after: 0,
                session: None,
                limit: 20,
            }
        ));
        let Invocation::Wait { after, timeout, .. } =
            read("events_wait", "{}").expect("none needed")
        else {
            panic!("another tool");
        };
        assert_eq!((after, timeout), (0, Duration::from_secs(30)));
        let Invocation::Ask(Ask::Read { limit, .. }) =
            read("messages_read", r#"{"session_key":"s"}"#).expect("one argument")
        else {
            panic!("another tool");
        };
        assert_eq!(limit, 20);
        let Invocation::Ask(Ask::Attachments { limit, .. }) = read(
            "attachments_fetch",
            r#"{"session_key":"s","message_id":"m"}"#,
        )
        .expect("two") else {
            panic!("another tool");
        };
        assert_eq!(limit, 100);
    }

    #[test]
    fn bounds_are_exact() {
        for (tool, more, name, min, max) in [
            ("conversations_list", "", "limit", 1, 500),
            ("messages_read", "\"session_key\":\"s\",", "limit", 1, 200),
            (
                "attachments_fetch",
                "\"session_key\":\"s\",\"message_id\":\"m\",",
                "limit",
                1,
                200,
            ),
            ("events_poll", "", "limit", 1, 200),
            ("events_poll", "", "after_cursor", 0, SAFE_INTEGER_MAX),
            ("events_wait", "", "after_cursor", 0, SAFE_INTEGER_MAX),
            ("events_wait", "", "timeout_ms", 1, 300_000),
        ] {
            let with = |value: String| format!("{{{more}\"{name}\":{value}}}");
            for good in [min, min + 1, max - 1, max] {
                assert!(
                    read(tool, &with(good.to_string())).is_ok(),
                    "{tool} {name} {good}"
                );
            }
            let below = (i128::from(min) - 1).to_string();
            let above = (max + 1).to_string();
            for bad in [&*below, &above, "1.5", "-1e300", "1e300"] {
                let expected =
                    format!("{name} must be an integer from {min} to {max} (found {bad})");
                assert_eq!(fault(tool, &with(bad.to_owned())), expected);
            }
        }
    }

    #[test]
    fn an_integer_may_be_written_as_javascript_would_take_it() {
        for (written, meant) in [("5.0", 5), ("5e0", 5), ("0.5E1", 5), ("1e2", 100)] {
            let poll = read("events_poll", &format!("{{\"limit\":{written}}}")).expect(written);
            assert!(
                matches!(poll, Invocation::Poll { limit, .. } if limit == meant),
                "{written}"
            );
        }
        let poll = read("events_poll", r#"{"after_cursor":-0}"#).expect("minus zero is zero");
        assert!(matches!(poll, Invocation::Poll { after: 0, .. }));
    }

    #[test]
    fn a_wrong_type_names_argument_rule_and_value() {
        for (tool, arguments, expected) in [
            (
                "events_poll",
                r#"{"after_cursor":"3"}"#,
                r#"after_cursor must be an integer from 0 to 9007199254740991 (found "3")"#,
            ),
            (
                "events_poll",
                r#"{"limit":null}"#,
                "limit must be an integer from 1 to 200 (found null)",
            ),
            (
                "events_poll",
                r#"{"session_key":5}"#,
                "session_key must be a string (found 5)",
            ),
            (
                "conversations_list",
                r#"{"includeDerivedTitles":"yes"}"#,
                r#"includeDerivedTitles must be true or false (found "yes")"#,
            ),
            (
                "conversations_list",
                r#"{"search":["a"]}"#,
                r#"search must be a string (found ["a"])"#,
            ),
            (
                "conversation_get",
                "{}",
                "session_key is missing, it must be a string of at least 1 character",
            ),
            (
                "conversation_get",
                r#"{"session_key":""}"#,
                r#"session_key must be a string of at least 1 character (found "")"#,
            ),
            (
                "permissions_respond",
                r#"{"kind":"x","id":"1","decision":"maybe"}"#,
                r#"kind must be one of exec, plugin (found "x"); decision must be one of allow-once, allow-always, deny (found "maybe")"#,
            ),
            (
                "permissions_respond",
                r#"{"kind":"exec","id":7,"decision":"deny"}"#,
                "id must be a string of at least 1 character (found 7)",
            ),
            (
                "permissions_list_open",
                "[1]",
                "arguments must be an object (found [1])",
            ),
            (
                "events_poll",
                "null",
                "arguments must be an object (found null)",
            ),
        ] {
            assert_eq!(fault(tool, arguments), expected, "{arguments}");
        }
    }

    #[test]
    fn a_long_value_is_cut_and_control_characters_are_escaped() {
        let long = format!("{{\"limit\":\"{}\u{7f}\"}}", "x".repeat(100));
        assert!(fault("events_poll", &long).contains("x\\u{7f}\""));
        let longer = format!("{{\"limit\":\"{}\"}}", "x".repeat(1_000));
        let text = fault("events_poll", &longer);
        assert!(text.len() < 250 && text.ends_with("…)"), "{text}");
    }

    #[test]
    fn unknown_arguments_are_ignored_and_the_last_of_a_name_counts() {
        let poll = read(
            "events_poll",
            r#"{"bogus":{"limit":0},"limit":0,"limit":7}"#,
        )
        .expect("good");
        assert!(matches!(poll, Invocation::Poll { limit: 7, .. }));
        assert!(matches!(
            read("permissions_list_open", r#"{"x":1}"#),
            Ok(Invocation::ListOpen)
        ));
    }

    #[test]
    fn filters_are_trimmed_and_blank_ones_absent() {
        let list = read(
            "conversations_list",
            r#"{"channel":" SLACK\u00c9 ","search":" A "}"#,
        );
        let Ok(Invocation::Ask(Ask::List {
            channel, search, ..
        })) = list
        else {
            panic!("good arguments");
        };
        assert_eq!(channel.as_deref(), Some("slacké"));
        assert_eq!(
            search.expect("given").get(),
            "\" A \"",
            "the Gateway's own filter is untouched"
        );
        let poll = read("events_poll", r#"{"session_key":" \n"}"#);
        assert!(matches!(poll, Ok(Invocation::Poll { session: None, .. })));
    }

    #[test]
    fn an_unknown_tool_is_named_safely() {
        assert_eq!(
            not_found("x\u{1b}"),
            "MCP error -32602: Tool x\\u{1b} not found"
        );
        assert_eq!(read("nope", "{}").expect_err("unknown"), not_found("nope"));
    }
}
