//! Signals to our own process, as events of the loop (feature `cli`).

use std::io;

use mio::{Registry, Token};

/// What the program is told from outside, beside its wires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostSignal {
    /// SIGTERM.
    Terminate,
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGHUP: the terminal is gone, or the configuration is to be read again.
    Hangup,
    /// The file of [`EventLoop::watch_file`](super::EventLoop::watch_file) is another now.
    FileChanged,
}

#[cfg(feature = "cli")]
pub(super) use self::hooked::HostSignals;

#[cfg(feature = "cli")]
mod hooked {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
    use signal_hook_mio::v1_0::Signals;

    use super::{HostSignal, Registry, Token, io};

    /// The installed handlers.
    pub(in crate::io) struct HostSignals(Signals);

    impl HostSignals {
        /// Installs handlers for those signals that are not ignored. SIGUSR1 among them: it means
        /// nothing to us, and unhandled it would end the process with calls in flight.
        pub(in crate::io) fn watch(registry: &Registry, token: Token) -> io::Result<Option<Self>> {
            let ignored = super::ignored_at_start();
            let wanted = [SIGTERM, SIGINT, SIGHUP, SIGUSR1]
                .into_iter()
                .filter(|signal| ignored >> (signal - 1) & 1 == 0);
            let mut signals = Signals::new(wanted)?;
            let interest = mio::Interest::READABLE;
            registry.register(&mut signals, token, interest)?;
            Ok(Some(Self(signals)))
        }

        /// Those that came since the last call.
        pub(in crate::io) fn pending(&mut self) -> impl Iterator<Item = HostSignal> {
            self.0.pending().filter_map(|signal| match signal {
                SIGTERM => Some(HostSignal::Terminate),
                SIGINT => Some(HostSignal::Interrupt),
                SIGHUP => Some(HostSignal::Hangup),
                _ => None,
            })
        }
    }
}

/// The signals our parent had us ignore, one bit each, bit 0 for signal 1. Linux: proc(5),
/// `SigIgn`.
#[cfg(feature = "cli")]
fn ignored_at_start() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

/// Without the feature nothing is installed.
#[cfg(not(feature = "cli"))]
#[derive(Debug)]
pub(super) enum HostSignals {}

#[cfg(not(feature = "cli"))]
impl HostSignals {
    #[expect(
        clippy::unnecessary_wraps,
        reason = "the shape of its namesake with the feature"
    )]
    pub(super) fn watch(_registry: &Registry, _token: Token) -> io::Result<Option<Self>> {
        Ok(None)
    }

    pub(super) fn pending(&mut self) -> std::option::IntoIter<HostSignal> {
        match *self {}
    }
}
