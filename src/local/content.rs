//! Results in the shapes of the protocol, written without a value tree.
//!
//! Bytes become base64 here. Spec: 2025-11-25 schema (ContentBlock, ResourceContents, PromptMessage).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::codec::json_text::write_string;
use crate::local::call::LocalReply;

/// One block of content in a tool's result or a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content(String);

impl Content {
    /// Text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        let mut json = String::from(r#"{"type":"text","text":"#);
        write_string(&mut json, text);
        json.push('}');
        Self(json)
    }

    /// A picture.
    #[must_use]
    pub fn image(bytes: &[u8], mime_type: &str) -> Self {
        Self::media("image", bytes, mime_type)
    }

    /// Sound. Since 2025-03-26.
    #[must_use]
    pub fn audio(bytes: &[u8], mime_type: &str) -> Self {
        Self::media("audio", bytes, mime_type)
    }

    fn media(kind: &str, bytes: &[u8], mime_type: &str) -> Self {
        let data = STANDARD.encode(bytes);
        let mut json = format!(r#"{{"type":"{kind}","data":"{data}","mimeType":"#);
        write_string(&mut json, mime_type);
        json.push('}');
        Self(json)
    }

    /// A resource, with what is in it.
    #[must_use]
    pub fn resource(contents: &ResourceContents) -> Self {
        Self(format!(
            r#"{{"type":"resource","resource":{}}}"#,
            contents.0
        ))
    }

    /// A resource, for the client to read. Since 2025-06-18.
    #[must_use]
    pub fn link(uri: &str, name: &str) -> Self {
        let mut json = String::from(r#"{"type":"resource_link","uri":"#);
        write_string(&mut json, uri);
        json.push_str(r#","name":"#);
        write_string(&mut json, name);
        json.push('}');
        Self(json)
    }

    /// The raw JSON object.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

/// What is in a resource, or in a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceContents(String);

impl ResourceContents {
    /// Text.
    #[must_use]
    pub fn text(uri: &str, mime_type: &str, text: &str) -> Self {
        let mut json = Self::begin(uri, mime_type);
        json.push_str(r#","text":"#);
        write_string(&mut json, text);
        json.push('}');
        Self(json)
    }

    /// Anything else.
    #[must_use]
    pub fn blob(uri: &str, mime_type: &str, bytes: &[u8]) -> Self {
        let mut json = Self::begin(uri, mime_type);
        json.push_str(&format!(r#","blob":"{}"}}"#, STANDARD.encode(bytes)));
        Self(json)
    }

    fn begin(uri: &str, mime_type: &str) -> String {
        let mut json = String::from(r#"{"uri":"#);
        write_string(&mut json, uri);
        json.push_str(r#","mimeType":"#);
        write_string(&mut json, mime_type);
        json
    }
}

/// Who says a message of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// Most values in one completion. Spec: 2025-11-25 server/utilities/completion.
const COMPLETION_VALUES_MAX: usize = 100;

impl LocalReply {
    /// A tool's result: these blocks.
    #[must_use]
    pub fn content(blocks: &[Content]) -> Self {
        let mut json = String::from(r#"{"content":"#);
        write_list(&mut json, blocks.iter().map(Content::as_json));
        json.push('}');
        Self::Result(json)
    }

    /// What a resource has in it.
    #[must_use]
    pub fn contents(parts: &[ResourceContents]) -> Self {
        let mut json = String::from(r#"{"contents":"#);
        write_list(&mut json, parts.iter().map(|part| &*part.0));
        json.push('}');
        Self::Result(json)
    }

    /// A prompt: these messages.
    #[must_use]
    pub fn prompt(messages: &[(Role, Content)]) -> Self {
        let message = |(role, content): &(Role, Content)| {
            let role = match role {
                Role::User => "user",
                Role::Assistant => "assistant",
            };
            format!(r#"{{"role":"{role}","content":{}}}"#, content.0)
        };
        let mut json = String::from(r#"{"messages":"#);
        write_list(&mut json, messages.iter().map(message));
        json.push('}');
        Self::Result(json)
    }

    /// A completion: the first hundred of these values, and how many there are.
    #[must_use]
    pub fn completion<T: AsRef<str>>(values: &[T]) -> Self {
        let quoted = |value: &T| {
            let mut text = String::new();
            write_string(&mut text, value.as_ref());
            text
        };
        let mut json = String::from(r#"{"completion":{"values":"#);
        write_list(
            &mut json,
            values.iter().take(COMPLETION_VALUES_MAX).map(quoted),
        );
        let (total, more) = (values.len(), values.len() > COMPLETION_VALUES_MAX);
        json.push_str(&format!(r#","total":{total},"hasMore":{more}}}}}"#));
        Self::Result(json)
    }
}

fn write_list<T: AsRef<str>>(json: &mut String, items: impl Iterator<Item = T>) {
    json.push('[');
    for (i, item) in items.enumerate() {
        json.push_str(if i == 0 { "" } else { "," });
        json.push_str(item.as_ref());
    }
    json.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(reply: LocalReply) -> String {
        let LocalReply::Result(json) = reply else {
            panic!("no result: {reply:?}")
        };
        json
    }

    #[test]
    fn blocks_have_the_shapes_of_the_schema() {
        let page = ResourceContents::text("a:b", "text/plain", "x\n");
        let blocks = [
            Content::text("say \"hi\""),
            Content::image(&[0xff, 0xfe], "image/png"),
            Content::audio(b"", "audio/wav"),
            Content::resource(&page),
            Content::link("a:c", "c"),
        ];
        assert_eq!(
            result(LocalReply::content(&blocks)),
            concat!(
                r#"{"content":[{"type":"text","text":"say \"hi\""},"#,
                r#"{"type":"image","data":"//4=","mimeType":"image/png"},"#,
                r#"{"type":"audio","data":"","mimeType":"audio/wav"},"#,
                r#"{"type":"resource","resource":{"uri":"a:b","mimeType":"text/plain","text":"x\n"}},"#,
                r#"{"type":"resource_link","uri":"a:c","name":"c"}]}"#
            )
        );
        let blob = ResourceContents::blob("a:d", "image/png", &[0]);
        assert_eq!(
            result(LocalReply::contents(&[blob])),
            r#"{"contents":[{"uri":"a:d","mimeType":"image/png","blob":"AA=="}]}"#
        );
        assert_eq!(
            result(LocalReply::prompt(&[
                (Role::User, Content::text("a")),
                (Role::Assistant, Content::text("b"))
            ])),
            r#"{"messages":[{"role":"user","content":{"type":"text","text":"a"}},{"role":"assistant","content":{"type":"text","text":"b"}}]}"#
        );
    }

    #[test]
    fn a_completion_shows_a_hundred_values_and_counts_all() {
        assert_eq!(
            result(LocalReply::completion(&["a", "b"])),
            r#"{"completion":{"values":["a","b"],"total":2,"hasMore":false}}"#
        );
        let many: Vec<String> = (0..101).map(|number| number.to_string()).collect();
        let json = result(LocalReply::completion(&many));
        assert!(
            json.ends_with(r#""99"],"total":101,"hasMore":true}}"#),
            "{json}"
        );
    }
}
