//! What tests of real programs share: a home for them, the programs as processes, and waiting until something
//! is so, with an end to patience.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses its own part of it"
)]

pub(crate) mod deserted;
mod example;
mod home;
mod process;

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

pub(crate) use self::example::example;
pub(crate) use self::home::{EMBEDDED, Home, running};
pub(crate) use self::process::{Finished, HELLO, LISTENING, Lines, Process, parse, text};

/// The program under test.
pub(crate) const DRAWSPAN: &str = env!("CARGO_BIN_EXE_drawspan");

/// How long a test waits for anything before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `done` is, and fails with what it says instead. For what nobody tells: whoever can wait for an
/// event does.
#[track_caller]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> Result<(), String>) {
    let since = Instant::now();
    while let Err(why) = done() {
        assert!(
            since.elapsed() < PATIENCE,
            "waited in vain for {what}: {why}"
        );
        std::thread::yield_now();
    }
}

/// Waits until none of these processes runs: for the end of one of them, and then asks again who is left.
#[track_caller]
pub(crate) fn until_gone(patience: Duration, mut left: impl FnMut() -> Vec<(Pid, String)>) {
    let since = Instant::now();
    loop {
        let left = left();
        let Some((pid, _)) = left.first() else {
            return;
        };
        let rest = patience.saturating_sub(since.elapsed());
        assert!(
            !rest.is_zero(),
            "waited in vain for processes to end: {left:?}"
        );
        // There is none of a process that is gone by now.
        if let Ok(end) = pidfd_open(*pid, PidfdFlags::empty()) {
            let mut poll = Poll::new().unwrap();
            let registry = poll.registry();
            registry
                .register(
                    &mut SourceFd(&end.as_raw_fd()),
                    Token(0),
                    Interest::READABLE,
                )
                .unwrap();
            // What ends early, by a signal say, is only asked again.
            let _ = poll.poll(&mut Events::with_capacity(1), Some(rest));
        }
    }
}

#[track_caller]
pub(crate) fn expect_words(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text:?}");
    }
}
