//! `drawspan limits`: the table of bounds in force, of this command line or of a server that runs.

use std::path::Path;

use serde_json::{Value, json};

use super::connection::settings;
use super::running::{ask, socket};
use super::{CommandResult, Exit, Failure, print};
use crate::hub::LIMITS_METHOD;
use crate::limits::{Entry, Limits};

pub(super) fn run(json: bool, config: Option<&Path>, connect: Option<&str>) -> CommandResult {
    let rows = match connect {
        Some(address) => running(address)?,
        None => own(&settings(config)?.limits),
    };
    print(&if json {
        format!("{}\n", json!({ "limits": rows }))
    } else {
        table(&rows)
    })
}

fn own(limits: &Limits) -> Vec<Value> {
    let rows = limits.entries().into_iter().zip(Limits::DEFAULT.entries());
    rows.map(|(row, default)| {
        json!({
            "name": row.name, "value": row.value, "default": default.value,
            "unit": row.unit, "why": row.why,
        })
    })
    .collect()
}

/// What a running server has in force and in use, with what we know of these limits.
fn running(address: &str) -> Result<Vec<Value>, Failure> {
    let path = socket(address)?;
    let odd = || {
        Failure::new(
            Exit::Failed,
            format!("{address} answered no list of limits"),
        )
    };
    let mut document = ask(path, LIMITS_METHOD, "{}")?;
    let Value::Array(mut rows) = document["limits"].take() else {
        return Err(odd());
    };
    let known = Limits::DEFAULT.entries();
    for row in &mut rows {
        let name = row["name"].as_str().ok_or_else(odd)?.to_owned();
        if let Some(Entry { value, why, .. }) = known.iter().find(|entry| entry.name == name) {
            row["default"] = json!(value);
            row["why"] = json!(why);
        }
    }
    Ok(rows)
}

fn table(rows: &[Value]) -> String {
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let names = rows.iter().map(|row| text(row, "name").len());
    let width = names.max().unwrap_or(0);
    let live = rows.iter().any(|row| row.get("now").is_some());
    let mut lines = String::new();
    for row in rows {
        let value = format!("{} {}", row["value"], text(row, "unit"));
        lines.push_str(&format!("{:width$}  {value:>20}  ", text(row, "name")));
        if live {
            let usage = match (row.get("now"), row.get("peak")) {
                (Some(now), Some(peak)) => format!("now {now}, peak {peak}"),
                (Some(now), None) => format!("now {now}"),
                (None, _) => String::new(),
            };
            lines.push_str(&format!("{usage:22}  "));
        }
        lines.push_str(&text(row, "why"));
        lines.push('\n');
    }
    lines
}
