//! Whether a log is what was written: every line sound, in its place, and none missing.
//!
//! | state    | input                                        | next     |
//! |----------|----------------------------------------------|----------|
//! | Whole    | a sound line that names the one before it    | Whole    |
//! | Whole    | bytes that are no line                       | Fragment |
//! | Fragment | a `torn` line with the digest of these bytes | Whole    |
//! | Whole    | a sound line that does not belong here       | Broken   |
//! | Whole    | a line whose hash is not its own             | Broken   |
//! | Fragment | anything else                                | Broken   |
//! | Broken   | the line that belonged there                 | Broken, the fault is known better |
//!
//! What comes behind the first fault is read only to say what that is: a line that is missing may be found
//! further down.

use std::fmt;

use super::{Chain, Event, Hash, Line};
use crate::crypto::{sha256, unhex};

/// What is wrong with a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The line is not what it was when it was written.
    Changed,
    /// Lines are missing before this one.
    Removed,
    /// The line does not belong here.
    Inserted,
    /// The line belongs elsewhere in the file.
    Reordered,
    /// The line was never finished, and nothing behind it says so.
    Torn,
    /// No line of an audit log.
    NotALine,
}

impl FaultKind {
    /// A word for scripts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Inserted => "inserted",
            Self::Reordered => "reordered",
            Self::Torn => "torn",
            Self::NotALine => "not-a-line",
        }
    }
}

/// Where a log is broken first, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which file, counted from 0 in the order given.
    pub file: usize,
    /// Which line of it, counted from 1.
    pub line: u64,
    /// What kind of fault.
    pub kind: FaultKind,
    /// One line for a person.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, message, .. } = self;
        write!(f, "line {line}: {}: {message}", self.kind.as_str())
    }
}

/// A log that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Lines read, in all files.
    pub lines: u64,
    /// Lines cut off by a crash, each with a `torn` line behind it.
    pub torn: u64,
    /// Number of the first line in the chain; 0 when there is none. Above 1 the files go on where another one
    /// ended.
    pub first: u64,
    /// Number of the last line; 0 when there is none.
    pub last: u64,
    /// Its hash, to be noted elsewhere: zeros when there is none.
    pub hash: Hash,
    /// Whether the hash of [`Verifier::look_for`] was found; `None` when none was looked for.
    pub found: Option<bool>,
}

/// Where a line stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    file: usize,
    line: u64,
}

#[derive(Clone, Debug)]
enum State {
    Whole,
    /// Bytes that were no line: where, their digest, and whether a line feed followed.
    Fragment(Place, Hash, bool),
    /// The first fault, and the chain before it.
    Broken(Fault, Chain),
}

/// Reads the lines of one file, or of several that follow each other, oldest first.
#[derive(Debug)]
pub struct Verifier {
    state: State,
    /// Where the next line stands.
    at: Place,
    /// No line of this file has been in its place yet.
    begins: bool,
    /// What the next line has to name; `None` before the first line of all.
    chain: Option<Chain>,
    /// The same, one line earlier.
    before: Option<Chain>,
    wanted: Option<Hash>,
    report: Report,
}

impl Default for Verifier {
    fn default() -> Self {
        Self::new()
    }
}

