//! The audit log of `drawspan serve` in its file: the lines the hub has, numbered, chained and written.
//!
//! | state   | input                          | next    | what happens                                       |
//! |---------|--------------------------------|---------|----------------------------------------------------|
//! | Writing | lines                          | Writing | one write for all of one turn                      |
//! | Writing | the write fails                | Failing | said once; lines are kept, up to the limit         |
//! | Failing | lines                          | Failing | tried again; over the limit they are counted       |
//! | Failing | a write that goes in           | Writing | all of them, then `lost` for those that were not kept |
//! | any     | SIGHUP, file moved or deleted  | any     | opened again; the chain goes on                    |
//! | any     | the configuration names another | any    | that is opened, if it can be; the chain goes on    |
//! | any     | the file was emptied           | any     | the chain goes on at its start                     |
//!
//! Lines wait without their numbers, so that they can go on from whatever file there is then. A line that went
//! in by half is finished by the next write to the same file, since the same words give the same digests.

use std::path::PathBuf;
use std::time::Duration;

use super::say;
use crate::audit::{Chain, Mark, TAIL_BYTES, write_mark};
use crate::clock::{Now, Uptime};
use crate::config::AuditConfig;
use crate::hub::Hub;
use crate::io::append_file::{AppendFile, Fate};
use crate::limits::Limits;
use crate::secret::Quoted;

/// How often it is asked whether the path still leads to the open file. Rotation is seldom, and the lines
/// written meanwhile are in the file that was moved.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a failure stays unsaid after it was said.
const SAY_INTERVAL: Duration = Duration::from_secs(60);

/// A write has failed, and none has gone in since.
#[derive(Debug)]
struct Failing {
    why: String,
    said: Uptime,
}

/// See the module page.
#[derive(Debug)]
pub(super) struct AuditLog {
    path: PathBuf,
    sync: bool,
    bytes_max: usize,
    file: Option<AppendFile>,
    /// The end of the chain: after the last line that is whole in the file.
    chain: Chain,
    /// Lines, without numbers, that are not in the file, or by half.
    waiting: Vec<u8>,
    /// How much of the first of them is.
    half: usize,
    /// A line feed comes before them, behind what somebody has not finished.
    feed: bool,
    /// Lines that could not be kept, since the last that were.
    lost: u64,
    /// What the hub has just given.
    fresh: Vec<u8>,
    /// The sealed lines of one write.
    sealed: Vec<u8>,
    /// The start of this program is on record.
    started: bool,
    looked: Uptime,
    failing: Option<Failing>,
}

impl AuditLog {
    /// A log in this file, which is opened; that it cannot be is said.
    pub(super) fn open(path: PathBuf, config: &AuditConfig, limits: &Limits, now: Now) -> Self {
        let mut log = Self {
            path,
            sync: config.sync,
            bytes_max: limits.audit_queue_bytes_max,
            file: None,
            chain: Chain::new(),
            waiting: Vec::new(),
            half: 0,
            feed: false,
            lost: 0,
            fresh: Vec::new(),
            sealed: Vec::new(),
            started: false,
            looked: now.up,
            failing: None,
        };
        // The outcome is said, and matters to the next call.
        drop(log.write(now));
        log
    }

    /// Writes what the hub has to say, and tells it whether that could be done.
    pub(super) fn carry(&mut self, hub: &mut Hub, now: Now) {
        while let Some(kept) = self.take(hub) {
            let mut written = self.write(now);
            if !kept {
                let limit = self.bytes_max;
                let why = format!("more than {limit} bytes wait, limit audit_queue_bytes_max");
                written = written.and(Err(why));
            }
            let outcome = written.as_ref().map_err(String::as_str).copied();
            hub.audit_written(now, outcome, self.waiting.len());
            if written.is_err() {
                // Calls that were held have one more line now. It waits for the next turn.
                self.take(hub);
                return;
            }
        }
    }

