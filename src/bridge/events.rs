//! What comes in unasked: events of the Gateway and permission prompts of the client.
//!
//! The table of effects is in the module above.

use serde_json::value::RawValue;

use super::approvals::{Kind, NoId};
use super::conversation::Incoming;
use super::permissions::{NotTheirs, Verdict};
use super::queue::Scope;
use super::raw_json::{is_object, is_string, members, string, write_member, write_raw};
use super::{Bridge, BridgeOutput, Link, is_worth_a_line, wake};
use crate::clock::Now;
use crate::codec::json_text::write_string;
use crate::diagnostic::Level;
use crate::secret::Quoted;

/// What an approval event is about: its type in the queue, and the kind of approval that it asks
/// for; one that was decided is named by its id alone.
fn approval_event(name: &str) -> Option<(&'static str, Option<Kind>)> {
    match name {
        "exec.approval.requested" => Some(("exec_approval_requested", Some(Kind::Exec))),
        "exec.approval.resolved" => Some(("exec_approval_resolved", None)),
        "plugin.approval.requested" => Some(("plugin_approval_requested", Some(Kind::Plugin))),
        "plugin.approval.resolved" => Some(("plugin_approval_resolved", None)),
        _ => None,
    }
}

impl Bridge {
    /// The Gateway sent an event. Those we do not know are ignored.
    pub fn handle_event(&mut self, now: Now, name: &str, payload: Option<Box<RawValue>>) {
        if matches!(self.link, Link::Closed) {
            return;
        }
        if let Link::Down { gap, early } = &mut self.link {
            *early = true;
            if let Some(why) = gap.take() {
                self.queue_gap(&why);
            }
        }
        let payload = payload.as_deref().filter(|raw| raw.get() != "null");
        if name == "session.message" {
            self.handle_message(now, payload);
        } else if let Some((event_type, requested)) = approval_event(name) {
            self.handle_approval(now, name, payload, (event_type, requested));
        }
    }

    fn handle_message(&mut self, now: Now, payload: Option<&RawValue>) {
        let message = match Incoming::read(payload) {
            Ok(message) => message,
            Err(what) => return self.malformed("session.message", what),
        };
        self.permissions.expire(now);
        if !self.permissions.is_empty() && self.settles_prompt(&message) {
            return;
        }
        let scope = Scope::Session((&*message.session_key).into());
        let bytes_hint = message.raw.get().len() + 512;
        let event = self
            .queue
            .push(scope, bytes_hint, |json| write_message(json, &message));
        // The notification goes out before the answers, as in the recordings.
        if self.mode.announces() && message.role.as_deref() == Some("user") {
            self.outputs.extend(channel_notification(&message));
        }
        wake(&mut self.waiters, &mut self.outputs, event);
    }

    /// Whether the message answered a pending prompt, and so is no message for anybody else.
    /// OpenClaw does not queue such a message either.
    fn settles_prompt(&mut self, message: &Incoming<'_>) -> bool {
        let session = &*message.session_key;
        let role = message.role.as_deref();
        let text = message.text.and_then(string).unwrap_or_default();
        let settled = match self.permissions.message(session, role, &text) {
            Verdict::Ordinary => false,
            Verdict::Answered {
                code,
                allow,
                announced,
            } => {
                let behavior = if allow { "allow" } else { "deny" };
                self.outputs.push_back(BridgeOutput::Notify {
                    method: "notifications/claude/channel/permission",
                    params: format!("{{\"request_id\":\"{code}\",\"behavior\":\"{behavior}\"}}"),
                });
                if !announced {
                    self.warn(format!(
                        "permission prompt {code} was answered ({behavior}) from session {}, \
                         though no session had been shown its code",
                        Quoted(session)
                    ));
                }
                true
            }
            Verdict::NotTheirs { code, why } => {
                let why = match why {
                    NotTheirs::Role => {
                        format!("its role is {}, not user", Quoted(role.unwrap_or("absent")))
                    }
                    NotTheirs::AnnouncedIn(other) => {
                        format!("the prompt was shown in session {}", Quoted(&other))
                    }
                };
                self.warn(format!(
                    "a message in session {} does not answer permission prompt {code}: {why}",
                    Quoted(session)
                ));
                false
            }
        };
        if role == Some("assistant") {
            for text in message.texts().into_iter().filter_map(string) {
                self.permissions.announced(session, &text);
            }
        }
        settled
    }

    fn handle_approval(
        &mut self,
        now: Now,
        name: &str,
        payload: Option<&RawValue>,
        (event_type, requested): (&str, Option<Kind>),
    ) {
        if payload.is_some_and(|raw| !is_object(raw)) {
            return self.malformed(name, "the payload is no object");
        }
        if requested.is_none() && payload.is_some_and(|raw| self.hold_resolved(raw)) {
            return;
        }
        let tracked = match (payload, requested) {
            (Some(raw), Some(kind)) => self.approvals.requested(now, kind, raw),
            (Some(raw), None) => self.approvals.resolved(raw),
            (None, _) => Err(NoId),
        };
        if tracked == Err(NoId) {
            self.malformed(name, "there is no id");
        }
        self.report_evictions();
        // Queued all the same: clients of OpenClaw see such an event, too.
        let raw = payload.map_or("{}", RawValue::get);
        let event = self.queue.push(Scope::Unscoped, raw.len() + 64, |json| {
            write_type(json, event_type);
            write_raw(json, "raw", raw);
        });
        wake(&mut self.waiters, &mut self.outputs, event);
    }

