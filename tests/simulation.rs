//! Hub, client and Gateway on virtual time: one seed is one run of some virtual minutes in which everything
//! happens that may.
//!
//! The client asks well and badly in every era, cancels, reuses ids, stops to read and goes away; the Gateway
//! answers late, twice, wrongly or never, refuses, floods, restarts and is cut off at any byte; a hook and a
//! person decide about calls; the machine sleeps. What must hold all the same is in `simulation/book.rs`
//! (requests and answers), `simulation/queue.rs` (events) and `simulation/run.rs` (the rest).
//!
//! `DRAWSPAN_SEEDS=N` runs N seeds instead of [`SEEDS`]; `DRAWSPAN_SEED=S` runs seed S alone and shows its
//! whole transcript when it fails. A failure names its seed and shows the last steps.

#![allow(unreachable_pub, reason = "one test binary, many files")]

#[path = "simulation/book.rs"]
mod book;
#[path = "simulation/client.rs"]
mod client;
#[path = "simulation/endings.rs"]
mod endings;
#[path = "simulation/flood.rs"]
mod flood;
#[path = "simulation/gateway.rs"]
mod gateway;
#[path = "simulation/plan.rs"]
mod plan;
#[path = "simulation/queue.rs"]
mod queue;
#[path = "simulation/run.rs"]
mod run;
mod support;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use run::{Tally, Transcript};

/// How many seeds one test run tries.
const SEEDS: u64 = 300;

/// What so many seeds must have come to, or the simulation proves less than it says.
const REACHED: [&str; 54] = [
    "acknowledged",
    "answered twice",
    "attachments_fetch",
    "backed up",
    "batch",
    "busy",
    "cancelled",
    "channel",
    "client done",
    "closes 1008",
    "closes without a code",
    "connect not answered",
    "connect refused for now",
    "conversation_get",
    "conversations_list",
    "credentials refused",
    "cut",
    "does not open",
    "does not read",
    "dropped",
    "ends its direction",
    "event before the hello",
    "events_poll",
    "events_wait",
    "falls silent",
    "flood",
    "gap",
    "gateway is not reading",
    "handshake",
    "id in use",
    "in service",
    "log message",
    "messages_read",
    "messages_send",
    "modern",
    "no challenge",
    "no handshake",
    "no hello",
    "odd frame",
    "permission",
    "permissions_list_open",
    "permissions_respond",
    "progress",
    "refused at the start",
    "request not answered",
    "restart",
    "starting",
    "stopped",
    "subscription not answered",
    "subscription refused",
    "takes no more",
    "tool error",
    "tools/list",
    "writes nonsense",
];

/// Steps that a failure shows.
const STEPS_SHOWN: usize = 40;

#[test]
fn every_promise_is_kept() {
    let one = number("DRAWSPAN_SEED");
    let seeds = number("DRAWSPAN_SEEDS").unwrap_or(SEEDS);
    let (seeds, keep) = match one {
        Some(seed) => (seed..seed + 1, usize::MAX),
        None => (0..seeds, STEPS_SHOWN),
    };
    let threads = std::thread::scope(|scope| {
        let halves: Vec<_> = (0..2)
            .map(|half| {
                let seeds = seeds.clone().filter(move |seed| seed % 2 == half);
                scope.spawn(move || run_all(seeds, keep))
            })
            .collect();
        let results = halves
            .into_iter()
            .map(|half| half.join().expect("no panic gets out"));
        results.collect::<Vec<_>>()
    });
    let mut tally = Tally::new();
    let mut failures = Vec::new();
    for (counted, failed) in threads {
        for (what, times) in counted {
            *tally.entry(what).or_default() += times;
        }
        failures.extend(failed);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let enough = one.is_none() && seeds.end >= SEEDS;
    for what in REACHED.into_iter().filter(|_| enough) {
        assert!(
            tally.get(what).is_some_and(|times| *times > 0),
            "no seed gets to {what:?}: {tally:#?}"
        );
    }
}

fn run_all(seeds: impl Iterator<Item = u64>, keep: usize) -> (Tally, Vec<String>) {
    let mut tally = Tally::new();
    let mut failures = Vec::new();
    for seed in seeds {
        match run_one(seed, keep) {
            Ok((counted, _)) => {
                for (what, times) in counted {
                    *tally.entry(what).or_default() += times;
                }
            }
            Err(failure) => failures.push(failure),
        }
        if failures.len() >= 3 {
            break;
        }
    }
    (tally, failures)
}

/// Runs one seed: what was counted and the hash of its transcript, or what went wrong.
fn run_one(seed: u64, keep: usize) -> Result<(Tally, u64), String> {
    let transcript = RefCell::new(Transcript::new(keep));
    let outcome = catch_unwind(AssertUnwindSafe(|| run::run(seed, &transcript)));
    let transcript = transcript.into_inner();
    let why = match outcome {
        Ok(Ok(tally)) => return Ok((tally, transcript.hash())),
        Ok(Err(why)) => why,
        Err(_) => "panic, see above".to_owned(),
    };
    Err(format!(
        "{}\nseed {seed}: {why}\nagain with DRAWSPAN_SEED={seed}",
        transcript.last_steps()
    ))
}

#[test]
fn the_same_seed_gives_the_same_transcript() {
    for seed in (0..20).map(|seed| seed * 7) {
        let hashes = [0, 1].map(|_| run_one(seed, 0).map(|(_, hash)| hash));
        assert_eq!(hashes[0], hashes[1], "seed {seed}");
    }
    let hash = |seed| run_one(seed, 0).map(|(_, hash)| hash);
    assert_ne!(hash(1), hash(2));
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number of seeds"))
}
