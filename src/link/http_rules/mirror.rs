//! Whether the routing headers of 2026-07-28 say what the body says.
//!
//! Source: Spec 2026-07-28 basic/transports/streamable-http (Request Metadata, Server Validation).

use super::param::{ParamHeader, ParamKind};
use super::value::{decode_value, encode_value};
use super::{HeadView, Once, trimmed, version};
use crate::codec::http1::{HttpHead, ValuePlace};
use crate::codec::scan::{Text, members};
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::META_PROTOCOL_VERSION;
use crate::protocol::revision::Revision;
use crate::secret::Quoted;

const METHOD: &str = "Mcp-Method";
const NAME: &str = "Mcp-Name";

/// Methods whose requests must have an `Mcp-Name`: `params.name`, `params.uri` or `params.taskId`.
/// Source: as above (Standard Request Headers); extension `io.modelcontextprotocol/tasks`.
const NAMED_METHODS: [&str; 6] = [
    "tools/call",
    "resources/read",
    "prompts/get",
    "tasks/get",
    "tasks/update",
    "tasks/cancel",
];

/// Largest integer that may travel in a header, and the smallest without its sign: 2^53−1.
const SAFE_INTEGER_MAX: i64 = (1 << 53) - 1;

/// Compares the headers of a request with its body. For requests only: no header is required of
/// notifications.
///
/// * `method`: the method of the body;
/// * `name`: `params.name`, `params.uri` or `params.taskId`, whichever names what the method works on;
/// * `meta_version`: the protocol version of `params._meta`;
/// * `arguments`: `params.arguments`, a raw object that was validated before;
/// * `param_headers`: of the tool that is called. Headers of other names are not looked at.
///
/// All but `arguments` are texts with their JSON escapes undone.
///
/// The order is that of the specification's tests: the version header is there; the version of the body is
/// there; both are the same; we speak it; the other headers. What else `_meta` must hold comes after the first
/// of these and before the others: call [`version_header`], then check it, then call this.
///
/// # Errors
/// -32020 (header mismatch), -32602 (no version in `_meta`), -32022 (a version we do not speak); all go with
/// HTTP status 400.
pub fn check_modern_headers<H: HeadView + ?Sized>(
    head: &H,
    method: &str,
    name: Option<&str>,
    meta_version: Option<&str>,
    arguments: Option<&str>,
    param_headers: &[ParamHeader],
) -> Result<(), RpcError> {
    let version = version_header(head)?;
    let Some(meta_version) = meta_version else {
        let message = format!("params._meta[\"{META_PROTOCOL_VERSION}\"] is missing");
        return Err(RpcError::new(ErrorCode::InvalidParams, message));
    };
    if version != meta_version {
        return Err(contradiction(version::NAME, version, meta_version));
    }
    if !Revision::parse(version).is_some_and(Revision::is_stateless) {
        return Err(RpcError::unsupported_version(version));
    }
    check_method(head, method)?;
    if NAMED_METHODS.contains(&method) {
        check_name(head, name)?;
    }
    check_param_headers(head, arguments, param_headers)
}

/// The last part of [`check_modern_headers`]: the headers that repeat arguments.
///
/// # Errors
/// -32020 (header mismatch).
pub fn check_param_headers<H: HeadView + ?Sized>(
    head: &H,
    arguments: Option<&str>,
    param_headers: &[ParamHeader],
) -> Result<(), RpcError> {
    for param in param_headers {
        check_param(head, param, arguments)?;
    }
    Ok(())
}

/// Where the routing headers of a head stand, when all is well with them by themselves: none comes twice, none
/// is encoded or has blanks around it, and the version is a stateless one. For a head that comes again and
/// again: which ones it has need not be found out each time, only whether the body says the same.
#[derive(Clone, Copy, Debug)]
pub struct RoutingPlaces {
    version: ValuePlace,
    method: ValuePlace,
    name: Option<ValuePlace>,
}

