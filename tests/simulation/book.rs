//! What the client is owed: every request it made, and what an answer to it must look like.
//!
//! The book is kept at the hub's edge. It sees the bytes of the client when the hub gets them, and the
//! bytes of the hub when it writes them, so "after a cancel" has an exact meaning however long bytes travel.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use drawspan::clock::Uptime;
use drawspan::limits::Limits;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::gateway::markers;
use crate::queue::Queue;
use crate::support::{Input, Turn};

/// What the client wrote, and what is to come of it.
#[derive(Clone, Debug)]
pub enum What {
    /// A request with an id that is a string or an integer.
    Request(Box<Asked>),
    /// `notifications/cancelled` for the request with this raw id.
    Cancel(String),
    /// `notifications/initialized`.
    Initialized,
    /// A permission prompt of Claude with this code.
    Prompt(String),
    /// An array.
    Batch(Vec<Self>),
    /// Something that is refused, with this raw id where it can be read.
    Nonsense(Option<String>),
    /// Something that is never answered.
    Quiet,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its id as spelled.
    pub id: String,
    pub kind: Kind,
    /// Whether the rules of 2026-07-28 apply.
    pub modern: bool,
    /// The raw progress token.
    pub token: Option<String>,
    /// A number that stands in its arguments, to find it again at the Gateway.
    pub marker: Option<u64>,
}

/// What is asked.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Asks for this revision.
    Initialize(&'static str),
    /// Answered by the protocol itself, whatever the answer is.
    Protocol,
    /// `tools/list`.
    List,
    /// `subscriptions/listen` that is in order.
    Listen,
    /// Must be refused with a JSON-RPC error.
    Wrong,
    /// `tools/call`.
    Call(Call),
}

/// One tool call.
#[derive(Clone, Debug)]
pub struct Call {
    pub tool: &'static str,
    /// Whether its arguments break a rule, or nobody owns the tool.
    pub bad: bool,
    pub after: u64,
    pub session: Option<String>,
    pub limit: usize,
    pub timeout_ms: u64,
}

/// A line of the client, or a part of one.
#[derive(Debug)]
struct Said {
    bytes: usize,
    delivered: usize,
    /// Whether a line feed is the last of the bytes.
    ended: bool,
    what: Option<What>,
}

#[derive(Debug)]
struct Open {
    asked: Asked,
    turn: u64,
    batch: Option<u64>,
    cancelled: bool,
    revision: &'static str,
    /// When the answer must be there.
    due: Option<Uptime>,
    since: Uptime,
    acknowledged: bool,
    progress: f64,
}

/// What an answer may take at most, beside what its call needs by itself.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// A hook and a person together; `None` when a person may take for ever.
    pub gate: Option<Duration>,
    /// A call that needs the Gateway.
    pub gateway: Duration,
}

/// See the module page.
#[derive(Debug)]
pub struct Book {
    limits: Limits,
    patience: Patience,
    announces: bool,
    /// Whether the Gateway may answer with what nobody asked for.
    odd_answers: bool,
    said: VecDeque<Said>,
    open: BTreeMap<String, Vec<Open>>,
    nulls: usize,
    batch_nulls: BTreeMap<u64, usize>,
    turn: u64,
    batches: u64,
    negotiated: Option<&'static str>,
    /// When the client had finished its handshake.
    pub initialized: Option<Uptime>,
    /// Prompts asked, and those answered, by code.
    prompts: BTreeMap<String, u64>,
    verdicts: BTreeMap<String, u64>,
    /// Markers of calls that were cancelled or refused before they could reach the Gateway.
    pub dead_markers: BTreeSet<u64>,
    dying_markers: Vec<u64>,
    /// Since when everything is answered at once: the client is gone or the program ends.
    ended: Option<Uptime>,
    own_events: u64,
    longest_line: usize,
    crossing: usize,
    /// What happened how often, to see that a simulation gets everywhere.
    pub tally: BTreeMap<&'static str, u64>,
}

#[derive(Deserialize)]
struct Line<'a> {
    jsonrpc: Option<String>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RpcError {
    code: i64,
    message: String,
}

#[derive(Deserialize)]
struct Outcome<'a> {
    #[serde(borrow, rename = "resultType")]
    result_type: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(borrow, rename = "structuredContent")]
    structured: Option<&'a RawValue>,
    #[serde(rename = "isError", default)]
    is_error: bool,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow, rename = "ttlMs")]
    ttl: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NoteParams<'a> {
    #[serde(borrow)]
    progress_token: Option<&'a RawValue>,
    progress: Option<f64>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(borrow)]
    request_id: Option<&'a RawValue>,
    #[serde(rename = "request_id")]
    code: Option<String>,
}

