//! The methods about approvals. Texts and reasons as recorded from OpenClaw (openclaw-serve §1.8).

use std::time::Duration;

use serde_json::value::RawValue;

use super::approvals::{Approval, Found};
use super::journal::{ApprovalKind, ApprovalRecord, Decision, DecisionRecord, Record};
use super::params::Params;
use super::refusal::Refusal;
use super::rpc::{Answer, Desk, News, Outcome};
use super::session_rpc::{canonical_key, push_item};
use super::views::{self, Object};
use crate::entropy::uuid_v4;

/// Life of an exec approval when the requester names none. Source: OpenClaw.
const EXEC_TTL: Duration = Duration::from_secs(30 * 60);
/// Life of a plugin approval when the requester names none. Source: OpenClaw.
const PLUGIN_TTL: Duration = Duration::from_secs(2 * 60);
/// Longest life of a plugin approval. Source: OpenClaw.
const PLUGIN_TTL_MAX: Duration = Duration::from_secs(10 * 60);
/// Longest life of an exec approval.
const EXEC_TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Bytes of a request as kept and shown.
const REQUEST_BYTES_MAX: usize = 16 * 1024;
/// Ids that begin so belong to plugin approvals. Source: OpenClaw.
const PLUGIN_ID_PREFIX: &str = "plugin:";

/// Something to ask people about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Which kind of approval.
    pub kind: ApprovalKind,
    /// The command line (exec) or the title (plugin).
    pub subject: String,
    /// More about it; plugin approvals only.
    pub description: String,
    /// The conversation it belongs to.
    pub session_key: Option<String>,
    /// How long an answer may take; `None` is 30 minutes (exec) or 2 minutes (plugin).
    pub timeout: Option<Duration>,
}

/// A request ready to be recorded.
struct Request {
    kind: ApprovalKind,
    id: String,
    json: String,
    allowed: Vec<Decision>,
    ttl: Duration,
}

/// `drawspan.ask`: as `exec.approval.request`, but in the Gateway's own name, so that every client that may
/// decide approvals sees it, whatever its device. For people who try things out.
pub(super) fn ask_everyone(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    desk.caller.device = None;
    exec_request(desk, params)
}

pub(super) fn exec_request(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    params.only(&[
        "id",
        "command",
        "commandArgv",
        "commandSpans",
        "env",
        "cwd",
        "systemRunPlan",
        "nodeId",
        "host",
        "security",
        "ask",
        "warningText",
        "agentId",
        "resolvedPath",
        "sessionKey",
        "turnSourceChannel",
        "turnSourceTo",
        "turnSourceAccountId",
        "turnSourceThreadId",
        "timeoutMs",
        "twoPhase",
    ])?;
    let two_phase = params.flag("twoPhase")?;
    let id = params.text("id")?;
    let command = params.long_text("command")?.unwrap_or_default();
    if command.trim().is_empty() {
        return Err(Refusal::invalid("command is required"));
    }
    if id
        .as_ref()
        .is_some_and(|id| id.starts_with(PLUGIN_ID_PREFIX))
    {
        return Err(Refusal::invalid(format!(
            "approval ids starting with {PLUGIN_ID_PREFIX} are reserved"
        )));
    }
    // Of a decided one only the answer is remembered; its id may be used again.
    let waits = |id: &String| {
        let known = desk.store.approvals.get(ApprovalKind::Exec, id);
        known.is_some_and(|approval| approval.decision.is_none())
    };
    if id.as_ref().is_some_and(waits) {
        return Err(Refusal::invalid("approval id already pending"));
    }
    let ask = params.text("ask")?;
    let allowed = match ask.as_deref() {
        Some("always") => vec![Decision::AllowOnce, Decision::Deny],
        _ => Decision::ALL.to_vec(),
    };
    let json = Object::new()
        .text("command", &command)
        .raw("systemRunBinding", "null")
        .raw("systemRunPlan", "null")
        .text_or_null("cwd", params.text("cwd")?.as_deref())
        .text_or_null("nodeId", params.text("nodeId")?.as_deref())
        .text_or_null("host", params.text("host")?.as_deref())
        .text_or_null("security", params.text("security")?.as_deref())
        .text_or_null("ask", ask.as_deref())
        .text_or_null("warningText", params.text("warningText")?.as_deref())
        .raw(
            "commandAnalysis",
            r#"{"commandCount":1,"nestedCommandCount":0,"riskKinds":[],"warningLines":[]}"#,
        )
        .raw("allowedDecisions", &decisions_json(&allowed));
    let path = params.text("resolvedPath")?;
    let json = origin(json, params, Some(("resolvedPath", path.as_deref())))?.end();
    let request = Request {
        kind: ApprovalKind::Exec,
        id: id.unwrap_or_else(|| uuid_v4(desk.entropy)),
        json,
        allowed,
        ttl: ttl(params, EXEC_TTL, EXEC_TTL_MAX)?,
    };
    asked(desk, request, two_phase)
}

