//! What is taken out of URLs and of free text before a person or a log sees them.
//!
//! Masked: user information and secret query values of URLs, bearer tokens, `Authorization` values, what
//! follows `token=`, `key=`, `secret=` or `password=`, and JSON members of such names. The rest stays byte
//! for byte. Source: the command line's contract (§7); OpenClaw: redactSensitiveUrl.

/// What stands in the place of a secret.
const MASK: &str = "***";

/// Query parameters whose values are secrets, in the form that [`is_secret_parameter`] brings names to.
const SECRET_PARAMETERS: [&str; 25] = [
    "token",
    "key",
    "api_key",
    "apikey",
    "secret",
    "access_token",
    "auth_token",
    "password",
    "pass",
    "passwd",
    "auth",
    "jwt",
    "session",
    "id_token",
    "code",
    "client_secret",
    "app_secret",
    "hook_token",
    "refresh_token",
    "signature",
    "x_amz_signature",
    "x_amz_security_token",
    "private_key",
    "credential",
    "authorization",
];

/// Whether a query parameter of this name carries a secret. Blanks, control characters and `+` in the name
/// are passed over and percent escapes are read once, as a server might do.
#[must_use]
pub fn is_secret_parameter(name: &str) -> bool {
    let bytes = name.bytes();
    let kept: Vec<u8> = bytes
        .filter(|b| !b.is_ascii_whitespace() && !b.is_ascii_control() && *b != b'+')
        .collect();
    let name = folded(&percent_decoded(&kept));
    SECRET_PARAMETERS.contains(&name.as_str())
}

/// Whether a header, variable or option of this name carries a secret: `Authorization`, `X-Api-Key`,
/// `GITHUB_TOKEN`, `--client-secret`.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    const ENDS: [&str; 10] = [
        "authorization",
        "api_key",
        "apikey",
        "access_key",
        "secret_key",
        "private_key",
        "token",
        "password",
        "secret",
        "bearer",
    ];
    let name = folded(name.trim().as_bytes());
    ENDS.iter().any(|end| {
        name.strip_suffix(end)
            .is_some_and(|start| start.is_empty() || start.ends_with('_'))
    })
}

/// A URL with user information and secret query values masked. What does not begin with a scheme and `://`
/// comes back as it is: see [`mask_text`].
#[must_use]
pub fn mask_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let scheme_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    if scheme.is_empty() || !scheme.bytes().all(scheme_byte) {
        return url.to_owned();
    }
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let mut out = format!("{scheme}://");
    match authority.rsplit_once('@') {
        Some((userinfo, host)) => {
            push_userinfo(&mut out, userinfo);
            out.push_str(host);
        }
        None => out.push_str(authority),
    }
    let (before, fragment) = tail.split_at(tail.find('#').unwrap_or(tail.len()));
    match before.split_once('?') {
        Some((path, query)) => {
            out.push_str(path);
            for (i, pair) in query.split('&').enumerate() {
                out.push(if i == 0 { '?' } else { '&' });
                match pair.split_once('=') {
                    Some((name, _)) if is_secret_parameter(name) => {
                        out.push_str(name);
                        out.push('=');
                        out.push_str(MASK);
                    }
                    Some(_) | None => out.push_str(pair),
                }
            }
        }
        None => out.push_str(before),
    }
    out.push_str(fragment);
    out
}

/// Free text, an error message for example, with everything masked that looks like a secret.
#[must_use]
pub fn mask_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let taken = match c {
            '/' => userinfo(rest, &mut out),
            '?' | '&' => parameter(rest, &mut out),
            '"' => json_member(rest, &mut out),
            _ if is_word(c) => word(rest, &mut out),
            _ => 0,
        };
        if taken == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            rest = &rest[taken..];
        }
    }
    out
}

// Each of the following looks at the start of `rest`, writes what may be shown of what it knows, and
// returns how many bytes that was; 0 when the start is nothing it knows.

/// `//user:password@`
fn userinfo(rest: &str, out: &mut String) -> usize {
    let Some(after) = rest.strip_prefix("//") else {
        return 0;
    };
    let end = after.find(|c| matches!(c, '/' | '?' | '#') || ends_value(c));
    let Some((userinfo, _)) = after[..end.unwrap_or(after.len())].rsplit_once('@') else {
        return 0;
    };
    out.push_str("//");
    push_userinfo(out, userinfo);
    2 + userinfo.len() + 1
}

