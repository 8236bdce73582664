//! A made-up owner of one connection, and a client that reads what it answers.
//!
//! The owner accepts every request and answers with the number of bytes in its body; `/refuse` is
//! answered 403 before its body, `/stream` with one event that holds the body.

use drawspan::clock::{Now, Uptime};
use drawspan::codec::http_body::{BodyDecoder, BodyLimits, BodyPiece, Framing};
use drawspan::codec::http1::{HeadLimits, Progress, ResponseReader};
use drawspan::codec::sse::{EventReader, SseEvent};
use drawspan::ids::WireId;
use drawspan::limits::Limits;
use drawspan::link::http_server::{HttpConnection, HttpEvent};
use drawspan::link::{IoEvent, IoRequest};

/// What a connection made of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Method, target and body of every request that was read whole.
    pub(crate) requests: Vec<(String, String, String)>,
    /// How many heads were told.
    pub(crate) heads: usize,
    /// Requests that were told and not answered by their owner.
    pub(crate) gone: usize,
    /// Status and body of every answer; of a stream, its data.
    pub(crate) answers: Vec<(u16, String)>,
    /// Our direction was ended.
    pub(crate) ended: bool,
}

/// Feeds pieces to a connection whose client reads everything at once, then ends the client's
/// direction if asked.
pub(crate) fn play(limits: &Limits, pieces: &[&[u8]], end: bool) -> Outcome {
    let mut owner = Owner::new(limits);
    for piece in pieces {
        owner.hear(IoEvent::Bytes(piece));
    }
    if end {
        owner.hear(IoEvent::Eof);
    }
    owner.outcome()
}

/// One connection and its owner.
pub(crate) struct Owner {
    pub(crate) connection: HttpConnection,
    requests: Vec<(String, String, String)>,
    targets: Vec<(String, String)>,
    gone: usize,
    output: Vec<u8>,
    ended: bool,
    closed: usize,
}

pub(crate) fn at(ms: u64) -> Now {
    Now {
        up: Uptime::from_millis(ms),
        unix_ms: 784_111_777_000,
    }
}

impl Owner {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            connection: HttpConnection::new(WireId(1), limits, at(0)),
            requests: Vec::new(),
            targets: Vec::new(),
            gone: 0,
            output: Vec::new(),
            ended: false,
            closed: 0,
        }
    }

    pub(crate) fn hear(&mut self, event: IoEvent<'_>) {
        self.connection.handle_io(at(0), event);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            assert_eq!(self.closed, 0, "{event:?} behind the last event");
            match event {
                HttpEvent::Head { exchange, head } => {
                    let (method, target) = (head.method().to_owned(), head.target().to_owned());
                    if target == "/refuse" {
                        self.connection.respond(at(0), exchange, 403, &[], b"no");
                    } else {
                        self.connection.accept(at(0), exchange);
                    }
                    self.targets.push((method, target));
                    self.connection.recycle_head(head);
                }
                HttpEvent::Body { exchange, body } => {
                    let (method, target) = self.targets.last().cloned().expect("a head before");
                    let text = String::from_utf8_lossy(&body).into_owned();
                    if target == "/stream" {
                        self.connection.start_sse(at(0), exchange, &[]);
                        let event = self.connection.begin_event(exchange, None, None);
                        event.extend_from_slice(&body);
                        self.connection.commit_event(at(0), exchange);
                        self.connection.finish_sse(at(0), exchange);
                    } else {
                        let answer = self.connection.begin_json(exchange, &[]);
                        answer.extend_from_slice(body.len().to_string().as_bytes());
                        self.connection.commit_json(at(0), exchange);
                    }
                    self.requests.push((method, target, text));
                    self.connection.recycle(body);
                }
                HttpEvent::Gone { .. } => self.gone += 1,
                HttpEvent::Closed => self.closed += 1,
            }
        }
        while let Some(request) = self.connection.poll_io() {
            match request {
                IoRequest::Finish(_) | IoRequest::Close(_) => self.ended = true,
                IoRequest::Flush(_) | IoRequest::PauseReads(..) => {}
                IoRequest::Open(..)
                | IoRequest::CloseWrite(_)
                | IoRequest::Signal(..)
                | IoRequest::Append(_) => {
                    panic!("asked for {request:?}")
                }
            }
        }
        let out = self.connection.outgoing();
        if !out.is_empty() {
            self.output.extend_from_slice(out.pending());
            out.clear();
            self.hear(IoEvent::Drained);
        }
    }

    pub(crate) fn outcome(self) -> Outcome {
        let methods: Vec<&str> = self.targets.iter().map(|(method, _)| &**method).collect();
        Outcome {
            answers: answers(&self.output, &methods),
            requests: self.requests,
            heads: self.targets.len(),
            gone: self.gone,
            ended: self.ended,
        }
    }
}

const ROOMY: BodyLimits = BodyLimits {
    bytes_max: usize::MAX,
    extension_bytes_max: 0,
    trailer_bytes_max: 0,
};

/// Takes answers apart as a client must. Every byte belongs to one.
pub(crate) fn answers(mut output: &[u8], methods: &[&str]) -> Vec<(u16, String)> {
    let mut answers = Vec::new();
    let mut finals = 0;
    while !output.is_empty() {
        let limits = HeadLimits::from(&Limits::DEFAULT);
        let read = ResponseReader::new(limits).read(output);
        let Ok(Progress::Done { head, used }) = read else {
            panic!(
                "no answer: {read:?} in {:?}",
                String::from_utf8_lossy(output)
            );
        };
        output = &output[used..];
        let to_head = methods.get(finals) == Some(&"HEAD");
        finals += usize::from(head.status >= 200);
        let fields = head.fields.iter();
        let framing = Framing::of_response(head.status, head.minor, to_head, fields);
        let mut decoder = BodyDecoder::new(framing.expect("one framing"), ROOMY).expect("no limit");
        let mut body = Vec::new();
        while let BodyPiece::Data(data) = decoder.next(&mut output).expect("a good body") {
            body.extend_from_slice(data);
        }
        assert_eq!(decoder.finish(), Ok(()), "a whole body");
        let stream = head.fields.only("content-type") == Some("text/event-stream");
        let body = if stream && !to_head {
            data(&body)
        } else {
            body
        };
        answers.push((head.status, String::from_utf8(body).expect("text")));
    }
    answers
}

/// The data of a stream's events.
fn data(mut stream: &[u8]) -> Vec<u8> {
    let mut reader = EventReader::new(usize::MAX);
    let mut all = Vec::new();
    while let Some(event) = reader.next(&mut stream) {
        match event {
            SseEvent::Event { data, .. } => all.extend_from_slice(data),
            SseEvent::Oversized { .. } => panic!("no limit"),
        }
    }
    all
}
