//! Faults of every kind, in the words and with the facts that a caller is told.
//!
//! Each line names the server first. Source: the command line's contract (what a message says).

use std::time::Duration;

use crate::diagnostic::Level;
use crate::link::upstream::UpstreamClosed;
use crate::link::{ExitReport, FaultKind};
use crate::manager::diagnostic::ServerDiagnostic;
use crate::manager::error::{FailureKind, Phase, UpstreamError};
use crate::manager::health::RetryAfter;
use crate::manager::server_config::{ServerConfig, ServerKey, Transport};
use crate::protocol::client::peer::{CallFault, ConnectFault, RemoteError};
use crate::protocol::client::{RequestEnd, StatusEnd};
use crate::protocol::error::{ErrorCode, RpcError};
use crate::secret::{Quoted, mask_text};

/// Bytes of a server's stderr that a message shows; the data beside it holds more.
const STDERR_SHOWN_MAX: usize = 512;
/// Bytes of a body that is no answer that are shown. Source: the command line's contract.
const BODY_SHOWN_MAX: usize = 200;

/// The server's name for a message.
pub(super) fn name(config: &ServerConfig) -> String {
    Quoted(config.key.as_str()).to_string()
}

fn line(config: &ServerConfig, phase: Phase, kind: FailureKind, what: &str) -> UpstreamError {
    let message = format!("server {}: {what}", name(config));
    UpstreamError::new(&config.key, phase, kind, message)
}

/// The manager or the runtime has been ended, or the server's record has changed.
pub(super) fn disposed(config: &ServerConfig) -> UpstreamError {
    line(
        config,
        Phase::Call,
        FailureKind::Disposed,
        "the connection was ended",
    )
}

/// Left alone after failures.
pub(super) fn paused(config: &ServerConfig, left: Duration) -> UpstreamError {
    let what = format!("paused after repeated failures: {}", RetryAfter(left));
    let mut error = line(config, Phase::Call, FailureKind::Unavailable, &what);
    error.facts.retry_in_ms = Some(millis(left));
    error
}

/// It could not be connected to, and is not tried again yet.
pub(super) fn resting(
    config: &ServerConfig,
    last: Option<&UpstreamError>,
    left: Duration,
) -> UpstreamError {
    let mut error = match last {
        Some(last) => last.clone(),
        None => line(
            config,
            Phase::Connect,
            FailureKind::Unreachable,
            "not connected",
        ),
    };
    error.message = format!("{}; {}", error.message, RetryAfter(left));
    error.facts.retry_in_ms = Some(millis(left));
    error
}

/// Too much is open towards it.
pub(super) fn busy(config: &ServerConfig, value: usize, limit: usize) -> UpstreamError {
    let what = format!("busy: {value} requests are open, limit {limit}");
    limited(
        line(config, Phase::Call, FailureKind::Limit, &what),
        value,
        limit,
    )
}

/// Too many calls wait for it to be known whose tool they mean.
pub(super) fn waiting_too_many(value: usize, limit: usize) -> UpstreamError {
    let message =
        format!("busy: {value} calls wait for servers that are connecting, limit {limit}");
    let server = ServerKey("".into());
    limited(
        UpstreamError::new(&server, Phase::Call, FailureKind::Limit, message),
        value,
        limit,
    )
}

/// There is no such runtime any more.
pub(super) fn no_runtime() -> UpstreamError {
    let message = "the session was ended".to_owned();
    UpstreamError::new(
        &ServerKey("".into()),
        Phase::Call,
        FailureKind::Disposed,
        message,
    )
}

/// No server has that key.
pub(super) fn unknown_server(key: &ServerKey) -> UpstreamError {
    let message = format!("no server is called {}", Quoted(key.as_str()));
    UpstreamError::new(key, Phase::Config, FailureKind::Config, message)
}

/// The tool is not the one that was locked.
pub(super) fn refused(key: &ServerKey, why: &str) -> UpstreamError {
    UpstreamError::new(key, Phase::Call, FailureKind::Other, why.to_owned())
}

