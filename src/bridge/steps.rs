//! Calls that need the Gateway: what is asked, in which order, and what the answers become.
//!
//! | state of a call | link gets ready | `gateway_ready_timeout` is over | Gateway answers | Gateway refuses, or the link is lost | cancelled |
//! |---|---|---|---|---|---|
//! | held | asked | asked all the same | – | – | gone |
//! | asked, one request | – | – | answered | answered with the error | gone; a late answer is dropped |
//! | `messages_send`, describing | – | – | no route: answered with an error; else sending | answered with the error | gone; nothing is sent |
//! | `messages_send`, sending | – | – | answered | answered with the error; never sent again | gone; the message may arrive |
//!
//! A request that is made while there is no link is answered at once by the session with "gateway
//! not connected", the reason and the time of the next try. So that text has one maker, and is true
//! at the moment of the answer: a call held too long is simply asked, and gets it.
//! `permissions_respond` is never held. OpenClaw: `openclaw-serve` §1.8 (requests), §3.4 (results).
//! Member order is that of the recordings.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::approvals::Kind;
use super::conversation::{Conversation, attachments, entry_has_id};
use super::holds::HoldStep;
use super::raw_json::{elements, is_object, pretty, trim, write_member, write_raw};
use super::tools::Ask;
use super::{BridgeOutput, Ticket};
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::json_text::write_string;
use crate::entropy::{Entropy, uuid_v4};
use crate::ids::CallId;
use crate::limits::Limits;
use crate::protocol::message::ToolResult;

/// What becomes of the Gateway's next answer.
#[derive(Debug)]
pub(super) enum Step {
    /// `sessions.list` for `conversations_list`.
    Listed {
        /// Only this channel.
        channel: Option<String>,
    },
    /// `sessions.describe` for `conversation_get`.
    Described {
        /// The key as given.
        given: String,
    },
    /// `sessions.get` for `messages_read`.
    Read,
    /// `sessions.get` for `attachments_fetch`.
    Fetched {
        /// The message looked for.
        message_id: String,
    },
    /// `sessions.describe` for `messages_send`: the route comes first.
    Routed {
        /// The key as given.
        given: String,
        /// What to send, a raw JSON string.
        text: Box<RawValue>,
        /// Says to the Gateway that this is one message, however often it arrives.
        idempotency_key: String,
    },
    /// `send` for `messages_send`.
    Sent,
    /// One of the resolve methods for `permissions_respond`.
    Decided,
}

/// One request to the Gateway, and what its answer is for.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) step: Step,
    pub(super) method: &'static str,
    /// A raw JSON object.
    pub(super) params: String,
}

/// What follows from an answer of the Gateway.
#[derive(Debug)]
pub(super) enum Next {
    /// The call is done.
    Answer(ToolResult),
    /// The call goes on: this message goes out to this session.
    Send {
        request: Request,
        session_key: String,
        /// A raw JSON string.
        text: Box<RawValue>,
    },
}

/// The first request of a call.
///
/// # Errors
/// The answer, when there is nothing to ask: a blank key names no conversation.
pub(super) fn begin(ask: Ask, entropy: &mut dyn Entropy) -> Result<Request, ToolResult> {
    let request = |step, method, params| Request {
        step,
        method,
        params,
    };
    Ok(match ask {
        Ask::List {
            limit,
            search,
            channel,
            titles,
            previews,
        } => {
            let search =
                search.map_or_else(String::new, |raw| format!("\"search\":{},", raw.get()));
            let params = format!(
                "{{\"limit\":{limit},{search}\"includeDerivedTitles\":{titles},\
                 \"includeLastMessage\":{previews}}}"
            );
            request(Step::Listed { channel }, "sessions.list", params)
        }
        Ask::Get { session_key } => {
            let params = describe(&session_key).ok_or_else(|| no_conversation(&session_key))?;
            let given = session_key;
            request(Step::Described { given }, "sessions.describe", params)
        }
        Ask::Read { session_key, limit } => {
            let params = format!("{{\"key\":{},\"limit\":{limit}}}", session_key.get());
            request(Step::Read, "sessions.get", params)
        }
        Ask::Attachments {
            session_key,
            message_id,
            limit,
        } => {
            let params = format!("{{\"key\":{},\"limit\":{limit}}}", session_key.get());
            request(Step::Fetched { message_id }, "sessions.get", params)
        }
        Ask::Send { session_key, text } => {
            let params = describe(&session_key).ok_or_else(|| no_route(&session_key))?;
            let step = Step::Routed {
                given: session_key,
                text,
                idempotency_key: uuid_v4(entropy),
            };
            request(step, "sessions.describe", params)
        }
        Ask::Respond { kind, id, decision } => {
            let params = format!("{{\"id\":{},\"decision\":\"{decision}\"}}", id.get());
            request(Step::Decided, kind.resolve_method(), params)
        }
    })
}

