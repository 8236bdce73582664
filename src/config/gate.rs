//! `gate`: rules about tool calls.
//!
//! Here alone a key that is not known is an error: a condition that is misspelled and skipped would make its
//! rule fit every call.

use std::time::Duration;

use serde_json::Value;

use super::{ConfigError, Node};
use crate::gate::{Action, HookScope, RuleSpec, RulesSpec};

const KEYS: [&str; 3] = ["default", "hook", "rules"];

const RULE_KEYS: [&str; 10] = [
    "tool",
    "server",
    "caller",
    "principal",
    "arguments",
    "action",
    "reason",
    "title",
    "description",
    "timeoutMs",
];

/// Keys that go with one action only.
const OF_ACTIONS: [(&str, &str); 4] = [
    ("reason", "deny"),
    ("title", "hold"),
    ("description", "hold"),
    ("timeoutMs", "hold"),
];

pub(super) fn read(gate: &Node<'_>) -> Result<RulesSpec, ConfigError> {
    only(gate, &KEYS)?;
    let word = |name: &str, words: [&str; 2], must: &'static str| {
        let Some(node) = gate.get(name) else {
            return Ok(false);
        };
        match node.value.as_str() {
            Some(word) if word == words[0] => Ok(false),
            Some(word) if word == words[1] => Ok(true),
            Some(_) | None => Err(node.error(must)),
        }
    };
    let rules = match gate.get("rules") {
        None => Vec::new(),
        Some(node) => {
            let Some(rules) = node.value.as_array() else {
                return Err(node.error("an array of rules"));
            };
            let rules = rules.iter().enumerate().map(|(i, value)| {
                rule(&Node {
                    key: format!("{}[{i}]", node.key),
                    value,
                })
            });
            rules.collect::<Result<_, _>>()?
        }
    };
    Ok(RulesSpec {
        rules,
        deny_others: word("default", ["allow", "deny"], "\"allow\" or \"deny\"")?,
        hook: if word("hook", ["all", "ruled"], "\"all\" or \"ruled\"")? {
            HookScope::Ruled
        } else {
            HookScope::All
        },
    })
}

fn rule(node: &Node<'_>) -> Result<RuleSpec, ConfigError> {
    if !node.value.is_object() {
        return Err(node.error("an object"));
    }
    only(node, &RULE_KEYS)?;
    let must = "\"allow\", \"deny\", \"hold\" or \"hook\"";
    let Some(word) = node.get("action") else {
        let action = Node {
            key: format!("{}.action", node.key),
            value: &Value::Null,
        };
        return Err(action.error(must));
    };
    let of = word.value.as_str().unwrap_or_default();
    for (key, action) in OF_ACTIONS {
        if action != of && node.get(key).is_some() {
            let key = format!("{}.{key}", node.key);
            return Err(ConfigError::Unknown(key, "goes with another action"));
        }
    }
    let action = match of {
        "allow" => Action::Allow,
        "hook" => Action::Hook,
        "deny" => Action::Deny {
            reason: node.text("reason")?,
        },
        "hold" => Action::Hold {
            title: node.text("title")?,
            description: node.text("description")?,
            timeout: match node.get("timeoutMs") {
                None => None,
                Some(node) => Some(Duration::from_millis(node.millis()?)),
            },
        },
        _ => return Err(word.error(must)),
    };
    let arguments = node.get("arguments").map(|schema| schema.value.to_string());
    Ok(RuleSpec {
        tools: patterns(node, "tool")?,
        servers: patterns(node, "server")?,
        callers: patterns(node, "caller")?,
        principals: patterns(node, "principal")?,
        arguments,
        action,
    })
}

/// One pattern, or several.
fn patterns(rule: &Node<'_>, name: &str) -> Result<Vec<String>, ConfigError> {
    let must = "a pattern, or an array of patterns that has one";
    let Some(node) = rule.get(name) else {
        return Ok(Vec::new());
    };
    if let Some(pattern) = node.value.as_str() {
        return Ok(vec![pattern.to_owned()]);
    }
    let items = node.value.as_array().filter(|items| !items.is_empty());
    let texts = items.and_then(|items| {
        let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
        texts.collect::<Option<Vec<_>>>()
    });
    texts.ok_or_else(|| node.error(must))
}