impl RoutingPlaces {
    /// Those of `head`; `None` when it takes [`check_modern_headers`] to judge them.
    #[must_use]
    pub fn of(head: &HttpHead) -> Option<Self> {
        let plain = |place: &ValuePlace| {
            let value = head.value_at(*place);
            trimmed(value) == value && decode_value(value).is_ok_and(|meaning| meaning == value)
        };
        let found = |header| head.place(header).filter(plain);
        let (version, method) = (found(version::NAME)?, found(METHOD)?);
        let name = found(NAME);
        let fit = name.is_some() || head.fields(NAME).next().is_none();
        let spoken = Revision::parse(head.value_at(version)).is_some_and(Revision::is_stateless);
        (fit && spoken).then_some(Self {
            version,
            method,
            name,
        })
    }

    /// Whether the body says the same as `head`, whose places these are. Then all that is left of
    /// [`check_modern_headers`] is [`check_param_headers`]; else it finds what is wrong, if anything is.
    #[must_use]
    pub fn agree(
        &self,
        head: &HttpHead,
        method: &str,
        name: Option<&str>,
        meta_version: Option<&str>,
    ) -> bool {
        let named = self.name.map(|place| head.value_at(place));
        meta_version == Some(head.value_at(self.version))
            && method == head.value_at(self.method)
            && name == named
            && (name.is_some() || !NAMED_METHODS.contains(&method))
    }
}

/// The value of the `MCP-Protocol-Version` header of a stateless request.
///
/// # Errors
/// -32020 when it is missing, repeated or no text.
pub fn version_header<H: HeadView + ?Sized>(head: &H) -> Result<&str, RpcError> {
    required(head, version::NAME, None)
}

fn check_method<H: HeadView + ?Sized>(head: &H, method: &str) -> Result<(), RpcError> {
    let value = required(head, METHOD, Some(method))?;
    if value == method {
        Ok(())
    } else {
        Err(contradiction(METHOD, value, method))
    }
}

fn check_name<H: HeadView + ?Sized>(head: &H, name: Option<&str>) -> Result<(), RpcError> {
    let value = required(head, NAME, name)?;
    let meaning = decoded(NAME, value)?;
    match name {
        Some(name) if meaning == name => Ok(()),
        Some(name) => Err(contradiction(NAME, &meaning, name)),
        None => Err(unexpected(NAME, &meaning)),
    }
}

fn check_param<H: HeadView + ?Sized>(
    head: &H,
    param: &ParamHeader,
    arguments: Option<&str>,
) -> Result<(), RpcError> {
    let header = &param.header;
    let argument = argument(param, arguments)?;
    let value = match (field(head, header)?, argument) {
        (None, None | Some(Argument::Compound)) => return Ok(()),
        (None, Some(argument)) => return Err(missing(header, Some(&argument.shown()))),
        (Some(value), _) => value,
    };
    let meaning = decoded(header, value)?;
    match argument {
        Some(argument) if argument.is(&meaning) => Ok(()),
        Some(argument) => Err(contradiction(header, &meaning, &argument.shown())),
        None => Err(unexpected(header, &meaning)),
    }
}

impl ParamHeader {
    /// What a client writes into the header for these arguments, a raw object; `None` for no header: the
    /// argument is absent, `null`, or nothing that a header can carry.
    ///
    /// # Errors
    /// -32020 when the argument comes twice, or is a number and not an integer within ±(2^53−1).
    pub fn value_of(&self, arguments: &str) -> Result<Option<String>, RpcError> {
        Ok(match argument(self, Some(arguments))? {
            None | Some(Argument::Compound) => None,
            Some(Argument::Text(text)) => Some(encode_value(&text.decode()).into_owned()),
            Some(Argument::Boolean(raw)) => Some(raw.to_owned()),
            Some(Argument::Number(raw)) => {
                Some(safe_integer(raw).map_or_else(|| raw.to_owned(), |number| number.to_string()))
            }
        })
    }
}

/// The value of a header that may stand once.
fn field<'a, H: HeadView + ?Sized>(head: &'a H, header: &str) -> Result<Option<&'a str>, RpcError> {
    match head.once(header) {
        Once::Absent => Ok(None),
        Once::Value(value) => Ok(Some(trimmed(value))),
        Once::NotText => Err(mismatch(header, "is no text")),
        Once::Repeated(count) => Err(mismatch(header, &format!("may stand once (found {count})"))),
    }
}

fn required<'a, H: HeadView + ?Sized>(
    head: &'a H,
    header: &str,
    body: Option<&str>,
) -> Result<&'a str, RpcError> {
    field(head, header)?.ok_or_else(|| missing(header, body))
}

