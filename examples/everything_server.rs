//! A server with one of everything, built on the public API of the library: what the official conformance
//! suite runs against, and a place to copy from.
//!
//! ```text
//! everything_server                                     serves stdin and stdout
//! everything_server --listen http://127.0.0.1:PORT/mcp  serves HTTP
//! everything_server --listen unix:PATH                  serves a Unix socket
//! ```
//!
//! `--listen` may be given several times. With port 0 the system chooses one, and a line on stderr says which.
//!
//! `--request-state-key-file FILE` gives several instances behind one address the same key, so that
//! the answer to a question of one of them may go to any: FILE holds 32 or more characters nobody can guess.
//!
//! * `offers.rs`: what is offered, and what can be answered at once
//! * `questions.rs`: tools that ask the client something
//! * `work.rs`: tools that take time, tasks among them
//! * `samples.rs`: a picture, a sound, schemas

#[path = "everything_server/offers.rs"]
mod offers;
#[path = "everything_server/questions.rs"]
mod questions;
#[path = "everything_server/samples.rs"]
mod samples;
#[path = "everything_server/work.rs"]
mod work;

use std::error::Error;
use std::io::Write as _;

use drawspan::clock::Now;
use drawspan::codec::uri::Uri;
use drawspan::crypto::sha256;
use drawspan::entropy::Entropy;
use drawspan::hub::{HttpConfig, Hub, HubConfig, HubEvent, LocalConfig, Outcome, ServerIdentity};
use drawspan::ids::WireId;
use drawspan::io::EventLoop;
use drawspan::io::system::OsEntropy;
use drawspan::limits::Limits;
use drawspan::link::http_rules::AccessRules;

use crate::work::{Action, Work};

fn main() -> Result<(), Box<dyn Error>> {
    let options = options(std::env::args().skip(1))?;
    let limits = Limits::default();
    let mut events = EventLoop::new(&limits)?;
    events.watch_signals()?;
    let mut entropy = OsEntropy::new();
    let state_key = match &options.state_key_file {
        Some(file) => read_key(file)?,
        None => {
            let mut fresh = [0; 32];
            entropy.fill(&mut fresh);
            fresh
        }
    };
    let config = HubConfig {
        limits,
        identity: ServerIdentity {
            name: "everything".to_owned(),
            title: Some("Everything server of drawspan".to_owned()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instructions: None,
        },
        local: Some(LocalConfig {
            registry: offers::registry()?,
            state_key,
        }),
        http: HttpConfig {
            rules: AccessRules::new(&[], &[], None, true)?,
        },
        ..HubConfig::default()
    };
    let now = events.now();
    let mut hub = Hub::new(config, Box::new(entropy), now);
    let chosen = open_doors(&mut hub, &options.listen, now)?;
    events.settle(&mut [&mut hub]);
    for wire in chosen {
        if let Some(port) = events.local_port(0, wire) {
            writeln!(
                std::io::stderr(),
                "listening on http://127.0.0.1:{port}/mcp"
            )?;
        }
    }
    let mut work = Work::default();
    loop {
        // Sleeps until something happens to the hub, or a tool is due.
        events.turn(&mut [&mut hub, &mut work])?;
        while events.take_signal().is_some() {
            hub.shutdown(events.now());
        }
        if attend(events.now(), &mut hub, &mut work)? {
            return Ok(());
        }
    }
}

/// Opens what is to be listened on; gives the doors whose port the system chooses.
fn open_doors(hub: &mut Hub, listen: &[String], now: Now) -> Result<Vec<WireId>, Box<dyn Error>> {
    let mut chosen = Vec::new();
    for address in listen {
        if address == "stdio" {
            hub.serve_stdio(now);
        } else if let Some(path) = address.strip_prefix("unix:") {
            hub.listen_unix(path.into());
        } else if address == ANY_PORT {
            chosen.push(hub.listen_http("127.0.0.1", 0));
        } else {
            let uri = Uri::parse(address)?;
            hub.listen_http(&uri.host, uri.port.unwrap_or(80));
        }
    }
    Ok(chosen)
}

/// Hands requests to the tools and their answers to the hub; whether it is over.
fn attend(now: Now, hub: &mut Hub, work: &mut Work) -> Result<bool, Box<dyn Error>> {
    loop {
        if let Some(event) = hub.poll_event() {
            match event {
                HubEvent::Local(request) => work.handle(now, &request),
                HubEvent::LocalCancelled(call) => work.cancel(call),
                HubEvent::ListenFailed { message } => return Err(message.into()),
                HubEvent::Finished(Outcome::ClientFailed) => return Err("stdout failed".into()),
                HubEvent::Finished(_) => return Ok(true),
                // The tools ask for roots each time, and for nothing that takes long.
                HubEvent::ClientNotification { .. } => {}
                // Of a Gateway, of a person who decides about calls, and for the log.
                HubEvent::GateAsked { .. }
                | HubEvent::GatewayFrame { .. }
                | HubEvent::StoreToken(_)
                | HubEvent::ForgetToken
                | HubEvent::Diagnostic(_) => {}
            }
        } else if let Some(action) = work.poll() {
            carry_out(action, now, hub);
        } else {
            return Ok(false);
        }
    }
}

/// Says to the hub what a tool has to say.
fn carry_out(action: Action, now: Now, hub: &mut Hub) {
    match action {
        Action::Reply(call, reply) => hub.resolve_local(now, call, reply),
        Action::Tell(tell) => {
            hub.with_local(now, |local| tell.tell(now, local));
        }
    }
}

/// A URL to call has no port 0, so no parser takes it.
const ANY_PORT: &str = "http://127.0.0.1:0/mcp";

/// Fewer could be guessed.
const KEY_CHARACTERS_MIN: usize = 32;

/// What the command line asks for.
#[derive(Default)]
struct Options {
    /// Where to listen; `stdio` is stdin and stdout.
    listen: Vec<String>,
    /// Where the key for request states is; `None` makes up a new one.
    state_key_file: Option<String>,
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        let given = words.next();
        match (word.as_str(), given) {
            ("--listen", Some(address)) => options.listen.push(address),
            ("--request-state-key-file", Some(file)) => options.state_key_file = Some(file),
            ("--listen" | "--request-state-key-file", None) => {
                return Err(format!("{word} needs a value"));
            }
            (other, _) => return Err(format!("unknown argument {other}")),
        }
    }
    if options.listen.is_empty() {
        options.listen.push("stdio".to_owned());
    }
    Ok(options)
}

/// The key for request states, made of the secret that `file` holds.
fn read_key(file: &str) -> Result<[u8; 32], String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let secret = text.trim();
    if secret.len() < KEY_CHARACTERS_MIN {
        return Err(format!(
            "{file} needs {KEY_CHARACTERS_MIN} characters at least (found {})",
            secret.len()
        ));
    }
    Ok(sha256(secret.as_bytes()))
}
