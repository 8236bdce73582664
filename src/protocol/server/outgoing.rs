//! What leaves: answers, progress, log messages, notifications and requests to the client.

use std::borrow::Cow;

use super::modern::{ModernResult, subscription_params};
use super::own::Own;
use super::{Answer, AskKey, Asked, List, Open, RequestKey, ServerPeer, Whose};
use crate::codec::json_text::write_string;
use crate::codec::jsonrpc;
use crate::codec::scan::members;
use crate::codec::splice::with_member;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{LogLevel, member};
use crate::protocol::{Lane, MessageSink};

impl ServerPeer {
    /// Answers an open request. A key that was cancelled or answered before is ignored.
    pub fn respond(&mut self, key: RequestKey, answer: Answer<'_>, sink: &mut dyn MessageSink) {
        let Some(at) = self.open.iter().position(|open| open.key == key) else {
            return;
        };
        let open = self.open.swap_remove(at);
        self.asked.retain(|asked| asked.of != Some(key));
        let (kind, result) = match answer {
            Answer::Error(error) => return self.emit_error(&open, error, sink),
            Answer::Passed(error) => return self.pass_error(&open, error, sink),
            Answer::Typed(kind, result) => (kind, result),
            Answer::Result(result) | Answer::Plain(result) | Answer::List(result) => {
                ("complete", result)
            }
        };
        if !open.revision.is_stateless() && !matches!(answer, Answer::Typed(..)) {
            return self.emit(&open, sink, |out| {
                jsonrpc::write_result(out, open.id.raw(), result)
            });
        }
        let own = if matches!(answer, Answer::Plain(_)) {
            Own::default()
        } else {
            Own::of(result)
        };
        // Spec: 2026-07-28 server/utilities/caching: of complete results.
        let may_be_kept = matches!(answer, Answer::List(_)) && !own.incomplete;
        let ttl_ms = may_be_kept.then_some(self.config.cache_ttl_ms);
        let result = ModernResult {
            kind,
            result,
            own,
            ttl_ms,
        };
        self.emit_modern(Lane::Answer(key), open.id.raw(), result, sink);
    }

    /// Answers an open request with a result that is written where it leaves: `write` appends its members, at
    /// least one, in one line and without those that a peer adds. A key that was cancelled or answered
    /// before is ignored.
    pub fn respond_in_place(
        &mut self,
        key: RequestKey,
        sink: &mut dyn MessageSink,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let Some(at) = self.open.iter().position(|open| open.key == key) else {
            return;
        };
        let open = self.open.swap_remove(at);
        self.asked.retain(|asked| asked.of != Some(key));
        if open.revision.is_stateless() {
            return self.emit_modern_in_place(&open, sink, write);
        }
        self.emit(&open, sink, |out| {
            jsonrpc::begin_result(out, open.id.as_bytes());
            out.push(b'{');
            write(out);
            out.extend_from_slice(b"}}");
        });
    }

