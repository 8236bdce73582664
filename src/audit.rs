//! The audit log: what its lines say, and the chain that holds them together.
//!
//! A file is JSON lines. Each line has a number, one higher than that of the line before it, and two digests:
//!
//! ```text
//! {"seq":7,"time":"…","event":"call",…,"prev":"<hash of line 6>","hash":"<SHA-256 of this line up to here>"}
//! ```
//!
//! `hash` is SHA-256, in hexadecimal digits, over the bytes of the line from `{` up to, not including, the comma
//! before `"hash"`; `prev` is the `hash` of the line before. The first line of a chain has number 1 and 64 zeros
//! as `prev`. A file that goes on where another one ended (after a rotation) begins with the next number and the
//! other's last hash. So nothing can be changed, taken out, put in or moved without breaking the chain behind
//! it. Whoever can write the file can write all of it anew, or cut off its end: note a `hash` elsewhere and
//! have it looked for later ([`Verifier::look_for`]).
//!
//! | event       | when                                               | beside the call's own members          |
//! |-------------|----------------------------------------------------|----------------------------------------|
//! | `start`     | a program begins to write                          | `program`, `pid`                       |
//! | `decision`  | the gate has let a call pass, or not               | `decision`, `by`, `approval`, `rule`, `replaced` |
//! | `call`      | a call that was shown to the gate has ended        | `outcome`, `code`, `durationMs`        |
//! | `continued` | this file goes on where another one ended          |                                        |
//! | `torn`      | the bytes before this line were cut off by a crash | `bytes`, `digest` of them              |
//! | `lost`      | lines had to be dropped                            | `lines`                                |
//!
//! Arguments and results are never part of a line: only the digest of the arguments as they came. Texts of peers
//! are cut at [`TEXT_BYTES_MAX`].
//!
//! Never: opens a file, reads a clock.

mod verify;

use std::fmt;
use std::io::Write as _;
use std::time::Duration;

use serde::Deserialize;

pub use self::verify::{Fault, FaultKind, Report, Verifier};
use crate::clock::Iso;
use crate::codec::json_text::append_string;
use crate::codec::object::from_object;
use crate::crypto::{append_hex, sha256, unhex};
use crate::ids::CallId;

/// Bytes of a peer's text in a line; the rest is cut and shown as `…`. Unit: bytes.
pub const TEXT_BYTES_MAX: usize = 256;

/// Longest line, its end included: every member at its longest and every byte of the texts escaped fits.
/// Unit: bytes.
pub const LINE_BYTES_MAX: usize = 16 * 1024;

/// How much of the end of a file has to be read to continue it: one whole line and a part of another.
/// Unit: bytes.
pub const TAIL_BYTES: usize = 2 * LINE_BYTES_MAX;

const HEX_DIGITS: usize = 64;

/// What stands before the digest of a line.
const HASH_MEMBER: &[u8] = br#","hash":""#;

/// A digest as it stands in a line.
pub type Hash = [u8; 32];

/// The call that lines are about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its number; they begin anew with each program, see the event `start`.
    pub call: CallId,
    /// The name the client gave itself.
    pub caller: &'a str,
    /// Which credentials it showed; empty for a client that needs none.
    pub principal: &'a str,
    /// The server the tool belongs to.
    pub server: &'a str,
    /// The tool, by the name it is shown under.
    pub tool: &'a str,
    /// The arguments as they came; only their digest is written.
    pub arguments: &'a str,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered with a result.
    Ok,
    /// It was answered with a result that says `isError`.
    IsError,
    /// It was answered with a JSON-RPC error of this code.
    Error(i64),
    /// The gate did not let it pass; the answer said so.
    Refused,
    /// It got no answer: the client took it back, went away, or everything ended.
    Cancelled,
}

/// What is worth a line beside calls.
#[derive(Clone, Copy, Debug)]
pub enum Mark<'a> {
    /// A program begins to write.
    Start {
        /// Its name and version.
        program: &'a str,
        /// Its process id.
        pid: u32,
    },
    /// This file goes on where another one ended.
    Continued,
    /// The bytes before this line are the beginning of one that was never finished.
    Torn {
        /// These bytes.
        fragment: &'a [u8],
    },
    /// So many lines could not be kept until the file could be written again.
    Lost {
        /// How many.
        lines: u64,
    },
}

