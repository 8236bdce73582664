//! `drawspan limits`: the table of bounds in force.

use std::path::Path;

use super::connection::settings;
use super::{CommandResult, print};
use crate::limits::Limits;

pub(super) fn run(json: bool, file: Option<&Path>) -> CommandResult {
    let limits = settings(file)?.limits;
    print(&if json {
        document(&limits)
    } else {
        table(&limits)
    })
}

fn document(limits: &Limits) -> String {
    let rows: Vec<_> = limits
        .entries()
        .into_iter()
        .zip(Limits::DEFAULT.entries())
        .map(|(row, default)| {
            serde_json::json!({
                "name": row.name, "value": row.value, "default": default.value,
                "unit": row.unit, "why": row.why,
            })
        })
        .collect();
    format!("{}\n", serde_json::json!({ "limits": rows }))
}

fn table(limits: &Limits) -> String {
    let rows = limits.entries();
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let value = format!("{} {}", row.value, row.unit);
        text.push_str(&format!("{:width$}  {value:>20}  {}\n", row.name, row.why));
    }
    text
}
