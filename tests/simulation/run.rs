//! One run: a client, a hub and a Gateway on virtual time, and the book and the queue that watch the hub.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use drawspan::clock::Uptime;
use drawspan::gate::Verdict;
use drawspan::hub::{HookConfig, HubEvent, HubPolicy, Outcome};
use drawspan::ids::CallId;
use drawspan::limits::Limits;
use drawspan::link::{ChildSpec, Driven as _, ExitReport};
use serde_json::Value;

use crate::book::{Book, Patience};
use crate::client::Client;
use crate::gateway::{Frames, Gateway, markers};
use crate::plan::{Dice, Ending, Gatekeeper, Opening, Plan};
use crate::queue::Queue;
use crate::support::{Child, Input, Setup, Travel, Turn, World};

/// Our secrets, which nobody but the Gateway may see.
const TOKEN: &str = "s3cr3t-token";

/// What happened, as a number and as the last steps in words.
pub struct Transcript {
    hash: u64,
    last: VecDeque<(Uptime, String, Vec<u8>)>,
    keep: usize,
}

/// The longest wait that a starting Gateway may ask for.
const STARTING_MOST: Duration = Duration::from_secs(2);

/// Bytes of one step that a failure shows.
const SHOWN_BYTES_MAX: usize = 600;

impl Transcript {
    pub fn new(keep: usize) -> Self {
        Self {
            hash: 0,
            last: VecDeque::new(),
            keep,
        }
    }

    fn add(&mut self, at: Uptime, what: &str, bytes: &[u8]) {
        self.mix(&at.as_millis().to_le_bytes());
        self.mix(what.as_bytes());
        self.mix(bytes);
        if self.last.len() >= self.keep {
            self.last.pop_front();
        }
        if self.keep > 0 {
            let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
            self.last.push_back((at, what.to_owned(), shown.to_vec()));
        }
    }

    fn mix(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed = (self.hash.rotate_left(5) ^ u64::from_le_bytes(word)) + chunk.len() as u64;
            self.hash = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    /// A number that stands for all that happened.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The last steps.
    pub fn last_steps(&self) -> String {
        let mut text = String::new();
        for (at, what, bytes) in &self.last {
            let _ = write!(text, "\n{at} {what}");
            for line in String::from_utf8_lossy(bytes).lines() {
                let _ = write!(text, "\n    {}", line.escape_debug());
            }
        }
        text
    }
}

/// How often what happened.
pub type Tally = BTreeMap<&'static str, u64>;

struct Run<'t> {
    plan: Plan,
    world: World,
    client: Client,
    gateway: Gateway,
    book: Book,
    queue: Queue,
    frames: Frames,
    person: Dice,
    /// Calls that a person is asked about, with the moment of the verdict.
    asked: Vec<(u64, CallId, Option<u64>)>,
    verdicts: Rc<RefCell<Verdicts>>,
    transcript: &'t RefCell<Transcript>,
    ended_at: Option<Uptime>,
    finished_at: Option<Uptime>,
    times_ready: u64,
    diagnostics: u64,
    secrets: u64,
    probes: u64,
    told: bool,
    /// Bytes and frames that the hub wrote.
    written: usize,
    steps_at: (Uptime, u64),
}

type Check = Result<(), String>;

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(why()) }
}

/// What hooks have said, by the markers of the calls.
#[derive(Default)]
struct Verdicts {
    refused: BTreeSet<u64>,
    replaced: BTreeSet<u64>,
}

/// Runs one seed to its end.
///
/// # Errors
/// The first promise that was not kept.
pub fn run(seed: u64, transcript: &RefCell<Transcript>) -> Result<Tally, String> {
    let plan = Plan::of(seed);
    transcript
        .borrow_mut()
        .add(Uptime::ZERO, &format!("seed {seed}: {plan:?}"), b"");
    let mut run = Run::new(seed, plan, transcript);
    run.chaos()?;
    if run.plan.calm && run.ended_at.is_none() {
        run.calm()?;
    }
    run.end()?;
    Ok(run.tally())
}