/// No server offers that tool. `only` is the one server there is, if it is one; `missing` are the servers
/// that have not said what they offer.
pub(super) fn unknown_tool(
    tool: &str,
    only: Option<&ServerKey>,
    missing: &[(&ServerKey, Option<&UpstreamError>)],
) -> UpstreamError {
    let mut message = match only {
        Some(key) => format!("server {}: ", Quoted(key.as_str())),
        None => String::new(),
    };
    message.push_str(&format!("unknown tool {}", Quoted(tool)));
    for (i, (key, error)) in missing.iter().enumerate() {
        message.push_str(if i == 0 { "; not available: " } else { ", " });
        message.push_str(&Quoted(key.as_str()).to_string());
        if let Some(error) = error {
            message.push_str(&format!(" ({error})"));
        }
    }
    let nobody = ServerKey("".into());
    let server = only.unwrap_or(&nobody);
    UpstreamError::new(server, Phase::Call, FailureKind::Arguments, message)
}

/// The arguments do not match the tool's schema; nothing was sent.
pub(super) fn arguments(key: &ServerKey, tool: &str, problems: &[String]) -> UpstreamError {
    let message = format!(
        "server {}: arguments of {} do not match its schema: {}",
        Quoted(key.as_str()),
        Quoted(tool),
        problems.join("; ")
    );
    let mut error = UpstreamError::new(key, Phase::Call, FailureKind::Arguments, message);
    error.facts.never_ran = true;
    error
}

/// The result does not match the tool's output schema. The tool has run.
pub(super) fn result(key: &ServerKey, tool: &str, problems: &[String]) -> UpstreamError {
    let message = format!(
        "server {}: the result of {} does not match its schema: {}",
        Quoted(key.as_str()),
        Quoted(tool),
        problems.join("; ")
    );
    UpstreamError::new(key, Phase::Call, FailureKind::Protocol, message)
}

/// `tools/call` goes through the gate.
pub(super) fn not_gated(key: &ServerKey) -> UpstreamError {
    let message = "tools/call is not a request like others: it passes the gate".to_owned();
    UpstreamError::new(key, Phase::Call, FailureKind::Other, message)
}

/// Nobody in particular has caused the question of a shared server.
pub(super) fn nobody_to_ask() -> RpcError {
    RpcError::new(
        ErrorCode::InternalError,
        "no client can be asked: the server is shared and the request belongs to no call",
    )
}

/// The client is gone before it has answered.
pub(super) fn client_is_gone() -> RpcError {
    RpcError::new(
        ErrorCode::InternalError,
        "the client is gone: it has not answered",
    )
}

/// A question of a server was refused: no client has declared that it answers such.
pub(super) fn undeclared_question(config: &ServerConfig, method: &str) -> ServerDiagnostic {
    let message = format!(
        "server {} asks for {method}, which its client has not declared: refused with -32601",
        name(config)
    );
    ServerDiagnostic::new(&config.key, Phase::Call, Level::Warning, message)
        .with_code("undeclared-question")
}

/// A question of a shared server was refused: it is not known whose call it is for.
pub(super) fn question_of_no_call(key: &ServerKey, method: &str) -> ServerDiagnostic {
    let message = format!(
        "server {} asks for {method} outside of any one call, and is shared: refused with -32603",
        Quoted(key.as_str())
    );
    ServerDiagnostic::new(key, Phase::Call, Level::Warning, message)
        .with_code("question-of-no-call")
}

