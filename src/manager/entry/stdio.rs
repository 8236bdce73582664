//! A program to start: `args`, `env`, `inheritEnv`, `cwd`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use super::fields::{Fields, kind, scalar};
use super::transport::home_expanded;
use crate::manager::environment;
use crate::manager::server_config::StdioTransport;
use crate::secret::{Quoted, Secret};

pub(super) fn read(
    fields: &mut Fields<'_>,
    command: &str,
    env: &BTreeMap<String, String>,
) -> Option<StdioTransport> {
    let args = match fields.get("args") {
        None => Vec::new(),
        Some(Value::Array(items)) => fields.strings("args", items),
        Some(other) => {
            let found = kind(other);
            fields.fail(format!(
                "args must be an array of strings (found {found}): \
                 write [\"--one\", \"--two\"], nothing is split at blanks"
            ));
            return None;
        }
    };
    let cwd = fields
        .text("cwd")
        .or_else(|| fields.text("workingDirectory"));
    let nul = |text: &str| text.contains('\0');
    if nul(command) || args.iter().any(|arg| nul(arg)) || cwd.is_some_and(nul) {
        fields.fail("command, args and cwd must not hold a NUL byte");
        return None;
    }
    Some(StdioTransport {
        command: home_expanded(command, env),
        args,
        env: child_environment(fields, env),
        cwd: cwd.map(|cwd| PathBuf::from(home_expanded(cwd, env))),
    })
}

/// The allow list, what the entry inherits beside it, and what it sets.
fn child_environment(
    fields: &mut Fields<'_>,
    ours: &BTreeMap<String, String>,
) -> BTreeMap<String, Secret<String>> {
    let mut child = environment::inherited(ours);
    match fields.get("inheritEnv") {
        None => {}
        Some(Value::Array(items)) => {
            for pattern in fields.strings("inheritEnv", items) {
                if environment::is_blocked(&pattern) {
                    fields.warn(dropped(
                        "inheritEnv",
                        &pattern,
                        environment::Dropped::Blocked,
                    ));
                }
                child.extend(environment::asked_for(ours, &pattern));
            }
        }
        Some(other) => fields.ignore("inheritEnv", "an array of names", other),
    }
    match fields.get("env") {
        None => {}
        Some(Value::Object(members)) => {
            for (name, value) in members {
                let Some(value) = scalar(value) else {
                    fields.warn(format!(
                        "env.{} must be a string, number or boolean (found {}) and was left out",
                        Quoted(name),
                        kind(value)
                    ));
                    continue;
                };
                match environment::check(name, &value) {
                    Ok(()) => {
                        child.insert(name.clone(), value);
                    }
                    Err(why) => fields.warn(dropped("env", name, why)),
                }
            }
        }
        Some(other) => fields.ignore("env", "an object", other),
    }
    child
        .into_iter()
        .map(|(name, value)| (name, Secret::new(value)))
        .collect()
}

fn dropped(member: &str, name: &str, why: environment::Dropped) -> String {
    format!("{member}.{} {}", Quoted(name), why.as_str())
}