impl<'t> Run<'t> {
    fn new(seed: u64, plan: Plan, transcript: &'t RefCell<Transcript>) -> Self {
        let limits = plan.limits.clone();
        let policy = match plan.gatekeeper {
            Gatekeeper::Nobody => HubPolicy::Open,
            Gatekeeper::Embedder => HubPolicy::Embedder,
            Gatekeeper::Hook => HubPolicy::Hook(HookConfig {
                command: ChildSpec {
                    program: "hook".to_owned(),
                    args: Vec::new(),
                    env: Vec::new(),
                    cwd: None,
                },
                timeout: None,
            }),
        };
        let mut world = World::new(Setup {
            limits: limits.clone(),
            mode: plan.mode,
            policy,
            travel: plan.travel.clone(),
            seed,
            token: Some(TOKEN),
            stored_token: (seed % 3 == 0).then_some("D1"),
            verbose: plan.verbose,
            gateway_up: plan.gateway_up,
            record: true,
            ..Setup::default()
        });
        world.child_delay_ms = if seed % 2 == 0 { 0 } else { 800 };
        let verdicts = Rc::new(RefCell::new(Verdicts::default()));
        world.on_child(hook(seed, Rc::clone(&verdicts)));
        let odd = plan.trouble > 0;
        let book = Book::new(&limits, patience(&plan), plan.mode.announces(), odd);
        Self {
            client: Client::new(seed, &plan),
            gateway: Gateway::new(seed, &plan),
            queue: Queue::new(&limits, plan.mode.announces()),
            frames: Frames::default(),
            person: Dice::new(seed, 3),
            asked: Vec::new(),
            verdicts,
            world,
            book,
            transcript,
            ended_at: None,
            finished_at: None,
            times_ready: 0,
            diagnostics: 0,
            secrets: 0,
            probes: 0,
            told: false,
            written: 0,
            steps_at: (Uptime::ZERO, 0),
            plan,
        }
    }

    /// Everything goes wrong that may.
    fn chaos(&mut self) -> Check {
        let end = Uptime::from_millis(self.plan.chaos_ms);
        while self.world.now.up < end && self.world.finished.is_none() {
            self.step(end)?;
            let odd = self.person.below(2_000) < self.plan.trouble;
            if odd && self.ended_at.is_none() {
                self.odd_moment()?;
            }
        }
        Ok(())
    }

    /// The machine sleeps, or its wall clock is set.
    fn odd_moment(&mut self) -> Check {
        if self.person.percent(50) {
            let hours = i64::try_from(self.person.below(48)).expect("small") - 24;
            self.world.now.unix_ms += hours * 3_600_000;
            self.say(&format!("the clock is set by {hours} h"));
            return Ok(());
        }
        let ms = self.person.between(1, 90_000);
        self.say(&format!("the machine sleeps for {ms} ms"));
        self.book.forgive(Duration::from_millis(ms));
        self.world.stall(ms);
        self.settle()
    }

    /// One moment: what travels arrives, and who has something to do does it.
    fn step(&mut self, until: Uptime) -> Check {
        let person = self
            .asked
            .iter()
            .map(|(at, ..)| Uptime::from_millis(*at))
            .min();
        let moments = [
            self.world.next_moment(),
            self.client.next(),
            self.gateway.next(),
            person,
        ];
        let next = moments
            .into_iter()
            .flatten()
            .min()
            .map_or(until, |at| at.min(until));
        self.watch_steps(next)?;
        self.world.advance_to_moment(next.max(self.world.now.up));
        self.settle()?;
        self.client
            .act(&mut self.world, &mut self.book, &mut self.gateway);
        self.settle()?;
        self.gateway.act(&mut self.world, &mut self.queue);
        self.settle()?;
        self.let_people_decide();
        self.settle()?;
        self.check_moment()
    }

    fn watch_steps(&mut self, next: Uptime) -> Check {
        if self.steps_at.0 != next {
            self.steps_at = (next, 0);
        }
        self.steps_at.1 += 1;
        ensure(self.steps_at.1 < 5_000, || "time stands still".to_owned())
    }

