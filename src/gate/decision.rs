//! Who decided about a call, for logs and audits.

use std::fmt;

use super::ToolCall;
use crate::secret::Quoted;

/// Who had the last word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Decider {
    /// Nobody in particular: no rule fits, or there are none.
    #[default]
    Default,
    /// The rule of [`Decision::rule`].
    Rule,
    /// A person who once said "allow always".
    Always,
    /// The lock file: the tool is not the one that was locked.
    Lock,
    /// The before-tool-call hook.
    Hook,
    /// The embedding program.
    Embedder,
    /// A person, now; by which way the answer came: `unix:1000`, `client NAME`, `gateway NAME`. Text from
    /// outside.
    Person(Box<str>),
    /// Nobody, in time.
    Timeout,
}

impl fmt::Display for Decider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Rule => f.write_str("rule"),
            Self::Always => f.write_str("always"),
            Self::Lock => f.write_str("lock"),
            Self::Hook => f.write_str("hook"),
            Self::Embedder => f.write_str("embedder"),
            Self::Person(way) => write!(f, "person ({})", Quoted(way)),
            Self::Timeout => f.write_str("timeout"),
        }
    }
}

/// How it was decided about a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Who had the last word.
    pub by: Decider,
    /// The rule that fitted first, counted from 0 as in the configuration; `None` when none did.
    pub rule: Option<usize>,
    /// Who allowed a call that was held: [`Decider::Person`], [`Decider::Always`] or [`Decider::Embedder`]; also
    /// when somebody else, the hook say, had the last word then. A person who said "no" stands here, too.
    pub approval: Option<Decider>,
    /// Whether the hook or the embedding program gave the call other arguments.
    pub replaced: bool,
}

/// A call that may not run.
#[derive(Debug)]
pub struct Refused {
    /// The call, with the arguments it would have had.
    pub call: ToolCall,
    /// One line for the caller.
    pub reason: String,
    /// How it was decided.
    pub decision: Decision,
}
