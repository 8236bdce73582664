//! The opening handshake of a WebSocket: what we ask, what we answer, what we accept. RFC 6455 §4.
//!
//! No extension and no subprotocol is offered or accepted, so frames need no negotiated state. A
//! request from a browser page (it carries `Origin`) or through a proxy (forwarding fields) is
//! refused: whoever serves on loopback must not become reachable through either
//! (reliability-security T23).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::codec::http1::{HeadWriter, RequestHead, ResponseHead, WriteError};
use crate::crypto::sha1;
use crate::entropy::Entropy;

/// RFC 6455 §1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Fields that only a proxy adds.
const FORWARDING_FIELDS: [&str; 6] = [
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Real-IP",
    "Via",
];

/// The answer that proves the server read `key`. RFC 6455 §4.2.2.
#[must_use]
pub fn accept_key(key: &str) -> String {
    BASE64.encode(sha1(format!("{key}{GUID}").as_bytes()))
}

/// Our side of one handshake as a client.
#[derive(Debug)]
pub struct ClientUpgrade {
    key: String,
}

impl ClientUpgrade {
    /// Draws the key.
    #[must_use]
    pub fn new(entropy: &mut dyn Entropy) -> Self {
        let mut nonce = [0_u8; 16];
        entropy.fill(&mut nonce);
        Self {
            key: BASE64.encode(nonce),
        }
    }

    /// The request. `host` is the value of the Host field.
    ///
    /// OpenClaw: an `Origin` or a forwarding field would make the Gateway treat us as a browser or
    /// as remote; it is sent nothing but the handshake (openclaw-serve §1.1).
    ///
    /// # Errors
    /// When host or path hold a byte that must not stand in a head.
    pub fn request(&self, host: &str, path: &str) -> Result<Vec<u8>, WriteError> {
        Ok(HeadWriter::request("GET", path)?
            .field("Host", host)?
            .field("Upgrade", "websocket")?
            .field("Connection", "Upgrade")?
            .field("Sec-WebSocket-Version", "13")?
            .field("Sec-WebSocket-Key", &self.key)?
            .finish())
    }

    /// Checks an answer of status 101. RFC 6455 §4.1.
    ///
    /// # Errors
    /// The connection must be dropped.
    pub fn check(&self, head: &ResponseHead) -> Result<(), UpgradeError> {
        let fields = &head.fields;
        if head.minor == 0 {
            return Err(UpgradeError::Version);
        }
        if !fields.has_token("Upgrade", "websocket") {
            return Err(UpgradeError::Field("Upgrade"));
        }
        if !fields.has_token("Connection", "Upgrade") {
            return Err(UpgradeError::Field("Connection"));
        }
        if fields.only("Sec-WebSocket-Accept") != Some(accept_key(&self.key).as_str()) {
            return Err(UpgradeError::Field("Sec-WebSocket-Accept"));
        }
        for unasked in ["Sec-WebSocket-Extensions", "Sec-WebSocket-Protocol"] {
            if fields.has(unasked) {
                return Err(UpgradeError::Unasked(unasked));
            }
        }
        Ok(())
    }
}

/// Why an answer of status 101 is not good.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpgradeError {
    /// HTTP/1.0 knows no upgrade.
    Version,
    /// A field is missing or has another value than it must.
    Field(&'static str),
    /// A field for something we did not ask for.
    Unasked(&'static str),
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("upgrade was answered in HTTP/1.0"),
            Self::Field(name) => write!(f, "upgrade was answered with a wrong or missing {name}"),
            Self::Unasked(name) => write!(f, "upgrade was answered with {name}, not asked for"),
        }
    }
}

impl std::error::Error for UpgradeError {}

/// A request that is not upgraded: status and one line for the person at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the answer.
    pub status: u16,
    /// Its body, without the line end.
    pub text: String,
}

impl Refusal {
    /// The whole answer; the connection is to be closed behind it.
    #[must_use]
    pub fn answer(&self) -> Vec<u8> {
        let reason = match self.status {
            400 => "Bad Request",
            403 => "Forbidden",
            405 => "Method Not Allowed",
            414 => "URI Too Long",
            426 => "Upgrade Required",
            431 => "Request Header Fields Too Large",
            505 => "HTTP Version Not Supported",
            _ => "Refused",
        };
        let body = format!("{}\n", self.text);
        let head = || {
            let mut head = HeadWriter::response(self.status, reason)?
                .field("Content-Type", "text/plain; charset=utf-8")?
                .field("Content-Length", &body.len().to_string())?
                .field("Connection", "close")?;
            if self.status == 405 {
                head = head.field("Allow", "GET")?;
            }
            if self.status == 426 {
                head = head
                    .field("Upgrade", "websocket")?
                    .field("Sec-WebSocket-Version", "13")?;
            }
            Ok::<_, WriteError>(head.finish())
        };
        let mut answer = head().expect("all values are constants or digits");
        answer.extend_from_slice(body.as_bytes());
        answer
    }
}