fn decoded<'a>(header: &str, value: &'a str) -> Result<std::borrow::Cow<'a, str>, RpcError> {
    decode_value(value)
        .map_err(|error| mismatch(header, &format!("{error} (found {})", Quoted(value))))
}

/// An argument that is there and not `null`.
#[derive(Clone, Copy)]
enum Argument<'a> {
    Text(Text<'a>),
    /// As spelled.
    Number(&'a str),
    Boolean(&'a str),
    /// An array or object, which no header can carry: the schema check has the word.
    Compound,
}

impl Argument<'_> {
    /// Whether a header means this value. Numbers are compared as numbers.
    fn is(&self, meaning: &str) -> bool {
        match self {
            Self::Text(text) => text.is(meaning),
            Self::Number(raw) => {
                let number = safe_integer(raw);
                *raw == meaning || number.is_some() && number == safe_integer(meaning)
            }
            Self::Boolean(raw) => *raw == meaning,
            Self::Compound => false,
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.decode().into_owned(),
            Self::Number(raw) | Self::Boolean(raw) => (*raw).to_owned(),
            Self::Compound => "an array or object".to_owned(),
        }
    }
}

/// The argument that a header repeats; its type is what it is, not what the schema says.
fn argument<'a>(
    param: &ParamHeader,
    arguments: Option<&'a str>,
) -> Result<Option<Argument<'a>>, RpcError> {
    let Some(mut at) = arguments else {
        return Ok(None);
    };
    for step in &param.path {
        let mut named = members(at).filter(|(name, _)| name.is(step));
        let Some((_, raw)) = named.next() else {
            return Ok(None);
        };
        if named.next().is_some() {
            // Whoever acts on the call may take the other one.
            let what = format!(
                "repeats an argument that comes twice: {}",
                Quoted(&param.path.join("."))
            );
            return Err(mismatch(&param.header, &what));
        }
        at = raw;
    }
    Ok(match at.as_bytes().first() {
        Some(b'n') | None => None,
        Some(b'"') => Text::of_value(at).map(Argument::Text),
        Some(b't' | b'f') => Some(Argument::Boolean(at)),
        Some(b'{' | b'[') => Some(Argument::Compound),
        Some(_) if param.kind == ParamKind::Integer && safe_integer(at).is_none() => {
            let what = format!(
                "repeats an argument that is no integer within ±(2^53−1) (found {})",
                Quoted(at)
            );
            return Err(mismatch(&param.header, &what));
        }
        Some(_) => Some(Argument::Number(at)),
    })
}

/// The integer that a JSON number is, however it is spelled (`42`, `42.0`, `4.2e1`), within ±(2^53−1).
fn safe_integer(text: &str) -> Option<i64> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (mantissa, ""),
    };
    if whole.is_empty() || whole.len() > 1 && whole.starts_with('0') {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let mut value: i64 = 0;
    for byte in whole.bytes().chain(fraction.bytes()) {
        let digit = byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    if value == 0 {
        return Some(0);
    }
    let mut shift = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    while shift != 0 {
        if shift > 0 {
            value = value.checked_mul(10)?;
            shift -= 1;
        } else if value % 10 == 0 {
            value /= 10;
            shift += 1;
        } else {
            return None;
        }
    }
    (value <= SAFE_INTEGER_MAX).then_some(sign * value)
}

fn missing(header: &str, body: Option<&str>) -> RpcError {
    match body {
        Some(body) => mismatch(
            header,
            &format!("is missing; the body says {}", Quoted(body)),
        ),
        None => mismatch(header, "is missing"),
    }
}

fn unexpected(header: &str, value: &str) -> RpcError {
    let what = format!("says {}; the body says nothing", Quoted(value));
    mismatch(header, &what)
}

fn contradiction(header: &str, value: &str, body: &str) -> RpcError {
    let what = format!("says {}; the body says {}", Quoted(value), Quoted(body));
    mismatch(header, &what)
}

fn mismatch(header: &str, what: &str) -> RpcError {
    let message = format!("header mismatch: {} {what}", Quoted(header));
    RpcError::new(ErrorCode::HeaderMismatch, message)
}