/// `?token=x` and `&token=x`
fn parameter(rest: &str, out: &mut String) -> usize {
    let Some(end) = rest[1..].find(|c| matches!(c, '=' | '&' | '?' | '#') || ends_value(c)) else {
        return 0;
    };
    let end = end + 1;
    if !rest[end..].starts_with('=') || !is_secret_parameter(&rest[1..end]) {
        return 0;
    }
    out.push_str(&rest[..=end]);
    out.push_str(MASK);
    let value = &rest[end + 1..];
    let stop = value.find(|c| matches!(c, '&' | '#') || ends_value(c));
    end + 1 + stop.unwrap_or(value.len())
}

/// `"token": "x"`
fn json_member(rest: &str, out: &mut String) -> usize {
    let Some(end) = rest[1..].find('"') else {
        return 0;
    };
    let name = &rest[1..=end];
    let after = &rest[end + 2..];
    let Some(value) = after.trim_start().strip_prefix(':') else {
        return 0;
    };
    let Some(value) = value.trim_start().strip_prefix('"') else {
        return 0;
    };
    if !(is_secret_name(name) || is_secret_parameter(name)) {
        return 0;
    }
    let begin = rest.len() - value.len();
    out.push_str(&rest[..begin]);
    out.push_str(MASK);
    begin + json_string_end(value)
}

/// A whole word: shown, with what follows it masked when the word announces a secret.
fn word(rest: &str, out: &mut String) -> usize {
    let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
    let name = &rest[..end];
    out.push_str(name);
    let after = &rest[end..];
    end + if name.eq_ignore_ascii_case("bearer") {
        bearer(after, out)
    } else if name.eq_ignore_ascii_case("authorization") {
        authorization(after, out)
    } else if announces_secret(name) {
        assigned(after, out)
    } else {
        0
    }
}

/// ` abc` behind `Bearer`; the parameters of a challenge (`Bearer realm="x"`) are no secret.
fn bearer(after: &str, out: &mut String) -> usize {
    let token = after.trim_start_matches([' ', '\t']);
    let blanks = after.len() - token.len();
    let token_byte =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~' | '+' | '/' | '*');
    let len = token.find(|c| !token_byte(c)).unwrap_or(token.len());
    let padding = token[len..].len() - token[len..].trim_start_matches('=').len();
    let parameter = padding > 0
        && token[len + padding..]
            .chars()
            .next()
            .is_some_and(|c| c == '"' || token_byte(c));
    if blanks == 0 || len == 0 || parameter {
        return 0;
    }
    out.push_str(&after[..blanks]);
    out.push_str(MASK);
    blanks + len + padding
}

/// `: Basic abc` behind `Authorization`: the scheme is shown.
fn authorization(after: &str, out: &mut String) -> usize {
    let quote = after.strip_prefix('"').unwrap_or(after);
    let Some(value) = quote.trim_start().strip_prefix([':', '=']) else {
        return 0;
    };
    let value = value.trim_start_matches([' ', '\t', '"']);
    let begin = after.len() - value.len();
    out.push_str(&after[..begin]);
    let first = value.find(ends_value).unwrap_or(value.len());
    let tail = value[first..].trim_start_matches([' ', '\t']);
    let second = tail.find(ends_value).unwrap_or(tail.len());
    if tail.len() == value[first..].len() || second == 0 {
        if first > 0 {
            out.push_str(MASK);
        }
        return begin + first;
    }
    out.push_str(&value[..value.len() - tail.len()]);
    out.push_str(MASK);
    begin + value.len() - tail.len() + second
}

/// `=x` behind a word such as `api_key`.
fn assigned(after: &str, out: &mut String) -> usize {
    let Some(value) = after.strip_prefix('=') else {
        return 0;
    };
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let (open, len) = match quote {
        Some(quote) => (1, value[1..].find(quote).unwrap_or(value.len() - 1)),
        None => {
            let stop = value.find(|c| matches!(c, '&' | ',' | ';' | ')') || ends_value(c));
            (0, stop.unwrap_or(value.len()))
        }
    };
    out.push_str(&after[..1 + open]);
    if len > 0 {
        out.push_str(MASK);
    }
    1 + open + len
}

