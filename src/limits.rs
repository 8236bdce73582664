//! Every bound and every waiting time, by name, with its default, its unit and its reason.
//!
//! `drawspan limits` prints this table; the configuration key `limits` overrides entries by the printed
//! name (times end in `_ms` there). A limit that no code reads does not belong here, and code that
//! bounds something without a name from here does not pass review.

use std::time::Duration;

/// One row of the table as printed: name, value in force, unit, reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name as printed and as configured.
    pub name: &'static str,
    /// The value in force.
    pub value: u64,
    /// What the value counts.
    pub unit: &'static str,
    /// Why it is what it is, and where it comes from.
    pub why: &'static str,
}

/// A value of the table: a count or a time.
trait Bound: Copy {
    fn from_int(value: u64) -> Self;
    fn to_int(self) -> u64;
}

impl Bound for usize {
    fn from_int(value: u64) -> Self {
        Self::try_from(value).unwrap_or(Self::MAX)
    }

    fn to_int(self) -> u64 {
        u64::try_from(self).unwrap_or(u64::MAX)
    }
}

impl Bound for Duration {
    fn from_int(value: u64) -> Self {
        Self::from_millis(value)
    }

    fn to_int(self) -> u64 {
        u64::try_from(self.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A limit that cannot be set: unknown name, or a value the rest of the table rules out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// No limit has this name.
    Unknown(String),
    /// Zero is not a limit.
    Zero(&'static str),
    /// Two limits contradict each other: what must hold.
    Contradiction(&'static str),
}

impl std::fmt::Display for LimitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(name) => {
                write!(
                    f,
                    "no limit is called {}; `drawspan limits` lists them",
                    crate::secret::Quoted(name)
                )
            }
            Self::Zero(name) => write!(f, "limit {name} must be at least 1 (found 0)"),
            Self::Contradiction(rule) => write!(f, "limits contradict each other: {rule}"),
        }
    }
}

impl std::error::Error for LimitError {}

// The one macro beside the id newtypes: field, default, printed row and setter stay one line of source,
// so they cannot disagree.
macro_rules! limits {
    ($( $(#[doc = $why:literal])+ $field:ident, $name:literal: $kind:ty = $default:expr, $unit:literal; )*) => {
        /// All limits in force. Plain data: copied into each machine that needs some of them.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Limits {
            $( $(#[doc = $why])+ #[doc = concat!(" Unit: ", $unit, ".")] pub $field: $kind, )*
        }

        impl Limits {
            /// The defaults, as a constant, so that relations between them are checked by the compiler.
            pub const DEFAULT: Self = Self { $( $field: $default, )* };

            /// The table, in order.
            #[must_use]
            pub fn entries(&self) -> Vec<Entry> {
                vec![$( Entry {
                    name: $name,
                    value: self.$field.to_int(),
                    unit: $unit,
                    why: concat!($($why),+).trim_ascii_start(),
                }, )*]
            }

            /// Sets one limit by its printed name; times in milliseconds.
            ///
            /// # Errors
            /// When the name is unknown or the value is zero. Relations between limits are checked by
            /// [`Limits::check`] once all are set.
            pub fn set(&mut self, name: &str, value: u64) -> Result<(), LimitError> {
                match name {
                    $( $name if value == 0 => Err(LimitError::Zero($name)),
                       $name => { self.$field = Bound::from_int(value); Ok(()) } )*
                    other => Err(LimitError::Unknown(other.to_owned())),
                }
            }
        }
    };
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

limits! {
    /// One message from an MCP client; a longer line is refused and skipped to its end. As rmcp and the Python SDK.
    message_bytes_max, "message_bytes_max": usize = 4 * MIB, "bytes";
    /// Nesting of arrays and objects in a message. As serde_json.
    json_depth_max, "json_depth_max": usize = 128, "levels";
    /// Raw length of a request id or a progress token, which are kept while the request is open.
    id_bytes_max, "id_bytes_max": usize = 256, "bytes";
    /// Messages in one JSON-RPC batch (2025-03-26 only).
    batch_messages_max, "batch_messages_max": usize = 64, "messages";
    /// Requests of one MCP client that may be open at once; the next one is refused as busy.
    requests_open_max, "requests_open_max": usize = 64, "requests";
    /// Calls of all clients together that may be open at once; the next one is refused as busy.
    calls_open_max, "calls_open_max": usize = 1_024, "calls";
    /// Listen streams (2026-07-28) of one client that may be open at once, beside its other requests.
    subscriptions_open_max, "subscriptions_open_max": usize = 16, "streams";
    /// Resources one client, or one listen stream, may be subscribed to.
    resource_subscriptions_max, "resource_subscriptions_max": usize = 1_024, "resources";
    /// Tasks one listen stream may be subscribed to; as many as there may be.
    task_subscriptions_max, "task_subscriptions_max": usize = 1_024, "tasks";
    /// Bytes waiting for a reader at which we stop reading from it. It still gets the answers it asked for.
    out_high_bytes, "out_high_bytes": usize = MIB, "bytes";
    /// Bytes waiting for a reader at which we read from it again.
    out_low_bytes, "out_low_bytes": usize = 256 * KIB, "bytes";
    /// Bytes read from one descriptor in one turn of the loop before the others get theirs.
    turn_bytes_max, "turn_bytes_max": usize = 256 * KIB, "bytes";
    /// Connections accepted from one listener in one turn of the loop before the others get theirs.
    turn_accepts_max, "turn_accepts_max": usize = 64, "connections";
    /// How long a listener rests when the descriptors have run out; accepting at once again would spin.
    accept_pause_interval, "accept_pause_interval_ms": Duration = Duration::from_millis(100), "ms";
    /// Internal hand-overs in one turn of the hub; more is a bug of ours and ends the turn with a diagnostic.
    turn_steps_max, "turn_steps_max": usize = 100_000, "steps";
    /// How long a connection that we have ended may take for its last bytes and its own end; then it is cut.
    finish_timeout, "finish_timeout_ms": Duration = Duration::from_secs(2), "ms";
    /// Connections that may be in that state at once; the oldest is cut first. They hold descriptors.
    finishing_max, "finishing_max": usize = 256, "connections";
    /// How long what was asked may take to be answered after a client has ended its input; then it gets errors.
    input_ended_timeout, "input_ended_timeout_ms": Duration = Duration::from_secs(10), "ms";
    /// How long answers may take to leave after a signal, or after all work is over. What the Gateway was asked it may answer for three quarters of it.
    shutdown_timeout, "shutdown_timeout_ms": Duration = Duration::from_secs(2), "ms";

    /// Events kept for polling; the oldest goes first and its loss is shown. As OpenClaw.
    events_queued_max, "events_queued_max": usize = 1_000, "events";
    /// Bytes of events kept for polling; the oldest goes first. A thousand events of 3 KiB are far below it.
    events_queued_bytes_max, "events_queued_bytes_max": usize = 32 * MIB, "bytes";
    /// Open events_wait calls.
    waiters_max, "waiters_max": usize = 256, "calls";
    /// Approvals and permission prompts kept while nobody decides; the oldest goes first.
    approvals_pending_max, "approvals_pending_max": usize = 1_000, "approvals";
    /// Life of an approval for which the Gateway gave no expiry. As OpenClaw.
    approval_ttl, "approval_ttl_ms": Duration = Duration::from_secs(30 * 60), "ms";
    /// Life of a Claude permission prompt. As OpenClaw.
    permission_ttl, "permission_ttl_ms": Duration = Duration::from_secs(60 * 60), "ms";
    /// Channel notifications held until the client has finished its handshake; the oldest goes first.
    notifications_held_max, "notifications_held_max": usize = 1_000, "messages";
    /// Interval of progress notifications during events_wait, for clients that asked for progress.
    wait_progress_interval, "wait_progress_interval_ms": Duration = Duration::from_secs(10), "ms";

    /// How long a tool that needs the Gateway waits for the link before it answers "not connected".
    gateway_ready_timeout, "gateway_ready_timeout_ms": Duration = Duration::from_millis(4_500), "ms";
    /// Connecting to the Gateway: name, TCP, TLS and the WebSocket upgrade together.
    gateway_open_timeout, "gateway_open_timeout_ms": Duration = Duration::from_secs(15), "ms";
    /// Waiting for the Gateway's challenge. As OpenClaw.
    gateway_challenge_timeout, "gateway_challenge_timeout_ms": Duration = Duration::from_secs(15), "ms";
    /// Any request to the Gateway, `connect` included. OpenClaw waits 180 s and so blocks its caller.
    gateway_request_timeout, "gateway_request_timeout_ms": Duration = Duration::from_secs(30), "ms";
    /// Requests to the Gateway that may be open at once.
    gateway_requests_max, "gateway_requests_max": usize = 1_024, "requests";
    /// One frame or message from the Gateway. As OpenClaw.
    gateway_message_bytes_max, "gateway_message_bytes_max": usize = 25 * MIB, "bytes";
    /// One message from the Gateway until it has accepted us; a hello is about 10 KiB and grows with what it knows.
    gateway_hello_bytes_max, "gateway_hello_bytes_max": usize = MIB, "bytes";
    /// Bytes waiting to be sent to the Gateway; past it the connection is dropped. As OpenClaw's own bound.
    gateway_out_bytes_max, "gateway_out_bytes_max": usize = 50 * MIB, "bytes";
    /// Shortest and longest believable tick interval of a Gateway are this and 100 times this.
    gateway_tick_interval_min, "gateway_tick_interval_min_ms": Duration = Duration::from_secs(1), "ms";
    /// First wait before reconnecting; doubles, 20 % jitter.
    reconnect_first_interval, "reconnect_first_interval_ms": Duration = Duration::from_secs(1), "ms";
    /// Longest wait before reconnecting. As OpenClaw.
    reconnect_most_interval, "reconnect_most_interval_ms": Duration = Duration::from_secs(30), "ms";
    /// Good service after which the waits start over. OpenClaw starts over at each hello.
    reconnect_good_interval, "reconnect_good_interval_ms": Duration = Duration::from_secs(10), "ms";

    /// An HTTP head. As Node.
    head_bytes_max, "head_bytes_max": usize = 16 * KIB, "bytes";
    /// Fields of an HTTP head. As hyper.
    head_fields_max, "head_fields_max": usize = 100, "fields";
    /// A request target, path and query. As nginx.
    target_bytes_max, "target_bytes_max": usize = 8 * KIB, "bytes";
    /// The extension of one chunk of a body. RFC 9112 asks for a bound; nobody uses them.
    chunk_extension_bytes_max, "chunk_extension_bytes_max": usize = 256, "bytes";
    /// The trailer of a chunked body, which is read and dropped.
    trailer_bytes_max, "trailer_bytes_max": usize = 8 * KIB, "bytes";
    /// Requests of one HTTP connection that may wait for their answers; then it is not read from.
    pipelined_requests_max, "pipelined_requests_max": usize = 16, "requests";
    /// An HTTP head, from its first byte (on a new connection from its acceptance) to its end.
    header_timeout, "header_timeout_ms": Duration = Duration::from_secs(10), "ms";
    /// An HTTP body, from the moment it is wanted to its end.
    body_timeout, "body_timeout_ms": Duration = Duration::from_secs(30), "ms";
    /// An HTTP connection without a request. As nginx.
    idle_timeout, "idle_timeout_ms": Duration = Duration::from_secs(75), "ms";
    /// An HTTP client that takes none of the bytes that wait for it.
    write_stall_timeout, "write_stall_timeout_ms": Duration = Duration::from_secs(30), "ms";
    /// Idle time after which an HTTP connection gives its buffers back: clients in a loop find them again.
    buffer_trim_interval, "buffer_trim_interval_ms": Duration = Duration::from_secs(1), "ms";
    /// The largest body whose buffer an HTTP connection keeps for the next request until then.
    body_buffer_bytes_max, "body_buffer_bytes_max": usize = MIB, "bytes";
    /// The longest parameters of a request, and the longest answer made in place, whose buffer is kept for the next one: two for all HTTP clients, one for each client on a line.
    text_buffer_bytes_max, "text_buffer_bytes_max": usize = MIB, "bytes";
    /// First wait before an HTTP client that has ended its direction is probed for being gone; doubles.
    half_close_probe_interval, "half_close_probe_interval_ms": Duration = Duration::from_millis(10), "ms";
    /// Probes for one such client; ten end after 10 s, and then it is taken for one that still reads.
    half_close_probes_max, "half_close_probes_max": usize = 10, "probes";
    /// HTTP connections; one more is told 503 and let go.
    connections_max, "connections_max": usize = 1_024, "connections";
    /// HTTP connections past that which are let in to be told so; the next one is closed without a word.
    connections_surplus_max, "connections_surplus_max": usize = 64, "connections";
    /// Arguments of one tool that may travel in headers; a head has room for no more than its fields.
    param_headers_max, "param_headers_max": usize = 64, "headers";
    /// Clients on Unix sockets; one more is told so and let go. Each may hold what one client may: requests, bytes that wait.
    socket_clients_max, "socket_clients_max": usize = 256, "connections";
    /// Sessions of HTTP clients (before 2026-07-28); past it an `initialize` is refused. The Python SDK has 10,000.
    sessions_max, "sessions_max": usize = 1_024, "sessions";
    /// A session ends when its client asked for nothing and waited for no answer this long. As the Python SDK.
    session_idle_ttl, "session_idle_ttl_ms": Duration = Duration::from_secs(30 * 60), "ms";
    /// Answer streams of one session that can be resumed, the fetched ones left out; one more cannot be. As many as requests may be open.
    streams_per_session_max, "streams_per_session_max": usize = 64, "streams";
    /// Events one session keeps for clients that come back with Last-Event-ID; the oldest goes first.
    sse_replay_events_max, "sse_replay_events_max": usize = 256, "events";
    /// Bytes of these events; a longer event is not kept at all.
    sse_replay_bytes_max, "sse_replay_bytes_max": usize = MIB, "bytes";
    /// Bytes of these events in all sessions; the session that was longest without a new one loses its own first.
    sse_replay_total_bytes_max, "sse_replay_total_bytes_max": usize = 64 * MIB, "bytes";
    /// Comments on a silent event stream, so that no proxy takes it for dead. As rmcp.
    sse_keepalive_interval, "sse_keepalive_interval_ms": Duration = Duration::from_secs(15), "ms";
    /// How long a request may stay unanswered before its event stream begins; a faster answer is plain JSON.
    stream_start_interval, "stream_start_interval_ms": Duration = Duration::from_millis(500), "ms";
    /// What the `retry` field of an event stream tells a client to wait before it comes back.
    sse_retry_interval, "sse_retry_interval_ms": Duration = Duration::from_secs(1), "ms";

    /// Entries on one page of a list of tools, resources or prompts. Most lists are one page, and clients that read only the first miss nothing.
    list_page_entries_max, "list_page_entries_max": usize = 1_000, "entries";
    /// Length of one page of a list; one entry always fits.
    list_page_bytes_max, "list_page_bytes_max": usize = MIB, "bytes";
    /// Tasks kept, finished ones counted; the oldest finished one goes first.
    tasks_max, "tasks_max": usize = 1_024, "tasks";
    /// Results of finished tasks, all together; the oldest goes first.
    task_results_bytes_max, "task_results_bytes_max": usize = 64 * MIB, "bytes";
    /// Longest life of a task, its result included; a tool may ask for less.
    task_ttl, "task_ttl_ms": Duration = Duration::from_secs(60 * 60), "ms";
    /// How often a client is told to ask for a task, when the tool gives no interval.
    task_poll_interval, "task_poll_interval_ms": Duration = Duration::from_secs(1), "ms";
    /// Questions a tool may ask its client in one round.
    input_requests_max, "input_requests_max": usize = 16, "questions";
    /// Rounds of questions in one call or task; a tool that asks for ever is a bug.
    input_rounds_max, "input_rounds_max": usize = 16, "rounds";
    /// How long a client may take to come back with its answers (2026-07-28); a person may be typing them.
    request_state_ttl, "request_state_ttl_ms": Duration = Duration::from_secs(10 * 60), "ms";
    /// Calls at servers of the handshake era that wait for a stateless client to come back with its answers; one more question is refused as busy.
    parked_calls_max, "parked_calls_max": usize = 256, "calls";
    /// Results that came while nobody waited for them: those of parked calls. Past it a result is dropped and an error kept.
    parked_bytes_max, "parked_bytes_max": usize = 32 * MIB, "bytes";
    /// What a tool may leave with its client from one round to the next.
    request_state_bytes_max, "request_state_bytes_max": usize = 64 * KIB, "bytes";

    /// Lines of the audit log that wait because its file cannot be written; further ones are counted and lost.
    audit_queue_bytes_max, "audit_queue_bytes_max": usize = 4 * MIB, "bytes";
    /// The before-tool-call hook, when its configuration gives no time. A late hook refuses.
    hook_timeout, "hook_timeout_ms": Duration = Duration::from_secs(5), "ms";
    /// What the hook may print.
    hook_output_bytes_max, "hook_output_bytes_max": usize = MIB, "bytes";
    /// Rules of the gate; one that needs more wants patterns. Each call is held against them in order.
    gate_rules_max, "gate_rules_max": usize = 1_000, "rules";
    /// Answers "allow always" that are kept; the one after that counts once, with a warning.
    approvals_always_max, "approvals_always_max": usize = 1_000, "answers";
    /// One call of a command that is a tool, when its entry gives no timeoutMs. As a request to an upstream server.
    plugin_timeout, "plugin_timeout_ms": Duration = Duration::from_secs(60), "ms";
    /// What such a call may print, when its entry gives no maxOutputBytes. An image fits.
    plugin_output_bytes_max, "plugin_output_bytes_max": usize = 4 * MIB, "bytes";
    /// Commands that are tools and run at the same time; the next call is refused as busy.
    plugin_runs_max, "plugin_runs_max": usize = 16, "processes";
    /// How long a call held for approval waits, when the rule or the hook gives no time; then it is refused.
    hold_timeout, "hold_timeout_ms": Duration = Duration::from_millis(120_000), "ms";
    /// Between two words of progress to a client that its call waits for approval. Clients give up after a minute of silence; as on event streams.
    hold_progress_interval, "hold_progress_interval_ms": Duration = Duration::from_secs(15), "ms";
    /// Between closing a child's input and SIGTERM, and again before SIGKILL.
    child_grace_interval, "child_grace_interval_ms": Duration = Duration::from_secs(1), "ms";
    /// The end of a child's stderr that errors may show.
    stderr_tail_bytes_max, "stderr_tail_bytes_max": usize = 64 * KIB, "bytes";

    /// One message from an upstream server: a line, an event or a body. A tool may return an image. As rmcp for SSE events.
    upstream_message_bytes_max, "upstream_message_bytes_max": usize = 16 * MIB, "bytes";
    /// Bytes waiting to be written to one upstream server; past it calls are refused: it is not reading.
    upstream_out_bytes_max, "upstream_out_bytes_max": usize = 8 * MIB, "bytes";
    /// Requests open towards one upstream server; the next one is refused as busy.
    upstream_requests_open_max, "upstream_requests_open_max": usize = 256, "requests";
    /// Requests of one upstream server to us that wait for an answer; the next one is refused as busy.
    upstream_questions_open_max, "upstream_questions_open_max": usize = 64, "requests";
    /// Start, discovery and handshake of one upstream server together. As OpenClaw.
    connect_timeout, "connect_timeout_ms": Duration = Duration::from_secs(30), "ms";
    /// How long `server/discover` may stay unanswered before `initialize` is tried.
    discover_timeout, "discover_timeout_ms": Duration = Duration::from_secs(5), "ms";
    /// One whole walk over the pages of a list. OpenClaw allows 1.5 s a page, too little for big servers under load.
    list_timeout, "list_timeout_ms": Duration = Duration::from_secs(10), "ms";
    /// One request to an upstream server. As OpenClaw.
    request_timeout, "request_timeout_ms": Duration = Duration::from_secs(60), "ms";
    /// One request whose limit progress may extend, all in all.
    request_total_timeout, "request_total_timeout_ms": Duration = Duration::from_secs(600), "ms";
    /// Tools of one upstream server; the rest is left out with a diagnostic.
    tools_max, "tools_max": usize = 10_000, "tools";
    /// Pages of one list; the rest is left out with a diagnostic.
    list_pages_max, "list_pages_max": usize = 100, "pages";
    /// Text of all entries of one list; the rest is left out with a diagnostic. Ten thousand tools of 6 KiB.
    list_bytes_max, "list_bytes_max": usize = 64 * MIB, "bytes";
    /// Length of a tool's name; a longer one leaves that tool out.
    tool_name_bytes_max, "tool_name_bytes_max": usize = KIB, "bytes";
    /// Length of a tool's description; a longer one leaves that tool out.
    tool_description_bytes_max, "tool_description_bytes_max": usize = 16 * KIB, "bytes";
    /// Length of a tool's input or output schema; a longer one leaves that tool out.
    tool_schema_bytes_max, "tool_schema_bytes_max": usize = 256 * KIB, "bytes";
    /// Changes of a list that come within this time are one change.
    list_changed_quiet_interval, "list_changed_quiet_interval_ms": Duration = Duration::from_millis(100), "ms";
    /// Processes of upstream servers in all. The budget of descriptors counts three for each.
    children_max, "children_max": usize = 64, "processes";
    /// Runtimes at once; each has connections of its own.
    runtimes_max, "runtimes_max": usize = 1_024, "runtimes";
    /// A runtime that nobody uses ends after this. As OpenClaw; `mcp.sessionIdleTtlMs: 0` is never, and so is 0 in a program.
    runtime_idle_ttl, "runtime_idle_ttl_ms": Duration = Duration::from_secs(600), "ms";
    /// Failures of one server in a row after which it is left alone for a while. As OpenClaw.
    failure_pause_after, "failure_pause_after": usize = 3, "failures";
    /// How long it is left alone, from the end of the last failure. OpenClaw counts from its start.
    failure_pause, "failure_pause_ms": Duration = Duration::from_secs(60), "ms";
    /// Notifications and answers on their way to one HTTP server at once; the next ones are held.
    upstream_notes_open_max, "upstream_notes_open_max": usize = 16, "messages";
    /// How long an HTTP server may take to answer `notifications/initialized`; other messages of the session wait for it.
    session_begin_timeout, "session_begin_timeout_ms": Duration = Duration::from_secs(2), "ms";
    /// What is open in a session that an HTTP server no longer knows may be answered or refused for this time; then a new session begins.
    session_renew_timeout, "session_renew_timeout_ms": Duration = Duration::from_secs(1), "ms";
    /// How long an HTTP server may take to answer the DELETE of its session.
    session_end_timeout, "session_end_timeout_ms": Duration = Duration::from_secs(1), "ms";
    /// Redirects followed for one HTTP request, within one origin. OpenClaw follows 20.
    redirects_max, "redirects_max": usize = 3, "redirects";
    /// GETs with Last-Event-ID for one interrupted answer.
    resume_attempts_max, "resume_attempts_max": usize = 3, "requests";
    /// Connections kept open to one HTTP server for the next request.
    pool_connections_max, "pool_connections_max": usize = 8, "connections";
    /// How long a kept connection may lie idle. Shorter than what servers and proxies allow.
    pool_idle_ttl, "pool_idle_ttl_ms": Duration = Duration::from_secs(30), "ms";

    /// WebSocket clients of the embedded Gateway.
    embedded_clients_max, "embedded_clients_max": usize = 64, "connections";
    /// Conversations kept by the embedded Gateway.
    embedded_sessions_max, "embedded_sessions_max": usize = 10_000, "conversations";
    /// Messages kept per conversation in memory; older ones stay in the store only.
    embedded_messages_max, "embedded_messages_max": usize = 10_000, "messages";
}

// Relations that the code relies on.
const _: () = {
    let d = Limits::DEFAULT;
    assert!(d.out_low_bytes < d.out_high_bytes);
    assert!(d.id_bytes_max < d.message_bytes_max);
    assert!(d.gateway_hello_bytes_max <= d.gateway_message_bytes_max);
    assert!(d.sse_replay_bytes_max <= d.sse_replay_total_bytes_max);
    assert!(d.reconnect_first_interval.as_millis() <= d.reconnect_most_interval.as_millis());
    assert!(
        d.gateway_ready_timeout.as_millis() < 5_000,
        "\"not connected\" within 5 s"
    );
};

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Limits {
    /// Checks the relations that single settings cannot see.
    ///
    /// # Errors
    /// The first relation that does not hold.
    pub fn check(&self) -> Result<(), LimitError> {
        let rule = |holds: bool, rule| {
            if holds {
                Ok(())
            } else {
                Err(LimitError::Contradiction(rule))
            }
        };
        rule(
            self.out_low_bytes < self.out_high_bytes,
            "out_low_bytes must be below out_high_bytes",
        )?;
        rule(
            self.id_bytes_max < self.message_bytes_max,
            "id_bytes_max must be below message_bytes_max",
        )?;
        rule(
            self.gateway_hello_bytes_max <= self.gateway_message_bytes_max,
            "gateway_hello_bytes_max must not exceed gateway_message_bytes_max",
        )?;
        rule(
            self.sse_replay_bytes_max <= self.sse_replay_total_bytes_max,
            "sse_replay_bytes_max must not exceed sse_replay_total_bytes_max",
        )?;
        rule(
            self.reconnect_first_interval <= self.reconnect_most_interval,
            "reconnect_first_interval_ms must not exceed reconnect_most_interval_ms",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_can_be_set_by_its_printed_name() {
        let mut limits = Limits::default();
        for entry in Limits::DEFAULT.entries() {
            limits.set(entry.name, entry.value + 1).expect(entry.name);
            assert_eq!(limits.set(entry.name, 0), Err(LimitError::Zero(entry.name)));
        }
        for (default, set) in Limits::DEFAULT.entries().iter().zip(limits.entries()) {
            assert_eq!(default.value + 1, set.value, "{}", set.name);
            assert_eq!(set.unit == "ms", set.name.ends_with("_ms"), "{}", set.name);
            assert!(set.why.ends_with('.'), "{} states no reason", set.name);
        }
    }

    #[test]
    fn contradictions_are_named() {
        let mut limits = Limits::default();
        assert_eq!(limits.check(), Ok(()));
        limits.out_low_bytes = limits.out_high_bytes;
        let error = limits.check().expect_err("low is not below high");
        assert!(error.to_string().contains("out_low_bytes"), "{error}");
        assert!(
            limits
                .set("no_such", 1)
                .expect_err("unknown")
                .to_string()
                .contains("no_such")
        );
    }
}
