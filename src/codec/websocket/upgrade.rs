//! The opening handshake of a WebSocket: what we ask, what we answer, what we accept. RFC 6455 §4.
//!
//! No extension and no subprotocol is offered or accepted, so frames need no negotiated state. A request
//! from a browser page (it carries `Origin`) or through a proxy (forwarding fields) is refused: whoever
//! serves on loopback must not become reachable through either (reliability-security T23).

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
    /// OpenClaw: an `Origin` or a forwarding field would make the Gateway treat us as a browser or as
    /// remote; it is sent nothing but the handshake (openclaw-serve §1.1).
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