/// Answers an upgrade request: the 101 head to send, after which frames follow. RFC 6455 §4.2.
///
/// # Errors
/// The request is not upgraded; [`Refusal::answer`] is to be sent.
pub fn answer(head: &RequestHead) -> Result<Vec<u8>, Refusal> {
    let fields = &head.fields;
    let refuse = |status, text: &str| {
        Err(Refusal {
            status,
            text: text.to_owned(),
        })
    };
    if head.method != "GET" {
        return refuse(405, "only GET is served here");
    }
    if head.minor == 0 {
        return refuse(400, "a WebSocket upgrade needs HTTP/1.1");
    }
    if fields.has("Origin") {
        return refuse(403, "requests from web pages (with Origin) are not served");
    }
    if let Some(name) = FORWARDING_FIELDS.into_iter().find(|name| fields.has(name)) {
        return refuse(
            403,
            &format!("forwarded requests (with {name}) are not served"),
        );
    }
    let has_body =
        fields.has("Transfer-Encoding") || fields.all("Content-Length").any(|value| value != b"0");
    if has_body {
        return refuse(400, "an upgrade request must not have a body");
    }
    let upgrade = fields.has_token("Upgrade", "websocket");
    if !(upgrade && fields.has_token("Connection", "Upgrade")) {
        return refuse(426, "this is a WebSocket endpoint");
    }
    if fields.only("Sec-WebSocket-Version") != Some("13") {
        return refuse(426, "Sec-WebSocket-Version must be 13");
    }
    let key = fields.only("Sec-WebSocket-Key").unwrap_or_default();
    if BASE64.decode(key).map_or(true, |nonce| nonce.len() != 16) {
        return refuse(400, "Sec-WebSocket-Key must be 16 bytes in base64");
    }
    let head = || {
        Ok::<_, WriteError>(
            HeadWriter::response(101, "Switching Protocols")?
                .field("Upgrade", "websocket")?
                .field("Connection", "Upgrade")?
                .field("Sec-WebSocket-Accept", &accept_key(key))?
                .finish(),
        )
    };
    Ok(head().expect("base64 and constants are valid in a head"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::http1::{HeadLimits, Progress, RequestReader, ResponseReader};
    use crate::entropy::Seeded;

    const LIMITS: HeadLimits = HeadLimits {
        bytes_max: 16 * 1024,
        fields_max: 100,
    };

    fn request(head: &[u8]) -> RequestHead {
        match RequestReader::new(LIMITS).read(head) {
            Ok(Progress::Done { head, .. }) => head,
            other => panic!("{other:?}"),
        }
    }

    fn response(head: &[u8]) -> ResponseHead {
        match ResponseReader::new(LIMITS).read(head) {
            Ok(Progress::Done { head, .. }) => head,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_accept_key_is_the_one_of_the_rfc() {
        assert_eq!(
            accept_key("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn the_request_holds_the_handshake_and_nothing_else() {
        let client = ClientUpgrade::new(&mut Seeded::new(3));
        let bytes = client.request("[::1]:18789", "/x?y").expect("valid");
        let expected = format!(
            "GET /x?y HTTP/1.1\r\nHost: [::1]:18789\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {}\r\n\r\n",
            client.key
        );
        assert_eq!(String::from_utf8(bytes).expect("ASCII"), expected);
        assert_ne!(client.key, ClientUpgrade::new(&mut Seeded::new(4)).key);
        assert!(client.request("h", "/a b").is_err());
        assert!(client.request("h\r\nX: y", "/").is_err());
    }

    #[test]
    fn our_own_answer_is_accepted() {
        let client = ClientUpgrade::new(&mut Seeded::new(3));
        let bytes = client.request("h", "/").expect("valid");
        let head = answer(&request(&bytes)).expect("a good request");
        assert_eq!(client.check(&response(&head)), Ok(()));
    }

    /// A good answer with one line replaced: the line that starts with `from`.
    fn answer_with(client: &ClientUpgrade, from: &str, to: &str) -> ResponseHead {
        let good = format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\n\
             connection: keep-alive, upgrade\r\nsec-websocket-accept: {}\r\n\r\n",
            accept_key(&client.key)
        );
        let line = good
            .lines()
            .find(|line| line.starts_with(from))
            .expect("a line");
        response(good.replace(&format!("{line}\r\n"), to).as_bytes())
    }

    #[test]
    fn an_answer_must_be_complete_and_hold_nothing_unasked() {
        let client = ClientUpgrade::new(&mut Seeded::new(3));
        let accept = accept_key(&client.key);
        let other = accept_key("dGhlIHNhbXBsZSBub25jZQ==");
        let field = |name| Err(UpgradeError::Field(name));
        let twice = format!("sec-websocket-accept: {accept}\r\n").repeat(2);
        let wrong = format!("sec-websocket-accept: {other}\r\n");
        let table = [
            ("HTTP", "HTTP/1.1 101 \r\n", Ok(())),
            ("HTTP", "HTTP/1.0 101 No\r\n", Err(UpgradeError::Version)),
            ("upgrade", "", field("Upgrade")),
            ("upgrade", "upgrade: h2c\r\n", field("Upgrade")),
            ("connection", "", field("Connection")),
            ("connection", "connection: close\r\n", field("Connection")),
            ("sec", "", field("Sec-WebSocket-Accept")),
            ("sec", &wrong, field("Sec-WebSocket-Accept")),
            ("sec", &twice, field("Sec-WebSocket-Accept")),
            (
                "upgrade",
                "upgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n",
                Err(UpgradeError::Unasked("Sec-WebSocket-Extensions")),
            ),
            (
                "upgrade",
                "upgrade: websocket\r\nSec-WebSocket-Protocol: chat\r\n",
                Err(UpgradeError::Unasked("Sec-WebSocket-Protocol")),
            ),
        ];
        for (from, to, expected) in table {
            assert_eq!(
                client.check(&answer_with(&client, from, to)),
                expected,
                "{to:?}"
            );
        }
    }

    const GOOD: &str = "GET /chat HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\n\
        Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Version: 13\r\n\r\n";

    #[test]
    fn the_request_of_the_rfc_is_answered_as_in_the_rfc() {
        let head = answer(&request(GOOD.as_bytes())).expect("upgraded");
        assert_eq!(
            String::from_utf8(head).expect("ASCII"),
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
        );
    }

    #[test]
    fn requests_that_are_not_upgraded_get_a_status_and_a_reason() {
        let table = [
            ("GET", "POST", 405),
            ("GET", "OPTIONS", 405),
            ("HTTP/1.1", "HTTP/1.0", 400),
            ("Upgrade: websocket\r\n", "", 426),
            ("Upgrade: websocket\r\n", "Upgrade: h2c\r\n", 426),
            ("Connection: Upgrade\r\n", "", 426),
            ("Version: 13", "Version: 8", 426),
            ("Version: 13", "Version: 13, 8", 426),
            ("Sec-WebSocket-Version: 13\r\n", "", 426),
            ("dGhlIHNhbXBsZSBub25jZQ==", "", 400),
            ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25j", 400),
            ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ", 400),
            ("Upgrade: ", "Sec-WebSocket-Key: a\r\nUpgrade: ", 400),
            ("Upgrade: ", "Content-Length: 4\r\nUpgrade: ", 400),
            ("Upgrade: ", "Transfer-Encoding: chunked\r\nUpgrade: ", 400),
            ("Upgrade: ", "Origin: http://evil.example\r\nUpgrade: ", 403),
            ("Upgrade: ", "Origin: null\r\nUpgrade: ", 403),
            ("Upgrade: ", "X-Forwarded-For: 10.0.0.1\r\nUpgrade: ", 403),
            ("Upgrade: ", "Forwarded: for=10.0.0.1\r\nUpgrade: ", 403),
        ];
        for (from, to, status) in table {
            let head = GOOD.replacen(from, to, 1);
            let refusal = answer(&request(head.as_bytes())).expect_err(&head);
            assert_eq!(refusal.status, status, "{head}");
            let bytes = refusal.answer();
            let Ok(Progress::Done { head, used }) = ResponseReader::new(LIMITS).read(&bytes) else {
                panic!("a whole answer to {to}");
            };
            assert_eq!(head.status, status);
            assert_eq!(head.fields.has("Allow"), status == 405);
            assert_eq!(
                head.fields.only("Sec-WebSocket-Version").is_some(),
                status == 426
            );
            let body = bytes.len() - used;
            let declared = head.fields.only("Content-Length").expect("declared");
            assert_eq!(declared, body.to_string());
            assert!(head.fields.has_token("Connection", "close"));
        }
        let extended = GOOD.replace(
            "Upgrade: ",
            "Sec-WebSocket-Extensions: permessage-deflate\r\nContent-Length: 0\r\nUpgrade: ",
        );
        assert!(
            answer(&request(extended.as_bytes())).is_ok(),
            "an offer may be ignored"
        );
    }
}
