//! Writes requests: the caller's bytes as they are, and what the conversation adds to them.
//!
//! `params` is spliced, never rebuilt: only `_meta`, and on a retry the two members that answer the server's
//! questions, are written anew. What stands in the caller's `_meta` stays, with these exceptions:
//!
//! | key                  | handshake revisions | 2026-07-28                                             |
//! |----------------------|---------------------|--------------------------------------------------------|
//! | `protocolVersion`    | left out            | ours                                                   |
//! | `clientCapabilities` | left out            | the caller's if it answers the questions, else ours    |
//! | `clientInfo`         | left out            | the caller's, else ours                                |
//! | `logLevel`           | left out            | the caller's, else the one that was set, if any        |
//! | `progressToken`      | ours                | ours: callers do not know of each other's              |
//!
//! They are left out of a handshake revision because a server of both eras takes a request with them for one
//! of the other era.
//!
//! Source: Spec 2026-07-28 basic/index (`_meta`), basic/patterns/mrtr (Client Requirements).

use super::answer::place;
use crate::codec::json_text::append_string;
use crate::codec::jsonrpc::{append_raw, append_u64};
use crate::codec::scan::{Text, members};
use crate::ids::UpstreamRequestId;
use crate::protocol::message::{
    LogLevel, META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_LOG_LEVEL, META_PROTOCOL_VERSION,
    member,
};
use crate::protocol::revision::Revision;

/// Room for what stands around `params` in a request, so that most are written without growing.
const BODY_ROOM: usize = 512;

/// Members of `params` that answer questions.
const RETRY_MEMBERS: [&str; 2] = ["inputResponses", "requestState"];

/// What the conversation adds to a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Additions<'a> {
    /// What every request of the stateless era carries; `None` in the handshake revisions.
    pub(super) stateless: Option<Stateless<'a>>,
    /// Progress is wanted, with this token.
    pub(super) token: Option<UpstreamRequestId>,
    /// Answers to the questions of the server.
    pub(super) retry: Option<Retry<'a>>,
}

/// Metadata of a request of the stateless era.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stateless<'a> {
    pub(super) revision: Revision,
    /// Raw `ClientCapabilities`.
    pub(super) capabilities: &'a str,
    /// Raw `Implementation`.
    pub(super) identity: &'a str,
    pub(super) log_level: Option<LogLevel>,
    /// Whether the caller's own capabilities count, because it answers the questions itself.
    pub(super) capabilities_of_caller: bool,
}

impl Stateless<'_> {
    /// About how many bytes it is.
    fn len(&self) -> usize {
        self.capabilities.len() + self.identity.len()
    }
}

/// What a request that is sent again says more than the first time. Raw values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry<'a> {
    pub(super) responses: Option<&'a str>,
    pub(super) state: Option<&'a str>,
}

/// Parts of a caller's `params` that we look at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Params<'a> {
    /// The raw object.
    raw: Option<&'a str>,
    /// Its raw `_meta`.
    meta: Option<&'a str>,
    /// Whether it has any member.
    any: bool,
    /// Whether one of [`RETRY_MEMBERS`] is among them.
    has_retry: bool,
    /// `requestState` is.
    has_state: bool,
}

impl<'a> Params<'a> {
    /// Reads `params` of a request; `None` when they are no object. For `opaque` see
    /// [`RequestSpec`](super::pending::RequestSpec).
    pub(super) fn read(raw: Option<&'a str>, opaque: Option<&str>) -> Option<Self> {
        let mut params = Self {
            raw: raw.map(str::trim),
            ..Self::default()
        };
        let Some(raw) = params.raw else {
            return Some(params);
        };
        if !raw.starts_with('{') || !raw.ends_with('}') {
            return None;
        }
        if opaque.is_some_and(|opaque| names_nothing(raw, opaque)) {
            params.any = true;
            return Some(params);
        }
        for (key, value) in members(raw) {
            params.any = true;
            if key.is("_meta") {
                params.meta = Some(value);
            } else if RETRY_MEMBERS.iter().any(|name| key.is(name)) {
                params.has_retry = true;
                params.has_state |= key.is(RETRY_MEMBERS[1]);
            }
        }
        Some(params)
    }

