//! Calls that wait for a person, and the answers of a person that hold for later calls, too.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::ToolCall;
use crate::clock::{Now, Uptime};
use crate::codec::shared_text::SharedText;
use crate::ids::CallId;
use crate::secret::Quoted;

/// A call that waits for a person, as that person sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldCall {
    /// What an answer names it by. Not used again, by later processes neither.
    pub id: String,
    /// The call.
    pub call: CallId,
    /// The exposed name of the tool. All texts here come from outside.
    pub tool: SharedText,
    /// The arguments it would run with: a raw JSON object. They may hold secrets.
    pub arguments: SharedText,
    /// The server the tool belongs to.
    pub server: SharedText,
    /// The name the client gave itself.
    pub caller: SharedText,
    /// See [`ToolCall::principal`].
    pub principal: SharedText,
    /// Heading.
    pub title: String,
    /// Text below it; may be empty.
    pub description: String,
    /// The rule that holds it; `None`: the hook, or the embedding program.
    pub rule: Option<usize>,
    /// Since when. Unit: milliseconds since 1970.
    pub created_at_ms: i64,
    /// Until when. Unit: milliseconds since 1970.
    pub expires_at_ms: i64,
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Replacement for the arguments, should the answer be yes.
    pub arguments: Option<Box<str>>,
    /// Heading; empty: one is made of the names of tool and server.
    pub title: String,
    /// Text below it.
    pub description: String,
    /// How long to wait for the answer; `None` means `hold_timeout`.
    pub timeout: Option<Duration>,
}

/// What a person answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This call may run.
    AllowOnce,
    /// It may, and so may later ones of this tool, server, caller and principal: they are not held while this
    /// process lives. Refusals of rules and hook are untouched by it.
    AllowAlways,
    /// It may not.
    Deny,
}

impl Answer {
    /// Every answer.
    pub const ALL: [Self; 3] = [Self::AllowOnce, Self::AllowAlways, Self::Deny];

    /// Its word on every wire. OpenClaw: `plugin.approval.resolve`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow-once",
            Self::AllowAlways => "allow-always",
            Self::Deny => "deny",
        }
    }

    /// The answer that is written so.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|answer| answer.as_str() == word)
    }
}

/// Something became of a held call. Drained by [`super::Gate::poll_hold`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldEvent {
    /// It waits from now on.
    Opened(HeldCall),
    /// It waits no more.
    Closed {
        /// What it was called.
        id: String,
        /// How it ended.
        end: HoldEnd,
    },
}

/// How the wait for a person ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldEnd {
    /// Somebody answered: who, and what.
    Answered(Answer, String),
    /// Nobody did, in time.
    Expired,
    /// The caller wants the call no more.
    Cancelled,
}

/// A call that waits for a person, and until when.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) shown: HeldCall,
    pub(super) until: Uptime,
    pub(super) limit: Duration,
    /// The hook must be asked when the person has allowed it.
    pub(super) then_hook: bool,
}

/// What holds need to know beside the call: names for them, and what was answered for good.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Part of every id, so that another process's ids are others.
    pub(super) tag: Option<String>,
    always: BTreeSet<[Box<str>; 4]>,
    always_max: usize,
    pub(super) events: VecDeque<HoldEvent>,
}

fn key(call: &ToolCall) -> [Box<str>; 4] {
    [&call.tool, &call.server, &call.caller, &call.principal].map(|text| Box::from(&**text))
}

impl Holds {
    pub(super) fn new(always_max: usize) -> Self {
        Self {
            always_max,
            ..Self::default()
        }
    }

    /// Whether a person has allowed calls like this one for good.
    pub(super) fn covers(&self, call: &ToolCall) -> bool {
        !self.always.is_empty() && self.always.contains(&key(call))
    }

    /// Keeps an answer for good. Says whether there was room.
    pub(super) fn keep(&mut self, call: &ToolCall) -> bool {
        let room = self.always.len() < self.always_max;
        room && {
            self.always.insert(key(call));
            true
        }
    }

    /// What a person is shown of a call.
    pub(super) fn show(&self, now: Now, call: &ToolCall, hold: &Hold, limit: Duration) -> HeldCall {
        let title = if hold.title.trim().is_empty() {
            format!("{} of {}", Quoted(&call.tool), Quoted(&call.server))
        } else {
            hold.title.clone()
        };
        let lasts = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        HeldCall {
            id: match &self.tag {
                Some(tag) => format!("hold-{tag}-{}", call.id),
                None => format!("hold-{}", call.id),
            },
            call: call.id,
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
            server: call.server.clone(),
            caller: call.caller.clone(),
            principal: call.principal.clone(),
            title,
            description: hold.description.clone(),
            rule: None,
            created_at_ms: now.unix_ms,
            expires_at_ms: now.unix_ms.saturating_add(lasts),
        }
    }
}

/// What a person's "no" makes of a call.
pub(super) fn denied(by: &str, reason: Option<&str>) -> String {
    let by = Quoted(by);
    match reason {
        Some(reason) => format!("tool call refused: denied by {by}: {}", Quoted(reason)),
        None => format!("tool call refused: denied by {by}"),
    }
}
