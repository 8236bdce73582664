//! URI templates, as far as resources need them.
//!
//! Literal text and simple expressions: `{name}` stands for one or more characters without `/`, `{+name}`
//! and `{name*}` also with. The operators of form queries and fragments are not understood, and a template
//! with one is refused. Source: RFC 6570 §3.2.2, §3.2.3; Spec: 2025-11-25 server/resources (Resource
//! Templates). Values are as they stand in the URI, percent signs included.

/// The values of a URI that a template matches, by name and in order; `None` when it does not match.
/// A later variable gets as little as possible, an earlier one the rest. A URI beyond 8 KiB matches nothing.
#[must_use]
pub fn match_template<'t, 'u>(template: &'t str, uri: &'u str) -> Option<Vec<(&'t str, &'u str)>> {
    let parts = parse(template)?;
    if uri.len() > URI_BYTES_MAX {
        return None;
    }
    // Forward: where can each part end. Backward: where did it begin. Linear, whatever the text.
    let mut start = vec![false; uri.len() + 1];
    start[0] = true;
    let mut reached = vec![start];
    for part in &parts {
        reached.push(part.ends(&reached[reached.len() - 1], uri));
    }
    let mut end = uri.len();
    if !reached[parts.len()][end] {
        return None;
    }
    let mut found = Vec::new();
    for (part, begins) in parts.iter().zip(&reached).rev() {
        match part {
            Part::Literal(text) => end -= text.len(),
            Part::Variable { name, .. } => {
                let begin = begins[..end].iter().rposition(|reached| *reached)?;
                found.push((*name, &uri[begin..end]));
                end = begin;
            }
        }
    }
    found.reverse();
    Some(found)
}

/// Whether this is a template that we understand.
pub(super) fn is_template(template: &str) -> bool {
    parse(template).is_some()
}

/// Longest URI that is compared with a template. Source: RFC 9110 §4.1 asks for 8000 at least.
const URI_BYTES_MAX: usize = 8 * 1024;

/// Expressions in one template.
const EXPRESSIONS_MAX: usize = 16;

#[derive(Clone, Copy, Debug)]
enum Part<'t> {
    Literal(&'t str),
    Variable { name: &'t str, slashes: bool },
}

impl Part<'_> {
    /// Where in the URI the part can end when it can begin where `begins` says.
    fn ends(self, begins: &[bool], uri: &str) -> Vec<bool> {
        let mut ends = vec![false; begins.len()];
        match self {
            Self::Literal(text) => {
                for (at, _) in begins.iter().enumerate().filter(|(_, begins)| **begins) {
                    if uri.as_bytes()[at..].starts_with(text.as_bytes()) {
                        ends[at + text.len()] = true;
                    }
                }
            }
            Self::Variable { slashes, .. } => {
                let mut begun = false;
                for (at, byte) in uri.bytes().enumerate() {
                    begun = (begun || begins[at]) && (slashes || byte != b'/');
                    ends[at + 1] = begun && uri.is_char_boundary(at + 1);
                }
            }
        }
        ends
    }
}

fn parse(template: &str) -> Option<Vec<Part<'_>>> {
    let mut parts = Vec::new();
    let mut rest = template;
    let mut expressions = 0;
    while !rest.is_empty() {
        let open = rest.find('{').unwrap_or(rest.len());
        let (literal, expression) = rest.split_at(open);
        if literal.contains('}') {
            return None;
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        let Some(expression) = expression.strip_prefix('{') else {
            break;
        };
        let (inner, behind) = expression.split_once('}')?;
        let (name, slashes) = match (inner.strip_prefix('+'), inner.strip_suffix('*')) {
            (Some(name), _) | (None, Some(name)) => (name, true),
            (None, None) => (inner, false),
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        expressions += 1;
        if name.is_empty() || !name.chars().all(legal) || expressions > EXPRESSIONS_MAX {
            return None;
        }
        parts.push(Part::Variable { name, slashes });
        rest = behind;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_where_the_template_has_them() {
        type Found<'a> = Option<&'a [(&'a str, &'a str)]>;
        let cases: [(&str, &str, Found<'_>); 13] = [
            (
                "test://t/{id}/data",
                "test://t/123/data",
                Some(&[("id", "123")]),
            ),
            ("test://t/{id}/data", "test://t//data", None),
            ("test://t/{id}/data", "test://t/1/2/data", None),
            ("test://t/{id}/data", "test://t/1/data/", None),
            (
                "file:///{+path}",
                "file:///a/b.txt",
                Some(&[("path", "a/b.txt")]),
            ),
            (
                "file:///{path*}",
                "file:///a/b.txt",
                Some(&[("path", "a/b.txt")]),
            ),
            ("file:///{path}", "file:///a/b.txt", None),
            ("a:{x}-{y}", "a:1-2-3", Some(&[("x", "1-2"), ("y", "3")])),
            ("a:{x}{y}", "a:123", Some(&[("x", "12"), ("y", "3")])),
            ("a:{x}", "a:", None),
            ("plain:x", "plain:x", Some(&[])),
            ("{+a}-{b}", "x-y/z-w", Some(&[("a", "x-y/z"), ("b", "w")])),
            ("a:{x}é", "a:üé", Some(&[("x", "ü")])),
        ];
        for (template, uri, wanted) in cases {
            let found = match_template(template, uri);
            assert_eq!(found.as_deref(), wanted, "{template} against {uri}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for bad in [
            "a:{", "a:}", "a:{}", "a:{?q}", "a:{&q}", "a:{#f}", "a:{/p}", "a:{x,y}", "a:{x}}",
            "a:{x:3}",
        ] {
            assert!(!is_template(bad), "{bad}");
        }
        assert!(!is_template(&"{a}".repeat(EXPRESSIONS_MAX + 1)));
        assert!(is_template("a:{x}/{+y.z}"));
    }

    #[test]
    fn hostile_text_ends_soon() {
        let template = "{+a}a{+b}a{+c}a{+d}b";
        assert!(match_template(template, &"a".repeat(URI_BYTES_MAX)).is_none());
        assert!(match_template("{+a}", &"a".repeat(URI_BYTES_MAX)).is_some());
        assert!(match_template("{+a}", &"a".repeat(URI_BYTES_MAX + 1)).is_none());
    }
}