/// Appends the members that all lines about a call have in common.
pub fn write_subject(out: &mut Vec<u8>, subject: &Subject<'_>) {
    append(out, format_args!(r#","call":"{}","caller":"#, subject.call));
    text(out, subject.caller);
    for (name, value) in [
        (r#","principal":"#, subject.principal),
        (r#","server":"#, subject.server),
        (r#","tool":"#, subject.tool),
    ] {
        out.extend_from_slice(name.as_bytes());
        text(out, value);
    }
    digest(out, "arguments", subject.arguments.as_bytes());
}

/// What was decided about a call.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    /// Whether it may run.
    pub allowed: bool,
    /// Who had the last word.
    pub by: &'a str,
    /// Who answered for it while it was held, with yes or no; the last word may be somebody else's.
    pub approval: Option<&'a str>,
    /// The rule that fitted first, counted from 0 as in the configuration.
    pub rule: Option<usize>,
    /// The arguments it goes on with, when they are others than those that came; only their digest is written.
    pub replaced: Option<&'a str>,
}

/// Appends a line, still without number and digests, that says what was decided about a call: `subject` as
/// [`write_subject`] wrote it.
pub fn write_decision(out: &mut Vec<u8>, unix_ms: i64, subject: &[u8], decided: Decided<'_>) {
    begin(out, unix_ms, "decision");
    out.extend_from_slice(subject);
    let decision = if decided.allowed { "allow" } else { "deny" };
    append(out, format_args!(r#","decision":"{decision}","by":"#));
    text(out, decided.by);
    if let Some(approval) = decided.approval {
        out.extend_from_slice(br#","approval":"#);
        text(out, approval);
    }
    if let Some(rule) = decided.rule {
        append(out, format_args!(r#","rule":{rule}"#));
    }
    if let Some(replaced) = decided.replaced {
        digest(out, "replaced", replaced.as_bytes());
    }
    out.push(b'\n');
}

/// Appends a line, still without number and digests, that says what became of a call.
pub fn write_outcome(
    out: &mut Vec<u8>,
    unix_ms: i64,
    subject: &[u8],
    outcome: Outcome,
    duration: Duration,
) {
    begin(out, unix_ms, "call");
    out.extend_from_slice(subject);
    let word = match outcome {
        Outcome::Ok => "ok",
        Outcome::IsError => "isError",
        Outcome::Error(_) => "error",
        Outcome::Refused => "refused",
        Outcome::Cancelled => "cancelled",
    };
    append(out, format_args!(r#","outcome":"{word}""#));
    if let Outcome::Error(code) = outcome {
        append(out, format_args!(r#","code":{code}"#));
    }
    let ms = duration.as_millis();
    append(out, format_args!(r#","durationMs":{ms}"#));
    out.push(b'\n');
}

/// Appends a line, still without number and digests, that is not about a call.
pub fn write_mark(out: &mut Vec<u8>, unix_ms: i64, mark: Mark<'_>) {
    match mark {
        Mark::Start { program, pid } => {
            begin(out, unix_ms, "start");
            out.extend_from_slice(br#","program":"#);
            text(out, program);
            append(out, format_args!(r#","pid":{pid}"#));
        }
        Mark::Continued => begin(out, unix_ms, "continued"),
        Mark::Torn { fragment } => {
            begin(out, unix_ms, "torn");
            append(out, format_args!(r#","bytes":{}"#, fragment.len()));
            digest(out, "digest", fragment);
        }
        Mark::Lost { lines } => {
            begin(out, unix_ms, "lost");
            append(out, format_args!(r#","lines":{lines}"#));
        }
    }
    out.push(b'\n');
}

fn begin(out: &mut Vec<u8>, unix_ms: i64, event: &str) {
    append(
        out,
        format_args!(r#","time":"{}","event":"{event}""#, Iso(unix_ms)),
    );
}

fn append(out: &mut Vec<u8>, what: fmt::Arguments<'_>) {
    out.write_fmt(what).expect("a vector takes every byte");
}

fn text(out: &mut Vec<u8>, text: &str) {
    if text.len() <= TEXT_BYTES_MAX {
        return append_string(out, text);
    }
    let mut end = TEXT_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    append_string(out, &text[..end]);
    // In front of the closing quote.
    out.pop();
    out.extend_from_slice("…\"".as_bytes());
}

fn digest(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    append(out, format_args!(r#","{name}":""#));
    append_hex(out, &sha256(bytes));
    out.push(b'"');
}

/// The end of a chain: what the next line has to name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Number of the last line; 0 when there is none.
    seq: u64,
    /// Its hash; zeros when there is none.
    last: Hash,
}

/// What the end of a file says of how to continue it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The chain as far as it is whole.
    pub chain: Chain,
    /// What stands behind its last whole line: the beginning of one that was never finished. Empty in good
    /// order.
    pub fragment: Vec<u8>,
    /// A line feed has to be written before the next line.
    pub lacks_line_feed: bool,
}

/// A file that cannot be continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TailError {
    /// Its last line is none of an audit log, or was changed.
    NotOurs,
}

impl fmt::Display for TailError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs => f.write_str(
                "its last line is not one of an audit log, or was changed; move the file away",
            ),
        }
    }
}

impl std::error::Error for TailError {}

impl Chain {
    /// A chain without lines.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads where the chain of a file has come to. `end` are its last bytes, [`TAIL_BYTES`] of them unless the
    /// file is shorter; `whole` says that it is.
    ///
    /// # Errors
    /// When what stands there is not the end of an audit log.
    pub fn resume(end: &[u8], whole: bool) -> Result<Tail, TailError> {
        let (mut lines, mut fragment) = split_last_line(end);
        let lacks_line_feed = !fragment.is_empty();
        let mut chain = Line::read(fragment).and_then(|line| line.chain());
        if chain.is_some() {
            fragment = &[];
        } else if !lacks_line_feed && !lines.is_empty() {
            let (before, last) = split_last_line(&lines[..lines.len() - 1]);
            match Line::read(last) {
                Some(line) => chain = Some(line.chain().ok_or(TailError::NotOurs)?),
                // A fragment that has its line feed, but not yet the line that says so.
                None => (lines, fragment) = (before, last),
            }
        }
        if chain.is_none() {
            chain = match lines.len() {
                0 => whole.then(Self::new),
                _ => {
                    let (_, last) = split_last_line(&lines[..lines.len() - 1]);
                    Line::read(last).and_then(|line| line.chain())
                }
            };
        }
        Ok(Tail {
            chain: chain.ok_or(TailError::NotOurs)?,
            fragment: fragment.to_owned(),
            lacks_line_feed,
        })
    }

    /// Appends one line to `out`: `body` as [`write_decision`] and the like wrote it, without its line feed.
    pub fn seal(&mut self, out: &mut Vec<u8>, body: &[u8]) {
        let start = out.len();
        self.seq += 1;
        append(out, format_args!(r#"{{"seq":{}"#, self.seq));
        out.extend_from_slice(body);
        out.extend_from_slice(br#","prev":""#);
        append_hex(out, &self.last);
        out.push(b'"');
        self.last = sha256(&out[start..]);
        out.extend_from_slice(HASH_MEMBER);
        append_hex(out, &self.last);
        out.extend_from_slice(b"\"}\n");
    }

    /// The number of the last line; 0 before the first.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }
}

/// All whole lines, and what stands behind the last line feed.
fn split_last_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let feed = bytes.iter().rposition(|byte| *byte == b'\n');
    bytes.split_at(feed.map_or(0, |at| at + 1))
}

/// What the chain needs to know of a line.
#[derive(Debug)]
struct Line {
    seq: u64,
    prev: Hash,
    hash: Hash,
    /// The hash is that of the line.
    sound: bool,
    event: Event,
}

/// What kind of line it is, as far as that matters to the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Continued,
    /// The digest of the bytes before it.
    Torn(Hash),
    Other,
}

#[derive(Deserialize)]
struct Members<'a> {
    seq: u64,
    event: &'a str,
    prev: &'a str,
    hash: &'a str,
    digest: Option<&'a str>,
}

impl Line {
    /// Reads a line, without its line feed.
    fn read(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let members: Members<'_> = from_object(text).ok()?;
        let hash = unhex(members.hash)?;
        let body = bytes
            .len()
            .checked_sub(HASH_MEMBER.len() + HEX_DIGITS + 2)?;
        let tail = bytes.get(body..)?;
        let in_place = tail.starts_with(HASH_MEMBER) && tail.ends_with(b"\"}");
        Some(Self {
            seq: members.seq,
            prev: unhex(members.prev)?,
            hash,
            sound: in_place && sha256(&bytes[..body]) == hash,
            event: match (members.event, members.digest) {
                ("torn", Some(digest)) => Event::Torn(unhex(digest)?),
                ("continued", _) => Event::Continued,
                _ => Event::Other,
            },
        })
    }

    /// The chain behind this line, if it can be trusted.
    fn chain(&self) -> Option<Chain> {
        self.sound.then_some(Chain {
            seq: self.seq,
            last: self.hash,
        })
    }
}

#[cfg(test)]
mod tests;