    /// Tells when pending entries had to go because there were too many.
    pub(super) fn report_evictions(&mut self) {
        let now = (self.approvals.evicted(), self.permissions.evicted());
        let before = std::mem::replace(&mut self.evictions_seen, now);
        for (what, before, now) in [
            ("approvals", before.0, now.0),
            ("permission prompts", before.1, now.1),
        ] {
            if is_worth_a_line(before, now) {
                self.warn(format!(
                    "too many pending {what} (approvals_pending_max): the oldest was forgotten, \
                     {now} so far"
                ));
            }
        }
    }

    fn malformed(&mut self, name: &str, what: &str) {
        self.malformed += 1;
        let count = self.malformed;
        if is_worth_a_line(count - 1, count) {
            self.warn(format!(
                "gateway event {name} cannot be used: {what} ({count} such events so far)"
            ));
        }
    }

    /// The client sent a notification. Those we do not know are ignored; a permission prompt that
    /// lacks one of its four strings is ignored, too, as in OpenClaw.
    pub fn handle_notification(&mut self, now: Now, method: &str, params: Option<&str>) {
        if method != "notifications/claude/channel/permission_request"
            || matches!(self.link, Link::Closed)
        {
            return;
        }
        let names = ["request_id", "tool_name", "description", "input_preview"];
        let found = members(params.unwrap_or("null"), names);
        let Ok([Some(id), Some(tool), Some(description), Some(preview)]) = found else {
            return;
        };
        if ![id, tool, description, preview].into_iter().all(is_string) {
            return;
        }
        let request_id = string(id).unwrap_or_default();
        self.permissions.expire(now);
        self.permissions.requested(now, &request_id);
        self.report_evictions();
        if self.verbose {
            let message = format!("pending Claude permission {}", Quoted(&request_id));
            self.diagnose(Level::Info, message);
        }
        let bytes_hint = description.get().len() + preview.get().len() + 256;
        let event = self.queue.push(Scope::Unscoped, bytes_hint, |json| {
            write_type(json, "claude_permission_request");
            write_raw(json, "requestId", id.get());
            write_raw(json, "toolName", tool.get());
            write_raw(json, "description", description.get());
            write_raw(json, "inputPreview", preview.get());
        });
        wake(&mut self.waiters, &mut self.outputs, event);
    }

    /// Queues a mark where events are missing, for every reader.
    pub(super) fn queue_gap(&mut self, why: &str) {
        let reason = format!(
            "gateway connection lost: {}; events between were not delivered",
            Quoted(why)
        );
        let event = self.queue.push(Scope::All, reason.len() + 32, |json| {
            write_type(json, "gap");
            write_member(json, "reason", Some(&reason));
        });
        wake(&mut self.waiters, &mut self.outputs, event);
    }
}

/// Writes the first member of an event behind its cursor.
fn write_type(json: &mut String, event_type: &str) {
    json.push_str("\"type\":\"");
    json.push_str(event_type);
    json.push('"');
}

/// Writes the members of a `message` event. OpenClaw: `openclaw-serve` §3.5.
fn write_message(json: &mut String, message: &Incoming<'_>) {
    write_type(json, "message");
    write_member(json, "sessionKey", Some(&message.session_key));
    if let Some(conversation) = &message.conversation {
        json.push_str(",\"conversation\":");
        conversation.write(json);
    }
    write_member(json, "messageId", message.message_id.as_deref());
    if let Some(seq) = message.message_seq {
        write_raw(json, "messageSeq", seq.get());
    }
    write_member(json, "role", message.role.as_deref());
    if let Some(text) = message.text {
        write_raw(json, "text", text.get());
    }
    write_raw(json, "raw", message.raw.get());
}

/// The notification of a message; none without a route. All values of `meta` are strings, and its
/// keys are letters and `_`: the client drops others in silence. OpenClaw: `openclaw-serve` §3.7.
fn channel_notification(message: &Incoming<'_>) -> Option<BridgeOutput> {
    let conversation = message.conversation.as_ref()?;
    let content = message.text.map_or("\"[non-text message]\"", RawValue::get);
    let account = conversation.account_id.as_deref().unwrap_or_default();
    let thread = conversation.thread_id_as_string();
    let id = message.message_id.as_deref().unwrap_or_default();
    let mut params = String::from("{\"content\":");
    params.push_str(content);
    params.push_str(",\"meta\":{\"session_key\":");
    write_string(&mut params, &message.session_key);
    write_member(&mut params, "channel", Some(&conversation.channel));
    write_member(&mut params, "to", Some(&conversation.to));
    write_member(&mut params, "account_id", Some(account));
    write_raw(
        &mut params,
        "thread_id",
        thread.as_deref().unwrap_or("\"\""),
    );
    write_member(&mut params, "message_id", Some(id));
    params.push_str("}}");
    Some(BridgeOutput::Notify {
        method: "notifications/claude/channel",
        params,
    })
}