    /// Takes what the hub has, if anything. Says whether all of it is kept.
    fn take(&mut self, hub: &mut Hub) -> Option<bool> {
        let mut fresh = std::mem::take(&mut self.fresh);
        let dropped = hub.take_audit(&mut fresh);
        let before = self.lost;
        self.keep(&fresh);
        self.lost += dropped;
        let any = !fresh.is_empty() || dropped > 0;
        fresh.clear();
        self.fresh = fresh;
        any.then_some(self.lost == before)
    }

    /// The file was moved away by somebody who says so: the chain goes on in another one.
    pub(super) fn reopen(&mut self, now: Now) {
        self.close();
        // The outcome is said, and matters to the next call.
        drop(self.write(now));
    }

    /// The configuration was read again: what it says from now on. That it cannot be followed is said.
    pub(super) fn follow(&mut self, path: PathBuf, config: &AuditConfig, now: Now) {
        self.sync = config.sync;
        if path == self.path {
            return;
        }
        if let Err(why) = AppendFile::open(&path) {
            let [new, old] = [&path, &self.path].map(|path| path.display().to_string());
            let (new, old) = (Quoted(&new), Quoted(&old));
            return say(&format!(
                "warning: audit log {new} cannot be opened: {why}; lines go to {old} as before"
            ));
        }
        self.close();
        self.path = path;
        // The outcome is said, and matters to the next call.
        drop(self.write(now));
    }

    /// The last lines, at the end of the program.
    pub(super) fn end(mut self, hub: &mut Hub, now: Now) {
        self.carry(hub, now);
        if !self.waiting.is_empty() {
            // Said below.
            drop(self.try_write(now));
        }
        let lines = count(&self.waiting) + self.lost;
        if lines > 0 {
            let why = self.failing.map_or_else(String::new, |failing| failing.why);
            let path = Quoted(&self.path.display().to_string()).to_string();
            say(&format!(
                "error: audit log {path}: {why}; its last {lines} lines are lost"
            ));
        }
    }

    fn close(&mut self) {
        self.file = None;
        self.half = 0;
        self.feed = false;
    }

    /// Has lines wait, as many as fit. Once one was lost, all are until the others are written: so the place
    /// of the loss is where the log says it is.
    fn keep(&mut self, fresh: &[u8]) {
        for line in fresh.split_inclusive(|byte| *byte == b'\n') {
            if self.lost > 0 || self.waiting.len() + line.len() > self.bytes_max {
                self.lost += 1;
            } else {
                self.waiting.extend_from_slice(line);
            }
        }
    }

    /// Writes what waits. That it cannot be done is said, at first and from time to time.
    fn write(&mut self, now: Now) -> Result<(), String> {
        let written = self.try_write(now);
        match &written {
            Ok(()) => self.succeeded(),
            Err(why) => self.failed(now, why),
        }
        written
    }

    fn try_write(&mut self, now: Now) -> Result<(), String> {
        let mut file = match self.current(now) {
            Some(file) => file,
            None => self.begin(now)?,
        };
        let outcome = self.write_all(&mut file, now);
        self.file = Some(file);
        outcome
    }

    /// The open file, if it is still the one to write to.
    fn current(&mut self, now: Now) -> Option<AppendFile> {
        let mut file = self.file.take()?;
        let path_too = self.failing.is_some() || now.up.since(self.looked) >= LOOK_INTERVAL;
        if path_too {
            self.looked = now.up;
        }
        let what = match file.fate(path_too) {
            Fate::Same => return Some(file),
            Fate::Emptied => {
                file.emptied();
                self.half = 0;
                self.continue_chain(now);
                return Some(file);
            }
            Fate::Moved => "was moved away",
            Fate::Deleted => "was deleted with the lines in it",
            Fate::Touched => "was written to by somebody else",
        };
        let path = Quoted(&self.path.display().to_string()).to_string();
        say(&format!(
            "warning: audit log {path} {what}; it is opened anew"
        ));
        self.close();
        None
    }