type Check = Result<(), String>;

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(why()) }
}

fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{error} in {text}"))
}

/// What an id means, however it is spelled.
fn meaning(raw: &str) -> String {
    raw.parse::<i128>()
        .map_or_else(|_| raw.to_owned(), |number| number.to_string())
}

impl Asked {
    /// Whether it is answered in the turn in which it comes, where nobody has to be asked about calls.
    fn is_prompt(&self) -> bool {
        match &self.kind {
            Kind::Initialize(_) | Kind::Protocol | Kind::List | Kind::Wrong => true,
            Kind::Listen => false,
            Kind::Call(call) => {
                call.bad || matches!(call.tool, "events_poll" | "permissions_list_open")
            }
        }
    }
}

impl Book {
    pub fn new(limits: &Limits, patience: Patience, announces: bool, odd_answers: bool) -> Self {
        Self {
            limits: limits.clone(),
            patience,
            announces,
            odd_answers,
            said: VecDeque::new(),
            open: BTreeMap::new(),
            nulls: 0,
            batch_nulls: BTreeMap::new(),
            turn: 0,
            batches: 0,
            negotiated: None,
            initialized: None,
            prompts: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            dead_markers: BTreeSet::new(),
            dying_markers: Vec::new(),
            ended: None,
            own_events: 0,
            longest_line: 0,
            crossing: 0,
            tally: BTreeMap::new(),
        }
    }

    pub fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// The client writes these bytes: one line, or the last part of one.
    pub fn write(&mut self, bytes: &[u8], what: What) {
        self.said.push_back(Said {
            bytes: bytes.len(),
            delivered: 0,
            ended: bytes.ends_with(b"\n"),
            what: Some(what),
        });
    }

    /// Requests that have no answer yet.
    pub fn owed(&self) -> usize {
        self.open.values().map(Vec::len).sum::<usize>() + self.nulls
    }

    /// Listen streams that are open: they have no answer before the end.
    pub fn streams(&self) -> usize {
        let open = self.open.values().flatten();
        open.filter(|open| matches!(open.asked.kind, Kind::Listen))
            .count()
    }

    /// Ids of the requests that have no answer yet.
    pub fn owed_ids(&self) -> Vec<&str> {
        let open = self.open.values().flatten();
        open.map(|open| &*open.asked.id).collect()
    }

    /// Time has jumped by so much: what was to be answered within it may be late by as much.
    pub fn forgive(&mut self, by: Duration) {
        for open in self.open.values_mut().flatten() {
            open.due = open.due.map(|due| due.after(by));
        }
    }

    /// From now on nothing is waited for: what is open must be answered by then.
    pub fn end(&mut self, by: Uptime) {
        self.ended = Some(self.ended.map_or(by, |before| before.min(by)));
        for open in self.open.values_mut().flatten() {
            open.due = Some(open.due.map_or(by, |due| due.min(by)));
        }
    }

    /// The client is gone: nothing is owed to it any more.
    pub fn forget(&mut self) {
        self.open.clear();
        self.nulls = 0;
        self.batch_nulls.clear();
        self.said.clear();
    }

    /// Checks one turn of the hub.
    pub fn turn(&mut self, turn: &Turn, queue: &mut Queue) -> Check {
        self.turn += 1;
        self.dead_markers.extend(self.dying_markers.drain(..));
        match &turn.input {
            Input::ClientBytes(bytes) => {
                let limit = self.limits.out_high_bytes;
                ensure(turn.backlog_before <= limit, || {
                    let waits = turn.backlog_before;
                    format!("read from a client for which {waits} bytes wait, limit {limit}")
                })?;
                self.deliver(bytes.len(), turn.at);
            }
            Input::ClientEnd => {
                self.last_line(turn.at);
                self.end(turn.at.after(self.limits.input_ended_timeout));
                // Nobody waits any more for events that may never come.
                for open in self.open.values_mut().flatten() {
                    let waits =
                        matches!(&open.asked.kind, Kind::Call(call) if call.tool == "events_wait");
                    if waits && self.patience.gate == Some(Duration::ZERO) && open.batch.is_none() {
                        open.due = Some(turn.at);
                    }
                }
            }
            Input::ClientGone => self.forget(),
            Input::Other => {}
        }
        for _ in 0..std::mem::take(&mut self.own_events) {
            queue.own_event();
        }
        if let Some(at) = self.initialized {
            queue.listen(at);
        }
        if turn.backlog_before + turn.wrote.len() > self.limits.out_high_bytes {
            queue.deafen();
        }
        let text = std::str::from_utf8(&turn.wrote).map_err(|error| error.to_string())?;
        ensure(text.is_empty() || text.ends_with('\n'), || {
            format!("half a line was written: {text}")
        })?;
        let backed_up = turn.backlog_before > self.limits.out_high_bytes;
        for line in text.lines() {
            self.longest_line = self.longest_line.max(line.len() + 1);
            self.line(line, turn, backed_up, queue)
                .map_err(|why| format!("{why}\n  in {line}"))?;
        }
        self.check_backlog(turn)?;
        self.close_turn(queue)
    }

