//! The store against a naive model, under random operations.
//!
//! The model keeps everything in plain vectors, copies and scans, has no index and no order: it looks
//! at the clock to see who is idle, and at all events to see what is kept.

use std::fmt::Write as _;

use super::*;

const PEERS: u64 = 5;
const PRINCIPALS: [&str; 2] = [ALICE, MALLORY];

#[derive(Clone, Debug, Default)]
struct ModelStream {
    id: u32,
    carrier: Option<u64>,
    finished: bool,
    last: u64,
    sent: u64,
}

#[derive(Clone, Debug)]
struct ModelSession {
    peer: u32,
    id: String,
    principal: &'static str,
    alive: u64,
    streams: Vec<ModelStream>,
    minted: u32,
    /// Stream, number, payload; oldest first.
    events: Vec<(u32, u64, Vec<u8>)>,
    /// When the last of them was recorded, in events of all sessions.
    recorded: u64,
    dropped: u64,
}

/// Bytes that all sessions together keep; each may keep 20.
const TOTAL: usize = 45;

impl ModelSession {
    fn busy(&self) -> bool {
        let mut streams = self.streams.iter();
        streams.any(|stream| stream.id != 0 && stream.carrier.is_some())
    }

    fn due(&self, now: u64) -> bool {
        !self.busy() && self.alive + 100 <= now
    }

    fn stream(&mut self, id: u32) -> Option<&mut ModelStream> {
        self.streams.iter_mut().find(|stream| stream.id == id)
    }

    fn drop_event(&mut self, place: usize) {
        let (stream, n, _) = self.events.remove(place);
        let sent = self.stream(stream).map_or(u64::MAX, |stream| stream.sent);
        self.dropped += u64::from(n > sent);
    }

    /// Streams that have ended and have nothing left to give.
    fn clean_up(&mut self) {
        let events = &self.events;
        self.streams.retain(|stream| {
            let keeps = events.iter().any(|(of, ..)| *of == stream.id);
            !stream.finished || stream.carrier.is_some() || keeps
        });
    }

    fn record(&mut self, id: u32, payload: &[u8]) -> Option<String> {
        let stream = self.stream(id).filter(|stream| !stream.finished)?;
        stream.last += 1;
        let n = stream.last;
        if stream.carrier.is_some() {
            stream.sent = n;
        }
        self.events.push((id, n, payload.to_vec()));
        if payload.len() > 20 {
            self.drop_event(self.events.len() - 1);
        }
        let bytes = |session: &Self| session.events.iter().map(|(.., p)| p.len()).sum::<usize>();
        while self.events.len() > 4 || bytes(self) > 20 {
            self.drop_event(0);
        }
        self.clean_up();
        Some(format!("{id}-{n}"))
    }

    fn after(&self, stream: u32, n: u64) -> Option<(u64, bool, Vec<String>)> {
        let of = self.streams.iter().find(|of| of.id == stream)?;
        if n > of.last {
            return None;
        }
        let wanted = self
            .events
            .iter()
            .filter(|(s, m, _)| *s == stream && *m > n);
        let events: Vec<String> = wanted.map(|(s, m, p)| format!("{s}-{m} {p:?}")).collect();
        let lost = of.last - n - events.len() as u64;
        Some((lost, of.finished, events))
    }
}

#[derive(Debug, Default)]
struct Model {
    now: u64,
    sessions: Vec<ModelSession>,
    /// Recorded so far.
    events: u64,
}

impl Model {
    fn bytes(&self) -> usize {
        let events = self.sessions.iter().flat_map(|session| &session.events);
        events.map(|(.., payload)| payload.len()).sum()
    }

    fn keep_to_the_sum(&mut self) {
        while self.bytes() > TOTAL {
            let sessions = self.sessions.iter_mut();
            let keeping = sessions.filter(|session| !session.events.is_empty());
            let longest = keeping.min_by_key(|session| session.recorded);
            let longest = longest.expect("someone keeps them");
            longest.drop_event(0);
            longest.clean_up();
        }
    }

    fn of(&mut self, peer: u32) -> Option<&mut ModelSession> {
        self.sessions
            .iter_mut()
            .find(|session| session.peer == peer)
    }

    /// Whoever is busy is alive at this moment.
    fn breathe(&mut self) {
        let now = self.now;
        for session in self.sessions.iter_mut().filter(|session| session.busy()) {
            session.alive = now;
        }
    }