    /// Looks at all that happened, until nobody has anything to say to it at once.
    fn settle(&mut self) -> Check {
        while let Some(turn) = self.world.turns.pop_front() {
            self.turn(&turn)?;
        }
        while let Some(event) = self.world.far_events.pop_front() {
            self.log("gateway hears", format!("{event:?}").as_bytes());
            let now_ms = self.world.now.up.as_millis();
            self.gateway.hear(now_ms, &event);
        }
        while let Some(line) = self.world.client_lines.pop_front() {
            ensure(!line.contains(TOKEN), || format!("a secret: {line}"))?;
            self.client.hear(&line);
        }
        let mut notes = std::mem::take(&mut self.gateway.notes);
        notes.append(&mut self.client.notes);
        for note in notes {
            self.say(&note);
        }
        self.read_diagnostics()?;
        while let Some(event) = self.world.hub_events.pop_front() {
            self.hub_event(&event);
        }
        if self.world.finished.is_some() && self.finished_at.is_none() {
            self.finished_at = Some(self.world.now.up);
            self.say("finished");
        }
        Ok(())
    }

    fn turn(&mut self, turn: &Turn) -> Check {
        match &turn.input {
            Input::ClientBytes(bytes) => self.log("client", bytes),
            Input::ClientEnd => self.say("the client's input ends"),
            Input::ClientGone => self.say("the client is gone"),
            Input::Other => {}
        }
        for (received, text) in &turn.frames {
            let what = if *received {
                "gateway → hub"
            } else {
                "hub → gateway"
            };
            self.log(what, text.as_bytes());
        }
        let sent = turn.frames.iter().filter(|(received, _)| !received).count();
        self.written += turn.wrote.len() + sent;
        if !turn.wrote.is_empty() {
            self.log("hub → client", &turn.wrote);
        }
        let ended = matches!(turn.input, Input::ClientEnd | Input::ClientGone);
        if ended {
            self.ended_at.get_or_insert(turn.at);
        }
        let refusal = |(received, text): &(bool, String)| *received && text.contains("\"details\"");
        if self.times_ready == 0 && turn.frames.iter().any(refusal) {
            self.ended_at = Some(turn.at);
            self.book.end(turn.at);
        }
        self.book.turn(turn, &mut self.queue)?;
        let verdicts = self.verdicts.borrow();
        self.frames.replaced.extend(&verdicts.replaced);
        self.book.dead_markers.extend(&verdicts.refused);
        for (received, text) in &turn.frames {
            let dead = &self.book.dead_markers;
            self.frames.frame(*received, text, turn.connects, dead)?;
        }
        Ok(())
    }

    fn read_diagnostics(&mut self) -> Check {
        while let Some(line) = self.world.diagnostics.pop_front() {
            self.log("stderr", line.as_bytes());
            self.diagnostics += 1;
            ensure(!line.contains("this is a bug"), || line.clone())?;
            ensure(!line.contains(TOKEN), || format!("a secret: {line}"))?;
            ensure(!line.contains('\n'), || format!("two lines: {line}"))?;
            if line.contains("gateway is not reading") {
                self.book.count("gateway is not reading");
            }
            let dropped = !line.contains("gateway is not reading") || !self.world.is_connected();
            ensure(dropped, || {
                "a gateway that does not read is kept".to_owned()
            })?;
            if line.contains("connected") && line.contains("version") {
                self.times_ready += 1;
                // Each time service comes back, the bridge queues a gap.
                self.queue.own_event();
            }
        }
        Ok(())
    }

    fn hub_event(&mut self, event: &HubEvent) {
        match event {
            HubEvent::GateAsked { call, title, .. } => {
                // A title that ends in "?" is never answered.
                if !title.ends_with('?') {
                    let at = self.world.now.up.as_millis() + self.person.below(3_000);
                    self.asked.push((at, *call, markers(title).pop_first()));
                }
            }
            HubEvent::StoreToken(_) | HubEvent::ForgetToken => self.secrets += 1,
            HubEvent::Diagnostic(_)
            | HubEvent::GatewayFrame { .. }
            | HubEvent::ListenFailed { .. }
            | HubEvent::Local(_)
            | HubEvent::LocalCancelled(_)
            | HubEvent::ClientNotification { .. }
            | HubEvent::Finished(_) => {}
        }
    }