    /// What waits for a client that does not read: the watermark, the turn that crossed it, and the answers
    /// to what was open then.
    fn check_backlog(&mut self, turn: &Turn) -> Check {
        let backlog = turn.backlog_before + turn.wrote.len();
        let high = self.limits.out_high_bytes;
        if turn.backlog_before <= high {
            self.crossing = turn.wrote.len();
            if backlog > high {
                self.count("backed up");
            }
        }
        let answers = self.limits.requests_open_max * self.longest_line;
        let reports = 300_000 / self.limits.wait_progress_interval.as_millis().max(1);
        let reports = usize::try_from(reports).expect("small");
        let progress = self.limits.requests_open_max * reports * 300;
        let bound = high + self.crossing + answers + progress;
        ensure(backlog <= bound, || {
            format!("{backlog} bytes wait for the client, bound {bound}")
        })
    }

    fn deliver(&mut self, mut bytes: usize, now: Uptime) {
        while bytes > 0 {
            let Some(said) = self.said.front_mut() else {
                return;
            };
            let part = bytes.min(said.bytes - said.delivered);
            said.delivered += part;
            bytes -= part;
            let whole = said.delivered == said.bytes;
            let length = said.delivered - usize::from(whole && said.ended);
            let too_long = length > self.limits.message_bytes_max;
            let arrived = if whole && said.ended || too_long {
                said.what.take()
            } else {
                None
            };
            if whole && said.ended {
                self.said.pop_front();
            }
            if let Some(what) = arrived {
                let what = if too_long { refused(&what) } else { what };
                self.arrive(what, None, now);
            }
        }
    }

    /// The end of the input ends a line as well.
    fn last_line(&mut self, now: Uptime) {
        let last = self.said.pop_front();
        let last = last.filter(|said| said.delivered == said.bytes);
        if let Some(what) = last.and_then(|said| said.what) {
            self.arrive(what, None, now);
        }
    }

    fn arrive(&mut self, what: What, batch: Option<u64>, now: Uptime) {
        match what {
            What::Request(asked) => self.open(*asked, batch, now),
            What::Cancel(id) => self.cancel(&id),
            What::Initialized => {
                self.initialized.get_or_insert(now);
            }
            What::Prompt(code) => {
                *self.prompts.entry(code).or_default() += 1;
                self.own_events += 1;
            }
            What::Batch(members) => self.batch(members, now),
            What::Nonsense(Some(id)) => {
                let kind = Kind::Wrong;
                let (modern, token, marker) = (false, None, None);
                let asked = Asked {
                    id,
                    kind,
                    modern,
                    token,
                    marker,
                };
                self.open(asked, batch, now);
            }
            What::Nonsense(None) => match batch {
                Some(number) => *self.batch_nulls.entry(number).or_default() += 1,
                None => self.nulls += 1,
            },
            What::Quiet => {}
        }
    }

