//! Names to addresses, on a thread of its own: the system's resolver blocks.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};

use mio::Waker;

use super::Key;
use super::fault::words;
use crate::link::{FaultKind, IoFault};
use crate::secret::Quoted;

/// Names that may wait for the resolver; the next one fails at once. A hub has a few dozen
/// upstreams.
const QUEUED_MAX: usize = 256;

/// Addresses of one name that are tried; the rest are dropped. A name rarely has more than eight.
pub(super) const ADDRESSES_MAX: usize = 16;

struct Job {
    key: Key,
    host: String,
    port: u16,
}

/// The answer for one wire: addresses in the order of the system (RFC 6724), or why there are none.
pub(super) struct Answer {
    pub(super) key: Key,
    pub(super) addresses: Result<Vec<SocketAddr>, IoFault>,
}

/// The resolver; its thread starts with the first name and ends with this value.
pub(super) struct Resolver {
    waker: Arc<Waker>,
    jobs: Option<SyncSender<Job>>,
    answers: Receiver<Answer>,
    answer: Sender<Answer>,
}

/// The address that `host` spells; then nobody needs to be asked. A zone (`fe80::1%eth0`) needs the
/// resolver, which knows the interfaces.
pub(super) fn literal(host: &str, port: u16) -> Option<SocketAddr> {
    let ip: IpAddr = host.parse().ok()?;
    Some(SocketAddr::new(ip, port))
}

impl Resolver {
    /// A resolver that wakes the loop by `waker` for each answer. No thread yet.
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        let (answer, answers) = channel();
        Self {
            waker,
            jobs: None,
            answers,
            answer,
        }
    }

    /// Looks `host` up for the wire `key`. The answer comes by [`Resolver::poll`].
    pub(super) fn ask(&mut self, key: Key, host: &str, port: u16) -> Result<(), IoFault> {
        let exhausted = |why: &str| IoFault {
            kind: FaultKind::Exhausted,
            message: format!("cannot resolve {}: {why}", Quoted(host)),
        };
        let jobs = match &self.jobs {
            Some(jobs) => jobs,
            None => {
                let jobs = self.start().map_err(|e| exhausted(&words(&e)))?;
                self.jobs.insert(jobs)
            }
        };
        let job = Job {
            key,
            host: host.to_owned(),
            port,
        };
        jobs.try_send(job).map_err(|e| match e {
            TrySendError::Full(_) => exhausted(&format!("{QUEUED_MAX} names wait already")),
            TrySendError::Disconnected(_) => exhausted("the resolver has ended"),
        })
    }

    /// The next answer, if one is there.
    pub(super) fn poll(&mut self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }

    fn start(&self) -> io::Result<SyncSender<Job>> {
        let (jobs, queue) = sync_channel::<Job>(QUEUED_MAX);
        let (answer, waker) = (self.answer.clone(), Arc::clone(&self.waker));
        std::thread::Builder::new()
            .name("resolver".to_owned())
            .spawn(move || {
                // Ends when the loop has dropped its side of either queue.
                for job in queue {
                    let addresses = resolve(&job.host, job.port);
                    let key = job.key;
                    if answer.send(Answer { key, addresses }).is_err() {
                        return;
                    }
                    if let Err(error) = waker.wake() {
                        log::warn!("an answer of the resolver waits: {}", words(&error));
                    }
                }
            })?;
        Ok(jobs)
    }
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, IoFault> {
    let fault = |why: &str| IoFault {
        kind: FaultKind::Resolve,
        message: format!("cannot resolve {}: {why}", Quoted(host)),
    };
    match (host, port).to_socket_addrs() {
        Ok(found) => {
            let mut addresses: Vec<SocketAddr> = Vec::new();
            for address in found {
                if addresses.len() < ADDRESSES_MAX && !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
            if addresses.is_empty() {
                return Err(fault("it has no address"));
            }
            Ok(addresses)
        }
        Err(error) => {
            let text = words(&error);
            let short = text.strip_prefix("failed to lookup address information: ");
            let short = short.unwrap_or(&text).to_lowercase();
            Err(fault(&short))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_need_nobody() {
        assert_eq!(
            literal("127.0.0.1", 80),
            Some(SocketAddr::from(([127, 0, 0, 1], 80)))
        );
        assert!(literal("::1", 80).is_some_and(|a| a.is_ipv6()));
        assert_eq!(literal("localhost", 80), None);
        assert_eq!(literal("fe80::1%lo", 80), None);
    }

    #[test]
    fn a_name_that_cannot_exist_is_a_resolve_fault() {
        let fault = resolve("no such name", 1).expect_err("spaces are in no name");
        assert_eq!(fault.kind, FaultKind::Resolve);
        assert!(
            fault.message.starts_with("cannot resolve no such name: "),
            "{}",
            fault.message
        );
    }
}