    fn let_people_decide(&mut self) {
        let now_ms = self.world.now.up.as_millis();
        while let Some(at) = self.asked.iter().position(|(at, ..)| *at <= now_ms) {
            let (_, call, marker) = self.asked.remove(at);
            let verdict = match self.person.below(4) {
                0 => {
                    self.verdicts.borrow_mut().refused.extend(marker);
                    let reason = "no".to_owned();
                    Verdict::Deny { reason }
                }
                _ => Verdict::Allow { arguments: None },
            };
            self.world.person_answers(call, verdict);
        }
    }

    fn check_moment(&self) -> Check {
        let now = self.world.now.up;
        self.book.check_due(now)?;
        let limits = &self.plan.limits;
        if let Some(due) = self.world.hub.next_deadline() {
            ensure(due.at > now, || format!("{due:?} is due"))?;
            let longest = limits.reconnect_most_interval.mul_f64(1.2);
            let wait = due.at.since(now);
            let soon = due.why != "gateway reconnect" || wait <= longest.max(STARTING_MOST);
            ensure(soon, || format!("connects again in {wait:?}"))?;
        }
        let open = self.world.hub.open_calls();
        let children = self.world.children_running();
        ensure(children <= open, || {
            format!("{children} hooks run for {open} calls")
        })?;
        ensure(open <= limits.requests_open_max, || {
            format!("{open} calls are open")
        })?;
        let frames = limits.gateway_out_bytes_max + 4_096;
        let waits = self.world.gateway_backlog_max;
        ensure(waits <= frames, || {
            format!("{waits} bytes wait for the gateway")
        })?;
        let mut tries = self.world.connects.windows(2).rev();
        let soon = tries
            .next()
            .map_or(Duration::MAX, |pair| pair[1].since(pair[0]));
        let least = limits.reconnect_first_interval.mul_f64(0.8);
        let least = least.min(Duration::from_millis(100));
        ensure(soon >= least, || format!("connects again after {soon:?}"))
    }

    /// Things are put right: the hub must connect, answer everything, and tell what was lost.
    fn calm(&mut self) -> Check {
        self.say("calm");
        self.world.set_travel(Travel::default());
        self.client.calm_down(&mut self.world);
        self.gateway.calm_down(&mut self.world);
        self.settle()?;
        let patience = self.recovery();
        let by = self.world.now.after(patience);
        self.until(by, |run| run.is_well())
            .and_then(|well| ensure(well, || format!("not in service after {patience:?}")))?;
        // What the client asked for in the chaos has its answer when its own time is up.
        let by = self.world.now.after(self.longest_wait());
        self.until(by, |run| {
            run.book.owed() == run.listens() && run.client_is_read()
        })
        .and_then(|done| {
            ensure(done, || {
                format!("never answered: {:?}", self.book.owed_ids())
            })
        })?;
        if self.world.finished.is_some() {
            return Err("it ended by itself".to_owned());
        }
        self.probes()?;
        self.sweep()?;
        self.queue.check_losses()?;
        self.queue.check_told()?;
        self.queue.check_newest()?;
        self.rest()
    }

    /// Who has nothing to do does nothing: no frame, no line, no call.
    fn rest(&mut self) -> Check {
        // Answers of the hub's own questions may still be on their way.
        let by = self
            .world
            .now
            .after(self.plan.limits.gateway_request_timeout);
        self.until(by, |_| false)?;
        let before = (self.written, self.diagnostics, self.world.connects.len());
        let by = self.world.now.after(Duration::from_secs(120));
        self.until(by, |_| false)?;
        let after = (self.written, self.diagnostics, self.world.connects.len());
        ensure(before == after, || "it is restless".to_owned())?;
        let open = self.world.hub.open_calls();
        ensure(open == 0, || format!("{open} calls are left"))
    }