    fn open(&mut self, asked: Asked, batch: Option<u64>, now: Uptime) {
        if asked.id.len() > self.limits.id_bytes_max {
            return self.arrive(What::Nonsense(None), batch, now);
        }
        if let Kind::Initialize(version) = asked.kind {
            if batch.is_none() {
                self.negotiated = Some(match version {
                    "2025-06-18" | "2025-03-26" | "2024-11-05" => version,
                    _ => "2025-11-25",
                });
            }
        }
        let revision = match (asked.modern, self.negotiated) {
            (true, _) => "2026-07-28",
            (false, negotiated) => negotiated.unwrap_or("2025-11-25"),
        };
        let gated = match (&asked.kind, self.patience.gate) {
            (Kind::Call(_), gate) => gate,
            _ => Some(Duration::ZERO),
        };
        let needs = match &asked.kind {
            Kind::Listen => None,
            Kind::Call(call) if call.tool == "events_wait" => {
                Some(Duration::from_millis(call.timeout_ms))
            }
            _ if asked.is_prompt() => Some(Duration::ZERO),
            Kind::Initialize(_) | Kind::Protocol | Kind::List | Kind::Wrong | Kind::Call(_) => {
                Some(self.patience.gateway)
            }
        };
        let due = needs
            .zip(gated)
            .map(|(needs, gated)| now.after(needs + gated));
        let due = match (due, self.ended) {
            (Some(due), Some(end)) => Some(due.min(end)),
            (due, end) => due.or(end),
        };
        self.open.entry(meaning(&asked.id)).or_default().push(Open {
            asked,
            turn: self.turn,
            batch,
            cancelled: false,
            revision,
            due,
            since: now,
            acknowledged: false,
            progress: 0.0,
        });
    }

    fn batch(&mut self, members: Vec<What>, now: Uptime) {
        let allowed = self.negotiated == Some("2025-03-26");
        if !allowed || members.is_empty() || members.len() > self.limits.batch_messages_max {
            let limit = self.limits.id_bytes_max;
            let ids = members.iter().filter_map(id_of);
            let first = ids.filter(|id| id.len() <= limit).map(str::to_owned).next();
            return self.arrive(What::Nonsense(first), None, now);
        }
        self.count("batch");
        self.batches += 1;
        let number = self.batches;
        for member in members {
            self.arrive(member, Some(number), now);
        }
        // The array waits for the slowest of them.
        let mut all = self.open.values_mut().flatten();
        let of_batch = |open: &&mut Open| open.batch == Some(number);
        let dues: Vec<_> = all.by_ref().filter(of_batch).map(|open| open.due).collect();
        let slowest = dues.into_iter().collect::<Option<Vec<_>>>();
        let slowest = slowest.and_then(|dues| dues.into_iter().max());
        for open in self.open.values_mut().flatten().filter(of_batch) {
            open.due = slowest;
        }
    }

    fn cancel(&mut self, id: &str) {
        let Some(list) = self.open.get_mut(&meaning(id)) else {
            return;
        };
        // What the protocol answers by itself is answered before a cancel can be read.
        let mut open = list.iter_mut().filter(|open| !open.cancelled);
        let found = open.find(|open| match &open.asked.kind {
            Kind::Initialize(_) | Kind::Protocol => false,
            Kind::List | Kind::Listen | Kind::Wrong | Kind::Call(_) => true,
        });
        let Some(open) = found else { return };
        open.cancelled = true;
        let fresh = open.turn == self.turn;
        if let (Some(marker), false) = (open.asked.marker, fresh) {
            self.dead_markers.insert(marker);
        }
        self.count("cancelled");
    }

    fn line(&mut self, line: &str, turn: &Turn, backed_up: bool, queue: &mut Queue) -> Check {
        if line.starts_with('[') {
            let answers: Vec<&RawValue> = read(line)?;
            return self.batch_line(&answers, turn, queue);
        }
        let message: Line<'_> = read(line)?;
        ensure(message.jsonrpc.as_deref() == Some("2.0"), || {
            "no version".to_owned()
        })?;
        match &message.method {
            Some(method) => self.note(method, &message, turn, backed_up, queue),
            None => self.answer(&message, None, turn, queue),
        }
    }

    fn batch_line(&mut self, answers: &[&RawValue], turn: &Turn, queue: &mut Queue) -> Check {
        ensure(!answers.is_empty(), || "an empty array".to_owned())?;
        let mut lines = Vec::new();
        let mut number = None;
        for answer in answers {
            let line: Line<'_> = read(answer.get())?;
            let open = line.id.and_then(|id| self.open.get(&meaning(id.get())));
            number = number.or(open.and_then(|open| open.iter().find_map(|open| open.batch)));
            lines.push(line);
        }
        let number = match number {
            Some(number) => number,
            None => self.spent_batch(answers.len()).ok_or("no batch is open")?,
        };
        for line in &lines {
            self.answer(line, Some(number), turn, queue)?;
        }
        let left = self.batch_nulls.remove(&number);
        ensure(left.unwrap_or(0) == 0, || {
            "a refusal is missing in the batch".to_owned()
        })?;
        for list in self.open.values_mut() {
            let of_batch = |open: &Open| open.batch == Some(number);
            if let Some(open) = list.iter().find(|open| of_batch(open) && !open.cancelled) {
                return Err(format!(
                    "the batch left out the answer to {}",
                    open.asked.id
                ));
            }
            list.retain(|open| !of_batch(open));
        }
        Ok(())
    }

