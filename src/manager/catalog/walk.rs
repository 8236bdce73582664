//! One walk over the pages of a list.

use std::collections::BTreeSet;

use crate::codec::json_object::JsonObject;
use crate::codec::scan::{Text, elements, members};
use crate::diagnostic::Level;
use crate::limits::Limits;
use crate::manager::diagnostic::ServerDiagnostic;
use crate::manager::error::Phase;
use crate::manager::server_config::ServerKey;
use crate::secret::Quoted;

/// A list that servers give in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PagedList {
    /// `tools/list`.
    Tools,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    ResourceTemplates,
    /// `prompts/list`.
    Prompts,
}

impl PagedList {
    /// The method that asks for a page.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    /// The member of the result that holds the entries.
    #[must_use]
    pub const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }
}

/// What to do after a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkStep {
    /// Ask for the next page, with these raw parameters.
    Next(String),
    /// The walk is over: [`ListWalk::end`].
    Done,
}

/// One walk: begins with a request without parameters, takes each result, and says how to go on. Ends at the
/// last page, at a cursor that was there before, at a bound, or at a result that is no page; whatever was
/// read until then is kept.
#[derive(Debug)]
pub struct ListWalk {
    server: ServerKey,
    list: PagedList,
    pages_max: usize,
    entries_max: usize,
    bytes_max: usize,
    pages: usize,
    bytes: usize,
    cursors: BTreeSet<String>,
    entries: Vec<Box<str>>,
    dropped: usize,
    diagnostics: Vec<ServerDiagnostic>,
}

impl ListWalk {
    /// A walk that has not begun.
    #[must_use]
    pub fn new(server: &ServerKey, list: PagedList, limits: &Limits) -> Self {
        Self {
            server: server.clone(),
            list,
            pages_max: limits.list_pages_max,
            entries_max: limits.tools_max,
            bytes_max: limits.list_bytes_max,
            pages: 0,
            bytes: 0,
            cursors: BTreeSet::new(),
            entries: Vec::new(),
            dropped: 0,
            diagnostics: Vec::new(),
        }
    }

    /// Which list.
    #[must_use]
    pub const fn list(&self) -> PagedList {
        self.list
    }

    /// Takes the raw result of the last request, a JSON value that was validated before.
    pub fn take(&mut self, result_raw: &str) -> WalkStep {
        self.pages += 1;
        let mut entries = None;
        let mut cursor = None;
        for (name, value) in members(result_raw) {
            if name.is(self.list.member()) {
                entries = Some(value);
            } else if name.is("nextCursor") {
                cursor = Some(value);
            }
        }
        let Some(page) = entries.filter(|raw| raw.starts_with('[')) else {
            self.note(
                Level::Error,
                "not-a-list",
                format!(
                    "{} gave a result without an array {} (found {})",
                    self.list.method(),
                    self.list.member(),
                    Quoted(entries.unwrap_or("nothing"))
                ),
            );
            return WalkStep::Done;
        };
        for entry in elements(page) {
            self.keep(entry);
        }
        if self.dropped > 0 {
            return WalkStep::Done;
        }
        match cursor {
            None | Some("null") => WalkStep::Done,
            Some(raw) => self.follow(raw),
        }
    }

    /// The entries, raw and in the server's order, and what is to be said of the walk.
    #[must_use]
    pub fn end(mut self) -> (Vec<Box<str>>, Vec<ServerDiagnostic>) {
        if self.dropped > 0 {
            let (limit, bytes) = (self.entries_max, self.bytes_max);
            let found = self.entries.len() + self.dropped;
            let what = self.list.member();
            let message = if self.entries.len() < limit {
                format!(
                    "{what} of more than {bytes} bytes: {} of at least {found} are kept",
                    self.entries.len()
                )
            } else {
                format!("too many {what}: at least {found}, limit {limit}; the rest is left out")
            };
            self.note(Level::Warning, "list-too-long", message);
        }
        (self.entries, self.diagnostics)
    }

    fn keep(&mut self, entry: &str) {
        let bytes = self.bytes.saturating_add(entry.len());
        if self.entries.len() == self.entries_max || bytes > self.bytes_max {
            self.dropped += 1;
        } else {
            self.bytes = bytes;
            self.entries.push(entry.into());
        }
    }

    fn follow(&mut self, raw: &str) -> WalkStep {
        let Some(cursor) = Text::of_value(raw).map(|text| text.decode().into_owned()) else {
            let message = format!("nextCursor is no string (found {})", Quoted(raw));
            self.note(Level::Warning, "bad-cursor", message);
            return WalkStep::Done;
        };
        if cursor.is_empty() {
            return WalkStep::Done;
        }
        let method = self.list.method();
        if self.cursors.contains(&cursor) {
            let message = format!("{method}: cursor repeated after {} pages", self.pages);
            self.note(Level::Warning, "cursor-repeated", message);
            return WalkStep::Done;
        }
        if self.pages >= self.pages_max {
            let message = format!("{method}: more pages than the limit, {}", self.pages_max);
            self.note(Level::Warning, "too-many-pages", message);
            return WalkStep::Done;
        }
        let mut params = JsonObject::new();
        // As spelled: the server gets back exactly what it gave.
        params.raw("cursor", raw);
        self.cursors.insert(cursor);
        WalkStep::Next(params.end())
    }

    fn note(&mut self, level: Level, code: &'static str, message: String) {
        let one = ServerDiagnostic::new(&self.server, Phase::List, level, message);
        self.diagnostics.push(one.with_code(code));
    }
}
