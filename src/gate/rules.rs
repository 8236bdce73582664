//! Rules: what a call must look like, and what is to become of it.
//!
//! Rules are looked at in order; the first one that fits decides. A rule fits when each of its conditions does;
//! one without conditions fits every call. A condition on names is a list of patterns, of which one must fit:
//! `*` is any run of characters, everything else stands for itself, letter case counts.
//!
//! | condition   | is about                                                                      |
//! |-------------|-------------------------------------------------------------------------------|
//! | `tools`     | the exposed name of the tool                                                  |
//! | `servers`   | the server it belongs to: its configured name, `openclaw`, `local`            |
//! | `callers`   | the name the client gave itself: anybody can give any                         |
//! | `principals`| who calls, for sure: see [`ToolCall::principal`]                              |
//! | `arguments` | a JSON Schema, which the arguments must match                                 |
//!
//! Arguments that cannot be checked to the end refuse the call, whatever the rule: a rule that forbids must
//! not be walked around by making its check fail, and one that allows must not allow what it has not seen.
//! The same goes for arguments in which a member stands twice, for the tool may read the other one.
//!
//! Never: waits, or asks anybody.

use std::fmt;
use std::time::Duration;

use super::ToolCall;
use crate::codec::glob::fits;
use crate::codec::repeated::repeated_member;
use crate::limits::Limits;
use crate::protocol::schema::{Judgement, Schema};
use crate::secret::Quoted;

/// One rule as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSpec {
    /// Patterns of exposed tool names; empty: any.
    pub tools: Vec<String>,
    /// Patterns of servers; empty: any.
    pub servers: Vec<String>,
    /// Patterns of the names clients give themselves; empty: any.
    pub callers: Vec<String>,
    /// Patterns of principals; empty: any.
    pub principals: Vec<String>,
    /// A raw JSON Schema; `None`: any arguments.
    pub arguments: Option<String>,
    /// What becomes of a call that fits.
    pub action: Action,
}

/// What becomes of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// It passes, unless the hook, where one is asked for every call, says otherwise.
    #[default]
    Allow,
    /// It is refused.
    Deny {
        /// What the caller is told.
        reason: Option<String>,
    },
    /// A person must allow it.
    Hold {
        /// Heading.
        title: Option<String>,
        /// Text below it.
        description: Option<String>,
        /// How long to wait; `None` means `hold_timeout`.
        timeout: Option<Duration>,
    },
    /// The hook, or the embedding program, must allow it.
    Hook,
}

/// Which calls the hook, or the embedding program, is asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookScope {
    /// All that the rules let pass.
    #[default]
    All,
    /// Those of a rule that says [`Action::Hook`].
    Ruled,
}

/// All rules, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesSpec {
    /// In order.
    pub rules: Vec<RuleSpec>,
    /// Whether a call that no rule fits is refused.
    pub deny_others: bool,
    /// Which calls the hook is asked about.
    pub hook: HookScope,
}

/// A rule that cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// Where: `rules[2].tools[0]`.
    pub key: String,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}

impl std::error::Error for RuleError {}

/// Rules that can be kept. By default there are none, and everything passes.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    deny_others: bool,
    pub(super) hook: HookScope,
}

#[derive(Debug)]
struct Rule {
    tools: Vec<String>,
    servers: Vec<String>,
    callers: Vec<String>,
    principals: Vec<String>,
    arguments: Option<Schema>,
    action: Action,
}

/// What the rules say of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ruling<'a> {
    /// The rule that decided.
    pub(super) rule: Option<usize>,
    pub(super) effect: Effect<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect<'a> {
    /// It may pass; whether the hook must be asked because a rule says so.
    Pass { hook: bool },
    /// It may not.
    Refuse(String),
    /// A person must allow it.
    Hold {
        title: Option<&'a str>,
        description: Option<&'a str>,
        timeout: Option<Duration>,
    },
}