    /// A batch that has nothing left but so many refusals.
    fn spent_batch(&self, refusals: usize) -> Option<u64> {
        let alive = |number: u64| {
            let mut all = self.open.values().flatten();
            all.any(|open| open.batch == Some(number) && !open.cancelled)
        };
        let mut all = self.batch_nulls.iter();
        let found = all.find(|(number, owed)| **owed == refusals && !alive(**number));
        found.map(|(number, _)| *number)
    }

    fn answer(
        &mut self,
        line: &Line<'_>,
        batch: Option<u64>,
        turn: &Turn,
        queue: &mut Queue,
    ) -> Check {
        let error: Option<RpcError> = line.error.map(|raw| read(raw.get())).transpose()?;
        ensure(line.result.is_some() != error.is_some(), || {
            "neither result nor error, or both".to_owned()
        })?;
        let Some(id) = line.id.map(RawValue::get).filter(|id| *id != "null") else {
            let error = error.ok_or("a result without an id")?;
            let owed = match batch {
                Some(number) => self.batch_nulls.get_mut(&number),
                None => Some(&mut self.nulls),
            };
            let owed = owed.filter(|owed| **owed > 0).ok_or("refuses nothing")?;
            *owed -= 1;
            return ensure(matches!(error.code, -32700 | -32600), || {
                format!("code {} for what is no message", error.code)
            });
        };
        let key = meaning(id);
        let list = self.open.get_mut(&key);
        let list = list.ok_or_else(|| format!("nobody waits for an answer to {id}"))?;
        let reused = error
            .as_ref()
            .is_some_and(|e| e.message.contains("is in use"));
        let of_kind = |open: &Open| open.batch == batch;
        let at = match (&error, reused) {
            (_, true) => list
                .iter()
                .rposition(|open| of_kind(open) && open.turn == self.turn),
            // An answer may come before a cancel in the same breath is read. A member of a batch may
            // have its answer before it is cancelled, and wait for the others.
            _ => list
                .iter()
                .position(|open| of_kind(open) && !open.cancelled)
                .or_else(|| list.iter().position(of_kind)),
        };
        let at = at.ok_or_else(|| format!("{id} was cancelled, or answered before"))?;
        let open = list.remove(at);
        if list.is_empty() {
            self.open.remove(&key);
        }
        ensure(open.asked.id == id, || {
            format!("id {} came back as {id}", open.asked.id)
        })?;
        if reused {
            self.count("id in use");
        }
        match (error, line.result) {
            (Some(error), _) => self.check_error(&open, &error),
            (None, Some(result)) => self.check_result(&open, result.get(), turn, queue),
            (None, None) => Ok(()),
        }
    }

    fn check_error(&mut self, open: &Open, error: &RpcError) -> Check {
        ensure(!error.message.is_empty(), || {
            "an error without words".to_owned()
        })?;
        let known = matches!(error.code, -32603..=-32600 | -32700 | -32022);
        ensure(known, || format!("error code {}", error.code))?;
        if error.message.starts_with("busy") {
            self.count("busy");
        }
        // In batches and past limits every request may be refused, so only the plainest are sure to succeed.
        let sure = open.batch.is_none() && !open.asked.modern;
        let in_use = error.message.contains("is in use");
        let plain = matches!(open.asked.kind, Kind::Initialize(_));
        ensure(in_use || !(sure && plain), || {
            format!("refused: {}", error.message)
        })
    }