pub(super) fn plugin_request(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    params.only(&[
        "pluginId",
        "title",
        "description",
        "severity",
        "toolName",
        "toolCallId",
        "allowedDecisions",
        "agentId",
        "sessionKey",
        "turnSourceChannel",
        "turnSourceTo",
        "turnSourceAccountId",
        "turnSourceThreadId",
        "timeoutMs",
        "twoPhase",
    ])?;
    let two_phase = params.flag("twoPhase")?;
    let title = params.required_text("title")?;
    let description = params.required_long_text("description")?;
    let given = params.texts("allowedDecisions")?;
    let allowed = allowed_of(given.as_deref());
    let json = match given {
        Some(_) => Object::new().raw("allowedDecisions", &decisions_json(&allowed)),
        None => Object::new(),
    };
    let json = json
        .text_or_null("pluginId", params.text("pluginId")?.as_deref())
        .text("title", &title)
        .text("description", &description)
        .text_or_null("severity", params.text("severity")?.as_deref())
        .text_or_null("toolName", params.text("toolName")?.as_deref())
        .text_or_null("toolCallId", params.text("toolCallId")?.as_deref());
    let request = Request {
        kind: ApprovalKind::Plugin,
        id: format!("{PLUGIN_ID_PREFIX}{}", uuid_v4(desk.entropy)),
        json: origin(json, params, None)?.end(),
        allowed,
        ttl: ttl(params, PLUGIN_TTL, PLUGIN_TTL_MAX)?,
    };
    asked(desk, request, two_phase)
}

/// Decisions a plugin offers; all of them when it names none that exist.
fn allowed_of(given: Option<&[String]>) -> Vec<Decision> {
    let given = given.unwrap_or_default();
    let named = |decision: &Decision| given.iter().any(|text| text == decision.as_str());
    let allowed: Vec<_> = Decision::ALL.into_iter().filter(named).collect();
    if allowed.is_empty() {
        Decision::ALL.to_vec()
    } else {
        allowed
    }
}

/// Asks in the name of the program itself.
pub(super) fn ask(desk: &mut Desk<'_>, question: &Question) -> Result<(String, News), Refusal> {
    let session = question.session_key.as_deref().map(canonical_key);
    let agent = session.as_deref().map(views::agent_of);
    let json = match question.kind {
        ApprovalKind::Exec => Object::new()
            .text("command", &question.subject)
            .text("host", "gateway")
            .raw("allowedDecisions", &decisions_json(&Decision::ALL)),
        ApprovalKind::Plugin => Object::new()
            .text("title", &question.subject)
            .text("description", &question.description),
    };
    let json = json
        .text_or_null("agentId", agent)
        .text_or_null("sessionKey", session.as_deref())
        .end();
    let (id, usual, most) = match question.kind {
        ApprovalKind::Exec => (uuid_v4(desk.entropy), EXEC_TTL, EXEC_TTL_MAX),
        ApprovalKind::Plugin => {
            let id = format!("{PLUGIN_ID_PREFIX}{}", uuid_v4(desk.entropy));
            (id, PLUGIN_TTL, PLUGIN_TTL_MAX)
        }
    };
    let request = Request {
        kind: question.kind,
        id: id.clone(),
        json,
        allowed: Decision::ALL.to_vec(),
        ttl: question.timeout.unwrap_or(usual).min(most),
    };
    record(desk, request)?;
    let kind = question.kind;
    Ok((id.clone(), News::Requested { kind, id }))
}

