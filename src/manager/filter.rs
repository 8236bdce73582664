//! Which tools of a server are shown.
//!
//! OpenClaw: toolFilter. A pattern is trimmed; without `*` it must equal the name; each `*` is any run of
//! characters that holds no line break, the rest stands for itself. There is no `?` and there are no classes.

use crate::codec::glob::fits;
use crate::manager::server_config::ToolFilter;

impl ToolFilter {
    /// Whether a tool is shown; `name` is the server's own, compared without the blanks around it.
    #[must_use]
    pub fn shows(&self, name: &str) -> bool {
        let name = name.trim();
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }
}

/// Whether `name` fits `pattern`. An empty pattern fits nothing.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let pattern = pattern.trim();
    if !pattern.contains('*') {
        return !pattern.is_empty() && pattern == name;
    }
    !name.contains(['\n', '\r', '\u{2028}', '\u{2029}']) && fits(pattern, name)
}

/// The patterns of a comma-separated list, without the empty ones. OpenClaw: `--include a,b`.
#[must_use]
pub fn listed(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|pattern| !pattern.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_are_runs_and_the_rest_is_itself() {
        for (pattern, name) in [
            ("*", ""),
            ("a*a", "aa"),
            ("*b*", "abc"),
            ("a*b*c", "a-bb-c"),
            ("a**c", "abc"),
            (" a* ", "ab"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", ""),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("*a*b*", "ba"),
            ("a?", "ab"),
            ("*", "a\nb"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn lists_are_split_at_commas() {
        assert_eq!(listed(" a, b*,, "), ["a", "b*"]);
        assert!(listed(" , ").is_empty());
    }
}
