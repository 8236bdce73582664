//! What a `WWW-Authenticate` field asks for. Source: RFC 9110 §11.6.1, RFC 6750 §3.

/// The parameters of all challenges in a field, names in lower case, values unquoted, in order. What cannot be
/// read is skipped.
#[must_use]
pub fn parameters(field: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = field;
    while let Some(equals) = rest.find('=') {
        let name = rest[..equals]
            .rsplit([' ', ',', '\t'])
            .next()
            .unwrap_or_default();
        rest = &rest[equals + 1..];
        let value = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (value, length) = unquote(quoted);
                rest = &quoted[length..];
                value
            }
            None => {
                let end = rest.find([',', ' ', '\t']).unwrap_or(rest.len());
                let value = rest[..end].to_owned();
                rest = &rest[end..];
                value
            }
        };
        if !name.is_empty() {
            found.push((name.to_ascii_lowercase(), value));
        }
    }
    found
}

/// A quoted string without its first quote: what it says, and how long it is with its last.
fn unquote(text: &str) -> (String, usize) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, at + 1),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_quoted_or_not() {
        let field = r#"Bearer realm="a, \"b\"", scope=x:y,Error="insufficient_scope", DPoP algs="ES256 EdDSA", ="x""#;
        let read = parameters(field);
        let read: Vec<_> = read
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        assert_eq!(
            read,
            [
                ("realm", r#"a, "b""#),
                ("scope", "x:y"),
                ("error", "insufficient_scope"),
                ("algs", "ES256 EdDSA")
            ]
        );
        assert!(parameters("Basic").is_empty());
        assert_eq!(parameters("Bearer a=\"open").len(), 1);
    }
}