/// A request got no result.
pub(super) fn call(config: &ServerConfig, stderr: &str, fault: &CallFault) -> UpstreamError {
    let text = mask_text(&fault.to_string());
    let at = |kind| line(config, Phase::Call, kind, &text);
    match fault {
        CallFault::Remote(remote) => {
            let mut error = at(FailureKind::Remote);
            error.facts.rpc = Some(remote.clone());
            error
        }
        CallFault::TimedOut { limit, .. } => {
            let mut error = with_stderr(at(FailureKind::TimedOut), stderr);
            error.facts.limit = Some(millis(*limit));
            error
        }
        CallFault::ForeignState(_) => at(FailureKind::Arguments),
        CallFault::Refused(remote) => {
            let mut error = at(FailureKind::Unanswered);
            error.facts.rpc = Some(remote.clone());
            error
        }
        CallFault::Undeclared { feature, .. } => {
            let mut error = at(FailureKind::Unanswered);
            error.facts.rpc = Some(RemoteError {
                code: ErrorCode::MissingClientCapability.number().into(),
                message: error.message.clone(),
                data: Some(format!(r#"{{"requiredCapabilities":{{"{feature}":{{}}}}}}"#).into()),
                raw: None,
            });
            error
        }
        CallFault::Cancelled => at(FailureKind::Cancelled),
        CallFault::End(end) => ended(config, Phase::Call, end, &text),
        CallFault::Closed(_) => with_stderr(at(FailureKind::Closed), stderr),
        CallFault::Busy { value, limit } => limited(at(FailureKind::Limit), *value, *limit),
        CallFault::Violation(why) => match too_large(why) {
            Some((value, limit)) => limited(at(FailureKind::Limit), value, limit),
            None => at(FailureKind::Protocol),
        },
    }
}

/// Value and limit of an answer that was skipped because of its size. A link without a stream for each
/// request says it in words only.
fn too_large(why: &str) -> Option<(usize, usize)> {
    let sizes = why.strip_prefix("message too large: ")?;
    let (value, limit) = sizes.split_once(" bytes, limit ")?;
    Some((value.parse().ok()?, limit.parse().ok()?))
}

/// A conversation could not begin.
pub(super) fn connect(config: &ServerConfig, stderr: &str, fault: &ConnectFault) -> UpstreamError {
    let text = mask_text(&fault.to_string());
    let phase = match fault {
        ConnectFault::TimedOut { what, .. }
        | ConnectFault::Refused { method: what, .. }
        | ConnectFault::End { method: what, .. } => phase_of(what),
        ConnectFault::Version { .. } => Phase::Initialize,
        ConnectFault::NoCommonVersion { .. } => Phase::Discover,
        ConnectFault::Violation(_) | ConnectFault::Closed(_) => Phase::Connect,
    };
    let at = |kind| line(config, phase, kind, &text);
    let mut error = match fault {
        ConnectFault::TimedOut { limit, .. } => {
            let mut error = at(FailureKind::TimedOut);
            error.facts.limit = Some(millis(*limit));
            error
        }
        ConnectFault::Version { .. }
        | ConnectFault::NoCommonVersion { .. }
        | ConnectFault::Violation(_) => at(FailureKind::Protocol),
        ConnectFault::Refused { error: remote, .. } => {
            let mut error = at(FailureKind::Remote);
            error.facts.rpc = Some(remote.clone());
            error
        }
        ConnectFault::End { end, .. } => ended(config, phase, end, &text),
        ConnectFault::Closed(_) => at(FailureKind::Closed),
    };
    error.facts.supported = fault.supported();
    with_stderr(error, stderr)
}

/// The link is gone.
pub(super) fn closed(
    config: &ServerConfig,
    stderr: &str,
    reason: &UpstreamClosed,
    phase: Phase,
) -> UpstreamError {
    let text = mask_text(&reason.to_string());
    let at = |kind| line(config, phase, kind, &text);
    let error = match reason {
        UpstreamClosed::Io(fault) => {
            let kind = match fault.kind {
                FaultKind::Resolve | FaultKind::Unreachable => FailureKind::Unreachable,
                FaultKind::Tls | FaultKind::Broken | FaultKind::Exhausted => FailureKind::Closed,
            };
            let mut error = at(kind);
            if kind == FailureKind::Unreachable && phase != Phase::Call {
                error.phase = match config.transport {
                    Transport::Stdio(_) => Phase::Spawn,
                    Transport::Http(_) | Transport::Unix { .. } => Phase::Connect,
                };
            }
            error
        }
        UpstreamClosed::Refused { status, .. } => status_facts(at(FailureKind::Other), status),
        UpstreamClosed::Exited(report) => {
            let mut error = at(FailureKind::Closed);
            match report {
                ExitReport::Code(code) => error.facts.exit_code = Some(*code),
                ExitReport::Signal(_) => {
                    let name = report.to_string();
                    error.facts.signal = name.rsplit(' ').next().map(str::to_owned);
                }
            }
            error
        }
        UpstreamClosed::NotReading { value, limit } => {
            limited(at(FailureKind::Limit), *value, *limit)
        }
        UpstreamClosed::Violation(_) => at(FailureKind::Protocol),
        UpstreamClosed::Local
        | UpstreamClosed::OutputEnded { .. }
        | UpstreamClosed::SessionLost(_) => at(FailureKind::Closed),
    };
    with_stderr(error, stderr)
}

/// The phase in which a method is asked.
pub(super) fn phase_of(method: &str) -> Phase {
    match method {
        "server/discover" => Phase::Discover,
        "initialize" => Phase::Initialize,
        "connect" => Phase::Connect,
        _ => Phase::Call,
    }
}

fn ended(config: &ServerConfig, phase: Phase, end: &RequestEnd, text: &str) -> UpstreamError {
    let at = |kind| line(config, phase, kind, text);
    match end {
        RequestEnd::NotSent(_) => {
            let mut error = at(FailureKind::Unreachable);
            // Nothing was asked: it was the connection that failed.
            if matches!(phase, Phase::Discover | Phase::Initialize) {
                error.phase = Phase::Connect;
            }
            error.facts.never_ran = true;
            error
        }
        RequestEnd::Status(status) | RequestEnd::SessionDoubtful(status) => {
            status_facts(at(FailureKind::Other), status)
        }
        RequestEnd::SessionLost { status } => {
            let mut error = at(FailureKind::Closed);
            error.facts.status = Some(*status);
            error.facts.never_ran = true;
            error
        }
        RequestEnd::ContentType {
            status,
            found,
            body,
        } => {
            let mut error = at(FailureKind::Protocol);
            error.facts.status = Some(*status);
            error.facts.content_type = Some(found.clone());
            error.facts.body = Some(body.clone());
            error
        }
        RequestEnd::TooLarge { value, limit } | RequestEnd::NotReading { value, limit } => {
            limited(at(FailureKind::Limit), *value, *limit)
        }
        RequestEnd::Broken(_) => at(FailureKind::Closed),
        RequestEnd::Accepted => at(FailureKind::Protocol),
        RequestEnd::Redirect { .. } => at(FailureKind::Other),
    }
}

fn status_facts(mut error: UpstreamError, status: &StatusEnd) -> UpstreamError {
    error.kind = match status.status {
        401 => FailureKind::Authorization,
        403 if status.challenge.is_some() => FailureKind::Authorization,
        429 | 503 => FailureKind::Unavailable,
        _ => error.kind,
    };
    let facts = &mut error.facts;
    facts.status = Some(status.status);
    facts.content_type.clone_from(&status.content_type);
    let shown = &status.body[..status.body.len().min(BODY_SHOWN_MAX)];
    let body = String::from_utf8_lossy(shown);
    facts.body = (!body.is_empty()).then(|| mask_text(&Quoted(&body).to_string()));
    if let Some(challenge) = &status.challenge {
        facts.challenge = parameters(challenge);
    }
    if error.kind == FailureKind::Authorization {
        let challenge = status.challenge.as_deref().unwrap_or("none");
        let challenge = Quoted(challenge);
        error
            .message
            .push_str(&format!("; authorization needed, challenge: {challenge}"));
    }
    if error.kind == FailureKind::Unavailable {
        facts.retry_in_ms = status.retry_after_ms;
        if let Some(ms) = status.retry_after_ms {
            let wait = RetryAfter(Duration::from_millis(ms));
            error.message.push_str(&format!("; {wait}"));
        }
    }
    error
}

/// The parameters of a challenge that the contract names.
fn parameters(challenge: &str) -> Vec<(String, String)> {
    const NAMED: [&str; 4] = ["resource_metadata", "scope", "error", "error_description"];
    crate::codec::challenge::parameters(challenge)
        .into_iter()
        .filter(|(name, _)| NAMED.contains(&name.as_str()))
        .collect()
}

fn with_stderr(mut error: UpstreamError, stderr: &str) -> UpstreamError {
    let tail = stderr.trim_end();
    if !tail.is_empty() {
        let mut from = tail.len().saturating_sub(STDERR_SHOWN_MAX);
        while !tail.is_char_boundary(from) {
            from += 1;
        }
        let shown = mask_text(&tail[from..]);
        error.message.push_str("; stderr: ");
        error.message.push_str(shown.trim());
        error.facts.stderr = Some(mask_text(tail));
    }
    error
}

fn limited(mut error: UpstreamError, value: usize, limit: usize) -> UpstreamError {
    error.facts.value = u64::try_from(value).ok();
    error.facts.limit = u64::try_from(limit).ok();
    error
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// It is left alone for a while.
pub(super) fn pause_begins(config: &ServerConfig, pause: Duration) -> ServerDiagnostic {
    let message = format!(
        "server {}: paused after {} failures in a row: {}",
        name(config),
        config.pause.0,
        RetryAfter(pause)
    );
    let mut said = ServerDiagnostic::new(&config.key, Phase::Call, Level::Warning, message);
    said.retry_in_ms = Some(millis(pause));
    said.with_code("paused")
}

/// It tells of changes that it had not announced.
pub(super) fn undeclared_change(config: &ServerConfig) -> ServerDiagnostic {
    let message = format!(
        "server {}: tools/list_changed came although listChanged was not declared; the tools are listed again",
        name(config)
    );
    ServerDiagnostic::new(&config.key, Phase::List, Level::Info, message)
        .with_code("undeclared-list-changed")
}

/// Something about its answers is wrong, and they could be used all the same.
pub(super) fn odd_answer(config: &ServerConfig, why: &str) -> ServerDiagnostic {
    let message = format!("server {}: {why}", name(config));
    let mut said = ServerDiagnostic::new(&config.key, Phase::Call, Level::Warning, message);
    said.count = Some(1);
    said.with_code("odd-answer")
}

/// A failure as a diagnostic.
pub(super) fn diagnostic(error: &UpstreamError) -> ServerDiagnostic {
    let message = error.message.clone();
    let mut said = ServerDiagnostic::new(&error.server, error.phase, Level::Error, message);
    said.retry_in_ms = error.facts.retry_in_ms;
    said
}

/// Something came that is no message of the conversation.
pub(super) fn noise(key: &ServerKey, process: bool, why: &str, sample: &[u8]) -> ServerDiagnostic {
    let shown = mask_text(&sample.escape_ascii().to_string());
    // Without a sample it is about messages, which is nothing that stands beside them.
    let process = process && !sample.is_empty();
    let what = if process {
        "its stdout holds more than messages"
    } else {
        "it sent something odd"
    };
    let message = format!("server {}: {what}: {why}", Quoted(key.as_str()));
    let mut said = ServerDiagnostic::new(key, Phase::Connect, Level::Warning, message);
    said.count = Some(1);
    said.sample = (!sample.is_empty()).then_some(shown);
    said.with_code(if process { "stdout-noise" } else { "noise" })
}

/// The tool has an output schema, and its result nothing that could match it.
pub(super) fn no_structured_content(key: &ServerKey, tool: &str) -> ServerDiagnostic {
    let message = format!(
        "server {}: {} has an outputSchema, but its result has no structuredContent",
        Quoted(key.as_str()),
        Quoted(tool)
    );
    ServerDiagnostic::new(key, Phase::Call, Level::Warning, message)
        .with_code("no-structured-content")
        .with_tool(tool)
}