impl Verifier {
    /// One that has read nothing. [`Verifier::begin_file`] is called before the lines of each file but the
    /// first.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: State::Whole,
            at: Place { file: 0, line: 1 },
            begins: true,
            chain: None,
            before: None,
            wanted: None,
            report: Report {
                lines: 0,
                torn: 0,
                first: 0,
                last: 0,
                hash: [0; 32],
                found: None,
            },
        }
    }

    /// A hash that was noted earlier and must still be there. `None` when `text` is no hash.
    #[must_use]
    pub fn look_for(mut self, text: &str) -> Option<Self> {
        self.wanted = Some(unhex(text)?);
        self.report.found = Some(false);
        Some(self)
    }

    /// The lines of the file before have ended.
    pub fn begin_file(&mut self) {
        self.end_file();
        self.at = Place {
            file: self.at.file + 1,
            line: 1,
        };
        self.begins = true;
    }

    /// The next line, without its line feed; `ended` says that it had one.
    pub fn line(&mut self, bytes: &[u8], ended: bool) {
        self.report.lines += 1;
        match (
            std::mem::replace(&mut self.state, State::Whole),
            Line::read(bytes),
        ) {
            (State::Whole, None) => {
                self.state = State::Fragment(self.at, sha256(bytes), ended);
            }
            (State::Whole, Some(line)) => self.check(&line),
            (State::Fragment(place, digest, _), Some(line))
                if line.event == Event::Torn(digest) && line.sound =>
            {
                self.report.torn += 1;
                self.check(&line);
                // What is wrong with the line that explains it is wrong with the fragment, too.
                if let State::Broken(fault, _) = &mut self.state {
                    fault.line = fault.line.min(place.line);
                }
            }
            (State::Fragment(place, _, ended), _) => self.not_a_line(place, ended),
            (State::Broken(fault, expected), Some(line)) => self.search(fault, expected, &line),
            (broken @ State::Broken(..), None) => self.state = broken,
        }
        self.at.line += 1;
    }

    /// What there is to say.
    ///
    /// # Errors
    /// The first fault.
    pub fn finish(mut self) -> Result<Report, Fault> {
        self.end_file();
        if let State::Broken(fault, _) = self.state {
            return Err(fault);
        }
        let Chain { seq, last } = self.chain.unwrap_or_default();
        self.report.last = seq;
        self.report.hash = last;
        Ok(self.report)
    }

    fn end_file(&mut self) {
        if let State::Fragment(place, _, ended) = self.state {
            self.not_a_line(place, ended);
        }
    }

    fn check(&mut self, line: &Line) {
        if !line.sound {
            let message = "its text is not the one its hash was made of".to_owned();
            return self.fail(self.at, FaultKind::Changed, message);
        }
        if self.wanted == Some(line.hash) {
            self.report.found = Some(true);
        }
        let is_first = line.seq == 1 && line.prev == Hash::default();
        let begins = self.begins;
        let fits = match &self.chain {
            Some(chain) => chain.is_followed_by(line),
            None => is_first || line.event == Event::Continued,
        };
        if fits && (!begins || is_first || line.event == Event::Continued) {
            self.begins = false;
            if self.chain.is_none() {
                self.report.first = line.seq;
            }
            self.before = self.chain.replace(Chain {
                seq: line.seq,
                last: line.hash,
            });
            return;
        }
        let (place, kind, message) = self.judge(line, is_first);
        self.fail(place, kind, message);
    }

    /// What is wrong with a sound line that is not the one that belongs here.
    fn judge(&self, line: &Line, is_first: bool) -> (Place, FaultKind, String) {
        let here = self.at;
        let above = Place {
            line: here.line.saturating_sub(1),
            ..here
        };
        let Some(chain) = &self.chain else {
            let message = match line.seq {
                0 | 1 => "it is to be the first of all and names one before it".to_owned(),
                seq => format!("it has number {seq}, and those before it are not in the file"),
            };
            return (here, FaultKind::Removed, message);
        };
        let expected = chain.seq + 1;
        if self.begins {
            let message = match is_first {
                true => format!(
                    "a new chain begins; number {expected} of the file before was to follow"
                ),
                false => format!(
                    "it has number {}; number {expected} of the file before was to follow, with event continued",
                    line.seq
                ),
            };
            return (here, FaultKind::Removed, message);
        }
        if line.seq > expected {
            let missing = match line.seq - 1 {
                last if last == expected => format!("number {expected} is"),
                last => format!("numbers {expected} to {last} are"),
            };
            let message = format!("it has number {}; {missing} missing before it", line.seq);
            return (here, FaultKind::Removed, message);
        }
        // A line above that was made to look right does not fit those behind it.
        if line.seq == expected {
            let message = "its hash was made anew: the line after it names another one".to_owned();
            return (above, FaultKind::Changed, message);
        }
        let of_before = self.before.as_ref();
        let belonged = of_before.is_some_and(|before| before.is_followed_by(line));
        if belonged && line.hash != chain.last {
            let message = "the line after it does not know of it".to_owned();
            return (above, FaultKind::Inserted, message);
        }
        let message = format!(
            "it has number {}, which came before; number {expected} was to follow",
            line.seq
        );
        (here, FaultKind::Inserted, message)
    }

    /// Looks for the line that belongs where the first fault is.
    fn search(&mut self, mut fault: Fault, expected: Chain, line: &Line) {
        if fault.kind == FaultKind::Removed && line.sound && expected.is_followed_by(line) {
            fault.kind = FaultKind::Reordered;
            fault.message = format!(
                "number {} belongs here; it is line {}",
                line.seq, self.at.line
            );
        }
        self.state = State::Broken(fault, expected);
    }

    fn not_a_line(&mut self, place: Place, ended: bool) {
        if ended {
            let message = "it is not one of an audit log".to_owned();
            return self.fail(place, FaultKind::NotALine, message);
        }
        let message = "it is cut off: the writer was stopped in the middle of it".to_owned();
        self.fail(place, FaultKind::Torn, message);
    }

    fn fail(&mut self, place: Place, kind: FaultKind, message: String) {
        let fault = Fault {
            file: place.file,
            line: place.line,
            kind,
            message,
        };
        self.state = State::Broken(fault, self.chain.clone().unwrap_or_default());
    }
}

impl Chain {
    fn is_followed_by(&self, line: &Line) -> bool {
        self.seq.checked_add(1) == Some(line.seq) && self.last == line.prev
    }
}
