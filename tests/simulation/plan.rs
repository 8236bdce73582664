//! What one seed decides before its run: limits, who decides about calls, how bytes travel, what goes wrong.

use std::time::Duration;

use drawspan::bridge::ChannelMode;
use drawspan::entropy::Seeded;
use drawspan::limits::Limits;

use crate::support::Travel;

/// Random choices of one actor. Each actor has its own, so that one more choice here changes nothing there.
#[derive(Debug)]
pub struct Dice(Seeded);

impl Dice {
    /// The dice of the actor with this number.
    pub fn new(seed: u64, actor: u64) -> Self {
        let mut mixed = Seeded::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(actor));
        Self(Seeded::new(mixed.next_u64()))
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A number of the range, both ends included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    pub fn size(&mut self, least: usize, most: usize) -> usize {
        let (least, most) = (least as u64, most as u64);
        usize::try_from(self.between(least, most)).expect("below a size")
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.size(0, choices.len() - 1)]
    }

    /// The place of one of the weights, each as likely as it is heavy.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut at = self.below(weights.iter().sum());
        for (place, weight) in weights.iter().enumerate() {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return place,
            }
        }
        0
    }
}

/// Who decides about calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gatekeeper {
    Nobody,
    Hook,
    Embedder,
}

/// How the client opens the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// `initialize` that asks for this revision.
    Asks(&'static str),
    /// No handshake, requests of a handshake revision all the same.
    None,
    /// 2026-07-28.
    Modern,
}

/// How the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client ends its input.
    Input,
    /// The same, behind a line without its line feed.
    HalfLine,
    /// The client ends its input and reads nothing more.
    InputAndDeaf,
    /// The client reads no more and lets its input open.
    Gone,
    /// The wire to the client breaks.
    Broken,
    /// The program is told to end.
    Stopped,
}

/// What one seed decides.
#[derive(Clone, Debug)]
pub struct Plan {
    pub limits: Limits,
    pub mode: ChannelMode,
    pub gatekeeper: Gatekeeper,
    pub travel: Travel,
    pub opening: Opening,
    /// How long things go wrong. Unit: virtual milliseconds.
    pub chaos_ms: u64,
    /// Whether things are put right before the end, and must then come right.
    pub calm: bool,
    pub ending: Ending,
    /// Percent of Gateway requests, connections and moments that go wrong.
    pub trouble: u64,
    /// Whether the client sometimes does not read.
    pub slow_client: bool,
    /// Whether the Gateway may refuse our credentials before it ever took them, which ends the run.
    pub may_refuse: bool,
    /// Whether the Gateway mostly does not read, while much is asked of it.
    pub deaf_gateway: bool,
    /// Whether the Gateway is up from the start.
    pub gateway_up: bool,
    /// Mean wait of the client between two deeds. Unit: milliseconds.
    pub client_pace_ms: u64,
    /// Mean wait of the Gateway between two events. Unit: milliseconds.
    pub event_pace_ms: u64,
    /// Events of one flood.
    pub flood: u64,
    pub verbose: bool,
}

impl Plan {
    pub fn of(seed: u64) -> Self {
        let mut plan = Self::any(seed);
        if seed % 16 == 5 {
            plan.deaf_gateway = true;
            plan.limits.gateway_out_bytes_max = 1_300;
            plan.trouble = 20;
            plan.client_pace_ms = 100;
        }
        plan
    }

    fn any(seed: u64) -> Self {
        let dice = &mut Dice::new(seed, 0);
        let small = dice.percent(60);
        let limits = if small {
            small_limits(dice)
        } else {
            Limits::default()
        };
        let flood = match limits.events_queued_max {
            0..=100 => dice.between(2, 150),
            _ if dice.percent(15) => dice.between(1_001, 1_300),
            _ => dice.between(2, 40),
        };
        let delay_ms = dice.pick(&[0, 0, 3, 40, 400]);
        Self {
            mode: dice.pick(&[ChannelMode::Auto, ChannelMode::On, ChannelMode::Off]),
            gatekeeper: dice.pick(&[
                Gatekeeper::Nobody,
                Gatekeeper::Nobody,
                Gatekeeper::Nobody,
                Gatekeeper::Hook,
                Gatekeeper::Embedder,
            ]),
            travel: Travel {
                delay_ms,
                cut: dice.percent(60),
            },
            opening: match dice.below(12) {
                0..=2 => Opening::Asks("2025-11-25"),
                3 => Opening::Asks("2025-06-18"),
                4..=6 => Opening::Asks("2025-03-26"),
                7 => Opening::Asks("2024-11-05"),
                8 => Opening::Asks(dice.pick(&["2024-10-07", "2026-07-28", "2099-01-01", ""])),
                9 => Opening::None,
                _ => Opening::Modern,
            },
            chaos_ms: dice.between(5_000, 60_000),
            calm: dice.percent(70),
            ending: dice.pick(&[
                Ending::Input,
                Ending::Input,
                Ending::HalfLine,
                Ending::InputAndDeaf,
                Ending::Gone,
                Ending::Broken,
                Ending::Stopped,
            ]),
            trouble: dice.pick(&[0, 10, 20, 35]),
            slow_client: dice.percent(30),
            may_refuse: dice.percent(7),
            deaf_gateway: false,
            gateway_up: dice.percent(80),
            client_pace_ms: dice.pick(&[150, 500, 1_500]),
            event_pace_ms: dice.pick(&[100, 600, 3_000]),
            flood,
            verbose: dice.percent(30),
            limits,
        }
    }
}

