//! `pluginTools`: tools that are commands.

use super::ConfigError;
use super::document::Document;

/// Name and raw JSON of each entry, in the order of the file. An entry may be no object, and a name may be there
/// twice: whoever reads the entries says so.
pub(super) fn read(root: &Document) -> Result<Vec<(String, String)>, ConfigError> {
    let Some(section) = root.get("pluginTools").filter(|found| !found.is_null()) else {
        return Ok(Vec::new());
    };
    let Some(members) = section.members() else {
        return Err(ConfigError::Key {
            key: "pluginTools".to_owned(),
            must: "an object",
            found: match section {
                Document::Array(_) => "an array",
                Document::Object(_) | Document::Scalar(_) => "no object",
            },
        });
    };
    let raw = |(name, entry): &(String, Document)| (name.clone(), entry.json());
    Ok(members.iter().map(raw).collect())
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn entries_stay_as_written() {
        let config = Config::parse(
            "// ours\n{pluginTools: {z: {command: ['x'], inputSchema: {type: 'object', b: 1, a: 2}}, a: 5, a: {}}}",
        )
        .expect("good");
        let found: Vec<(&str, &str)> = config
            .plugins
            .iter()
            .map(|(name, raw)| (name.as_str(), raw.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                (
                    "z",
                    r#"{"command":["x"],"inputSchema":{"type":"object","b":1,"a":2}}"#
                ),
                ("a", "5"),
                ("a", "{}"),
            ]
        );
        assert!(config.servers.servers.is_empty(), "no bare map");
        let none = Config::parse("{pluginTools: null}").expect("good");
        assert!(none.plugins.is_empty());
        let error = Config::parse("{pluginTools: []}").expect_err("an array");
        assert_eq!(
            error.to_string(),
            "pluginTools must be an object (found an array)"
        );
    }
}