/// The members that say where a request comes from.
fn origin(
    json: Object,
    params: &Params<'_>,
    between: Option<(&str, Option<&str>)>,
) -> Result<Object, Refusal> {
    let session = params.text("sessionKey")?.map(|key| canonical_key(&key));
    let agent = params.text("agentId")?;
    let agent = agent.or_else(|| {
        session
            .as_deref()
            .map(|key| views::agent_of(key).to_owned())
    });
    let json = json.text_or_null("agentId", agent.as_deref());
    let json = match between {
        Some((name, value)) => json.text_or_null(name, value),
        None => json,
    };
    Ok(json
        .text_or_null("sessionKey", session.as_deref())
        .text_or_null(
            "turnSourceChannel",
            params.text("turnSourceChannel")?.as_deref(),
        )
        .text_or_null("turnSourceTo", params.text("turnSourceTo")?.as_deref())
        .text_or_null(
            "turnSourceAccountId",
            params.text("turnSourceAccountId")?.as_deref(),
        )
        .text_or_null(
            "turnSourceThreadId",
            params.text_or_number("turnSourceThreadId")?.as_deref(),
        ))
}

fn decisions_json(decisions: &[Decision]) -> String {
    let names: Vec<_> = decisions
        .iter()
        .map(|d| format!("\"{}\"", d.as_str()))
        .collect();
    format!("[{}]", names.join(","))
}

fn ttl(params: &Params<'_>, usual: Duration, most: Duration) -> Result<Duration, Refusal> {
    let given = params.integer("timeoutMs", 1, false)?;
    Ok(given.map_or(usual, Duration::from_millis).min(most))
}

fn record(desk: &mut Desk<'_>, request: Request) -> Result<(i64, i64), Refusal> {
    if desk.store.approvals.is_full() {
        return Err(Refusal::unavailable(format!(
            "too many approvals wait (approvals_pending_max {}, found {})",
            desk.store.approvals.kept_max(),
            desk.store.approvals.pending_count()
        )));
    }
    if request.json.len() > REQUEST_BYTES_MAX {
        return Err(Refusal::invalid(format!(
            "the approval request is too long (at most {REQUEST_BYTES_MAX} bytes, found {})",
            request.json.len()
        )));
    }
    let created_at_ms = desk.now.unix_ms;
    let ttl = i64::try_from(request.ttl.as_millis()).unwrap_or(i64::MAX);
    let expires_at_ms = created_at_ms.saturating_add(ttl);
    let record = ApprovalRecord {
        kind: request.kind,
        id: request.id,
        request: RawValue::from_string(request.json).expect("a written object is JSON"),
        allowed: request.allowed,
        created_at_ms,
        expires_at_ms,
        device: desk.caller.device.map(str::to_owned),
    };
    desk.store.commit(desk.now, Record::Approval(record))?;
    Ok((created_at_ms, expires_at_ms))
}

fn asked(desk: &mut Desk<'_>, request: Request, two_phase: bool) -> Result<Outcome, Refusal> {
    desk.check_waiting()?;
    let (kind, id) = (request.kind, request.id.clone());
    let (created_at_ms, expires_at_ms) = record(desk, request)?;
    let accepted = two_phase.then(|| {
        Object::new()
            .text("status", "accepted")
            .text("id", &id)
            .int("createdAtMs", created_at_ms)
            .int("expiresAtMs", expires_at_ms)
            .end()
    });
    let answer = Answer::Decided {
        kind,
        id: id.clone(),
        accepted,
    };
    let outcome = Outcome {
        answer,
        news: Vec::new(),
        subscribe: None,
    };
    Ok(outcome.with_news(News::Requested { kind, id }))
}

pub(super) fn exec_wait(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    wait(desk, params, ApprovalKind::Exec)
}

pub(super) fn plugin_wait(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    wait(desk, params, ApprovalKind::Plugin)
}

fn wait(desk: &Desk<'_>, params: &Params<'_>, kind: ApprovalKind) -> Result<Outcome, Refusal> {
    let id = params.text("id")?;
    let id = id.ok_or_else(|| Refusal::invalid("id is required"))?;
    let approval = desk.store.approvals.get(kind, &id);
    let approval = approval
        .filter(|approval| desk.caller.sees(approval))
        .ok_or_else(|| Refusal::invalid("approval expired or not found"))?;
    if approval.decision.is_none() {
        desk.check_waiting()?;
        let mut outcome = Outcome::answer("");
        outcome.answer = Answer::Decided {
            kind,
            id,
            accepted: None,
        };
        return Ok(outcome);
    }
    Ok(Outcome::answer(views::approval_outcome(
        &id,
        approval.decision,
        approval.created_at_ms,
        approval.expires_at_ms,
    )))
}