    /// Whether the hub is in service and the Gateway agrees.
    fn is_well(&self) -> bool {
        let told = self.world.gateway_bytes_under_way() == 0;
        self.gateway.is_serving() && self.frames.is_subscribed() && told && self.client_is_read()
    }

    fn client_is_read(&self) -> bool {
        !self.world.client_is_paused() && self.world.client_bytes_under_way() == 0
    }

    fn listens(&self) -> usize {
        self.book.streams()
    }

    /// Goes on until `done`, or until `by`: then it says false.
    fn until(&mut self, by: Uptime, done: impl Fn(&Self) -> bool) -> Result<bool, String> {
        while !done(self) {
            if self.world.now.up >= by || self.world.finished.is_some() {
                return Ok(false);
            }
            self.step(by)?;
        }
        Ok(true)
    }

    /// The longest way back into service: what is under way fails, then the longest wait, then a try.
    fn recovery(&self) -> Duration {
        let limits = &self.plan.limits;
        let failing = [
            limits.gateway_open_timeout,
            limits.gateway_challenge_timeout,
            limits.gateway_request_timeout * 2,
            Duration::from_secs(60),
        ];
        let failing = failing.into_iter().max().unwrap_or_default();
        let closing = Duration::from_secs(1);
        let waiting = limits.reconnect_most_interval.mul_f64(1.2);
        let (challenge, request) = (Duration::from_millis(1_500), Duration::from_millis(3_000));
        failing + closing + waiting + challenge + request + self.short_patience()
    }

    /// Where a limit is shorter than a Gateway in good order may take, a try may need luck.
    fn short_patience(&self) -> Duration {
        let limits = &self.plan.limits;
        let slow = limits.gateway_request_timeout < Duration::from_millis(1_500)
            || limits.gateway_challenge_timeout < Duration::from_millis(1_500);
        Duration::from_secs(if slow { 600 } else { 0 })
    }

    fn longest_wait(&self) -> Duration {
        let gate = patience(&self.plan).gate.unwrap_or(Duration::from_secs(10));
        gate + Duration::from_secs(120)
    }

    /// Plain questions have plain answers.
    fn probes(&mut self) -> Check {
        let open = self.plan.gatekeeper == Gatekeeper::Nobody;
        let short = self.short_patience() > Duration::ZERO;
        let result = self.ask("conversation_get", 0)?;
        ensure(
            result.contains("structuredContent") || !open || short,
            || format!("the probe failed: {result}"),
        )?;
        self.sweep()?;
        let newest = self.client.cursor;
        self.told = false;
        let result = self.ask("events_wait", newest)?;
        let by = self.world.now.after(Duration::from_secs(60));
        self.until(by, |run| run.world.gateway_bytes_under_way() == 0)?;
        ensure(result.contains("\"cursor\":") || !open, || {
            format!("the wait got {result}")
        })
    }

    /// Asks until a limit does not stand in the way any more; an event is told meanwhile.
    fn ask(&mut self, tool: &'static str, after: u64) -> Result<String, String> {
        let by = self.world.now.after(self.longest_wait());
        loop {
            self.probes += 1;
            let id = format!("\"p{}\"", self.probes);
            self.client.probe(self.probes, tool, after);
            self.client.flush(&mut self.world, &mut self.book);
            self.settle()?;
            if tool == "events_wait" && !std::mem::replace(&mut self.told, true) {
                self.gateway.tell_one(&mut self.world, &mut self.queue);
                self.settle()?;
            }
            let answered = self.until(by, |run| run.client.results.contains_key(&id))?;
            ensure(answered, || "no answer to a probe".to_owned())?;
            let result = self.client.results[&id].clone();
            // What the Gateway sent before the calm may still break the connection once.
            if !["try again", "is busy", "message too large"]
                .iter()
                .any(|why| result.contains(why))
            {
                return Ok(result);
            }
            let pause = self.world.now.after(Duration::from_secs(1));
            self.until(pause, |_| false)?;
        }
    }

