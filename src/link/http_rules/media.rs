//! Methods and media types.

use super::version::VersionHeader;
use super::{HeadView, HttpRefusal, Once, trimmed};
use crate::protocol::revision::Revision;
use crate::secret::Quoted;

/// The methods of an MCP endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpMethod {
    /// A message.
    Post,
    /// The stream of a session.
    Get,
    /// The end of a session.
    Delete,
}

impl HttpMethod {
    /// Reads the method, which is compared with its letter case (RFC 9110 §9.1).
    ///
    /// # Errors
    /// 405 for any other. OPTIONS too: no other origin is granted anything.
    pub fn of<H: HeadView + ?Sized>(head: &H) -> Result<Self, HttpRefusal> {
        match head.method() {
            "POST" => Ok(Self::Post),
            "GET" => Ok(Self::Get),
            "DELETE" => Ok(Self::Delete),
            other => {
                let message = format!(
                    "method must be POST, GET or DELETE (found {})",
                    Quoted(other)
                );
                Err(HttpRefusal::new(405, &message).with("Allow", "POST, GET, DELETE"))
            }
        }
    }
}

/// Media types that a client takes an answer in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepts {
    /// `application/json`.
    pub json: bool,
    /// `text/event-stream`.
    pub sse: bool,
}

impl Accepts {
    const ANYTHING: Self = Self {
        json: true,
        sse: true,
    };

    /// Reads the Accept fields. Without one, and with an empty one, anything is taken. Source: RFC 9110 §12.5.1.
    fn of<H: HeadView + ?Sized>(head: &H) -> Self {
        let count = match head.once("accept") {
            Once::Absent => return Self::ANYTHING,
            // What nearly every client sends.
            Once::Value("application/json, text/event-stream") => return Self::ANYTHING,
            Once::Value(_) | Once::NotText => 1,
            Once::Repeated(count) => count,
        };
        let mut json = Preference::default();
        let mut sse = Preference::default();
        let mut ranges = 0;
        for nth in 0..count {
            for range in head.nth_field("accept", nth).unwrap_or("?").split(',') {
                let range = trimmed(range);
                if !range.is_empty() {
                    ranges += 1;
                    json.read(range, "application", "json");
                    sse.read(range, "text", "event-stream");
                }
            }
        }
        if ranges == 0 {
            return Self::ANYTHING;
        }
        Self {
            json: json.accepted,
            sse: sse.accepted,
        }
    }
}

/// What the ranges read so far say of one media type: the most specific one counts.
#[derive(Clone, Copy, Default)]
struct Preference {
    precision: u8,
    accepted: bool,
}

impl Preference {
    fn read(&mut self, range: &str, kind: &str, subtype: &str) {
        let mut parts = range.split(';');
        let essence = trimmed(parts.next().unwrap_or(""));
        let Some((found_kind, found_subtype)) = essence.split_once('/') else {
            return;
        };
        let precision = match (found_kind, found_subtype) {
            ("*", "*") => 1,
            (found, "*") if found.eq_ignore_ascii_case(kind) => 2,
            (found, of) if found.eq_ignore_ascii_case(kind) && of.eq_ignore_ascii_case(subtype) => {
                3
            }
            _ => return,
        };
        if precision < self.precision {
            return;
        }
        let accepted = !parts.any(is_zero_weight);
        // Two equally precise ranges that disagree: the client does take it in some form.
        self.accepted = accepted || precision == self.precision && self.accepted;
        self.precision = precision;
    }
}

/// `q=0`, `q=0.0`, … Source: RFC 9110 §12.4.2.
fn is_zero_weight(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else {
        return false;
    };
    let value = trimmed(value);
    trimmed(name).eq_ignore_ascii_case("q")
        && value.starts_with('0')
        && value.bytes().all(|b| matches!(b, b'0' | b'.'))
}

/// Checks the media types of a POST.
///
/// A client must list both `application/json` and `text/event-stream`, and most servers insist; here one is
/// enough, and the answer comes in it.
///
/// # Errors
/// 415 for a body that is not `application/json`, or has a content coding; 406 when neither type is taken.
/// Source: Spec 2025-11-25 basic/transports (Sending Messages); reliability-security T18, T24.
pub fn check_post<H: HeadView + ?Sized>(head: &H) -> Result<Accepts, HttpRefusal> {
    check_content_type(head)?;
    if head.field_count("content-encoding") > 0 {
        let found = head.field("content-encoding").unwrap_or("?");
        let message = format!("Content-Encoding must be absent (found {})", Quoted(found));
        return Err(HttpRefusal::new(415, &message).with("Accept-Encoding", "identity"));
    }
    let accepts = Accepts::of(head);
    if accepts.json || accepts.sse {
        Ok(accepts)
    } else {
        Err(not_acceptable(
            head,
            "application/json or text/event-stream",
        ))
    }
}

fn check_content_type<H: HeadView + ?Sized>(head: &H) -> Result<(), HttpRefusal> {
    let refuse = |what: &str| Err(HttpRefusal::new(415, &format!("Content-Type {what}")));
    let value = match head.once("content-type") {
        Once::Value(value) => value,
        Once::Absent => return refuse("is missing; it must be application/json"),
        Once::Repeated(count) => return refuse(&format!("may stand once (found {count})")),
        Once::NotText => return refuse("is no text"),
    };
    let essence = value.split(';').next().unwrap_or("");
    if trimmed(essence).eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        refuse(&format!(
            "must be application/json (found {})",
            Quoted(value)
        ))
    }
}

fn not_acceptable<H: HeadView + ?Sized>(head: &H, wanted: &str) -> HttpRefusal {
    let found = head.field("accept").unwrap_or("?");
    let message = format!("Accept must take {wanted} (found {})", Quoted(found));
    HttpRefusal::new(406, &message)
}

/// Checks a GET that asks for the stream of a session, and tells the revision of the session.
///
/// # Errors
/// 405 when the version header names a stateless revision, which has POST only; 400 when it names none we
/// speak; 406 when the client takes no event stream.
pub fn check_get<H: HeadView + ?Sized>(head: &H) -> Result<Revision, HttpRefusal> {
    let revision = session_revision(head)?;
    if Accepts::of(head).sse {
        Ok(revision)
    } else {
        Err(not_acceptable(head, "text/event-stream"))
    }
}

/// Checks a DELETE that ends a session, and tells the revision of the session.
///
/// # Errors
/// 405 and 400 as for [`check_get`].
pub fn check_delete<H: HeadView + ?Sized>(head: &H) -> Result<Revision, HttpRefusal> {
    session_revision(head)
}

fn session_revision<H: HeadView + ?Sized>(head: &H) -> Result<Revision, HttpRefusal> {
    let version = VersionHeader::of(head);
    if let VersionHeader::Modern(revision) = version {
        let message = format!(
            "method must be POST in {revision} (found {})",
            Quoted(head.method())
        );
        return Err(HttpRefusal::new(405, &message).with("Allow", "POST"));
    }
    version.of_session()
}
