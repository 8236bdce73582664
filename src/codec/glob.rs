//! Patterns with one wildcard: `*` is any run of characters, the rest stands for itself.
//!
//! Takes time linear in pattern and text, whoever wrote them.

/// Whether the whole of `text` fits `pattern`.
#[must_use]
pub fn fits(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = text.strip_prefix(start).and_then(|t| t.strip_suffix(end));
    let Some(mut inner) = inner else {
        return false;
    };
    // Each piece is taken where it stands first: that leaves the most for those behind it.
    for piece in middle.split('*') {
        match inner.split_once(piece) {
            _ if piece.is_empty() => {}
            Some((_, behind)) => inner = behind,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_are_runs_and_the_rest_is_itself() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "a\nb"),
            ("a*a", "aa"),
            ("*b*", "abc"),
            ("a*b*c", "a-bb-c"),
            ("a**c", "abc"),
            ("a?[b]", "a?[b]"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("*a*b*", "ba"),
            ("a?", "ab"),
            ("A", "a"),
            ("a", "a "),
        ] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn hostile_patterns_cost_little() {
        let pattern = "*a".repeat(2_000);
        assert!(!fits(&pattern, &"a".repeat(1_999)));
    }
}