    /// The client reads the queue to its end, however often it is refused.
    fn sweep(&mut self) -> Check {
        let by = self.world.now.after(self.longest_wait() * 4);
        for _ in 0..400 {
            let done = self.until(by, |run| !run.client.is_following())?;
            ensure(done, || "no answer to a poll".to_owned())?;
            let before = self.client.cursor;
            self.client.follow_with(200);
            self.client.flush(&mut self.world, &mut self.book);
            self.settle()?;
            self.until(by, |run| !run.client.is_following())?;
            if before == self.client.cursor && self.client.has_followed {
                return Ok(());
            }
        }
        Err("the queue has no end".to_owned())
    }

    /// The end, in one of several ways, perhaps with much to do.
    fn end(&mut self) -> Check {
        if self.ended_at.is_none() {
            self.client.calm_down(&mut self.world);
            if self.person.percent(30) {
                self.gateway.fall_silent();
            }
            if self.person.percent(60) {
                self.client
                    .burst(&mut self.world, &mut self.book, &mut self.gateway);
                self.settle()?;
            }
            self.say(&format!("ending: {:?}", self.plan.ending));
            self.begin_end()?;
        }
        let limit = self.plan.limits.shutdown_timeout;
        // The input may end late: behind bytes that travel, and after the client has read.
        let travels = Duration::from_secs(60);
        let by = self.world.now.after(travels + 3 * limit);
        self.until(by, |run| run.world.finished.is_some())?;
        let finished_at = self
            .finished_at
            .ok_or_else(|| "never finished".to_owned())?;
        let began = self.ended_at.unwrap_or(finished_at);
        let waits = self.plan.limits.input_ended_timeout;
        let refused = matches!(self.world.finished, Some(Outcome::Refused(_)));
        let most = match self.plan.ending {
            _ if refused => limit,
            Ending::Input | Ending::HalfLine | Ending::InputAndDeaf => waits + 3 * limit,
            Ending::Gone | Ending::Broken | Ending::Stopped => limit,
        };
        ensure(finished_at.since(began) <= most, || {
            format!(
                "finished after {:?}, at most {most:?}",
                finished_at.since(began)
            )
        })?;
        self.check_outcome()?;
        let owed = self.book.owed();
        ensure(owed == 0, || {
            format!("finished and never answered: {:?}", self.book.owed_ids())
        })?;
        self.after_the_end()
    }

    fn begin_end(&mut self) -> Check {
        match self.plan.ending {
            Ending::Input => self.world.client_will_end(),
            Ending::HalfLine => {
                self.client.half_line(&mut self.world, &mut self.book);
                self.world.client_will_end();
            }
            Ending::InputAndDeaf => {
                self.world.client_appetite = Some(self.person.size(0, 3_000));
                self.world.client_will_end();
                self.settle()?;
                let by = self.world.now.after(Duration::from_secs(60));
                self.until(by, |run| {
                    run.ended_at.is_some() || run.world.client_is_paused()
                })?;
                // A client that is not read from cannot end its input.
                if self.world.client_is_paused() {
                    self.world.client_appetite = None;
                    self.world.settle();
                }
            }
            Ending::Gone => self.world.client_vanishes(),
            Ending::Broken => self.world.client_breaks(),
            Ending::Stopped => {
                let now = self.world.now;
                self.ended_at = Some(now.up);
                self.settle()?;
                self.world.shut_down();
                // What the Gateway was asked it may answer for so long.
                let patience = self.plan.limits.shutdown_timeout * 3 / 4;
                self.book.end(now.after(patience));
            }
        }
        self.settle()
    }

    fn check_outcome(&self) -> Check {
        let outcome = self.world.finished.as_ref();
        let fits = match outcome {
            Some(Outcome::ClientDone) => {
                !matches!(self.plan.ending, Ending::Stopped | Ending::Broken)
            }
            Some(Outcome::ClientFailed) => {
                matches!(self.plan.ending, Ending::Broken | Ending::InputAndDeaf)
            }
            Some(Outcome::Stopped) => self.plan.ending == Ending::Stopped,
            Some(Outcome::Refused(_)) => self.plan.may_refuse && self.times_ready == 0,
            None => false,
        };
        ensure(fits, || format!("{outcome:?}"))
    }

