//! Calls that the gate holds for a person: shown to clients as plugin approvals, and at the Gateway as well.
//!
//! | state at the Gateway | link gets ready           | Gateway accepts | Gateway refuses, or has nobody to ask | `plugin.approval.resolved` | answered elsewhere, or cancelled |
//! |----------------------|---------------------------|-----------------|---------------------------------------|----------------------------|----------------------------------|
//! | new                  | → asked                   | –               | –                                     | –                          | gone                             |
//! | asked                | –                         | → open          | → declined, with a warning            | kept for "accepts"         | the answer is sent when it accepts |
//! | asked, link lost     | asked again               | –               | –                                     | –                          | gone                             |
//! | open                 | asked what became of it   | –               | –                                     | decided                    | the answer is sent               |
//! | declined             | –                         | –               | –                                     | –                          | gone                             |
//!
//! The Gateway gives each an id of its own; both ids answer. It is told of a "no" when the caller has cancelled
//! the call, for it knows no other way. What expires expires there, too. OpenClaw: `plugin.approval.request`
//! with `twoPhase`, as its own before-tool-call seam asks.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::approvals::Kind;
use super::queue::Scope;
use super::raw_json::{string, text, write_raw};
use super::{Bridge, BridgeOutput, Link, wake};
use crate::clock::Now;
use crate::codec::json_object::JsonObject;
use crate::codec::object::from_object;
use crate::gate::{Answer, HeldCall, HoldEnd};
use crate::gateway::session::GatewayError;
use crate::ids::CallId;
use crate::protocol::message::ToolResult;
use crate::secret::{Quoted, mask_text};

/// Longest title the Gateway takes. Unit: UTF-16 units.
const TITLE_MAX: usize = 80;

/// Longest description it takes. Unit: UTF-16 units.
const DESCRIPTION_MAX: usize = 256;

/// How much of that is for what a rule or the hook says; the rest is for the arguments.
const SAID_MAX: usize = 150;

/// Longest wait it takes. Unit: milliseconds.
const TIMEOUT_MS_MAX: i64 = 600_000;

/// Decisions kept that came before the answer they belong to.
const EARLY_MAX: usize = 16;

/// What is asked of the Gateway about a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldStep {
    /// To show it.
    Request,
    /// What became of it.
    Await,
    /// To forget it.
    Resolve,
}

#[derive(Debug)]
enum AtGateway {
    New,
    Asked,
    Open(String),
    /// Not shown there, or decided there.
    Done,
}

#[derive(Debug)]
pub(super) struct Hold {
    /// As in the Gateway's own events: a raw object.
    request: String,
    expires_at_ms: i64,
    at_gateway: AtGateway,
    /// It is over here; the Gateway, which has not accepted it yet, is to be told so.
    over: Option<Answer>,
}

/// The held calls, by our ids.
#[derive(Debug, Default)]
pub(super) struct Holds {
    pub(super) holds: BTreeMap<String, Hold>,
    /// Decisions about ids that may turn out to be ours, with who decided.
    early: Vec<(String, Answer, String)>,
    /// The Gateway's ids of those that it is being told the answer of, by ours. It makes an event of that before
    /// it answers, which is no news.
    pub(super) told: BTreeMap<String, String>,
    /// Whether it was told that the Gateway does not show them.
    warned: bool,
}

/// The members that we act on, of answers and events.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    decision: Option<&'a RawValue>,
    #[serde(borrow)]
    resolved_by: Option<&'a RawValue>,
}

impl Payload<'_> {
    fn answer(&self) -> Option<Answer> {
        Answer::from_word(&text(self.decision)?)
    }

    fn by(&self) -> String {
        match text(self.resolved_by) {
            Some(name) => format!("{name}, gateway"),
            None => "gateway".to_owned(),
        }
    }
}

impl Holds {
    /// Our id of a hold that is named by ours or the Gateway's.
    fn find(&self, id: &str) -> Option<&str> {
        let is_meant = |(ours, hold): &(&String, &Hold)| {
            hold.over.is_none()
                && (**ours == *id
                    || matches!(&hold.at_gateway, AtGateway::Open(theirs) if *theirs == *id))
        };
        let found = self.holds.iter().find(is_meant);
        found.map(|(ours, _)| ours.as_str())
    }

