//! What leaves: answers, progress, notifications of the session, log messages.

use super::modern::subscription_params;
use super::{Answer, List, RequestKey, ServerPeer};
use crate::codec::json_text::write_string;
use crate::codec::jsonrpc::{self, RequestId};
use crate::protocol::MessageSink;
use crate::protocol::error::RpcError;
use crate::protocol::message::LogLevel;

impl ServerPeer {
    /// Answers an open request. A key that was cancelled or answered before is ignored.
    pub fn respond(&mut self, key: RequestKey, answer: Answer<'_>, sink: &mut dyn MessageSink) {
        let Some(at) = self.open.iter().position(|open| open.key == key) else {
            return;
        };
        let open = self.open.swap_remove(at);
        match answer {
            Answer::Error(error) => {
                self.emit(&open.id, open.batch, sink, |out| {
                    write_rpc_error(out, Some(open.id.raw()), error)
                });
            }
            Answer::Result(result) | Answer::List(result) if !open.revision.is_stateless() => {
                self.emit(&open.id, open.batch, sink, |out| {
                    jsonrpc::write_result(out, open.id.raw(), result)
                });
            }
            Answer::Result(result) => self.emit_modern(&open.id, result, None, sink),
            Answer::List(result) => {
                self.emit_modern(&open.id, result, Some(self.config.cache_ttl_ms), sink);
            }
        }
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
        if progress <= open.progress {
            return;
        }
        open.progress = progress;
        let mut params = format!(r#"{{"progressToken":{token},"progress":{progress}"#);
        if let Some(total) = total {
            params.push_str(&format!(r#","total":{total}"#));
        }
        if open.revision.progress_has_message() {
            params.push_str(r#","message":"#);
            write_string(&mut params, message);
        }
        params.push('}');
        let out = sink.begin(Some(&open.id));
        jsonrpc::write_notification(out, "notifications/progress", Some(&params));
        sink.commit();
    }

    /// Sends a notification of the session to a legacy client. Before the client has finished its
    /// handshake it is held, up to `notifications_held_max`; the oldest goes first.
    pub fn notify(&mut self, method: &'static str, params: String, sink: &mut dyn MessageSink) {
        if self.initialized {
            jsonrpc::write_notification(sink.begin(None), method, Some(&params));
            sink.commit();
            return;
        }
        if self.held.len() >= self.config.limits.notifications_held_max {
            self.held.pop_front();
            self.tally.notifications_dropped += 1;
        }
        self.held.push_back((method, params));
    }

    /// Sends a log message to a legacy client that has asked for this level or a lower one.
    pub fn log(&mut self, level: LogLevel, logger: &str, text: &str, sink: &mut dyn MessageSink) {
        if !self.initialized || self.log_level.is_none_or(|wanted| level < wanted) {
            return;
        }
        let mut params = format!(r#"{{"level":"{}","logger":"#, level.as_str());
        write_string(&mut params, logger);
        params.push_str(r#","data":"#);
        write_string(&mut params, text);
        params.push('}');
        jsonrpc::write_notification(sink.begin(None), "notifications/message", Some(&params));
        sink.commit();
    }

    /// Tells everyone who may know that a list changed: a legacy client that has finished its handshake,
    /// and each listen stream that asked for this list.
    pub fn list_changed(&mut self, list: List, sink: &mut dyn MessageSink) {
        if self.negotiated.is_some() && list.of(self.config.changing) {
            self.notify(list.method(), "{}".to_owned(), sink);
        }
        for open in &self.open {
            if open.listening.is_some_and(|asked| list.of(asked)) {
                let params = subscription_params(&open.id, None);
                jsonrpc::write_notification(
                    sink.begin(Some(&open.id)),
                    list.method(),
                    Some(&params),
                );
                sink.commit();
            }
        }
    }

    /// Answers a request that was never opened.
    pub(super) fn answer_now(
        &mut self,
        id: &RequestId,
        batch: Option<u32>,
        outcome: Result<&str, RpcError>,
        sink: &mut dyn MessageSink,
    ) {
        if let Some(batch) =
            batch.and_then(|number| self.batches.iter_mut().find(|b| b.number == number))
        {
            batch.waiting += 1;
        }
        self.emit(id, batch, sink, |out| match outcome {
            Ok(result) => jsonrpc::write_result(out, id.raw(), result),
            Err(error) => write_rpc_error(out, Some(id.raw()), &error),
        });
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
        match batch.and_then(|number| self.batches.iter_mut().find(|b| b.number == number)) {
            Some(batch) => {
                let separator = if batch.answers.is_empty() { b'[' } else { b',' };
                batch.answers.push(separator);
                write_rpc_error(&mut batch.answers, id, error);
            }
            None => {
                write_rpc_error(sink.begin(None), id, error);
                sink.commit();
            }
        }
    }

    pub(super) fn emit(
        &mut self,
        id: &RequestId,
        batch: Option<u32>,
        sink: &mut dyn MessageSink,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let Some(number) = batch else {
            write(sink.begin(Some(id)));
            sink.commit();
            return;
        };
        if let Some(batch) = self.batches.iter_mut().find(|batch| batch.number == number) {
            let separator = if batch.answers.is_empty() { b'[' } else { b',' };
            batch.answers.push(separator);
            write(&mut batch.answers);
        }
        self.batch_answered(number, sink);
    }
}

pub(super) fn write_rpc_error(out: &mut Vec<u8>, id: Option<&str>, error: &RpcError) {
    jsonrpc::write_error(
        out,
        id,
        error.code.number(),
        &error.message,
        error.data.as_deref(),
    );
}