    fn check_result(&mut self, open: &Open, result: &str, turn: &Turn, queue: &mut Queue) -> Check {
        let outcome: Outcome<'_> = read(result)?;
        ensure(!matches!(open.asked.kind, Kind::Wrong), || {
            format!("{} should have been refused", open.asked.id)
        })?;
        let complete = outcome.result_type.map(RawValue::get) == Some("\"complete\"");
        ensure(complete == open.asked.modern, || {
            format!("resultType in the answer to a request of {}", open.revision)
        })?;
        ensure(outcome.meta.is_some() == open.asked.modern, || {
            "_meta in the wrong era".to_owned()
        })?;
        let call = match &open.asked.kind {
            Kind::Call(call) => call,
            Kind::List => {
                self.count("tools/list");
                return ensure(outcome.ttl.is_some() == open.asked.modern, || {
                    "ttlMs in the wrong era".to_owned()
                });
            }
            Kind::Initialize(_) => {
                let negotiated = self.negotiated.unwrap_or_default();
                let version = format!("\"protocolVersion\":\"{negotiated}\"");
                return ensure(result.contains(&version), || format!("not {negotiated}"));
            }
            Kind::Listen | Kind::Protocol | Kind::Wrong => return Ok(()),
        };
        ensure(outcome.content.is_some(), || "no content".to_owned())?;
        if outcome.is_error {
            if let Some(marker) = open.asked.marker {
                // Whoever is refused by the gate never reaches the Gateway afterwards.
                self.dying_markers.push(marker);
            }
            self.count("tool error");
            return Ok(());
        }
        ensure(!call.bad, || {
            format!("bad arguments of {} were accepted", call.tool)
        })?;
        self.count(call.tool);
        let structured = outcome.structured.map(RawValue::get);
        let structured = structured.ok_or("no structured content")?;
        match call.tool {
            // In a batch it is as old as the last answer of the others.
            "events_poll" | "events_wait" if open.batch.is_some() => Ok(()),
            "events_poll" => queue.polled(call, structured),
            "events_wait" => {
                let waited = turn.at.since(open.since);
                let early = self.ended.is_none()
                    && waited < Duration::from_millis(call.timeout_ms)
                    && self.patience.gate == Some(Duration::ZERO);
                queue.waited(call, structured, early)
            }
            "permissions_list_open" => Ok(()),
            tool => {
                let found = markers(result);
                let own = open.asked.marker.filter(|marker| found.contains(marker));
                let foreign = found.len() > usize::from(own.is_some());
                ensure(!foreign && (own.is_some() || self.odd_answers), || {
                    format!("{tool} got the answer to another call")
                })
            }
        }
    }

    fn note(
        &mut self,
        method: &str,
        line: &Line<'_>,
        turn: &Turn,
        backed_up: bool,
        queue: &mut Queue,
    ) -> Check {
        ensure(line.id.is_none(), || "the hub asks nothing".to_owned())?;
        let raw = line.params.ok_or("no params")?.get();
        let params: NoteParams<'_> = read(raw)?;
        let mut listens = self.open.values_mut().flatten();
        match method {
            "notifications/progress" => self.progress(&params),
            "notifications/subscriptions/acknowledged" => {
                let id = params.meta.ok_or("no _meta")?.get();
                let found = listens.find(|open| {
                    matches!(open.asked.kind, Kind::Listen)
                        && !open.acknowledged
                        && id.ends_with(&format!("\":{}}}", open.asked.id))
                });
                found.ok_or("acknowledges nothing")?.acknowledged = true;
                self.count("acknowledged");
                Ok(())
            }
            "notifications/cancelled" => {
                let id = params.request_id.ok_or("no requestId")?.get();
                let found = listens
                    .any(|open| matches!(open.asked.kind, Kind::Listen) && open.asked.id == id);
                ensure(found, || "ends no stream".to_owned())
            }
            "notifications/message"
            | "notifications/claude/channel"
            | "notifications/claude/channel/permission" => {
                ensure(!backed_up, || {
                    "not for a client that does not read".to_owned()
                })?;
                ensure(self.initialized.is_some(), || {
                    "before initialized".to_owned()
                })?;
                self.unasked(method, &params, raw, turn, queue)
            }
            _ => Err(format!("unknown notification {method}")),
        }
    }

    fn unasked(
        &mut self,
        method: &str,
        params: &NoteParams<'_>,
        raw: &str,
        turn: &Turn,
        queue: &mut Queue,
    ) -> Check {
        match method {
            "notifications/claude/channel" => {
                ensure(self.announces, || "the channel is off".to_owned())?;
                self.count("channel");
                queue.announced(turn.at, raw)
            }
            "notifications/claude/channel/permission" => {
                let code = params.code.clone().ok_or("no request_id")?;
                let asked = self.prompts.get(&code).copied().unwrap_or(0);
                let told = self.verdicts.entry(code.clone()).or_default();
                *told += 1;
                ensure(*told <= asked, || format!("{code} was decided already"))?;
                self.count("permission");
                queue.decided(&code, raw)
            }
            _ => {
                self.count("log message");
                Ok(())
            }
        }
    }