    /// Tells the client how far a request is, if it asked for that. `progress` rises with each call.
    pub fn progress(
        &mut self,
        key: RequestKey,
        progress: u64,
        total: Option<u64>,
        message: &str,
        sink: &mut dyn MessageSink,
    ) {
        let Some(open) = self.open.iter_mut().find(|open| open.key == key) else {
            return;
        };
        let Some(token) = &open.progress_token else {
            return;
        };
        // Zero is a fine beginning; after that the value must rise.
        if open.progress.is_some_and(|last| progress <= last) {
            return;
        }
        open.progress = Some(progress);
        let token = token.clone();
        let progress = open.risen(&progress.to_string()).into_owned();
        let mut params = format!(r#"{{"progressToken":{token},"progress":{progress}"#);
        if let Some(total) = total {
            params.push_str(&format!(r#","total":{total}"#));
        }
        if open.revision.progress_has_message() && !message.is_empty() {
            params.push_str(r#","message":"#);
            write_string(&mut params, message);
        }
        params.push('}');
        send(sink, Lane::Request(key), "notifications/progress", &params);
    }

    /// Tells the client that a request waits for somebody, if it asked for progress; says whether it did. The
    /// value rises each time and stays below whatever progress is told later, as long as that is not zero:
    /// then it is ours that is told in its place. Spec: 2025-11-25 basic/utilities/progress (the value must
    /// increase, and may be a fraction).
    pub fn waits(&mut self, key: RequestKey, message: &str, sink: &mut dyn MessageSink) -> bool {
        let Some(open) = self.open.iter_mut().find(|open| open.key == key) else {
            return false;
        };
        let Some(token) = open.progress_token.clone() else {
            return false;
        };
        let progress = open.wait_value();
        let mut params = format!(r#"{{"progressToken":{token},"progress":{progress}"#);
        if open.revision.progress_has_message() {
            params.push_str(r#","message":"#);
            write_string(&mut params, message);
        }
        params.push('}');
        send(sink, Lane::Request(key), "notifications/progress", &params);
        true
    }

    /// Passes on what an upstream server tells of its progress: raw params, in which only the token is another,
    /// and the value where it would not rise.
    pub fn pass_progress(&mut self, key: RequestKey, params: &str, sink: &mut dyn MessageSink) {
        let Some(open) = self.open.iter_mut().find(|open| open.key == key) else {
            return;
        };
        let Some(token) = &open.progress_token else {
            return;
        };
        let mut passed = format!(r#"{{"progressToken":{token}"#);
        for (name, value) in members(params).filter(|(name, _)| !name.is("progressToken")) {
            let is_message = name.is("message");
            let value = match name.is("progress") {
                true => open.risen(value),
                false => Cow::Borrowed(value),
            };
            if !is_message || open.revision.progress_has_message() {
                passed.push_str(&format!(r#","{}":{value}"#, name.raw()));
            }
        }
        passed.push('}');
        send(sink, Lane::Request(key), "notifications/progress", &passed);
    }

    /// Sends a notification of the session to a legacy client. Before the client has finished its
    /// handshake it is held, up to `notifications_held_max`; the oldest goes first.
    pub fn notify(&mut self, method: &'static str, params: String, sink: &mut dyn MessageSink) {
        self.tell_session(method.into(), Some(params), sink);
    }

    /// Sends a log message of the session to a legacy client that has asked for this level or a lower
    /// one. `data` is a raw JSON value.
    pub fn log(&mut self, level: LogLevel, logger: &str, data: &str, sink: &mut dyn MessageSink) {
        if self.initialized && self.log_level.is_some_and(|wanted| level >= wanted) {
            send(
                sink,
                Lane::Session,
                "notifications/message",
                &log_params(level, logger, data),
            );
        }
    }

    /// Sends a log message that belongs to one request: on its stream, and by the level that its era asks
    /// for: the request's own, or that of the session (without one, everything).
    pub fn log_for(
        &mut self,
        key: RequestKey,
        level: LogLevel,
        logger: &str,
        data: &str,
        sink: &mut dyn MessageSink,
    ) {
        let Some(open) = self.open.iter().find(|open| open.key == key) else {
            return;
        };
        let wanted = if open.revision.is_stateless() {
            open.log_level.is_some_and(|wanted| level >= wanted)
        } else {
            self.log_level.is_none_or(|wanted| level >= wanted)
        };
        if wanted {
            let params = log_params(level, logger, data);
            send(sink, Lane::Request(key), "notifications/message", &params);
        }
    }

    /// Tells everyone who may know that a list changed: a legacy client that has finished its handshake,
    /// and each listen stream that asked for this list.
    pub fn list_changed(&mut self, list: List, sink: &mut dyn MessageSink) {
        if self.negotiated.is_some() && list.of(self.config.changing) {
            self.notify(list.method(), "{}".to_owned(), sink);
        }
        for open in &mut self.open {
            if Self::hold_list_changed(open, list) {
                let params = subscription_params(&open.id, "");
                send(sink, Lane::Request(open.key), list.method(), &params);
            }
        }
    }

    /// The server is another, and so is this list of it: tells a legacy client whatever it was told of that,
    /// and each listen stream that asked for this list.
    pub fn list_is_another(&mut self, list: List, sink: &mut dyn MessageSink) {
        if self.negotiated.is_some() && !list.of(self.config.changing) {
            self.notify(list.method(), "{}".to_owned(), sink);
        }
        self.list_changed(list, sink);
    }

    /// Tells everyone who subscribed to it that a resource changed.
    pub fn resource_updated(&mut self, uri: &str, sink: &mut dyn MessageSink) {
        let mut params = String::from(r#"{"uri":"#);
        write_string(&mut params, uri);
        params.push('}');
        self.pass_resource_updated(uri, &params, false, &[], sink);
    }

    /// Asks a legacy client something; the answer comes as
    /// [`ServerEvent::Answered`](super::ServerEvent::Answered). `None` when the request it would be for is
    /// gone or belongs to the stateless era, which has no such requests, and before the handshake.
    pub fn ask(
        &mut self,
        whose: Whose,
        method: &str,
        params: Option<&str>,
        sink: &mut dyn MessageSink,
    ) -> Option<AskKey> {
        let (of, lane) = match whose {
            Whose::Request(key) => (Some(key), Lane::Request(key)),
            Whose::Session(Some(key)) => (None, Lane::Request(key)),
            Whose::Session(None) => (None, Lane::Session),
        };
        match lane {
            Lane::Request(key) => {
                let open = self.open.iter().find(|open| open.key == key)?;
                if open.revision.is_stateless() {
                    return None;
                }
            }
            Lane::Session | Lane::Reply | Lane::Answer(_) => {
                self.negotiated?;
            }
        }
        let ask = AskKey(self.next_ask);
        self.next_ask += 1;
        self.asked.push(Asked { key: ask, of });
        jsonrpc::write_request(sink.begin(lane), ask.0, method, params);
        sink.commit();
        Some(ask)
    }

    /// Tells a legacy client that something it was asked need not be answered any more; an answer that comes
    /// all the same is let fall.
    pub fn withdraw(&mut self, ask: AskKey, reason: &str, sink: &mut dyn MessageSink) {
        let at = self.asked.iter().position(|asked| asked.key == ask);
        let of = at.and_then(|at| self.asked.swap_remove(at).of);
        let mut params = format!(r#"{{"requestId":{},"reason":"#, ask.0);
        write_string(&mut params, reason);
        params.push('}');
        let lane = of.map_or(Lane::Session, Lane::Request);
        send(sink, lane, "notifications/cancelled", &params);
    }

    /// Answers a request that was never opened.
    pub(super) fn answer_now(
        &mut self,
        id: &str,
        batch: Option<u32>,
        outcome: Result<&str, RpcError>,
        sink: &mut dyn MessageSink,
    ) {
        let write = |out: &mut Vec<u8>| match &outcome {
            Ok(result) => jsonrpc::write_result(out, id, result),
            Err(error) => write_rpc_error(out, Some(id), error),
        };
        if let Some(batch) = self.batch(batch) {
            write(batch.next_answer());
            return;
        }
        if let Err(error) = &outcome {
            sink.note_error(error.code);
        }
        write(sink.begin(Lane::Reply));
        sink.commit();
    }

    /// Answers something that is no request.
    pub(super) fn refuse(
        &mut self,
        id: Option<&str>,
        error: &RpcError,
        batch: Option<u32>,
        sink: &mut dyn MessageSink,
    ) {
        self.tally.unreadable += 1;
        if let Some(batch) = self.batch(batch) {
            write_rpc_error(batch.next_answer(), id, error);
            return;
        }
        sink.note_error(error.code);
        write_rpc_error(sink.begin(Lane::Reply), id, error);
        sink.commit();
    }

    fn emit_error(&mut self, open: &Open, error: &RpcError, sink: &mut dyn MessageSink) {
        if open.batch.is_none() {
            sink.note_error(error.code);
        }
        self.emit(open, sink, |out| {
            write_rpc_error(out, Some(open.id.raw()), error)
        });
    }

    fn pass_error(&mut self, open: &Open, error: &str, sink: &mut dyn MessageSink) {
        let code = member(error, "code").and_then(|code| code.parse().ok());
        let mut code = code.unwrap_or(ErrorCode::InternalError.number());
        let mut error = Cow::Borrowed(error);
        if code == ErrorCode::ResourceNotFound.number() && !open.revision.has_resource_not_found() {
            code = ErrorCode::InvalidParams.number();
            error = with_member(&error, "code", &code.to_string()).into();
        }
        if open.batch.is_none() {
            sink.note_error(ErrorCode::Upstream(code));
        }
        self.emit(open, sink, |out| {
            jsonrpc::write_raw_error(out, open.id.raw(), &error)
        });
    }

    pub(super) fn emit(
        &mut self,
        open: &Open,
        sink: &mut dyn MessageSink,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if let Some(batch) = self.batch(open.batch) {
            write(batch.next_answer());
            self.batch_answered(open.batch, Lane::Answer(open.key), sink);
            return;
        }
        write(sink.begin(Lane::Answer(open.key)));
        sink.commit();
    }
}

impl Open {
    /// The next value of progress for a request that waits: a millionth for each word.
    fn wait_value(&mut self) -> String {
        self.waits = self.waits.saturating_add(1).min(999_999);
        format!("0.{:06}", self.waits)
    }

    /// A raw value of progress, or one in its place that rises above what was told of the wait.
    fn risen<'a>(&mut self, value: &'a str) -> Cow<'a, str> {
        if self.waits == 0 {
            return Cow::Borrowed(value);
        }
        let told = f64::from(self.waits) / 1e6;
        match value.parse::<f64>() {
            Ok(number) if number <= told => self.wait_value().into(),
            Ok(_) | Err(_) => {
                self.waits = 0;
                Cow::Borrowed(value)
            }
        }
    }
}

fn send(sink: &mut dyn MessageSink, lane: Lane, method: &str, params: &str) {
    jsonrpc::write_notification(sink.begin(lane), method, Some(params));
    sink.commit();
}

fn log_params(level: LogLevel, logger: &str, data: &str) -> String {
    let mut params = format!(r#"{{"level":"{}","logger":"#, level.as_str());
    write_string(&mut params, logger);
    params.push_str(r#","data":"#);
    params.push_str(data);
    params.push('}');
    params
}

pub(super) fn write_rpc_error(out: &mut Vec<u8>, id: Option<&str>, error: &RpcError) {
    let code = error.code.number();
    jsonrpc::write_error(out, id, code, &error.message, error.data.as_deref());
}