/// The words of the command line's contract, at the end of a name.
fn announces_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["token", "key", "secret", "password"]
        .iter()
        .any(|end| name.ends_with(end))
}

fn push_userinfo(out: &mut String, userinfo: &str) {
    let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
    if !user.is_empty() {
        out.push_str(MASK);
    }
    if !password.is_empty() {
        out.push(':');
        out.push_str(MASK);
    }
    out.push('@');
}

/// Length of the rest of a JSON string, up to its closing quote.
fn json_string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return at,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// What cannot be part of a URL, so that the prose behind one stays readable.
fn ends_value(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '`' | '<' | '>')
}

fn folded(name: &[u8]) -> String {
    String::from_utf8_lossy(name)
        .to_ascii_lowercase()
        .replace('-', "_")
}

fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let digit = |b: Option<&u8>| b.and_then(|b| char::from(*b).to_digit(16));
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let escape = (byte == b'%').then(|| digit(text.get(at + 1)).zip(digit(text.get(at + 2))));
        match escape.flatten() {
            Some((high, low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or(byte));
                at += 3;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_keep_what_is_no_secret() {
        let rows = [
            ("https://h/mcp?x=1#y", "https://h/mcp?x=1#y"),
            ("https://me:pw@h/", "https://***:***@h/"),
            ("https://me@h", "https://***@h"),
            ("https://h/?a&token=x&b=1", "https://h/?a&token=***&b=1"),
            ("https://h/#token", "https://h/#token"),
            ("https://h/a@b?q=u@v", "https://h/a@b?q=u@v"),
        ];
        for (url, shown) in rows {
            assert_eq!(mask_url(url), shown);
            assert_eq!(mask_text(url), shown, "the same as text");
        }
    }

    #[test]
    fn text_loses_what_looks_like_a_secret() {
        let rows = [
            (
                "fetch https://h/?key=abc failed",
                "fetch https://h/?key=*** failed",
            ),
            (
                "Authorization: Bearer abc.def==, no",
                "Authorization: Bearer *** no",
            ),
            ("authorization: Basic dTpw", "authorization: Basic ***"),
            ("Authorization: abc", "Authorization: ***"),
            ("sent BEARER abc", "sent BEARER ***"),
            (
                "401 Bearer resource_metadata=\"https://h/x\"",
                "401 Bearer resource_metadata=\"https://h/x\"",
            ),
            ("api_key=abc&x=1", "api_key=***&x=1"),
            ("--token='a b' c", "--token='***' c"),
            (
                "{\"access_token\" : \"a\\\"b\",\"n\":1}",
                "{\"access_token\" : \"***\",\"n\":1}",
            ),
            ("tokens are fine, key: too", "tokens are fine, key: too"),
            ("authorization needed", "authorization needed"),
            ("token=", "token="),
            ("é //a:b@h é", "é //***:***@h é"),
            (
                "postgres://u:p%40@db:5432/x",
                "postgres://***:***@db:5432/x",
            ),
        ];
        for (text, shown) in rows {
            assert_eq!(mask_text(text), shown);
        }
    }

    #[test]
    fn any_text_passes_without_a_fault() {
        let pieces = [
            "//", "@", "?", "token", "=", "\"", ":", " ", "Bearer", "é", "\\", "&",
        ];
        let mut state = 7_usize;
        for _ in 0..2_000 {
            let mut text = String::new();
            for _ in 0..12 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                text.push_str(pieces[(state >> 33) % pieces.len()]);
            }
            let once = mask_text(&text);
            assert_eq!(mask_text(&once), once, "{text}");
            assert_eq!(mask_url(&mask_url(&text)), mask_url(&text));
        }
    }

    #[test]
    fn names_of_secrets() {
        for name in [
            "Authorization",
            "x-api-key",
            "--client-secret",
            "AWS_SECRET_ACCESS_KEY",
        ] {
            assert!(is_secret_name(name.trim_start_matches('-')), "{name}");
        }
        for name in ["TOKENS", "X-Auth", "monkey", ""] {
            assert!(!is_secret_name(name), "{name}");
        }
        assert!(is_secret_parameter("%74o ken"));
        assert!(!is_secret_parameter("%2574oken"), "escapes are read once");
    }
}