    /// `Mcp-Name` of a request of `method`, unencoded.
    pub(super) fn name(&self, method: &str) -> Option<Box<str>> {
        let value = member(self.raw?, header_member(method)?)?;
        Text::of_value(value).map(|name| name.decode().into())
    }

    /// The raw `_meta` of the caller.
    pub(super) const fn meta(&self) -> Option<&'a str> {
        self.meta
    }

    /// Whether the caller goes on with a request that was answered by a wish for input.
    pub(super) fn has_state(&self) -> bool {
        self.has_state
    }

    /// The caller's progress token, raw. Spec: a string or an integer.
    pub(super) fn token(&self) -> Option<&'a str> {
        let meta = self.meta?;
        let token = member(meta, "progressToken")?;
        let usable = token.starts_with('"') || token.parse::<i64>().is_ok();
        usable.then_some(token)
    }
}

/// Whether params certainly have no member that we look for, because nothing around `opaque`, which is a value
/// in them, can be the name of one. Most of a long object is that value.
fn names_nothing(raw: &str, opaque: &str) -> bool {
    let Some(place) = place(opaque, raw) else {
        return false;
    };
    let around = [raw.get(..place.start), raw.get(place.end..)];
    around.into_iter().all(|part| part.is_some_and(is_plain))
}

/// Whether no member that we look for begins in a part of an object: all of them begin like this.
fn is_plain(part: &str) -> bool {
    let mut before = 0;
    part.bytes().all(|byte| {
        let begins = before == b'"' && matches!(byte, b'_' | b'i' | b'r');
        before = byte;
        !begins && byte != b'\\'
    })
}

/// The member of `params` that `Mcp-Name` repeats. Spec: 2026-07-28 streamable-http (Standard Request
/// Headers); the tasks extension names its tasks.
fn header_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" | "tasks/result" => Some("taskId"),
        _ => None,
    }
}

