//! Frames of the Gateway protocol, server side. Source: openclaw-serve §1.2.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::refusal::Refusal;
use crate::codec::json_text::write_string;
use crate::codec::object::from_object;

/// A request as it came.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestFrame<'a> {
    r#type: String,
    pub(super) id: String,
    pub(super) method: String,
    #[serde(borrow, default)]
    pub(super) params: Option<&'a RawValue>,
}

impl<'a> RequestFrame<'a> {
    /// Reads a request; on failure the id to answer, when there was a usable one.
    pub(super) fn read(text: &'a str, id_bytes_max: usize) -> Result<Self, Option<String>> {
        let usable = |id: &String| !id.is_empty() && id.len() <= id_bytes_max;
        match from_object::<Self>(text) {
            Ok(frame) if frame.r#type == "req" && usable(&frame.id) && !frame.method.is_empty() => {
                Ok(frame)
            }
            Ok(frame) => Err(Some(frame.id).filter(usable)),
            Err(_) => Err(from_object::<OnlyId>(text)
                .ok()
                .and_then(|only| only.id)
                .filter(usable)),
        }
    }
}

#[derive(Deserialize)]
struct OnlyId {
    id: Option<String>,
}

/// The response to request `id`.
pub(super) fn response(id: &str, outcome: &Result<String, Refusal>) -> String {
    let mut json = r#"{"type":"res","id":"#.to_owned();
    write_string(&mut json, id);
    match outcome {
        Ok(payload) => {
            json.push_str(r#","ok":true,"payload":"#);
            json.push_str(payload);
        }
        Err(refusal) => {
            json.push_str(r#","ok":false,"error":"#);
            json.push_str(&refusal.to_json());
        }
    }
    json.push('}');
    json
}

/// An event; `seq` only on broadcasts.
pub(super) fn event(name: &str, payload: &str, seq: Option<u64>) -> String {
    let mut json = format!(r#"{{"type":"event","event":"{name}","payload":{payload}"#);
    if let Some(seq) = seq {
        json.push_str(&format!(r#","seq":{seq}"#));
    }
    json.push('}');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_closed_objects_with_an_id() {
        let read = |text| RequestFrame::read(text, 8).map(|f| (f.id, f.method));
        assert_eq!(
            read(r#"{"type":"req","id":"1","method":"m","params":{"a":1}}"#),
            Ok(("1".to_owned(), "m".to_owned()))
        );
        let one = Err(Some("1".to_owned()));
        assert_eq!(read(r#"{"type":"req","id":"1","method":"m","x":1}"#), one);
        assert_eq!(read(r#"{"type":"res","id":"1","method":"m"}"#), one);
        assert_eq!(read(r#"{"type":"req","id":"1","method":""}"#), one);
        assert_eq!(read(r#"{"type":"req","id":"","method":"m"}"#), Err(None));
        assert_eq!(
            read(r#"{"type":"req","id":"123456789","method":"m"}"#),
            Err(None),
            "an id longer than the limit is not kept"
        );
        assert_eq!(read("not json"), Err(None));
    }

    #[test]
    fn frames_are_written_as_recorded() {
        assert_eq!(
            response("a\"b", &Ok("{}".to_owned())),
            r#"{"type":"res","id":"a\"b","ok":true,"payload":{}}"#
        );
        let refused = Err(Refusal::invalid("no").with_details(r#"{"reason":"R"}"#));
        assert_eq!(
            response("1", &refused),
            r#"{"type":"res","id":"1","ok":false,"error":{"code":"INVALID_REQUEST","message":"no","details":{"reason":"R"}}}"#
        );
        assert_eq!(
            event("tick", r#"{"ts":1}"#, Some(3)),
            r#"{"type":"event","event":"tick","payload":{"ts":1},"seq":3}"#
        );
    }
}
