//! The person at the terminal: sees what is waited for, and answers a server's questions.
//!
//! Nothing is shown for the first second, nor ever where stderr is no terminal. A question is put only where
//! stdin and stderr both are one; elsewhere it is declined at once. Spec: 2025-11-25 client/elicitation: the
//! person sees who asks, and can decline or cancel at any point.

mod form;

use std::collections::VecDeque;
use std::io::Write as _;
use std::time::Duration;

use self::form::{Field, Said};
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::json_object::JsonObject;
use crate::codec::outbuf::OutBuf;
use crate::codec::scan::Text;
use crate::ids::{QuestionId, WireId};
use crate::link::{Driven, IoEvent, IoRequest, OpenSpec};
use crate::protocol::message::member;
use crate::secret::Quoted;

/// How long nothing is shown, and how often what is shown is renewed.
const QUIET: Duration = Duration::from_secs(1);

/// Our own stdin.
const STDIN: WireId = WireId(0);

/// Bytes of a question's text that are shown. A person who decides must see all of what is usual.
const TEXT_BYTES_MAX: usize = 4_096;

/// Bytes of a line that are taken; a terminal gives fewer.
const LINE_BYTES_MAX: usize = 65_536;

/// How a person says no.
const DECLINE: &str = r#"{"action":"decline"}"#;

#[derive(Debug)]
struct Asked {
    id: QuestionId,
    /// Who asks what, shown when it is its turn.
    shown: String,
    fields: Vec<Field>,
    content: JsonObject,
    at: usize,
}

/// See the module page.
#[derive(Debug)]
pub(super) struct Terminal {
    reads: bool,
    shows: bool,
    opened: bool,
    /// What was typed of a line that has no end yet.
    line: Vec<u8>,
    asked: VecDeque<Asked>,
    answers: VecDeque<(QuestionId, String)>,
    io: VecDeque<IoRequest>,
    out: OutBuf,
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    what: String,
    since: Uptime,
    next: Uptime,
    shown: bool,
}

impl Terminal {
    pub(super) fn new(stdin: bool, stderr: bool) -> Self {
        Self {
            reads: stdin && stderr,
            shows: stderr,
            opened: false,
            line: Vec::new(),
            asked: VecDeque::new(),
            answers: VecDeque::new(),
            io: VecDeque::new(),
            out: OutBuf::new(),
            waiting: None,
        }
    }

    /// Whether there is someone to ask.
    pub(super) const fn can_ask(&self) -> bool {
        self.reads
    }

    /// Something that may take a while begins.
    pub(super) fn wait_for(&mut self, now: Now, what: &str) {
        self.waiting = self.shows.then(|| Waiting {
            what: Quoted(what).to_string(),
            since: now.up,
            next: now.after(QUIET),
            shown: false,
        });
    }

    /// It is over.
    pub(super) fn done(&mut self) {
        if self.waiting.take().is_some_and(|waiting| waiting.shown) {
            show("\r\u{1b}[K");
        }
    }