    /// Nothing happens any more.
    fn after_the_end(&mut self) -> Check {
        let connects = self.world.connects.len();
        let later = self.world.now.after(Duration::from_secs(300));
        self.world.turns.clear();
        self.world.advance_to_moment(later);
        let told = self.world.diagnostics.len() + self.world.hub_events.len();
        let wrote = self.world.turns.iter().any(|turn| !turn.wrote.is_empty());
        let children = self.world.children_running();
        ensure(children == 0, || format!("{children} hooks are left"))?;
        let quiet = connects == self.world.connects.len() && told == 0 && !wrote;
        ensure(quiet, || "something happened after the end".to_owned())
    }

    fn say(&self, what: &str) {
        self.log(what, b"");
    }

    fn log(&self, what: &str, bytes: &[u8]) {
        self.transcript
            .borrow_mut()
            .add(self.world.now.up, what, bytes);
    }

    fn tally(mut self) -> Tally {
        let mut tally = std::mem::take(&mut self.book.tally);
        tally.append(&mut self.gateway.log);
        let outcome = match self.world.finished {
            Some(Outcome::ClientDone) => "client done",
            Some(Outcome::Stopped) => "stopped",
            Some(Outcome::Refused(_)) => "refused at the start",
            Some(Outcome::ClientFailed) => "client failed",
            None => "not finished",
        };
        let opening = match self.plan.opening {
            Opening::Asks(_) => "handshake",
            Opening::None => "no handshake",
            Opening::Modern => "modern",
        };
        tally.extend([
            (outcome, 1),
            (opening, 1),
            ("in service", self.times_ready),
            ("gap", self.queue.gaps),
            ("dropped", self.queue.dropped),
            ("stderr line", self.diagnostics),
            ("token to keep", self.secrets),
        ]);
        tally
    }
}

fn patience(plan: &Plan) -> Patience {
    let Limits {
        hook_timeout,
        hold_timeout,
        gateway_ready_timeout,
        gateway_request_timeout,
        ..
    } = plan.limits;
    let hold = hold_timeout.max(Duration::from_millis(7_000));
    Patience {
        gate: match plan.gatekeeper {
            Gatekeeper::Nobody => Some(Duration::ZERO),
            Gatekeeper::Hook => Some(hook_timeout + hold),
            Gatekeeper::Embedder => None,
        },
        gateway: gateway_ready_timeout + 2 * gateway_request_timeout,
    }
}

/// A before-tool-call hook that does anything.
fn hook(seed: u64, verdicts: Rc<RefCell<Verdicts>>) -> Child {
    let mut dice = Dice::new(seed, 4);
    Box::new(move |_, input| {
        let mut verdicts = verdicts.borrow_mut();
        let asked: Value = serde_json::from_str(input).expect("the hook is asked in JSON");
        let mut arguments = asked["arguments"].clone();
        let marker = markers(input).pop_first();
        let fails = dice.percent(10);
        let how = dice.below(12);
        if fails || matches!(how, 7 | 10..) {
            verdicts.refused.extend(marker);
        }
        let printed = match how {
            0..=4 => "{}".to_owned(),
            5 | 6 => {
                if let Some(text) = arguments.get_mut("text").filter(|_| marker.is_some()) {
                    *text = format!("{} as the hook says", text.as_str().unwrap_or("")).into();
                    verdicts.replaced.extend(marker);
                }
                format!(r#"{{"params":{arguments}}}"#)
            }
            7 => r#"{"block":true,"blockReason":"not today"}"#.to_owned(),
            8 | 9 => {
                let marker = marker.map_or_else(String::new, |marker| format!("mk:{marker}: "));
                let end = if how == 8 { "" } else { "?" };
                format!(
                    r#"{{"requireApproval":{{"title":"{marker}really{end}","timeoutMs":7000}}}}"#
                )
            }
            10 => dice
                .pick(&["", "{", "[]", "{\"params\":7}", "yes"])
                .to_owned(),
            _ => return None,
        };
        Some((printed, ExitReport::Code(i32::from(fails))))
    })
}