    /// Whether the Gateway gave this id to one of ours.
    pub(super) fn is_theirs(&self, id: &str) -> bool {
        let open =
            |hold: &Hold| matches!(&hold.at_gateway, AtGateway::Open(theirs) if *theirs == *id);
        self.holds.values().any(open) || self.told.values().any(|theirs| theirs == id)
    }
}

/// The result of `permissions_respond` about one of ours.
#[must_use]
pub fn responded(outcome: Result<(), &dyn std::fmt::Display>) -> ToolResult {
    match outcome {
        Ok(()) => ToolResult::structured("approval resolved", r#"{"result":{"ok":true}}"#),
        Err(why) => ToolResult::error(&why.to_string()),
    }
}

impl Bridge {
    /// A call waits for a person from now on.
    pub fn handle_hold_opened(&mut self, now: Now, held: &HeldCall) {
        let request = request(held);
        let mut record = JsonObject::new();
        record.text("id", &held.id);
        record.raw("request", &request);
        record.number("createdAtMs", Some(held.created_at_ms));
        record.number("expiresAtMs", Some(held.expires_at_ms));
        let Ok(record) = RawValue::from_string(record.end()) else {
            return;
        };
        // It has an id.
        let _ = self.approvals.held(now, &record);
        self.report_evictions();
        self.queue_hold_event("plugin_approval_requested", record.get());
        let hold = Hold {
            request,
            expires_at_ms: held.expires_at_ms,
            at_gateway: AtGateway::New,
            over: None,
        };
        self.holds.holds.insert(held.id.clone(), hold);
        if matches!(self.link, Link::Ready) {
            self.show_hold(now, &held.id);
        }
    }

    /// A call waits for a person no more.
    pub fn handle_hold_closed(&mut self, now: Now, id: &str, end: &HoldEnd) {
        let Some(mut hold) = self.holds.holds.remove(id) else {
            return;
        };
        self.approvals.forget(id);
        let answer = match end {
            HoldEnd::Answered(answer, by) => {
                let mut event = JsonObject::new();
                event.text("id", id);
                event.text("decision", answer.as_str());
                event.text("resolvedBy", by);
                event.number("ts", Some(now.unix_ms));
                event.raw("request", &hold.request);
                self.queue_hold_event("plugin_approval_resolved", &event.end());
                *answer
            }
            HoldEnd::Cancelled => Answer::Deny,
            // The Gateway's own clock says so, too, and it makes no event of it either.
            HoldEnd::Expired => return,
        };
        match &hold.at_gateway {
            AtGateway::Open(theirs) => self.resolve_at_gateway(id, theirs, answer),
            AtGateway::Asked => {
                hold.over = Some(answer);
                self.holds.holds.insert(id.to_owned(), hold);
            }
            AtGateway::New | AtGateway::Done => {}
        }
    }

    /// Whether `permissions_respond` is about one of ours; then the hub is asked to decide.
    pub(super) fn respond_to_hold(&mut self, call: CallId, id: &RawValue, answer: &str) -> bool {
        let given = string(id);
        let ours = given.as_deref().and_then(|id| self.holds.find(id.trim()));
        let (Some(id), Some(answer)) = (ours.map(str::to_owned), Answer::from_word(answer)) else {
            return false;
        };
        self.outputs.push_back(BridgeOutput::Decide {
            call: Some(call),
            id,
            answer,
            by: String::new(),
        });
        true
    }

    /// The link got ready: the Gateway is shown what it does not know, and asked about what it knows.
    pub(super) fn show_holds(&mut self, now: Now) {
        let ids: Vec<String> = self.holds.holds.keys().cloned().collect();
        for id in ids {
            let hold = self.holds.holds.get_mut(&id);
            match hold.map(|hold| std::mem::replace(&mut hold.at_gateway, AtGateway::New)) {
                Some(AtGateway::Open(theirs)) => {
                    let mut params = JsonObject::new();
                    params.text("id", &theirs);
                    self.set_hold(&id, AtGateway::Open(theirs));
                    let method = "plugin.approval.waitDecision";
                    self.ask_for_hold(&id, HoldStep::Await, method, params.end());
                }
                Some(AtGateway::Done) => self.set_hold(&id, AtGateway::Done),
                Some(AtGateway::New | AtGateway::Asked) => self.show_hold(now, &id),
                None => {}
            }
        }
    }

    fn set_hold(&mut self, id: &str, state: AtGateway) {
        if let Some(hold) = self.holds.holds.get_mut(id) {
            hold.at_gateway = state;
        }
    }

    fn show_hold(&mut self, now: Now, id: &str) {
        let Some(hold) = self.holds.holds.get(id) else {
            return;
        };
        if hold.over.is_some() {
            self.holds.holds.remove(id);
            return;
        }
        let left = hold.expires_at_ms.saturating_sub(now.unix_ms);
        let open = hold.request.strip_suffix('}').unwrap_or_default();
        let timeout = left.clamp(1, TIMEOUT_MS_MAX);
        let params = format!(r#"{open},"timeoutMs":{timeout},"twoPhase":true}}"#);
        self.set_hold(id, AtGateway::Asked);
        self.ask_for_hold(id, HoldStep::Request, "plugin.approval.request", params);
    }

    fn resolve_at_gateway(&mut self, id: &str, theirs: &str, answer: Answer) {
        if !matches!(self.link, Link::Ready) {
            return;
        }
        let mut params = JsonObject::new();
        params.text("id", theirs);
        params.text("decision", answer.as_str());
        self.holds.told.insert(id.to_owned(), theirs.to_owned());
        let method = Kind::Plugin.resolve_method();
        self.ask_for_hold(id, HoldStep::Resolve, method, params.end());
    }

    fn ask_for_hold(&mut self, id: &str, step: HoldStep, method: &'static str, params: String) {
        match self.steps.ask_for_hold(id, step, method, params) {
            Ok(output) => self.outputs.push_back(output),
            Err(error) => {
                self.warn_of_holds(&error);
                match step {
                    HoldStep::Request => self.set_hold(id, AtGateway::Done),
                    HoldStep::Resolve => {
                        self.holds.told.remove(id);
                    }
                    HoldStep::Await => {}
                }
            }
        }
    }

    fn warn_of_holds(&mut self, why: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.holds.warned, true) {
            self.warn(format!(
                "calls that wait for approval are not shown at the gateway: {why}"
            ));
        }
    }

    /// The Gateway answered about a hold, or will not.
    pub(super) fn hold_answered(
        &mut self,
        id: &str,
        step: HoldStep,
        outcome: Result<Box<RawValue>, GatewayError>,
    ) {
        if step == HoldStep::Resolve {
            // Done or not, there is nothing more to do.
            self.holds.told.remove(id);
            return;
        }
        let Some(hold) = self.holds.holds.get(id) else {
            return;
        };
        let over = hold.over;
        let lost = matches!(
            outcome,
            Err(GatewayError::NotConnected { .. } | GatewayError::Closed { .. })
        );
        let answered = match outcome {
            Ok(raw) => from_object::<Payload<'_>>(raw.get())
                .map(|payload| {
                    (
                        text(payload.id).map(std::borrow::Cow::into_owned),
                        payload.status.is_some(),
                        payload.answer(),
                        payload.by(),
                    )
                })
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match (step, answered) {
            (_, Ok((_, _, Some(answer), by))) if over.is_none() => {
                self.set_hold(id, AtGateway::Done);
                self.decide(id, answer, by);
            }
            (HoldStep::Request, Ok((Some(theirs), true, None, _))) => {
                self.hold_accepted(id, theirs, over);
            }
            (HoldStep::Request, Err(_)) if lost => {
                if over.is_some() {
                    self.holds.holds.remove(id);
                }
                // Asked again when there is a link.
            }
            (HoldStep::Request, answered) => {
                if over.is_some() {
                    self.holds.holds.remove(id);
                } else {
                    self.set_hold(id, AtGateway::Done);
                    match answered {
                        Ok(_) => self.warn_of_holds(&"it has nobody to ask"),
                        Err(why) => self.warn_of_holds(&Quoted(&why)),
                    }
                }
            }
            // It expired there, or is unknown there: it still waits here.
            (HoldStep::Await | HoldStep::Resolve, _) => {}
        }
    }

    fn hold_accepted(&mut self, id: &str, theirs: String, over: Option<Answer>) {
        if let Some(answer) = over {
            self.holds.holds.remove(id);
            return self.resolve_at_gateway(id, &theirs, answer);
        }
        // It may have been listed before its name was known.
        self.approvals.forget(&theirs);
        let early = self.holds.early.iter().position(|(of, ..)| *of == theirs);
        self.set_hold(id, AtGateway::Open(theirs));
        if let Some(at) = early {
            let (_, answer, by) = self.holds.early.remove(at);
            self.set_hold(id, AtGateway::Done);
            self.decide(id, answer, by);
        }
    }

    /// Somebody decided at the Gateway. Says whether it was about one of ours.
    pub(super) fn hold_resolved(&mut self, payload: &RawValue) -> bool {
        let Ok(payload) = from_object::<Payload<'_>>(payload.get()) else {
            return false;
        };
        let (Some(theirs), Some(answer)) = (text(payload.id), payload.answer()) else {
            return false;
        };
        if self.holds.is_theirs(&theirs) {
            if let Some(id) = self.holds.find(&theirs).map(str::to_owned) {
                self.set_hold(&id, AtGateway::Done);
                self.decide(&id, answer, payload.by());
            }
            return true;
        }
        let asked = |hold: &Hold| matches!(hold.at_gateway, AtGateway::Asked);
        if self.holds.holds.values().any(asked) {
            if self.holds.early.len() == EARLY_MAX {
                self.holds.early.remove(0);
            }
            let decided = (theirs.into_owned(), answer, payload.by());
            self.holds.early.push(decided);
        } else {
            self.holds.early.clear();
        }
        false
    }

    fn decide(&mut self, id: &str, answer: Answer, by: String) {
        self.outputs.push_back(BridgeOutput::Decide {
            call: None,
            id: id.to_owned(),
            answer,
            by,
        });
    }

    fn queue_hold_event(&mut self, event_type: &str, raw: &str) {
        let event = self.queue.push(Scope::Unscoped, raw.len() + 64, |json| {
            json.push_str("\"type\":\"");
            json.push_str(event_type);
            json.push('"');
            write_raw(json, "raw", raw);
        });
        wake(&mut self.waiters, &mut self.outputs, event);
    }
}

/// What the Gateway is asked, and clients are shown: members and order of its own requests.
fn request(held: &HeldCall) -> String {
    let said = match held.description.trim() {
        "" => format!(
            "{} of {}, called by {} ({})",
            Quoted(&held.tool),
            Quoted(&held.server),
            Quoted(&held.caller),
            Quoted(&held.principal)
        ),
        description => description.to_owned(),
    };
    let arguments = mask_text(&held.arguments);
    let description = format!("{}\narguments: {arguments}", cut(&said, SAID_MAX));
    let mut json = JsonObject::new();
    json.text("pluginId", "drawspan");
    json.text("title", cut(&held.title, TITLE_MAX).trim());
    json.text("description", &cut(&description, DESCRIPTION_MAX));
    json.text("severity", "warning");
    json.text("toolName", &held.tool);
    json.text("toolCallId", &held.call.to_string());
    json.end()
}

/// The beginning of a text, of so many UTF-16 units at most.
fn cut(text: &str, units_max: usize) -> String {
    if text.encode_utf16().count() <= units_max {
        return text.to_owned();
    }
    let mut units = 1;
    let fits = |c: &char| {
        units += c.len_utf16();
        units <= units_max
    };
    let mut start: String = text.chars().take_while(fits).collect();
    start.push('…');
    start
}
