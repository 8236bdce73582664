//! What the before-tool-call hook reads, and what its answer means.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Hold, ToolCall, Verdict};
use crate::codec::json_text::write_string;
use crate::codec::object::from_object;
use crate::secret::Quoted;

/// What the hook program reads. Design: hooks.beforeToolCall.
pub(super) fn hook_input(call: &ToolCall) -> String {
    let mut json = String::with_capacity(call.arguments.len() + 128);
    json.push_str(r#"{"tool":"#);
    write_string(&mut json, &call.tool);
    json.push_str(r#","arguments":"#);
    json.push_str(&call.arguments);
    json.push_str(r#","server":"#);
    write_string(&mut json, &call.server);
    json.push_str(r#","caller":"#);
    write_string(&mut json, &call.caller);
    json.push_str(r#","principal":"#);
    write_string(&mut json, &call.principal);
    json.push_str(&format!(r#","callId":"{}"}}"#, call.id));
    json.push('\n');
    json
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HookOutput<'a> {
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(default)]
    block: bool,
    block_reason: Option<String>,
    #[serde(borrow)]
    require_approval: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HookHold {
    #[serde(default)]
    title: String,
    #[serde(default)]
    description: String,
    timeout_ms: Option<u64>,
}

/// Reads what the hook printed. Anything that is not understood denies.
#[must_use]
pub fn read_hook_output(printed: &[u8]) -> Verdict {
    let failed = |why: String| Verdict::Deny {
        reason: format!("tool call refused: the before-tool-call hook failed: {why}"),
    };
    let Ok(printed) = std::str::from_utf8(printed) else {
        return failed("its output is not UTF-8".to_owned());
    };
    let output: HookOutput<'_> = match from_object(printed) {
        Ok(output) => output,
        Err(error) => return failed(format!("its output is not understood ({error})")),
    };
    if output.block {
        let reason = output
            .block_reason
            .filter(|reason| !reason.trim().is_empty());
        return Verdict::Deny {
            reason: reason
                .unwrap_or_else(|| "tool call blocked by the before-tool-call hook".to_owned()),
        };
    }
    let arguments = match output.params.map(RawValue::get) {
        None => None,
        Some(object) if object.starts_with('{') => Some(Box::from(object)),
        Some(other) => {
            return failed(format!(
                "params must be an object (found {})",
                Quoted(other)
            ));
        }
    };
    match output.require_approval.map(|raw| read_hold(raw.get())) {
        None => Verdict::Allow { arguments },
        Some(Ok(hold)) => Verdict::Hold(Hold {
            arguments,
            title: hold.title,
            description: hold.description,
            timeout: hold.timeout_ms.map(Duration::from_millis),
        }),
        Some(Err(why)) => failed(why),
    }
}

fn read_hold(raw: &str) -> Result<HookHold, String> {
    from_object(raw).map_err(|error| format!("requireApproval is not understood ({error})"))
}