/// One request, unframed, in a buffer that is empty.
pub(super) fn request(
    mut out: Vec<u8>,
    id: UpstreamRequestId,
    method: &str,
    params: &Params<'_>,
    add: &Additions<'_>,
) -> Vec<u8> {
    let added = add.stateless.as_ref().map_or(0, Stateless::len);
    out.reserve(params.raw.map_or(0, str::len) + added + BODY_ROOM);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    append_u64(&mut out, id.0);
    out.extend_from_slice(br#","method":"#);
    append_string(&mut out, method);
    append_params(&mut out, params, add);
    out.push(b'}');
    out
}

fn append_params(out: &mut Vec<u8>, params: &Params<'_>, add: &Additions<'_>) {
    let renewed = renews_meta(params.meta, add);
    if params.raw.is_none() && !renewed && add.retry.is_none() {
        return;
    }
    let raw = params.raw.unwrap_or("{}");
    out.extend_from_slice(br#","params":"#);
    if !renewed && add.retry.is_none() {
        return append_raw(out, raw);
    }
    if add.retry.is_some() && params.has_retry {
        return append_rebuilt(out, params, renewed, add);
    }
    let inner = raw.strip_suffix('}').unwrap_or(raw);
    let mut any = params.any;
    match params.meta.filter(|_| renewed) {
        Some(old) => {
            let from = offset(raw, old);
            append_raw(out, &raw[..from]);
            append_meta(out, Some(old), add);
            append_raw(out, inner.get(from + old.len()..).unwrap_or_default());
        }
        None => append_raw(out, inner),
    }
    if renewed && params.meta.is_none() {
        append_name(out, &mut any, "_meta");
        append_meta(out, None, add);
    }
    append_retry(out, &mut any, add);
    out.push(b'}');
}

/// The same for a caller whose `params` have answers already: they are replaced.
fn append_rebuilt(out: &mut Vec<u8>, params: &Params<'_>, renewed: bool, add: &Additions<'_>) {
    out.push(b'{');
    let mut any = false;
    for (key, value) in members(params.raw.unwrap_or("{}")) {
        if RETRY_MEMBERS.iter().any(|name| key.is(name)) || (renewed && key.is("_meta")) {
            continue;
        }
        append_name(out, &mut any, key.raw());
        append_raw(out, value);
    }
    if renewed {
        append_name(out, &mut any, "_meta");
        append_meta(out, params.meta, add);
    }
    append_retry(out, &mut any, add);
    out.push(b'}');
}

fn append_retry(out: &mut Vec<u8>, any: &mut bool, add: &Additions<'_>) {
    let Some(retry) = add.retry else {
        return;
    };
    for (name, value) in RETRY_MEMBERS
        .into_iter()
        .zip([retry.responses, retry.state])
    {
        if let Some(value) = value {
            append_member(out, any, name, value);
        }
    }
}

fn append_member(out: &mut Vec<u8>, any: &mut bool, name: &str, raw: &str) {
    append_name(out, any, name);
    append_raw(out, raw);
}

/// The name of the next member, as it is written.
fn append_name(out: &mut Vec<u8>, any: &mut bool, raw: &str) {
    if std::mem::replace(any, true) {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(raw.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Whether a member of the caller's `_meta` stays.
fn stays(key: &Text<'_>, add: &Additions<'_>) -> bool {
    match &add.stateless {
        _ if key.is("progressToken") => add.token.is_none(),
        None => !RESERVED.iter().any(|reserved| key.is(reserved)),
        Some(_) if key.is(META_PROTOCOL_VERSION) => false,
        Some(stateless) if key.is(META_CLIENT_CAPABILITIES) => stateless.capabilities_of_caller,
        Some(_) => true,
    }
}

/// The members of a `_meta`, if it is an object.
fn kept<'a>(
    old: Option<&'a str>,
    add: &Additions<'_>,
) -> impl Iterator<Item = (Text<'a>, &'a str)> {
    let old = old.filter(|raw| raw.starts_with('{'));
    let all = old.into_iter().flat_map(members);
    all.filter(|(key, _)| stays(key, add))
}

/// Whether `_meta` is written anew in place of `old`.
fn renews_meta(old: Option<&str>, add: &Additions<'_>) -> bool {
    let lost = |old: &str| old.starts_with('{') && members(old).any(|(key, _)| !stays(&key, add));
    add.stateless.is_some() || add.token.is_some() || old.is_some_and(lost)
}

/// The `_meta` to send in place of `old`.
fn append_meta(out: &mut Vec<u8>, old: Option<&str>, add: &Additions<'_>) {
    out.push(b'{');
    let mut any = false;
    for (key, value) in kept(old, add) {
        append_name(out, &mut any, key.raw());
        append_raw(out, value);
    }
    let missing = |name: &str| !kept(old, add).any(|(key, _)| key.is(name));
    if let Some(stateless) = &add.stateless {
        append_name(out, &mut any, META_PROTOCOL_VERSION);
        append_string(out, stateless.revision.as_str());
        if missing(META_CLIENT_CAPABILITIES) {
            append_member(
                out,
                &mut any,
                META_CLIENT_CAPABILITIES,
                stateless.capabilities,
            );
        }
        if missing(META_CLIENT_INFO) {
            append_member(out, &mut any, META_CLIENT_INFO, stateless.identity);
        }
        if let Some(level) = stateless.log_level.filter(|_| missing(META_LOG_LEVEL)) {
            append_name(out, &mut any, META_LOG_LEVEL);
            append_string(out, level.as_str());
        }
    }
    if let Some(token) = add.token {
        append_name(out, &mut any, "progressToken");
        append_u64(out, token.0);
    }
    out.push(b'}');
}

const RESERVED: [&str; 4] = [
    META_PROTOCOL_VERSION,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
];

/// Where `inner` stands in `outer`, which it is a part of.
fn offset(outer: &str, inner: &str) -> usize {
    (inner.as_ptr() as usize).saturating_sub(outer.as_ptr() as usize)
}

/// `params` of a progress notification with the caller's own token in place of ours.
pub(super) fn with_token(params: &str, token: &str) -> Box<str> {
    let ours = member(params, "progressToken");
    let Some(ours) = ours else {
        return params.into();
    };
    let from = offset(params, ours);
    let mut told = String::with_capacity(params.len() + token.len());
    told.push_str(&params[..from]);
    told.push_str(token);
    told.push_str(&params[from + ours.len()..]);
    told.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATELESS: Stateless<'static> = Stateless {
        revision: Revision::V2026_07_28,
        capabilities: r#"{"roots":{}}"#,
        identity: r#"{"name":"d"}"#,
        log_level: None,
        capabilities_of_caller: false,
    };
    const OURS: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/clientInfo":{"name":"d"}"#;

    /// What stands for `params` in the request, with its name.
    fn sent(params: Option<&str>, add: &Additions<'_>) -> String {
        let read = Params::read(params, None).expect("an object");
        let body = request(Vec::new(), UpstreamRequestId(7), "m", &read, add);
        let text = String::from_utf8(body).expect("UTF-8");
        let rest = text.strip_prefix(r#"{"jsonrpc":"2.0","id":7,"method":"m""#);
        let rest = rest.and_then(|rest| rest.strip_suffix('}'));
        rest.expect("an envelope").to_owned()
    }

    fn stateless() -> Additions<'static> {
        Additions {
            stateless: Some(STATELESS),
            ..Additions::default()
        }
    }

    #[test]
    fn nothing_is_touched_when_nothing_is_added() {
        let none = Additions::default();
        assert_eq!(sent(None, &none), "");
        for raw in [
            "{}",
            r#"{ "a" : 1.0 , "_meta" : { "x" : 1e400 } }"#,
            r#"{"_meta":null}"#,
            r#"{"_meta":{"progressToken":"p"}}"#,
        ] {
            assert_eq!(sent(Some(raw), &none), format!(r#","params":{raw}"#));
        }
    }

    #[test]
    fn metadata_is_spliced_in() {
        let add = stateless();
        let whole = format!(r#","params":{{"_meta":{{{OURS}}}}}"#);
        assert_eq!(sent(None, &add), whole);
        assert_eq!(sent(Some("{}"), &add), whole);
        assert_eq!(sent(Some(r#"{"_meta":null}"#), &add), whole);
        assert_eq!(
            sent(Some(r#"{"a":1.0, "b":[ ]}"#), &add),
            format!(r#","params":{{"a":1.0, "b":[ ],"_meta":{{{OURS}}}}}"#)
        );
        assert_eq!(
            sent(
                Some(r#"{"_meta":{"k":12345678901234567890},"a":1e2}"#),
                &add
            ),
            format!(r#","params":{{"_meta":{{"k":12345678901234567890,{OURS}}},"a":1e2}}"#)
        );
        assert_eq!(
            sent(Some("{\n}"), &add),
            whole,
            "line breaks between tokens are left out"
        );
    }

    #[test]
    fn keys_of_the_caller_stay_but_for_those_of_the_conversation() {
        let raw = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"1","io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/logLevel":"debug","progressToken":"p","x":0}}"#;
        let token = UpstreamRequestId(7);
        let legacy = Additions {
            token: Some(token),
            ..Additions::default()
        };
        assert_eq!(
            sent(Some(raw), &legacy),
            r#","params":{"_meta":{"x":0,"progressToken":7}}"#
        );
        let silent = Additions::default();
        assert_eq!(
            sent(Some(raw), &silent),
            r#","params":{"_meta":{"progressToken":"p","x":0}}"#
        );
        let mut modern = stateless();
        modern.token = Some(token);
        let kept = r#""io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/logLevel":"debug","x":0,"io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
        assert_eq!(
            sent(Some(raw), &modern),
            format!(
                r#","params":{{"_meta":{{{kept},"io.modelcontextprotocol/clientCapabilities":{{"roots":{{}}}},"progressToken":7}}}}"#
            )
        );
        modern.stateless = Some(Stateless {
            capabilities_of_caller: true,
            log_level: Some(LogLevel::Error),
            ..STATELESS
        });
        let text = sent(Some(raw), &modern);
        assert!(
            text.contains(r#"{"sampling":{}}"#) && !text.contains("roots"),
            "{text}"
        );
        assert!(text.contains("debug") && !text.contains("error"), "{text}");
        let text = sent(None, &modern);
        assert!(
            text.contains(r#""io.modelcontextprotocol/logLevel":"error""#),
            "{text}"
        );
    }

    #[test]
    fn answers_take_the_place_of_earlier_ones() {
        let mut add = stateless();
        add.retry = Some(Retry {
            responses: Some(r#"{"k":{}}"#),
            state: Some(r#""\u0061""#),
        });
        let answers = r#""inputResponses":{"k":{}},"requestState":"\u0061""#;
        assert_eq!(
            sent(Some(r#"{"a":1}"#), &add),
            format!(r#","params":{{"a":1,"_meta":{{{OURS}}},{answers}}}"#)
        );
        assert_eq!(
            sent(Some(r#"{"requestState":"old","a":1.0,"_meta":{}}"#), &add),
            format!(r#","params":{{"a":1.0,"_meta":{{{OURS}}},{answers}}}"#)
        );
        add.retry = Some(Retry {
            responses: None,
            state: None,
        });
        let text = sent(Some(r#"{"inputResponses":{},"requestState":"old"}"#), &add);
        assert_eq!(text, format!(r#","params":{{"_meta":{{{OURS}}}}}"#));
    }

    #[test]
    fn names_for_headers_are_found_and_bad_params_refused() {
        let name = |method, raw| Params::read(Some(raw), None).and_then(|p| p.name(method));
        let raw = r#"{"name":"\u0061","uri":"u","taskId":"t"}"#;
        assert_eq!(name("tools/call", raw).as_deref(), Some("a"));
        assert_eq!(name("resources/read", raw).as_deref(), Some("u"));
        assert_eq!(name("tasks/get", raw).as_deref(), Some("t"));
        assert_eq!(name("tools/list", raw), None);
        for raw in ["[]", "null", "", "{", "1"] {
            assert!(Params::read(Some(raw), None).is_none(), "{raw}");
        }
    }

    #[test]
    fn arguments_are_not_looked_into_and_everything_around_them_is() {
        let add = stateless();
        let arguments = r#"{"_meta":{},"requestState":"\u005f"}"#;
        for (before, behind, plain) in [
            (r#""name":"a","#, "", true),
            (r#""name":"read","#, "", false),
            ("", r#","name":"a""#, true),
            ("", r#","_meta":{"progressToken":1}"#, false),
            ("", r#","\u005fmeta":{"progressToken":1}"#, false),
            (r#""requestState":"s","#, "", false),
            ("", r#","inputResponses":{}"#, false),
        ] {
            let raw = format!(r#"{{{before}"arguments":{arguments}{behind}}}"#);
            let from = raw.find(arguments).expect("in it");
            let opaque = &raw[from..from + arguments.len()];
            assert_eq!(names_nothing(&raw, opaque), plain, "{raw}");
            assert!(!names_nothing(&raw, arguments), "other bytes");
            let (all, around) = (
                Params::read(Some(&raw), None),
                Params::read(Some(&raw), Some(opaque)),
            );
            let (all, around) = (all.expect("an object"), around.expect("an object"));
            assert_eq!(
                (all.meta, all.any, all.token()),
                (around.meta, around.any, around.token())
            );
            assert_eq!(
                (all.has_retry, all.has_state),
                (around.has_retry, around.has_state)
            );
            let body =
                |params| request(Vec::new(), UpstreamRequestId(7), "tools/call", params, &add);
            assert_eq!(body(&all), body(&around));
        }
    }

    #[test]
    fn the_token_of_the_caller_comes_back() {
        let told = with_token(r#"{"progressToken":7 ,"progress":7}"#, "\"p\"");
        assert_eq!(&*told, r#"{"progressToken":"p" ,"progress":7}"#);
        assert_eq!(&*with_token("{}", "1"), "{}");
    }
}
