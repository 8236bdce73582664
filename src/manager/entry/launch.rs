//! The command line or URL of a server as people may see it.

use serde_json::{Map, Value};

use super::fields::scalar;
use crate::manager::server_config::Transport;
use crate::secret::{Quoted, is_secret_name, is_secret_parameter, mask_text, mask_url};

/// Longest summary; the rest is cut with `…`. Unit: bytes, of whole arguments.
const SUMMARY_BYTES_MAX: usize = 512;

/// What stands for an argument that is a secret.
const MASK: &str = "***";

/// `shown` is the entry before placeholders were expanded.
pub(super) fn summary(transport: &Transport, shown: &Map<String, Value>) -> String {
    let text = |name: &str| shown.get(name).and_then(Value::as_str).map(str::trim);
    match transport {
        Transport::Stdio(_) => {
            let args = shown.get("args").and_then(Value::as_array);
            let args = args.into_iter().flatten().filter_map(Value::as_str);
            let cwd = ["cwd", "workingDirectory"].into_iter().filter_map(text);
            let cwd = cwd.into_iter().find(|cwd| !cwd.is_empty());
            command_line(text("command").unwrap_or(""), args, cwd)
        }
        Transport::Http(_) | Transport::Unix { .. } => {
            let url = shown.get("url").and_then(scalar).unwrap_or_default();
            Quoted(&mask_url(url.trim())).to_string()
        }
    }
}

/// A command line with what looks like a secret masked: the value of an option of that name, a header's
/// value, and everything that [`mask_text`] finds.
fn command_line<'a>(
    command: &str,
    args: impl Iterator<Item = &'a str>,
    cwd: Option<&str>,
) -> String {
    let mut out = word(command);
    let mut secret_next = false;
    for arg in args {
        if out.len() > SUMMARY_BYTES_MAX {
            out.push_str(" …");
            break;
        }
        out.push(' ');
        let is_value = secret_next && !arg.starts_with('-');
        secret_next = is_option_of_secret(arg);
        if is_value {
            out.push_str(MASK);
        } else {
            out.push_str(&word(&masked(arg)));
        }
    }
    if let Some(cwd) = cwd {
        out.push_str(&format!(" (cwd={})", Quoted(cwd)));
    }
    out
}

/// `--api-key`: the next argument is the secret.
fn is_option_of_secret(arg: &str) -> bool {
    let name = arg.trim_start_matches('-');
    name.len() < arg.len() && (is_secret_name(name) || is_secret_parameter(name))
}

/// `X-Api-Key: abc` and `X-Api-Key:abc` beside what is masked in any text.
fn masked(arg: &str) -> String {
    let assigned = arg.split_once([':', '=']);
    let name = |name: &str| is_secret_name(name.trim_start_matches('-'));
    match assigned {
        Some((start, value)) if name(start) && !value.trim().is_empty() => {
            let shown = &arg[..arg.len() - value.trim_start().len()];
            format!("{shown}{MASK}")
        }
        Some(_) | None => mask_text(arg),
    }
}

/// One argument, in quotes where its borders would not be seen.
fn word(text: &str) -> String {
    if text.is_empty() || text.contains(char::is_whitespace) {
        format!("\"{}\"", Quoted(text))
    } else {
        Quoted(text).to_string()
    }
}