    fn find(&mut self, id: &str, principal: &str, touch: bool) -> Option<u32> {
        let now = self.now;
        let mut all = self.sessions.iter_mut();
        let session = all.find(|s| s.id == id && s.principal == principal)?;
        if touch && session.due(now) {
            return None;
        }
        if touch {
            session.alive = now;
        }
        Some(session.peer)
    }

    fn deadline(&self) -> Option<u64> {
        let idle = self.sessions.iter().filter(|session| !session.busy());
        idle.map(|session| session.alive + 100).min()
    }

    fn new_stream(&mut self, peer: u32, carrier: u64) -> Option<u32> {
        let session = self.of(peer)?;
        if session.streams.len() > 3 {
            let mut streams = session.streams.iter();
            let oldest = streams.find(|s| s.finished && s.carrier.is_none())?.id;
            while let Some(place) = session.events.iter().position(|(s, ..)| *s == oldest) {
                session.drop_event(place);
            }
            session.clean_up();
        }
        session.minted += 1;
        let id = session.minted;
        session.streams.push(ModelStream {
            id,
            carrier: Some(carrier),
            ..ModelStream::default()
        });
        Some(id)
    }

    fn detach(&mut self, peer: u32, stream: u32, carrier: u64, clean: bool) {
        let Some(session) = self.of(peer) else { return };
        let Some(of) = session.stream(stream) else {
            return;
        };
        if of.carrier == Some(carrier) {
            of.carrier = None;
            if clean && of.finished {
                session.events.retain(|(s, ..)| *s != stream);
            }
            session.clean_up();
        }
    }
}

fn same_events(ours: Option<Replay<'_>>) -> Option<(u64, bool, Vec<String>)> {
    let replay = ours?;
    let (lost, finished) = (replay.lost, replay.finished);
    let events = replay.map(|(id, payload)| format!("{id} {payload:?}"));
    Some((lost, finished, events.collect()))
}

/// Everything that can be seen from outside, without changing it.
fn compare(sessions: &Sessions, model: &mut Model) {
    assert_eq!(sessions.len(), model.sessions.len());
    assert_eq!(sessions.replay_bytes, model.bytes());
    let deadline = sessions.next_deadline().map(|due| due.at.as_millis());
    assert_eq!(deadline, model.deadline());
    for peer in 0..PEERS as u32 {
        let known = model.of(peer).cloned();
        let minted = known.as_ref().map_or(2, |session| session.minted + 2);
        for stream in 0..minted {
            let of = known.as_ref().and_then(|session| {
                let mut streams = session.streams.iter();
                streams.find(|of| of.id == stream)
            });
            let carrier = of.and_then(|of| of.carrier).map(Carrier);
            assert_eq!(sessions.carrier(PeerId(peer), StreamId(stream)), carrier);
            let unsent = sessions.replay_unsent(PeerId(peer), StreamId(stream));
            let session = known.as_ref();
            let theirs = of.and_then(|of| session?.after(stream, of.sent));
            assert_eq!(same_events(unsent), theirs);
            for n in 0..of.map_or(1, |of| of.last + 2) {
                let ours = sessions.replay_after(PeerId(peer), &format!("{stream}-{n}"));
                let theirs = session.and_then(|session| session.after(stream, n));
                assert_eq!(same_events(ours), theirs, "peer {peer}, after {stream}-{n}");
            }
        }
    }
}