impl Rules {
    /// Reads rules.
    ///
    /// # Errors
    /// The first that cannot be kept: a pattern that is empty or is written as if there were other wildcards,
    /// a schema that is no schema or can be checked in part only, more rules than `gate_rules_max`.
    pub fn compile(spec: RulesSpec, limits: &Limits) -> Result<Self, RuleError> {
        let (found, limit) = (spec.rules.len(), limits.gate_rules_max);
        if found > limit {
            return Err(RuleError {
                key: "rules".to_owned(),
                why: format!("{found} rules, limit {limit} (gate_rules_max)"),
            });
        }
        let rules = spec.rules.into_iter().enumerate();
        let rules = rules.map(|(i, rule)| Rule::compile(rule, limits).map_err(|e| e.below(i)));
        Ok(Self {
            rules: rules.collect::<Result<_, _>>()?,
            deny_others: spec.deny_others,
            hook: spec.hook,
        })
    }

    /// The first rule that needs a hook.
    #[must_use]
    pub fn first_hook(&self) -> Option<usize> {
        self.rules
            .iter()
            .position(|rule| rule.action == Action::Hook)
    }

    /// Whether there is nothing to say about any call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && !self.deny_others
    }

    pub(super) fn judge(&self, call: &ToolCall) -> Ruling<'_> {
        let mut repeats = None;
        for (i, rule) in self.rules.iter().enumerate() {
            let rule_of = |effect| Ruling {
                rule: Some(i),
                effect,
            };
            if !rule.names_fit(call) {
                continue;
            }
            if let Some(schema) = &rule.arguments {
                let repeats = repeats.get_or_insert_with(|| repeats_a_member(&call.arguments));
                let judged = match repeats {
                    Some(why) => Judgement::Unknown(why.clone()),
                    None => schema.judge(&call.arguments),
                };
                match judged {
                    Judgement::Fits => {}
                    Judgement::Differs => continue,
                    Judgement::Unknown(why) => {
                        let text = format!(
                            "tool call refused: its arguments cannot be checked as a rule of the gate demands: {why}"
                        );
                        return rule_of(Effect::Refuse(text));
                    }
                }
            }
            return rule_of(rule.effect(i));
        }
        let effect = if self.deny_others {
            let text = "tool call refused: no rule of the gate allows it".to_owned();
            Effect::Refuse(text)
        } else {
            Effect::Pass { hook: false }
        };
        Ruling { rule: None, effect }
    }
}

/// Why the arguments mean different things to different readers, if they do.
fn repeats_a_member(arguments: &str) -> Option<String> {
    match repeated_member(arguments) {
        Ok(None) => None,
        Ok(Some(name)) => Some(format!("member {} stands twice", Quoted(&name))),
        Err(error) => Some(error.to_string()),
    }
}

impl Rule {
    fn compile(spec: RuleSpec, limits: &Limits) -> Result<Self, RuleError> {
        let lists = [
            ("tool", &spec.tools),
            ("server", &spec.servers),
            ("caller", &spec.callers),
            ("principal", &spec.principals),
        ];
        for (key, patterns) in lists {
            for (i, pattern) in patterns.iter().enumerate() {
                check_pattern(pattern).map_err(|why| RuleError {
                    key: format!("{key}[{i}]"),
                    why,
                })?;
            }
        }
        let bad_schema = |why: String| RuleError {
            key: "arguments".to_owned(),
            why,
        };
        let compile = |raw: String| {
            let schema = Schema::compile(&raw, limits).map_err(|e| bad_schema(e.to_string()))?;
            match schema.note() {
                Some(note) => Err(bad_schema(note.to_owned())),
                None => Ok(schema),
            }
        };
        Ok(Self {
            tools: spec.tools,
            servers: spec.servers,
            callers: spec.callers,
            principals: spec.principals,
            arguments: spec.arguments.map(compile).transpose()?,
            action: spec.action,
        })
    }

    fn names_fit(&self, call: &ToolCall) -> bool {
        let any = |patterns: &[String], name: &str| {
            patterns.is_empty() || patterns.iter().any(|pattern| fits(pattern, name))
        };
        any(&self.tools, &call.tool)
            && any(&self.servers, &call.server)
            && any(&self.callers, &call.caller)
            && any(&self.principals, &call.principal)
    }

    fn effect(&self, index: usize) -> Effect<'_> {
        match &self.action {
            Action::Allow => Effect::Pass { hook: false },
            Action::Hook => Effect::Pass { hook: true },
            Action::Deny { reason } => Effect::Refuse(match reason {
                Some(reason) => format!("tool call refused: {reason}"),
                None => format!("tool call refused by rule {index} of the gate"),
            }),
            Action::Hold {
                title,
                description,
                timeout,
            } => Effect::Hold {
                title: title.as_deref(),
                description: description.as_deref(),
                timeout: *timeout,
            },
        }
    }
}