/// Parameters of `sessions.describe`; `None` for a blank key.
fn describe(session_key: &str) -> Option<String> {
    let key = trim(session_key);
    if key.is_empty() {
        return None;
    }
    let mut params = String::from("{\"key\":");
    write_string(&mut params, key);
    params.push_str(",\"includeDerivedTitles\":true,\"includeLastMessage\":true}");
    Some(params)
}

fn no_conversation(given: &str) -> ToolResult {
    ToolResult::error(&format!("conversation not found: {given}"))
}

fn no_route(given: &str) -> ToolResult {
    ToolResult::error(&format!("Conversation not found for session {given}"))
}

/// The members of answers that we act on.
#[derive(Default, Deserialize)]
struct Payload<'a> {
    #[serde(borrow)]
    sessions: Option<&'a RawValue>,
    #[serde(borrow)]
    session: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
}

/// The Gateway answered with something that its protocol does not allow.
struct Odd(&'static str);

impl<'a> Payload<'a> {
    fn read(raw: &'a RawValue) -> Result<Self, Odd> {
        if !is_object(raw) {
            return Err(Odd("a payload that is no object"));
        }
        serde_json::from_str(raw.get()).map_err(|_| Odd("a payload that cannot be read"))
    }
}

/// The elements of a list in an answer; a list that is missing has none.
fn list<'a>(raw: Option<&'a RawValue>, otherwise: &'static str) -> Result<Vec<&'a RawValue>, Odd> {
    raw.map_or_else(|| Ok(Vec::new()), |raw| elements(raw).ok_or(Odd(otherwise)))
}

/// Goes on with a call after the Gateway has answered.
pub(super) fn advance(step: Step, method: &str, payload: &RawValue) -> Next {
    let result = match step {
        Step::Listed { channel } => conversations(payload, channel.as_deref()),
        Step::Described { given } => conversation(payload, &given),
        Step::Read => messages(payload),
        Step::Fetched { message_id } => fetched(payload, &message_id),
        Step::Routed {
            given,
            text,
            idempotency_key,
        } => return routed(payload, &given, text, &idempotency_key),
        Step::Sent => Ok(passed_on("sent", payload)),
        Step::Decided => Ok(passed_on("approval resolved", payload)),
    };
    Next::Answer(result.unwrap_or_else(|Odd(what)| {
        ToolResult::error(&format!("gateway answered {method} with {what}"))
    }))
}

fn passed_on(text: &str, payload: &RawValue) -> ToolResult {
    ToolResult::structured(text, &format!("{{\"result\":{}}}", payload.get()))
}

fn conversations(payload: &RawValue, channel: Option<&str>) -> Result<ToolResult, Odd> {
    let rows = list(
        Payload::read(payload)?.sessions,
        "sessions that are no list",
    )?;
    let mut json = String::from("{\"conversations\":[");
    let mut count = 0_usize;
    for conversation in rows.into_iter().filter_map(Conversation::from_row) {
        if channel.is_none_or(|channel| channel == conversation.channel) {
            json.push_str(if count == 0 { "" } else { "," });
            conversation.write(&mut json);
            count += 1;
        }
    }
    json.push_str("]}");
    Ok(listing("conversations", count, &json))
}

/// A result whose text repeats the structured content for clients that only read text.
fn listing(what: &str, count: usize, json: &str) -> ToolResult {
    let mut text = format!("{what}: {count}\n\n");
    pretty(&mut text, json);
    ToolResult::structured(&text, json)
}

fn conversation(payload: &RawValue, given: &str) -> Result<ToolResult, Odd> {
    let session = Payload::read(payload)?.session;
    let Some(conversation) = session.and_then(Conversation::from_row) else {
        return Ok(no_conversation(given));
    };
    let mut json = String::from("{\"conversation\":");
    conversation.write(&mut json);
    json.push('}');
    let text = format!("conversation {}", conversation.session_key);
    Ok(ToolResult::structured(&text, &json))
}

fn messages(payload: &RawValue) -> Result<ToolResult, Odd> {
    let raw = Payload::read(payload)?.messages;
    let count = list(raw, "messages that are no list")?.len();
    let json = format!("{{\"messages\":{}}}", raw.map_or("[]", RawValue::get));
    Ok(listing("messages", count, &json))
}

fn fetched(payload: &RawValue, message_id: &str) -> Result<ToolResult, Odd> {
    let messages = list(
        Payload::read(payload)?.messages,
        "messages that are no list",
    )?;
    let Some(message) = messages
        .into_iter()
        .find(|raw| entry_has_id(raw, message_id))
    else {
        let text = format!("message not found: {message_id}");
        return Ok(ToolResult::error(&text));
    };
    let blocks = attachments(message);
    let joined: Vec<_> = blocks.iter().map(|raw| raw.get()).collect();
    let json = format!(
        "{{\"attachments\":[{}],\"message\":{}}}",
        joined.join(","),
        message.get()
    );
    let text = format!("attachments: {}", blocks.len());
    Ok(ToolResult::structured(&text, &json))
}

fn routed(payload: &RawValue, given: &str, text: Box<RawValue>, idempotency_key: &str) -> Next {
    let session = Payload::read(payload).unwrap_or_default().session;
    let Some(conversation) = session.and_then(Conversation::from_row) else {
        return Next::Answer(no_route(given));
    };
    let mut params = String::from("{\"to\":");
    write_string(&mut params, &conversation.to);
    write_member(&mut params, "channel", Some(&conversation.channel));
    write_member(&mut params, "accountId", conversation.account_id.as_deref());
    if let Some(thread) = conversation.thread_id_as_string() {
        write_raw(&mut params, "threadId", &thread);
    }
    write_raw(&mut params, "message", text.get());
    write_member(&mut params, "sessionKey", Some(&conversation.session_key));
    write_member(&mut params, "idempotencyKey", Some(idempotency_key));
    params.push('}');
    Next::Send {
        request: Request {
            step: Step::Sent,
            method: "send",
            params,
        },
        session_key: conversation.session_key.into_owned(),
        text,
    }
}

/// Who gets the answer to a request.
#[derive(Debug)]
pub(super) enum Asker {
    /// A call.
    Call {
        call: CallId,
        step: Step,
        method: &'static str,
    },
    /// A call that the gate holds.
    Hold {
        /// Our id.
        id: String,
        step: HoldStep,
    },
    /// The table of approvals, after the link got ready.
    Approvals {
        kind: Kind,
        /// What was tracked before the question.
        mark: u64,
    },
}

#[derive(Debug)]
struct Held {
    call: CallId,
    request: Request,
    until: Uptime,
}

/// More calls need the Gateway than may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany {
    /// How many do already, which is as many as may.
    pub(super) limit: usize,
}