/// One run. `trace` tells what was done, for the message of a failure.
fn run(seed: u64, trace: &mut String) {
    let mut dice = Seeded::new(seed);
    let mut entropy = Seeded::new(!seed);
    let mut sessions = Sessions::new(&Limits {
        sse_replay_total_bytes_max: TOTAL,
        ..small()
    });
    let mut model = Model::default();
    let mut ids: Vec<String> = vec!["0".repeat(32)];
    for step in 0..150 {
        let operation = dice.below(14);
        let peer = dice.below(PEERS) as u32;
        let principal = PRINCIPALS[usize::from(dice.below(4) == 0)];
        let minted = model.of(peer).map_or(0, |session| session.minted);
        // Mostly one of the latest streams, sometimes one that is not there yet.
        let stream = (minted + 1).saturating_sub(dice.below(5) as u32);
        let stream = if dice.below(4) == 0 { 0 } else { stream };
        let carrier = dice.below(3);
        let now = at(model.now);
        let _ = writeln!(
            trace,
            "{step}: at {} ms operation {operation}, peer {peer}, stream {stream}, carrier {carrier}",
            model.now
        );
        model.breathe();
        match operation {
            0 => {
                let ours = sessions.open(now, PeerId(peer), principal, &mut entropy);
                let full = model.sessions.len() == 3;
                if full || model.of(peer).is_some() {
                    let full_error = matches!(ours, Err(SessionError::SessionsFull { .. }));
                    assert_eq!(full_error, full, "{ours:?}");
                    assert_eq!(ours == Err(SessionError::PeerTaken), !full);
                } else {
                    let id = ours.expect("room").as_str().to_owned();
                    ids.push(id.clone());
                    model.sessions.push(ModelSession {
                        peer,
                        id,
                        principal,
                        alive: model.now,
                        streams: vec![ModelStream::default()],
                        minted: 0,
                        events: Vec::new(),
                        recorded: 0,
                        dropped: 0,
                    });
                }
            }
            1 | 2 => {
                let count = ids.len() as u64;
                let back = dice.below(count.min(5)) + 1;
                let id = &ids[usize::try_from(count - back).expect("small")];
                let ours = sessions.find(now, id, principal);
                let theirs = model.find(id, principal, true);
                assert_eq!(ours, theirs.map(PeerId));
            }
            3 => {
                let id = ids.last().expect("never empty");
                let ours = sessions.close(id, principal).map(|ended| ended.peer);
                let theirs = model.find(id, principal, false);
                assert_eq!(ours, theirs.map(PeerId));
                model
                    .sessions
                    .retain(|session| Some(session.peer) != theirs);
            }
            4 => {
                let id = ids.last().expect("never empty");
                let ours = sessions.find(now, id, principal);
                assert_eq!(ours, model.find(id, principal, true).map(PeerId));
            }
            5 => {
                let ours = sessions.new_stream(PeerId(peer), Carrier(carrier)).ok();
                assert_eq!(ours, model.new_stream(peer, carrier).map(StreamId));
            }
            6 => {
                let ours = sessions.attach(PeerId(peer), StreamId(stream), Carrier(carrier));
                let of = model.of(peer).and_then(|session| session.stream(stream));
                let theirs = of.map(|of| {
                    of.sent = of.last;
                    of.carrier.replace(carrier)
                });
                let theirs = match theirs {
                    None => Attach::NoStream,
                    Some(None) => Attach::Attached,
                    Some(Some(before)) => Attach::Displaced(Carrier(before)),
                };
                assert_eq!(ours, theirs);
            }
            7 => {
                let clean = dice.below(2) == 0;
                let parting = if clean { Parting::Clean } else { Parting::Lost };
                let (p, s) = (PeerId(peer), StreamId(stream));
                sessions.detach(now, p, s, Carrier(carrier), parting);
                model.detach(peer, stream, carrier, clean);
            }
            8 => {
                sessions.finish(PeerId(peer), StreamId(stream));
                if let Some(session) = model.of(peer).filter(|_| stream != 0) {
                    if let Some(of) = session.stream(stream) {
                        of.finished = true;
                    }
                    session.clean_up();
                }
            }
            9..=11 => {
                let payload = vec![b'x'; usize::try_from(dice.below(23)).expect("small")];
                let ours = sessions.record(PeerId(peer), StreamId(stream), &payload);
                let theirs = model.of(peer).and_then(|of| of.record(stream, &payload));
                if theirs.is_some() {
                    model.events += 1;
                    let events = model.events;
                    model.of(peer).expect("it recorded").recorded = events;
                }
                model.keep_to_the_sum();
                assert_eq!(ours.map(|id| id.to_string()), theirs);
            }
            12 => {
                let theirs = model
                    .of(peer)
                    .map_or(0, |of| std::mem::take(&mut of.dropped));
                assert_eq!(sessions.take_dropped(PeerId(peer)), theirs);
            }
            _ => {
                model.now += dice.below(60);
                model.breathe();
                // Sometimes the timer is late.
                if dice.below(4) > 0 {
                    let now = model.now;
                    let ended = sessions.expire(at(now)).into_iter();
                    let mut ours: Vec<u32> = ended.map(|ended| ended.peer.0).collect();
                    ours.sort_unstable();
                    let due = model.sessions.iter().filter(|session| session.due(now));
                    let mut theirs: Vec<u32> = due.map(|session| session.peer).collect();
                    theirs.sort_unstable();
                    assert_eq!(ours, theirs);
                    model.sessions.retain(|session| !session.due(now));
                }
            }
        }
        compare(&sessions, &mut model);
    }
}

#[test]
fn the_store_does_what_the_model_does() {
    for seed in 0..200 {
        let mut trace = String::new();
        let result =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed, &mut trace)));
        assert!(result.is_ok(), "seed {seed}:\n{trace}");
    }
}