impl RuleError {
    fn below(self, index: usize) -> Self {
        Self {
            key: format!("rules[{index}].{}", self.key),
            ..self
        }
    }
}

/// Patterns that would not do what their author thinks are refused.
fn check_pattern(pattern: &str) -> Result<(), String> {
    if pattern.is_empty() {
        return Err("the pattern is empty; leave the condition out to mean any".to_owned());
    }
    if pattern.trim() != pattern {
        let pattern = Quoted(pattern);
        return Err(format!("pattern {pattern} begins or ends with a blank"));
    }
    let odd = |c: char| matches!(c, '?' | '[' | ']' | '{' | '}' | '\\');
    if pattern.contains(odd) || pattern.starts_with(['!', '^']) {
        let pattern = Quoted(pattern);
        return Err(format!("pattern {pattern}: * is the only wildcard"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: Vec<RuleSpec>) -> Rules {
        let spec = RulesSpec {
            rules,
            ..RulesSpec::default()
        };
        Rules::compile(spec, &Limits::DEFAULT).expect("good rules")
    }

    fn deny(reason: &str) -> Action {
        Action::Deny {
            reason: Some(reason.to_owned()),
        }
    }

    fn call(arguments: &str) -> ToolCall {
        ToolCall {
            tool: "files__write".into(),
            arguments: arguments.into(),
            server: "files".into(),
            caller: "claude-code".into(),
            principal: "unix:1000".into(),
            ..ToolCall::default()
        }
    }

    fn list(patterns: &[&str]) -> Vec<String> {
        patterns.iter().map(|text| (*text).to_owned()).collect()
    }

    /// Which rule decides, and whether the call may pass.
    fn outcome(rules: &Rules, call: &ToolCall) -> (Option<usize>, bool) {
        let ruling = rules.judge(call);
        (ruling.rule, matches!(ruling.effect, Effect::Pass { .. }))
    }

    #[test]
    fn each_condition_counts_and_any_pattern_of_one() {
        let conditions: [fn(&mut RuleSpec, Vec<String>); 4] = [
            |rule, names| rule.tools = names,
            |rule, names| rule.servers = names,
            |rule, names| rule.callers = names,
            |rule, names| rule.principals = names,
        ];
        let fitting = ["files__*", "f*s", "*code", "unix:1000"];
        for (i, set) in conditions.iter().enumerate() {
            let decides = |names: &[&str]| {
                let mut rule = RuleSpec {
                    action: deny("no"),
                    ..RuleSpec::default()
                };
                // All others fit.
                for (j, set) in conditions.iter().enumerate() {
                    if i != j {
                        set(&mut rule, list(&[fitting[j]]));
                    }
                }
                set(&mut rule, list(names));
                outcome(&rules(vec![rule]), &call("{}"))
            };
            assert_eq!(decides(&[fitting[i]]), (Some(0), false));
            assert_eq!(decides(&["other", fitting[i]]), (Some(0), false));
            assert_eq!(decides(&[]), (Some(0), false), "no condition, any name");
            assert_eq!(decides(&["other", "FILES*", "claude"]), (None, true));
        }
    }

    #[test]
    fn the_first_that_fits_decides_and_the_rest_is_for_the_default() {
        let allow = RuleSpec {
            tools: list(&["files__*"]),
            ..RuleSpec::default()
        };
        let deny = RuleSpec {
            action: deny("no"),
            ..RuleSpec::default()
        };
        let both = rules(vec![allow.clone(), deny.clone()]);
        assert_eq!(outcome(&both, &call("{}")), (Some(0), true));
        let both = rules(vec![deny, allow.clone()]);
        assert_eq!(outcome(&both, &call("{}")), (Some(0), false));
        let spec = RulesSpec {
            rules: vec![allow],
            deny_others: true,
            ..RulesSpec::default()
        };
        let closed = Rules::compile(spec, &Limits::DEFAULT).expect("good");
        let other = ToolCall {
            tool: "mail".into(),
            ..call("{}")
        };
        assert_eq!(outcome(&closed, &other), (None, false));
        assert_eq!(outcome(&closed, &call("{}")), (Some(0), true));
        assert!(!closed.is_empty() && Rules::default().is_empty());
    }

    #[test]
    fn arguments_are_checked_by_schema_and_what_cannot_be_is_refused() {
        let schema = r#"{"properties":{"path":{"pattern":"^/etc/"}},"required":["path"]}"#;
        for action in [deny("no"), Action::Allow] {
            let forbids = action != Action::Allow;
            let rules = rules(vec![RuleSpec {
                arguments: Some(schema.to_owned()),
                action,
                ..RuleSpec::default()
            }]);
            for (arguments, rule) in [
                (r#"{"path":"/etc/passwd"}"#, Some(0)),
                (r#"{"path":"/tmp/x"}"#, None),
                (r#"{"x":1}"#, None),
            ] {
                let found = outcome(&rules, &call(arguments));
                assert_eq!(found, (rule, rule.is_none() || !forbids), "{arguments}");
            }
            let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
            for arguments in [
                r#"{"path":"/tmp/x","path":"/etc/passwd"}"#.to_owned(),
                r#"{"path":"/etc/passwd","p\u0061th":"/tmp/x"}"#.to_owned(),
                format!(r#"{{"path":"/tmp/x","y":{deep}}}"#),
                r#"{"path":"/tmp/x","y":1e999}"#.to_owned(),
            ] {
                let ruling = rules.judge(&call(&arguments));
                let Effect::Refuse(why) = ruling.effect else {
                    panic!("{arguments} passed")
                };
                assert!(why.contains("cannot be checked"), "{why}");
            }
        }
    }

    #[test]
    fn a_refusal_says_the_reason_or_which_rule() {
        let rules = rules(vec![
            RuleSpec {
                callers: list(&["nobody"]),
                ..RuleSpec::default()
            },
            RuleSpec {
                action: Action::Deny { reason: None },
                ..RuleSpec::default()
            },
        ]);
        let Effect::Refuse(why) = rules.judge(&call("{}")).effect else {
            panic!("passed")
        };
        assert_eq!(why, "tool call refused by rule 1 of the gate");
    }

    #[test]
    fn what_cannot_be_kept_is_an_error_that_names_the_place() {
        let tools = |patterns: &[&str]| RuleSpec {
            tools: list(patterns),
            ..RuleSpec::default()
        };
        let arguments = |schema: &str| RuleSpec {
            arguments: Some(schema.to_owned()),
            ..RuleSpec::default()
        };
        let rows = [
            (
                tools(&["ok*", ""]),
                "rules[1].tool[1]: the pattern is empty",
            ),
            (
                tools(&["a?"]),
                "rules[1].tool[0]: pattern a?: * is the only",
            ),
            (tools(&["{a,b}"]), "* is the only wildcard"),
            (tools(&["!a"]), "* is the only wildcard"),
            (tools(&[" a"]), "begins or ends with a blank"),
            (
                RuleSpec {
                    principals: list(&["[a]"]),
                    ..RuleSpec::default()
                },
                "rules[1].principal[0]: ",
            ),
            (arguments("[]"), "rules[1].arguments: schema is invalid"),
            (
                arguments(r#"{"type":"strnig"}"#),
                "rules[1].arguments: schema is invalid",
            ),
            // Only part of this one could be checked.
            (
                arguments(r#"{"properties":{"a":{"pattern":"(?=a)"}}}"#),
                "rules[1].arguments: ",
            ),
        ];
        for (rule, words) in rows {
            let spec = RulesSpec {
                rules: vec![RuleSpec::default(), rule],
                ..RulesSpec::default()
            };
            let error = Rules::compile(spec, &Limits::DEFAULT).expect_err(words);
            assert!(error.to_string().contains(words), "{error}: {words}");
        }
        let limits = Limits {
            gate_rules_max: 1,
            ..Limits::DEFAULT
        };
        let spec = |count| RulesSpec {
            rules: vec![RuleSpec::default(); count],
            ..RulesSpec::default()
        };
        assert!(Rules::compile(spec(1), &limits).is_ok());
        let error = Rules::compile(spec(2), &limits).expect_err("too many");
        assert_eq!(
            error.to_string(),
            "rules: 2 rules, limit 1 (gate_rules_max)"
        );
    }
}
