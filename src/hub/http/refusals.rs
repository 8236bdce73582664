//! What the HTTP door answers when it does not serve.

use super::sessions::SessionError;
use crate::codec::json_text::write_string;
use crate::link::http_rules::HttpRefusal;
use crate::secret::Quoted;

/// A refusal with a JSON-RPC error as its body; there is no id to give.
pub(super) fn json_error(status: u16, code: i32, message: &str) -> HttpRefusal {
    let mut body = format!(r#"{{"jsonrpc":"2.0","error":{{"code":{code},"message":"#);
    write_string(&mut body, message);
    body.push_str("}}");
    json(status, body)
}

/// A refusal with this JSON body.
pub(super) fn json(status: u16, body: String) -> HttpRefusal {
    HttpRefusal {
        status,
        headers: vec![("Content-Type", "application/json".to_owned())],
        body,
    }
}

pub(super) fn method_not_allowed(allowed: &'static str) -> HttpRefusal {
    let mut refusal = json_error(
        405,
        -32600,
        &format!("method not allowed, allowed are {allowed}"),
    );
    refusal.headers.push(("Allow", allowed.to_owned()));
    refusal
}

pub(super) fn not_found(path: &str) -> HttpRefusal {
    let text = format!("nothing is served at {}; MCP is at /mcp", Quoted(path));
    json_error(404, -32600, &text)
}

pub(super) fn unknown_session() -> HttpRefusal {
    json_error(
        404,
        -32001,
        "session not found: start a new one with initialize",
    )
}

pub(super) fn no_session(error: &SessionError) -> HttpRefusal {
    let mut refusal = json_error(503, -32603, &format!("busy: {error}"));
    if let Some(seconds) = error.retry_after_s() {
        refusal.headers.push(("Retry-After", seconds.to_string()));
    }
    refusal
}
