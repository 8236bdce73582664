//! What does not depend on how the server is reached.

use std::time::Duration;

use serde_json::Value;

use super::fields::{Fields, kind};
use crate::limits::Limits;
use crate::manager::server_config::{Bounds, Isolation, Times, ToolFilter};
use crate::protocol::client::peer::EraChoice;
use crate::protocol::revision::Revision;
use crate::secret::Quoted;

/// Longest time that can be set: what a timer of OpenClaw can hold, 24 days.
const TIME_MAX_MS: f64 = 2_147_483_647.0;

pub(super) struct Rest {
    pub(super) protocol: EraChoice,
    pub(super) times: Times,
    pub(super) parallel: bool,
    pub(super) serial: bool,
    pub(super) filter: ToolFilter,
    pub(super) bounds: Bounds,
    pub(super) pause: (usize, Duration),
    pub(super) isolation: Isolation,
    pub(super) validate_calls: bool,
}

pub(super) fn read(fields: &mut Fields<'_>, limits: &Limits) -> Rest {
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let isolation = |word: &str| match word {
        "session" => Some(Isolation::Session),
        "shared" => Some(Isolation::Shared),
        _ => None,
    };
    let mut count = |name, least, default| fields.whole(name, least).map_or(default, size);
    let bounds = Bounds {
        message_bytes_max: count("maxMessageBytes", 1, limits.upstream_message_bytes_max),
        out_bytes_max: count("writeQueueBytes", 1, limits.upstream_out_bytes_max),
        resume_attempts_max: count("resumeAttempts", 0, limits.resume_attempts_max),
    };
    let failures = count("failurePauseAfter", 1, limits.failure_pause_after);
    let pause = millis(fields, "failurePauseMs").unwrap_or(limits.failure_pause);
    Rest {
        protocol: protocol(fields),
        times: times(fields, limits),
        parallel: fields.flag("supportsParallelToolCalls").unwrap_or(false),
        serial: fields.flag("supportsParallelToolCalls") == Some(false),
        filter: filter(fields),
        bounds,
        pause: (failures, pause),
        isolation: fields
            .word("isolation", "session or shared", isolation)
            .unwrap_or_default(),
        validate_calls: fields.flag("validateCalls").unwrap_or(false),
    }
}

fn times(fields: &mut Fields<'_>, limits: &Limits) -> Times {
    let connect = millis(fields, "connectionTimeoutMs")
        .or_else(|| seconds(fields, "connectTimeout"))
        .unwrap_or(limits.connect_timeout);
    let own = millis(fields, "requestTimeoutMs").or_else(|| seconds(fields, "timeout"));
    let discover = millis(fields, "discoverTimeoutMs").unwrap_or(limits.discover_timeout);
    let list = millis(fields, "listTimeoutMs");
    let longest = millis(fields, "maxTotalTimeoutMs");
    let extended = fields.flag("resetTimeoutOnProgress").unwrap_or(false);
    if longest.is_some() && !extended {
        fields.warn("maxTotalTimeoutMs has no effect without resetTimeoutOnProgress: true");
    }
    Times {
        connect,
        discover: discover.min(connect),
        list: list.unwrap_or(limits.list_timeout.max(own.unwrap_or_default())),
        request: own.unwrap_or(limits.request_timeout),
        total: extended.then(|| longest.unwrap_or(limits.request_total_timeout)),
    }
}

fn millis(fields: &mut Fields<'_>, name: &str) -> Option<Duration> {
    fields.positive(name).map(whole_millis)
}

fn seconds(fields: &mut Fields<'_>, name: &str) -> Option<Duration> {
    fields
        .positive(name)
        .map(|seconds| whole_millis(seconds * 1_000.0))
}

/// Rounded down, as OpenClaw does, but never to nothing: a limit of 0 ms would fail everything.
pub(super) fn whole_millis(millis: f64) -> Duration {
    let millis = millis.floor().clamp(1.0, TIME_MAX_MS);
    Duration::from_secs_f64(millis / 1_000.0)
}

fn protocol(fields: &mut Fields<'_>) -> EraChoice {
    let must = "auto, legacy, modern or a revision such as 2025-11-25";
    let choice = |word: &str| match word {
        "auto" => Some(EraChoice::Auto),
        "legacy" => Some(EraChoice::Legacy),
        "modern" => Some(EraChoice::Modern),
        other => Revision::parse(other).map(EraChoice::Only),
    };
    match fields.get("protocol") {
        // Another revision than the one asked for is not what was wanted.
        Some(Value::String(word)) if choice(&word.trim().to_ascii_lowercase()).is_none() => {
            fields.fail(format!("protocol must be {must} (found {})", Quoted(word)));
            EraChoice::Auto
        }
        Some(_) => fields.word("protocol", must, choice).unwrap_or_default(),
        None => EraChoice::Auto,
    }
}

/// A filter that cannot be read stops the server: without it more would be shown than was wanted.
fn filter(fields: &mut Fields<'_>) -> ToolFilter {
    let mut filter = ToolFilter::default();
    let members = match fields.get("toolFilter") {
        None => return filter,
        Some(Value::Object(members)) => members,
        Some(other) => {
            let found = kind(other);
            fields.fail(format!(
                "toolFilter must be an object with include or exclude (found {found})"
            ));
            return filter;
        }
    };
    for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
        let slot = match name.as_str() {
            "include" => &mut filter.include,
            "exclude" => &mut filter.exclude,
            other => {
                fields.fail(format!(
                    "toolFilter.{} is not known: write include or exclude",
                    Quoted(other)
                ));
                continue;
            }
        };
        match patterns(value) {
            Some(patterns) => *slot = patterns,
            None => fields.fail(format!(
                "toolFilter.{name} must be an array of at least one name or pattern, each a string"
            )),
        }
    }
    filter
}

fn patterns(value: &Value) -> Option<Vec<String>> {
    let items = value.as_array().filter(|items| !items.is_empty())?;
    let text = |item: &Value| {
        let text = item.as_str()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    items.iter().map(text).collect()
}
