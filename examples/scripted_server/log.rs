//! What a scripted server heard, one JSON object a line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::time::SystemTime;

use serde_json::{Value, json};

/// Where it is noted; nowhere, when nobody asked.
#[derive(Debug, Default)]
pub(crate) struct Log(Option<File>);

impl Log {
    /// Opens the file and notes how this process was started: arguments, environment, descriptors.
    pub(crate) fn start(path: Option<&str>) -> io::Result<Self> {
        let Some(path) = path else {
            return Ok(Self(None));
        };
        let descriptors = descriptors();
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let mut log = Self(Some(file));
        let args: Vec<String> = std::env::args().skip(1).collect();
        let env: Vec<(String, String)> = std::env::vars_os()
            .map(|(k, v)| (k.to_string_lossy().into(), v.to_string_lossy().into()))
            .collect();
        let env: serde_json::Map<String, Value> =
            env.into_iter().map(|(k, v)| (k, v.into())).collect();
        log.note(json!({"started": {"args": args, "env": env, "descriptors": descriptors}}));
        Ok(log)
    }

    /// Adds one object, with the process and the wall clock in it. A log that cannot be written is
    /// not worth a peer that behaves differently.
    pub(crate) fn note(&mut self, mut what: Value) {
        let Some(file) = &mut self.0 else { return };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        what["at_ms"] = now.map_or(0, |d| d.as_millis() as u64).into();
        what["pid"] = std::process::id().into();
        // In one write, so that lines of several processes do not mix.
        let _ = file.write_all(format!("{what}\n").as_bytes());
    }
}

/// The open descriptors of this process; empty where the system does not tell.
fn descriptors() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let mut open: Vec<u32> = entries
        .flatten()
        // The one that this list is read from.
        .filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| !to.ends_with("fd")))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    open.sort_unstable();
    open
}