fn only(node: &Node<'_>, known: &[&str]) -> Result<(), ConfigError> {
    let Some(members) = node.value.as_object() else {
        return Ok(());
    };
    match members.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let key = format!("{}.{}", node.key, crate::secret::Quoted(name));
            Err(ConfigError::Unknown(key, "is no key that is known here"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::limits::Limits;

    #[test]
    fn a_gate_is_read_whole() {
        let config = Config::parse(
            r#"{gate: {default: "deny", hook: "ruled", rules: [
                {tool: "a*", server: ["x", "y*"], caller: "c", principal: "unix:*",
                 arguments: {required: ["p"]}, action: "deny", reason: "no"},
                {action: "hold", title: "T", description: "D", timeoutMs: 50},
                {tool: "b", action: "hook"},
                {action: "allow", arguments: null},
            ]}}"#,
        )
        .expect("good");
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let rules = vec![
            RuleSpec {
                tools: list(&["a*"]),
                servers: list(&["x", "y*"]),
                callers: list(&["c"]),
                principals: list(&["unix:*"]),
                arguments: Some(r#"{"required":["p"]}"#.to_owned()),
                action: Action::Deny {
                    reason: Some("no".to_owned()),
                },
            },
            RuleSpec {
                action: Action::Hold {
                    title: Some("T".to_owned()),
                    description: Some("D".to_owned()),
                    timeout: Some(Duration::from_millis(50)),
                },
                ..RuleSpec::default()
            },
            RuleSpec {
                tools: list(&["b"]),
                action: Action::Hook,
                ..RuleSpec::default()
            },
            RuleSpec::default(),
        ];
        let expected = RulesSpec {
            rules,
            deny_others: true,
            hook: HookScope::Ruled,
        };
        assert_eq!(config.gate, expected);
        let nothing = Config::parse("{}").expect("good").gate;
        assert_eq!(nothing, RulesSpec::default());
    }

    #[test]
    fn what_is_wrong_is_named_by_its_key() {
        let rows = [
            (
                "{default: 'maybe'}",
                "gate.default must be \"allow\" or \"deny\"",
            ),
            ("{hook: true}", "gate.hook must be \"all\" or \"ruled\""),
            ("{rule: []}", "gate.rule is no key that is known here"),
            ("{rules: {}}", "gate.rules must be an array of rules"),
            ("{rules: [5]}", "gate.rules[0] must be an object"),
            ("{rules: [{}]}", "gate.rules[0].action must be \"allow\", "),
            (
                "{rules: [{action: 'allow'}, {action: 'dney'}]}",
                "gate.rules[1].action must be \"allow\", \"deny\", \"hold\" or \"hook\" (found a string)",
            ),
            (
                "{rules: [{tools: 'a', action: 'deny'}]}",
                "gate.rules[0].tools is no key that is known here",
            ),
            (
                "{rules: [{action: 'allow', reason: 'x'}]}",
                "gate.rules[0].reason goes with another action",
            ),
            (
                "{rules: [{tool: [], action: 'deny'}]}",
                "gate.rules[0].tool must be a pattern, or an array of patterns",
            ),
            (
                "{rules: [{tool: ['a', 1], action: 'deny'}]}",
                "gate.rules[0].tool must be",
            ),
            (
                "{rules: [{action: 'hold', timeoutMs: 0}]}",
                "gate.rules[0].timeoutMs must be a whole number of milliseconds",
            ),
        ];
        for (gate, words) in rows {
            let error = Config::parse(&format!("{{gate: {gate}}}")).expect_err(gate);
            assert!(error.to_string().starts_with(words), "{error}: {words}");
        }
        let config = Config::parse("{gate: {rules: [{tool: 'a?', action: 'deny'}]}}");
        let error = config
            .expect("read")
            .rules(&Limits::DEFAULT)
            .expect_err("no glob");
        let words = "gate.rules[0].tool[0]: pattern a?: * is the only wildcard";
        assert_eq!(error.to_string(), words);
    }
}
