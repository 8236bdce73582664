//! Requests on their way: written, and kept until their answer begins.

use super::redirect::Redirect;
use super::{Client, ExchangeId, Line, Method};
use crate::clock::{Now, Uptime};
use crate::codec::shared_text::SharedText;
use crate::ids::{WireId, WireMint};
use crate::link::IoRequest;
use crate::link::http_client::wire::Wire;
use crate::secret::Secret;

/// A request on its way.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) exchange: ExchangeId,
    pub(super) method: Method,
    /// Where to, path and query; the origin is always the target's.
    pub(super) path: SharedText,
    /// Everything behind the request line, until the answer begins; `None` when it was too much to keep. Holds secrets.
    pub(super) rest: Option<Secret<Vec<u8>>>,
    pub(super) written: bool,
    /// Where redirects have led from.
    pub(super) visited: Vec<SharedText>,
    pub(super) until: Option<Uptime>,
    pub(super) redirect: Option<Box<Redirect>>,
}

impl Client {
    /// Bytes that wait to be written.
    pub(crate) fn unsent(&self) -> usize {
        let lines = self.lines.values().map(|line| {
            let waiting = line.job.as_ref().filter(|job| !job.written);
            line.wire.out.len() + waiting.map_or(0, Job::kept)
        });
        lines.sum()
    }

    /// An empty buffer for everything of a request behind its request line, to be [submitted](Self::submit).
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.take()
    }

    /// Sends a request: on a kept connection, or on a new one. `rest` is everything behind the request line.
    pub(crate) fn submit(
        &mut self,
        now: Now,
        method: Method,
        path: SharedText,
        rest: Vec<u8>,
        wires: &mut WireMint,
    ) -> ExchangeId {
        self.last_exchange += 1;
        let exchange = ExchangeId(self.last_exchange);
        let job = Job {
            exchange,
            method,
            path,
            rest: Some(Secret::new(rest)),
            written: false,
            visited: Vec::new(),
            until: None,
            redirect: None,
        };
        let kept = self.idle.pop();
        self.place(now, job, kept, wires);
        exchange
    }

    /// What was kept of a request is not needed any more.
    pub(super) fn reuse(&mut self, kept: Option<Secret<Vec<u8>>>) {
        if let Some(buffer) = kept.map(Secret::into_inner) {
            self.kept_bytes -= buffer.len();
            self.spare.give(buffer);
        }
    }

    pub(super) fn place(&mut self, now: Now, job: Job, kept: Option<WireId>, wires: &mut WireMint) {
        let id = kept.unwrap_or_else(|| {
            let id = wires.mint();
            let (wire, request) = Wire::open(id, &self.target, self.limits);
            self.io.push_back(request);
            let (job, due) = (None, None);
            self.lines.insert(id, Box::new(Line { wire, job, due }));
            id
        });
        self.places.insert(job.exchange, id);
        if let Some(line) = self.lines.get_mut(&id) {
            self.kept_bytes += job.kept();
            line.job = Some(job);
        }
        self.write(now, id);
        self.note_due(id);
    }

    /// Writes the request that waits for this connection, when it is ready.
    pub(super) fn write(&mut self, now: Now, id: WireId) {
        debug_assert_eq!(
            self.kept_bytes,
            self.lines
                .values()
                .filter_map(|line| line.kept())
                .sum::<usize>(),
            "something was kept, or given up, and not counted"
        );
        let room = self.kept_bytes <= self.kept_bytes_max;
        let Some(line) = self.lines.get_mut(&id) else {
            return;
        };
        let Line { wire, job, .. } = &mut **line;
        let Some(job) = job.as_mut().filter(|job| !job.written && wire.is_idle()) else {
            return;
        };
        let (method, path) = (job.method.as_str(), &*job.path);
        let rest = job.rest.as_ref().map_or(&[][..], |rest| rest.expose());
        let parts = [
            method.as_bytes(),
            b" ",
            path.as_bytes(),
            b" HTTP/1.1\r\n",
            rest,
        ];
        wire.send(now, &parts);
        job.written = true;
        let kept = job.rest.take_if(|_| !room);
        self.reuse(kept);
        self.io.push_back(IoRequest::Flush(id));
    }
}

impl Job {
    pub(super) fn kept(&self) -> usize {
        self.rest.as_ref().map_or(0, |rest| rest.expose().len())
    }
}

impl Line {
    fn kept(&self) -> Option<usize> {
        self.job.as_ref().map(Job::kept)
    }
}