/// Limits so low that their edges are reached; each at random, so that most are ordinary.
fn small_limits(dice: &mut Dice) -> Limits {
    let mut limits = Limits::default();
    let ms = Duration::from_millis;
    let count = |dice: &mut Dice, limit: &mut usize, choices: &[usize]| {
        if dice.percent(40) {
            *limit = dice.pick(choices);
        }
    };
    count(dice, &mut limits.events_queued_max, &[1, 2, 5, 20]);
    count(dice, &mut limits.events_queued_bytes_max, &[1, 600, 5_000]);
    count(dice, &mut limits.waiters_max, &[1, 2, 4]);
    count(dice, &mut limits.requests_open_max, &[1, 2, 4, 8]);
    count(dice, &mut limits.subscriptions_open_max, &[1, 2]);
    count(dice, &mut limits.gateway_requests_max, &[1, 2, 5]);
    count(dice, &mut limits.notifications_held_max, &[1, 3]);
    count(dice, &mut limits.approvals_pending_max, &[1, 2, 5]);
    count(dice, &mut limits.batch_messages_max, &[1, 3]);
    count(dice, &mut limits.id_bytes_max, &[8, 20]);
    count(dice, &mut limits.message_bytes_max, &[600, 2_000]);
    count(dice, &mut limits.gateway_hello_bytes_max, &[700, 2_000]);
    count(dice, &mut limits.gateway_message_bytes_max, &[2_000, 5_000]);
    count(dice, &mut limits.gateway_out_bytes_max, &[1_300, 1_800]);
    count(dice, &mut limits.out_high_bytes, &[300, 3_000, 20_000]);
    let low = dice.size(0, limits.out_high_bytes - 1);
    limits.out_low_bytes = low.min(limits.out_low_bytes);
    let hello = limits.gateway_hello_bytes_max;
    limits.gateway_hello_bytes_max = hello.min(limits.gateway_message_bytes_max);
    let time = |dice: &mut Dice, limit: &mut Duration, choices: &[u64]| {
        if dice.percent(40) {
            *limit = ms(dice.pick(choices));
        }
    };
    time(dice, &mut limits.gateway_request_timeout, &[300, 5_000]);
    time(dice, &mut limits.gateway_ready_timeout, &[1, 1_000]);
    time(dice, &mut limits.gateway_challenge_timeout, &[500, 3_000]);
    time(dice, &mut limits.gateway_open_timeout, &[500, 3_000]);
    time(dice, &mut limits.reconnect_first_interval, &[50, 300]);
    time(dice, &mut limits.reconnect_most_interval, &[1_000, 4_000]);
    time(dice, &mut limits.reconnect_good_interval, &[500, 3_000]);
    time(dice, &mut limits.shutdown_timeout, &[1, 300, 1_000]);
    time(dice, &mut limits.input_ended_timeout, &[1, 300, 3_000]);
    time(dice, &mut limits.input_ended_timeout, &[1, 300, 3_000]);
    time(dice, &mut limits.hook_timeout, &[100, 1_000]);
    time(dice, &mut limits.hold_timeout, &[500, 5_000]);
    time(dice, &mut limits.wait_progress_interval, &[100, 1_000]);
    time(dice, &mut limits.approval_ttl, &[500, 10_000]);
    time(dice, &mut limits.permission_ttl, &[500, 10_000]);
    limits.check().expect("the limits agree with each other");
    limits
}