    /// Takes away what is shown of it, for a line of another kind.
    pub(super) fn clear(&mut self) {
        if let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.shown) {
            waiting.shown = false;
            show("\r\u{1b}[K");
        }
    }

    /// The server tells how far it is; raw params of `notifications/progress`.
    pub(super) fn progress(&mut self, params: &str) {
        let Some(waiting) = &mut self.waiting else {
            return;
        };
        let text = |name| {
            member(params, name)
                .and_then(Text::of_value)
                .map(|text| text.decode())
        };
        let mut what = String::new();
        if let Some(progress) = member(params, "progress") {
            what.push_str(progress);
        }
        if let Some(total) = member(params, "total") {
            what.push_str(&format!("/{total}"));
        }
        if let Some(message) = text("message") {
            what.push_str(&format!(" {message}"));
        }
        waiting.what = Quoted(&what).to_string();
    }

    /// A server asks. Declined at once where nobody can answer.
    pub(super) fn ask(&mut self, id: QuestionId, server: &str, method: &str, params: Option<&str>) {
        let params = params.unwrap_or("{}");
        let is_form = member(params, "mode").is_none_or(|mode| mode == "\"form\"");
        if !self.reads || method != "elicitation/create" || !is_form {
            return self.answers.push_back((id, DECLINE.to_owned()));
        }
        let message = member(params, "message").and_then(Text::of_value);
        let message = message.map(|text| text.decode()).unwrap_or_default();
        let fields = form::fields(member(params, "requestedSchema").unwrap_or("{}"));
        let how = match form::asks_consent_only(&fields) {
            true => "",
            false => "(an empty line skips an optional field, `.` alone declines)\n",
        };
        let (who, what) = (Quoted(server), form::safe(&message, TEXT_BYTES_MAX));
        self.asked.push_back(Asked {
            id,
            shown: format!("{who} asks: {what}\n{how}"),
            fields,
            content: JsonObject::new(),
            at: 0,
        });
        if !self.opened {
            self.opened = true;
            self.io
                .push_back(IoRequest::Open(STDIN, OpenSpec::HostStdin));
        }
        if self.asked.len() == 1 {
            self.begin();
        }
    }

    /// The server no longer wants to know.
    pub(super) fn forget(&mut self, id: QuestionId) {
        let current = self.asked.front().is_some_and(|asked| asked.id == id);
        self.asked.retain(|asked| asked.id != id);
        if current {
            show("\n(the question was withdrawn)\n");
            self.begin();
        }
    }

    /// The next answer: the raw result of the question.
    pub(super) fn poll_answer(&mut self) -> Option<(QuestionId, String)> {
        self.answers.pop_front()
    }

    /// Puts the next question.
    fn begin(&mut self) {
        self.done();
        if let Some(asked) = self.asked.front() {
            show(&asked.shown);
            self.prompt();
        }
    }

    /// Shows what is wanted next of the question at hand, or finishes it when it has it all.
    fn prompt(&mut self) {
        let Some(asked) = self.asked.front() else {
            return;
        };
        if let Some(field) = asked.fields.get(asked.at) {
            return show(&field.shown);
        }
        if let Some(asked) = self.asked.pop_front() {
            let content = asked.content.end();
            let answer = format!(r#"{{"action":"accept","content":{content}}}"#);
            self.answers.push_back((asked.id, answer));
        }
        self.begin();
    }

    fn read(&mut self, line: &str) {
        let line = line.trim();
        let Some(asked) = self.asked.front_mut() else {
            return;
        };
        let Some(field) = asked.fields.get(asked.at) else {
            return;
        };
        let said = match line {
            "." => Ok(Said::No),
            _ => field.read(line),
        };
        match said {
            Ok(Said::Value(raw)) => asked.content.raw(&field.name, &raw),
            Ok(Said::Nothing) => {}
            Ok(Said::No) => {
                self.answers.push_back((asked.id, DECLINE.to_owned()));
                self.asked.pop_front();
                return self.begin();
            }
            Err(why) => {
                show(&format!("{why}\n"));
                return self.prompt();
            }
        }
        asked.at += 1;
        self.prompt();
    }

    /// Nobody will answer any more.
    fn hang_up(&mut self) {
        self.reads = false;
        for asked in self.asked.drain(..) {
            self.answers
                .push_back((asked.id, r#"{"action":"cancel"}"#.to_owned()));
        }
    }
}

/// Writes to stderr; one that takes nothing is nobody's problem.
fn show(text: &str) {
    let mut stderr = std::io::stderr().lock();
    drop(
        stderr
            .write_all(text.as_bytes())
            .and_then(|()| stderr.flush()),
    );
}

impl Driven for Terminal {
    fn handle_io(&mut self, _: Now, _: WireId, event: IoEvent<'_>) {
        match event {
            IoEvent::Bytes(bytes) => {
                // Blank lines count here, so this is no decoder of messages.
                let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
                while let Some(piece) = pieces.next() {
                    let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
                    self.line.extend(piece.iter().take(room));
                    if pieces.peek().is_some() {
                        let line = std::mem::take(&mut self.line);
                        self.read(&String::from_utf8_lossy(&line));
                    }
                }
            }
            IoEvent::Eof | IoEvent::Failed(_) => self.hang_up(),
            IoEvent::Opened
            | IoEvent::StderrBytes(_)
            | IoEvent::WriteClosed
            | IoEvent::Drained
            | IoEvent::Exited(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        if let Some(waiting) = self
            .waiting
            .as_mut()
            .filter(|waiting| waiting.next <= now.up)
        {
            let seconds = now.up.since(waiting.since).as_secs();
            show(&format!("\r{} … {seconds} s\u{1b}[K", waiting.what));
            waiting.next = now.after(QUIET);
            waiting.shown = true;
        }
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        self.io.pop_front()
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.waiting
            .as_ref()
            .map(|waiting| Deadline::new(waiting.next, "line at the terminal"))
    }

    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        (wire == STDIN).then_some(&mut self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &str = r#"{"message":"who?","requestedSchema":{"type":"object","properties":{
        "name":{"type":"string"},"age":{"type":"integer"},"ok":{"type":"boolean"},"tags":{"type":"array"}},
        "required":["name"]}}"#;

    fn answers(terminal: &mut Terminal) -> Vec<String> {
        std::iter::from_fn(|| terminal.poll_answer().map(|(_, answer)| answer)).collect()
    }

    fn type_in(terminal: &mut Terminal, text: &str) {
        terminal.handle_io(Now::default(), STDIN, IoEvent::Bytes(text.as_bytes()));
    }

    fn terminal(reads: bool) -> Terminal {
        Terminal::new(reads, reads)
    }

    #[test]
    fn where_nobody_can_be_asked_the_answer_is_no() {
        let mut terminal = terminal(false);
        terminal.ask(QuestionId(1), "s", "elicitation/create", Some(FORM));
        let (id, answer) = terminal.poll_answer().expect("an answer");
        assert_eq!((id, &*answer), (QuestionId(1), r#"{"action":"decline"}"#));
        assert!(terminal.poll_io().is_none(), "stdin is left alone");
    }

    #[test]
    fn a_form_is_filled_in_line_by_line() {
        let mut terminal = terminal(true);
        terminal.ask(QuestionId(1), "s", "elicitation/create", Some(FORM));
        assert!(matches!(
            terminal.poll_io(),
            Some(IoRequest::Open(STDIN, _))
        ));
        let now = Now::default();
        for line in ["\n", "Al\"ice\n", "ten\n", "10\n", "yes\n", "\n"] {
            assert!(terminal.poll_answer().is_none());
            terminal.handle_io(now, STDIN, IoEvent::Bytes(line.as_bytes()));
        }
        let (_, answer) = terminal.poll_answer().expect("an answer");
        assert_eq!(
            answer,
            r#"{"action":"accept","content":{"name":"Al\"ice","age":10,"ok":true}}"#
        );
    }

    #[test]
    fn a_dot_declines_and_the_end_of_input_cancels() {
        let mut terminal = terminal(true);
        for id in [1, 2, 3] {
            terminal.ask(QuestionId(id), "s", "elicitation/create", Some(FORM));
        }
        terminal.forget(QuestionId(2));
        terminal.handle_io(Now::default(), STDIN, IoEvent::Bytes(b".\n"));
        terminal.handle_io(Now::default(), STDIN, IoEvent::Eof);
        let answers: Vec<_> = std::iter::from_fn(|| terminal.poll_answer()).collect();
        assert_eq!(answers.len(), 2);
        assert!(answers[0].1.contains("decline") && answers[1].1.contains("cancel"));
    }

    #[test]
    fn a_form_without_fields_is_no_consent() {
        let form =
            r#"{"message":"delete all?","requestedSchema":{"type":"object","properties":{}}}"#;
        for (typed, action) in [("yes\n", "accept"), ("n\n", "decline"), (".\n", "decline")] {
            let mut terminal = terminal(true);
            terminal.ask(QuestionId(1), "s", "elicitation/create", Some(form));
            type_in(&mut terminal, "\n");
            assert!(
                answers(&mut terminal).is_empty(),
                "an empty line says nothing"
            );
            type_in(&mut terminal, typed);
            let said = answers(&mut terminal);
            assert_eq!(said.len(), 1);
            assert!(said[0].contains(action), "{typed:?}: {said:?}");
        }
    }

    #[test]
    fn when_a_question_is_withdrawn_the_next_one_is_put() {
        let mut terminal = terminal(true);
        for id in [1, 2] {
            terminal.ask(QuestionId(id), "s", "elicitation/create", Some(FORM));
        }
        type_in(&mut terminal, "for the first\n");
        terminal.forget(QuestionId(1));
        type_in(&mut terminal, "for the second\n\n\n\n");
        assert_eq!(
            answers(&mut terminal),
            [r#"{"action":"accept","content":{"name":"for the second"}}"#]
        );
    }

    #[test]
    fn nothing_is_shown_in_the_first_second() {
        let mut terminal = terminal(true);
        let now = Now::default();
        terminal.wait_for(now, "connecting");
        assert_eq!(
            terminal.next_deadline().map(|deadline| deadline.at),
            Some(now.after(QUIET))
        );
        terminal.done();
        assert!(terminal.next_deadline().is_none());
    }
}
