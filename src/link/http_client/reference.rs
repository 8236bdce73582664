//! References to other resources of a server: `Location`, and the endpoint of the older pair.
//!
//! Source: RFC 3986 §5.2.

use crate::codec::uri::{Uri, UriError};

/// The URL that `reference` means when it stands in an answer of `base`. A fragment is dropped.
///
/// # Errors
/// When it is no URL of a scheme we speak.
pub(crate) fn resolve(base: &Uri, reference: &str) -> Result<Uri, UriError> {
    let reference = reference.split('#').next().unwrap_or("");
    if has_scheme(reference) {
        return Uri::parse(reference);
    }
    let scheme = base.scheme.as_str();
    if reference.starts_with("//") {
        return Uri::parse(&format!("{scheme}:{reference}"));
    }
    let (base_path, base_query) = split_query(&base.path_and_query);
    let (path, query) = split_query(reference);
    let (path, query) = if path.is_empty() {
        (base_path.to_owned(), query.or(base_query))
    } else if path.starts_with('/') {
        (without_dots(path), query)
    } else {
        let folder = base_path.rfind('/').map_or("/", |at| &base_path[..=at]);
        (without_dots(&format!("{folder}{path}")), query)
    };
    let query = query.map_or(String::new(), |query| format!("?{query}"));
    Uri::parse(&format!("{}{path}{query}", super::target::origin(base)))
}

fn split_query(text: &str) -> (&str, Option<&str>) {
    match text.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (text, None),
    }
}

/// RFC 3986 §3.1: a letter, then letters, digits, `+`, `-`, `.`, up to a colon.
fn has_scheme(reference: &str) -> bool {
    let end = reference.find([':', '/', '?']).unwrap_or(reference.len());
    let name = &reference.as_bytes()[..end];
    reference[end..].starts_with(':')
        && name.first().is_some_and(u8::is_ascii_alphabetic)
        && name
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b))
}

/// RFC 3986 §5.2.4, for a path that begins with a slash.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_as_the_rfc_says() {
        let base = Uri::parse("http://h:81/b/c/d?q").expect("a URL");
        let table = [
            ("g", "http://h:81/b/c/g"),
            ("./g", "http://h:81/b/c/g"),
            ("g/", "http://h:81/b/c/g/"),
            ("/g", "http://h:81/g"),
            ("//g", "http://g/"),
            ("?y", "http://h:81/b/c/d?y"),
            ("g?y", "http://h:81/b/c/g?y"),
            ("g?y/../x", "http://h:81/b/c/g?y/../x"),
            ("#s", "http://h:81/b/c/d?q"),
            ("", "http://h:81/b/c/d?q"),
            (".", "http://h:81/b/c/"),
            ("..", "http://h:81/b/"),
            ("../g", "http://h:81/b/g"),
            ("../../g", "http://h:81/g"),
            ("../../../g", "http://h:81/g"),
            ("/./g", "http://h:81/g"),
            ("/../g", "http://h:81/g"),
            ("g.", "http://h:81/b/c/g."),
            ("./g/.", "http://h:81/b/c/g/"),
            ("g/./h", "http://h:81/b/c/g/h"),
            ("g/../h", "http://h:81/b/c/h"),
            ("a:b/c", ""),
            ("./a:b", "http://h:81/b/c/a:b"),
            ("https://H/x#f", "https://h/x"),
            ("file:///etc", ""),
            ("mailto:x", ""),
            ("http:g", ""),
            ("/a b", ""),
            ("//h:0/", ""),
        ];
        for (reference, expected) in table {
            let found = resolve(&base, reference).map(|uri| uri.to_string());
            assert_eq!(found.unwrap_or_default(), expected, "{reference:?}");
        }
    }
}