    fn progress(&mut self, params: &NoteParams<'_>) -> Check {
        let token = params.progress_token.ok_or("no token")?.get();
        let progress = params.progress.ok_or("no progress")?;
        let mut open = self.open.values_mut().flatten();
        let open = open.find(|open| open.asked.token.as_deref() == Some(token));
        let open = open.filter(|open| !open.cancelled);
        let open = open.ok_or("progress of a request that is not open")?;
        ensure(progress > open.progress, || {
            format!("progress {progress} after {}", open.progress)
        })?;
        open.progress = progress;
        let says = params.message.is_some();
        let may = open.revision != "2024-11-05";
        ensure(says == may, || format!("message, in {}", open.revision))?;
        self.count("progress");
        Ok(())
    }

    fn close_turn(&mut self, queue: &Queue) -> Check {
        let (turn, gate) = (self.turn, self.patience.gate);
        let open_gate = gate == Some(Duration::ZERO);
        for open in self.open.values().flatten() {
            let fresh = open.turn == turn && !open.cancelled && open.batch.is_none();
            let is_call = matches!(open.asked.kind, Kind::Call(_));
            let prompt = open.asked.is_prompt() && (open_gate || !is_call);
            ensure(!(fresh && prompt), || {
                format!("{} was not answered in its turn", open.asked.id)
            })?;
            let listens = matches!(open.asked.kind, Kind::Listen);
            ensure(!(fresh && listens) || open.acknowledged, || {
                format!("{} was not acknowledged", open.asked.id)
            })?;
            let waits = open_gate && !open.cancelled && open.batch.is_none();
            if let (Kind::Call(call), true) = (&open.asked.kind, waits) {
                if call.tool == "events_wait" && !call.bad {
                    queue
                        .nothing_for(call)
                        .map_err(|why| format!("{} still waits: {why}", open.asked.id))?;
                }
            }
        }
        ensure(self.nulls == 0, || "a refusal is missing".to_owned())?;
        for list in self.open.values_mut() {
            list.retain(|open| !open.cancelled || open.batch.is_some());
        }
        self.drop_spent_batches();
        self.open.retain(|_, list| !list.is_empty());
        let (limits, is_listen) = (&self.limits, |open: &&Open| {
            matches!(open.asked.kind, Kind::Listen)
        });
        let all = || self.open.values().flatten().filter(|open| !open.cancelled);
        let listens = all().filter(is_listen).count();
        // Members of a batch may be answered already.
        let others = all().filter(|open| open.batch.is_none()).count() - listens;
        ensure(listens <= limits.subscriptions_open_max, || {
            format!("{listens} streams are open")
        })?;
        ensure(others <= limits.requests_open_max, || {
            format!("{others} requests are open")
        })
    }

    /// A batch whose requests were all cancelled has no answer.
    fn drop_spent_batches(&mut self) {
        let all = self.open.values().flatten();
        let alive: BTreeSet<u64> = all
            .filter(|open| !open.cancelled)
            .filter_map(|open| open.batch)
            .chain(self.batch_nulls.keys().copied())
            .collect();
        for list in self.open.values_mut() {
            list.retain(|open| open.batch.is_none_or(|batch| alive.contains(&batch)));
        }
    }

    /// Nothing is later than it may be.
    pub fn check_due(&self, now: Uptime) -> Check {
        for open in self.open.values().flatten() {
            let late = !open.cancelled && open.due.is_some_and(|due| due < now);
            ensure(!late, || {
                format!(
                    "no answer to {} ({:?}) since {}",
                    open.asked.id, open.asked.kind, open.since
                )
            })?;
        }
        Ok(())
    }
}

/// What becomes of a line that is too long.
fn refused(what: &What) -> What {
    What::Nonsense(id_of(what).map(str::to_owned))
}

fn id_of(what: &What) -> Option<&str> {
    match what {
        What::Request(asked) => Some(&asked.id),
        What::Nonsense(id) => id.as_deref(),
        What::Batch(members) => members.iter().find_map(id_of),
        What::Cancel(_) | What::Initialized | What::Prompt(_) | What::Quiet => None,
    }
}