impl std::fmt::Display for TooMany {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limit = self.limit;
        write!(
            f,
            "too many calls wait for the gateway: {limit}, limit {limit} (gateway_requests_max); \
             try again when one has been answered"
        )
    }
}

/// The calls that need the Gateway, and the requests that are open.
#[derive(Debug)]
pub(super) struct Steps {
    /// In order of arrival, which is also that of their deadlines.
    held: VecDeque<Held>,
    open: BTreeMap<Ticket, Asker>,
    last: Ticket,
    count_max: usize,
    ready_timeout: Duration,
}

impl Steps {
    /// No calls.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            held: VecDeque::new(),
            open: BTreeMap::new(),
            last: Ticket(0),
            count_max: limits.gateway_requests_max,
            ready_timeout: limits.gateway_ready_timeout,
        }
    }

    fn check_room(&self) -> Result<(), TooMany> {
        if self.held.len() + self.open.len() < self.count_max {
            Ok(())
        } else {
            Err(TooMany {
                limit: self.count_max,
            })
        }
    }

    /// Keeps a call until the link is ready or its patience is over.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) fn hold(&mut self, now: Now, call: CallId, request: Request) -> Result<(), TooMany> {
        self.check_room()?;
        let until = now.after(self.ready_timeout);
        self.held.push_back(Held {
            call,
            request,
            until,
        });
        Ok(())
    }

    /// Asks the Gateway for a call.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) fn ask(&mut self, call: CallId, request: Request) -> Result<BridgeOutput, TooMany> {
        self.check_room()?;
        Ok(self.go_on(call, request))
    }

    /// Asks the Gateway for a call that has its place already.
    pub(super) fn go_on(&mut self, call: CallId, request: Request) -> BridgeOutput {
        let Request {
            step,
            method,
            params,
        } = request;
        self.open(Asker::Call { call, step, method }, method, params)
    }

    /// Asks the Gateway what is pending.
    pub(super) fn ask_approvals(&mut self, kind: Kind, mark: u64) -> BridgeOutput {
        let asker = Asker::Approvals { kind, mark };
        self.open(asker, kind.list_method(), "{}".to_owned())
    }

    /// Asks the Gateway about a held call.
    ///
    /// # Errors
    /// When there are too many requests.
    pub(super) fn ask_for_hold(
        &mut self,
        id: &str,
        step: HoldStep,
        method: &'static str,
        params: String,
    ) -> Result<BridgeOutput, TooMany> {
        self.check_room()?;
        let id = id.to_owned();
        Ok(self.open(Asker::Hold { id, step }, method, params))
    }

    fn open(&mut self, asker: Asker, method: &'static str, params: String) -> BridgeOutput {
        self.last = Ticket(self.last.0 + 1);
        self.open.insert(self.last, asker);
        BridgeOutput::Request {
            ticket: self.last,
            method,
            params,
        }
    }

    /// Asks for all held calls, in order.
    pub(super) fn release(&mut self) -> Vec<BridgeOutput> {
        let held = std::mem::take(&mut self.held);
        held.into_iter()
            .map(|held| self.go_on(held.call, held.request))
            .collect()
    }

    /// Asks for the held calls whose patience is over.
    pub(super) fn release_due(&mut self, now: Now) -> Vec<BridgeOutput> {
        let due = self.held.partition_point(|held| held.until <= now.up);
        let later = self.held.split_off(due);
        let outputs = self.release();
        self.held = later;
        outputs
    }

    /// Takes out whoever waits for this answer; nobody does when the call was cancelled.
    pub(super) fn answered(&mut self, ticket: Ticket) -> Option<Asker> {
        self.open.remove(&ticket)
    }

    /// Forgets a call; whether there was one.
    pub(super) fn cancel(&mut self, call: CallId) -> bool {
        let before = self.held.len() + self.open.len();
        self.held.retain(|held| held.call != call);
        self.open.retain(|_, asker| match asker {
            Asker::Call { call: of, .. } => *of != call,
            Asker::Approvals { .. } | Asker::Hold { .. } => true,
        });
        before != self.held.len() + self.open.len()
    }

    /// Takes out the held calls, each with the text of its error.
    pub(super) fn close_held(&mut self, why: &str) -> Vec<(CallId, String)> {
        let held = std::mem::take(&mut self.held).into_iter();
        held.map(|held| (held.call, why.to_owned())).collect()
    }

    /// Takes out all calls, each with the text of its error: `why`, and what else is to be known.
    pub(super) fn close(&mut self, why: &str) -> Vec<(CallId, String)> {
        let mut all = self.close_held(why);
        let open = std::mem::take(&mut self.open)
            .into_values()
            .filter_map(|asker| match asker {
                Asker::Call { call, step, method } => {
                    let mut text = format!("{why}; the gateway had not answered {method}");
                    if matches!(step, Step::Sent) {
                        text.push_str("; the message may have been sent");
                    }
                    Some((call, text))
                }
                Asker::Approvals { .. } | Asker::Hold { .. } => None,
            });
        all.extend(open);
        all
    }

    /// When [`Steps::release_due`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let first = self.held.front()?;
        Some(Deadline::new(first.until, "a call waits for the gateway"))
    }
}