    /// Opens the file and finds out where the chain goes on.
    fn begin(&mut self, now: Now) -> Result<AppendFile, String> {
        let file = AppendFile::open(&self.path)?;
        let (end, whole) = file.tail(TAIL_BYTES)?;
        let tail = Chain::resume(&end, whole).map_err(|error| error.to_string())?;
        self.feed = tail.lacks_line_feed;
        let torn = !tail.fragment.is_empty();
        let is_new = end.is_empty();
        if is_new && self.started {
            self.continue_chain(now);
        } else if tail.chain != self.chain || !self.started {
            // Another file than before, or the first: who writes now is worth a line.
            self.chain = tail.chain;
            let mark = Mark::Start {
                program: concat!("drawspan ", env!("CARGO_PKG_VERSION")),
                pid: std::process::id(),
            };
            self.put_first(now, mark);
        }
        if torn {
            let mark = Mark::Torn {
                fragment: &tail.fragment,
            };
            self.put_first(now, mark);
            let bytes = tail.fragment.len();
            let path = Quoted(&self.path.display().to_string()).to_string();
            say(&format!(
                "warning: audit log {path}: its last line was cut off after {bytes} bytes; the log says so"
            ));
        }
        self.started = true;
        Ok(file)
    }

    fn continue_chain(&mut self, now: Now) {
        if self.chain.seq() > 0 {
            self.put_first(now, Mark::Continued);
        }
    }

    fn put_first(&mut self, now: Now, mark: Mark<'_>) {
        let mut body = Vec::new();
        write_mark(&mut body, now.unix_ms, mark);
        self.waiting.splice(0..0, body);
    }

    fn write_all(&mut self, file: &mut AppendFile, now: Now) -> Result<(), String> {
        while !self.waiting.is_empty() || self.lost > 0 {
            // Behind those that could be kept.
            if self.lost > 0 && self.waiting.is_empty() {
                let lines = std::mem::take(&mut self.lost);
                write_mark(&mut self.waiting, now.unix_ms, Mark::Lost { lines });
            }
            let mut chain = self.chain.clone();
            self.sealed.clear();
            if self.feed {
                self.sealed.push(b'\n');
            }
            for body in bodies(&self.waiting) {
                chain.seal(&mut self.sealed, body);
            }
            while self.half < self.sealed.len() {
                match file.append(&self.sealed[self.half..]) {
                    Ok(written) => self.half += written,
                    Err(why) => {
                        self.settle_half();
                        return Err(why);
                    }
                }
            }
            self.chain = chain;
            self.waiting.clear();
            self.half = 0;
            self.feed = false;
            if self.sync {
                file.sync()?;
            }
        }
        Ok(())
    }

    /// Takes off the list what is whole in the file.
    fn settle_half(&mut self) {
        if self.feed && self.half > 0 {
            self.feed = false;
            self.sealed.remove(0);
            self.half -= 1;
        }
        let whole = count(&self.sealed[..self.half]);
        let mut sealed = Vec::new();
        let mut bytes = 0;
        for body in bodies(&self.waiting).take(usize::try_from(whole).unwrap_or(0)) {
            self.chain.seal(&mut sealed, body);
            bytes += body.len() + 1;
        }
        self.waiting.drain(..bytes);
        self.half -= sealed.len();
    }

    fn failed(&mut self, now: Now, why: &str) {
        let lines = count(&self.waiting);
        let known = self.failing.as_ref().filter(|failing| failing.why == why);
        let is_due = known.is_none_or(|failing| now.up.since(failing.said) >= SAY_INTERVAL);
        if is_due {
            let path = Quoted(&self.path.display().to_string()).to_string();
            let lost = match self.lost {
                0 => String::new(),
                lost => format!(", {lost} are lost, limit audit_queue_bytes_max"),
            };
            say(&format!(
                "error: audit log {path} cannot be written: {why}; {lines} lines wait{lost}"
            ));
            self.failing = Some(Failing {
                why: why.to_owned(),
                said: now.up,
            });
        }
    }

    fn succeeded(&mut self) {
        if self.failing.take().is_some() {
            let path = Quoted(&self.path.display().to_string()).to_string();
            say(&format!("warning: audit log {path} is written again"));
        }
    }
}

fn bodies(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = lines.split_inclusive(|byte| *byte == b'\n');
    lines.map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

fn count(lines: &[u8]) -> u64 {
    let feeds = lines.iter().filter(|byte| **byte == b'\n').count();
    u64::try_from(feeds).unwrap_or(u64::MAX)
}
