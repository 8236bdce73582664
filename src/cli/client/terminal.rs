//! The person at the terminal: sees what is waited for, and answers a server's questions.
//!
//! Nothing is shown for the first second, nor ever where stderr is no terminal. A question is put only where
//! stdin and stderr both are one; elsewhere it is declined at once. Spec: 2025-11-25 client/elicitation: the
//! person sees who asks, and can decline or cancel at any point.

use std::collections::VecDeque;
use std::io::Write as _;
use std::time::Duration;

use crate::clock::{Deadline, Now, Uptime};
use crate::codec::json_object::JsonObject;
use crate::codec::json_text::write_string;
use crate::codec::lines::{LineDecoder, LineEvent};
use crate::codec::outbuf::OutBuf;
use crate::codec::scan::{Text, elements, members};
use crate::ids::{QuestionId, WireId};
use crate::limits::Limits;
use crate::link::{Driven, IoEvent, IoRequest, OpenSpec};
use crate::protocol::message::member;
use crate::secret::Quoted;

/// How long nothing is shown, and how often what is shown is renewed.
const QUIET: Duration = Duration::from_secs(1);

/// Our own stdin.
const STDIN: WireId = WireId(0);

/// One field of a question.
#[derive(Debug)]
struct Field {
    name: String,
    shown: String,
    kind: Kind,
    required: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Flag,
    /// Several of a list; given with commas between them.
    Several,
}

#[derive(Debug)]
struct Asked {
    id: QuestionId,
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
    lines: LineDecoder,
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
    pub(super) fn new(stdin: bool, stderr: bool, limits: &Limits) -> Self {
        Self {
            reads: stdin && stderr,
            shows: stderr,
            opened: false,
            lines: LineDecoder::new(limits.message_bytes_max),
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
            return self
                .answers
                .push_back((id, r#"{"action":"decline"}"#.to_owned()));
        }
        self.done();
        let message = member(params, "message").and_then(Text::of_value);
        let message = message.map(|text| text.decode()).unwrap_or_default();
        show(&format!("{} asks: {}\n", Quoted(server), Quoted(&message)));
        show("an empty line skips an optional field; `.` alone declines\n");
        let schema = member(params, "requestedSchema").unwrap_or("{}");
        self.asked.push_back(Asked {
            id,
            fields: fields(schema),
            content: JsonObject::new(),
            at: 0,
        });
        if !self.opened {
            self.opened = true;
            self.io
                .push_back(IoRequest::Open(STDIN, OpenSpec::HostStdio));
        }
        if self.asked.len() == 1 {
            self.prompt();
        }
    }

    /// The server no longer wants to know.
    pub(super) fn forget(&mut self, id: QuestionId) {
        self.asked.retain(|asked| asked.id != id);
    }

    /// The next answer: the raw result of the question.
    pub(super) fn poll_answer(&mut self) -> Option<(QuestionId, String)> {
        self.answers.pop_front()
    }

    /// Shows what is wanted next, or finishes a question that has it all.
    fn prompt(&mut self) {
        while let Some(asked) = self.asked.front() {
            if let Some(field) = asked.fields.get(asked.at) {
                return show(&field.shown);
            }
            let Some(asked) = self.asked.pop_front() else {
                return;
            };
            let content = asked.content.end();
            let answer = format!(r#"{{"action":"accept","content":{content}}}"#);
            self.answers.push_back((asked.id, answer));
        }
    }

    fn read(&mut self, line: &str) {
        let line = line.trim();
        let Some(asked) = self.asked.front_mut() else {
            return;
        };
        if line == "." {
            let decline = r#"{"action":"decline"}"#.to_owned();
            self.answers.push_back((asked.id, decline));
            self.asked.pop_front();
            return self.prompt();
        }
        let Some(field) = asked.fields.get(asked.at) else {
            return;
        };
        match field.read(line) {
            Ok(Some(raw)) => asked.content.raw(&field.name, &raw),
            Ok(None) => {}
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

impl Field {
    /// The raw value of what was typed; `None` when the field is left out.
    fn read(&self, line: &str) -> Result<Option<String>, &'static str> {
        if line.is_empty() {
            return match self.required {
                true => Err("a value is required"),
                false => Ok(None),
            };
        }
        let mut raw = String::new();
        match self.kind {
            Kind::Text => write_string(&mut raw, line),
            Kind::Number => match line.parse::<f64>() {
                Ok(number) if number.is_finite() => raw.push_str(&number.to_string()),
                Ok(_) | Err(_) => return Err("a number is required"),
            },
            Kind::Flag => match line.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" => raw.push_str("true"),
                "n" | "no" | "false" => raw.push_str("false"),
                _ => return Err("yes or no is required"),
            },
            Kind::Several => {
                for (i, item) in line.split(',').enumerate() {
                    raw.push(if i == 0 { '[' } else { ',' });
                    write_string(&mut raw, item.trim());
                }
                raw.push(']');
            }
        }
        Ok(Some(raw))
    }
}

/// The fields of a form. Spec: 2025-11-25 client/elicitation (flat objects of primitives).
fn fields(schema: &str) -> Vec<Field> {
    let required: Vec<_> = member(schema, "required")
        .into_iter()
        .flat_map(elements)
        .filter_map(Text::of_value)
        .map(|text| text.decode().into_owned())
        .collect();
    let properties = member(schema, "properties").unwrap_or("{}");
    members(properties)
        .map(|(name, property)| {
            let name = name.decode().into_owned();
            let kind = match member(property, "type") {
                Some("\"number\"" | "\"integer\"") => Kind::Number,
                Some("\"boolean\"") => Kind::Flag,
                Some("\"array\"") => Kind::Several,
                _ => Kind::Text,
            };
            let required = required.contains(&name);
            let note = member(property, "description")
                .or_else(|| member(property, "title"))
                .and_then(Text::of_value)
                .map(|text| format!(" ({})", Quoted(&text.decode())))
                .unwrap_or_default();
            let choices = member(property, "enum")
                .map(|list| format!(" one of {}", Quoted(list)))
                .unwrap_or_default();
            let mark = if required { "" } else { ", optional" };
            let shown = format!("{}{note}{choices}{mark}: ", Quoted(&name));
            Field {
                name,
                shown,
                kind,
                required,
            }
        })
        .collect()
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
                let mut rest = bytes;
                let mut read = Vec::new();
                while let Some(event) = self.lines.next(&mut rest) {
                    if let LineEvent::Line(line) = event {
                        read.push(String::from_utf8_lossy(line).into_owned());
                    }
                }
                for line in read {
                    self.read(&line);
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

    fn terminal(reads: bool) -> Terminal {
        Terminal::new(reads, reads, &Limits::default())
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