pub(super) fn exec_list(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    list(desk, params, ApprovalKind::Exec)
}

pub(super) fn plugin_list(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    list(desk, params, ApprovalKind::Plugin)
}

fn list(desk: &Desk<'_>, params: &Params<'_>, kind: ApprovalKind) -> Result<Outcome, Refusal> {
    params.only(&[])?;
    let mut items = String::new();
    for (id, approval) in desk.store.approvals.pending(kind) {
        if desk.caller.sees(approval) {
            push_item(&mut items, &views::approval(id, approval));
        }
    }
    Ok(Outcome::answer(format!("[{items}]")))
}

pub(super) fn exec_resolve(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    resolve(desk, params, ApprovalKind::Exec)
}

pub(super) fn plugin_resolve(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    resolve(desk, params, ApprovalKind::Plugin)
}

fn resolve(
    desk: &mut Desk<'_>,
    params: &Params<'_>,
    kind: ApprovalKind,
) -> Result<Outcome, Refusal> {
    params.only(&["id", "decision"])?;
    let id = params.required_text("id")?;
    let decision = params.required_text("decision")?;
    let decision =
        Decision::from_wire(&decision).ok_or_else(|| Refusal::invalid("invalid decision"))?;
    let caller = desk.caller;
    let visible = |approval: &Approval| caller.sees(approval);
    let full_id = match desk.store.approvals.find_pending(kind, &id, &visible) {
        Found::One(full_id, approval) => {
            check_allowed(kind, decision, &approval.allowed)?;
            full_id.to_owned()
        }
        Found::Ambiguous => return Err(unclear(kind)),
        Found::Nothing => {
            let approvals = &desk.store.approvals;
            return match approvals.find_any(kind, &id, &visible) {
                Found::One(_, known) if known.decision == Some(decision) => {
                    Ok(Outcome::answer(r#"{"ok":true}"#))
                }
                Found::One(..) => Err(Refusal::invalid("approval already resolved")
                    .with_details(r#"{"reason":"APPROVAL_ALREADY_RESOLVED"}"#)),
                Found::Ambiguous | Found::Nothing => Err(unknown()),
            };
        }
    };
    let by = caller.name.map(str::to_owned);
    let record = DecisionRecord {
        kind,
        id: full_id.clone(),
        decision,
        by: by.clone(),
        at_ms: desk.now.unix_ms,
    };
    desk.store.commit(desk.now, Record::Decision(record))?;
    Ok(Outcome::answer(r#"{"ok":true}"#).with_news(News::Resolved {
        kind,
        id: full_id,
        decision,
        by,
    }))
}

fn check_allowed(
    kind: ApprovalKind,
    decision: Decision,
    allowed: &[Decision],
) -> Result<(), Refusal> {
    if allowed.contains(&decision) {
        return Ok(());
    }
    Err(match kind {
        ApprovalKind::Exec => Refusal::invalid(
            "allow-always is unavailable because the effective policy requires approval every time",
        )
        .with_details(r#"{"reason":"APPROVAL_ALLOW_ALWAYS_UNAVAILABLE"}"#),
        ApprovalKind::Plugin => Refusal::invalid(format!(
            "{} is unavailable for this plugin approval",
            decision.as_str()
        ))
        .with_details(
            Object::new()
                .text("reason", "PLUGIN_APPROVAL_DECISION_UNAVAILABLE")
                .raw("allowedDecisions", &decisions_json(allowed))
                .end(),
        ),
    })
}

fn unclear(kind: ApprovalKind) -> Refusal {
    match kind {
        ApprovalKind::Exec => Refusal::invalid("ambiguous approval id prefix; use the full id"),
        ApprovalKind::Plugin => unknown(),
    }
}

fn unknown() -> Refusal {
    let details = Object::new()
        .text("reason", "APPROVAL_NOT_FOUND")
        .text(
            "remediation",
            "ask again: an approval is forgotten once it has expired",
        )
        .end();
    Refusal::invalid("unknown or expired approval id").with_details(details)
}
