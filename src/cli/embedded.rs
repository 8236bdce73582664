//! The embedded Gateway as programs use it: its store directory, its journal, and the note in the store
//! that tells the other commands where it listens.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::serve::start;
use super::{Exit, Failure, say};
use crate::config;
use crate::crypto::hex;
use crate::embedded::{Credentials, EmbeddedConfig, EmbeddedEvent, EmbeddedGateway};
use crate::entropy::Entropy;
use crate::io::EventLoop;
use crate::io::journal::Journal;
use crate::io::system::OsEntropy;
use crate::limits::Limits;
use crate::secret::Secret;

/// The file in a store that says where its Gateway listens and what opens it. Readable by the owner only.
const NOTE: &str = "endpoint.json";

/// The embedded Gateway in this process, as machine 0 of the loop.
pub(super) struct Embedded {
    pub(super) gateway: EmbeddedGateway,
    pub(super) url: String,
    pub(super) token: Secret<String>,
    note: Option<PathBuf>,
}

/// Where a running embedded Gateway can be reached.
#[derive(Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) url: String,
    pub(super) token: String,
}

/// Opens the Gateway with its store and waits until it listens. `store` is a directory; `None` keeps nothing.
pub(super) fn open(
    events: &mut EventLoop,
    listen: (String, u16),
    token: Option<Secret<String>>,
    store: Option<&Path>,
    limits: &Limits,
) -> Result<Embedded, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(Exit::Failed, error.to_string());
    let mut entropy = OsEntropy::new();
    let token = token.unwrap_or_else(|| Secret::new(new_token(&mut entropy)));
    let mut bytes = Vec::new();
    let mut journal = None;
    if let Some(store) = store {
        let (opened, found) = Journal::open(store).map_err(|error| failed(&error))?;
        (journal, bytes) = (Some(opened), found);
    }
    let config = EmbeddedConfig {
        listen: Some(listen.clone()),
        credentials: Credentials {
            token: Some(token.clone()),
            password: None,
        },
        store: store.map(|store| store.display().to_string()),
        ..EmbeddedConfig::default()
    };
    let opened = EmbeddedGateway::open(config, limits, Box::new(entropy), events.now(), &bytes);
    let mut gateway = opened.map_err(|error| failed(&error))?;
    let replay = gateway.replay();
    if replay.damaged > 0 || replay.cut_bytes > 0 {
        say(&format!("warning: store: {replay}"));
    }
    if let Some(mut journal) = journal {
        let whole = bytes.len() as u64 - replay.cut_bytes;
        journal
            .truncate(whole)
            .map_err(|fault| failed(&fault.message))?;
        events.set_journal(0, journal);
    }
    events.settle(&mut [&mut gateway]);
    let Some(port) = events.local_port(0, EmbeddedGateway::listener()) else {
        // The reason comes with the next turn.
        start(events.turn(&mut [&mut gateway]))?;
        let why = gateway.poll_event().map(|event| event.to_string());
        let why = why.unwrap_or_else(|| format!("cannot listen on {}:{}", listen.0, listen.1));
        return Err(Failure::new(Exit::Failed, why));
    };
    let host = if listen.0.contains(':') {
        format!("[{}]", listen.0)
    } else {
        listen.0
    };
    let url = format!("ws://{host}:{port}");
    let note = match store {
        Some(store) => write_note(store, &url, &token)?,
        None => None,
    };
    Ok(Embedded {
        gateway,
        url,
        token,
        note,
    })
}

impl Embedded {
    /// Tells on stderr what happened: failures always, the rest where more was asked for.
    pub(super) fn report(&mut self, verbose: bool) {
        while let Some(event) = self.gateway.poll_event() {
            match event {
                EmbeddedEvent::ListenFailed { .. } | EmbeddedEvent::StoreFailed { .. } => {
                    say(&format!("error: gateway: {event}"));
                }
                EmbeddedEvent::ClientConnected { .. }
                | EmbeddedEvent::ClientRefused { .. }
                | EmbeddedEvent::ClientGone { .. }
                | EmbeddedEvent::MessagePosted { .. }
                | EmbeddedEvent::ApprovalRequested { .. }
                | EmbeddedEvent::ApprovalResolved { .. }
                | EmbeddedEvent::ApprovalExpired { .. } => {
                    if verbose {
                        say(&format!("gateway: {event}"));
                    }
                }
            }
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(note) = &self.note {
            drop(std::fs::remove_file(note));
        }
    }
}

/// The usual store. Source: XDG base directories, `XDG_STATE_HOME`.
pub(super) fn usual_store() -> Result<PathBuf, Failure> {
    let env = config::environment();
    let filled = |name: &str| env.get(name).filter(|value| !value.trim().is_empty());
    let state = match (filled("XDG_STATE_HOME"), filled("HOME")) {
        (Some(state), _) => PathBuf::from(state),
        (None, Some(home)) => Path::new(home).join(".local").join("state"),
        (None, None) => {
            return Err(Failure::new(
                Exit::Usage,
                "no home directory: give --store DIR",
            ));
        }
    };
    Ok(state.join("drawspan").join("gateway"))
}

/// Reads where the Gateway of a store listens; `None` when none runs there.
pub(super) fn read_note(store: &Path) -> Option<Note> {
    let text = std::fs::read_to_string(store.join(NOTE)).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_note(store: &Path, url: &str, token: &Secret<String>) -> Result<Option<PathBuf>, Failure> {
    let path = store.join(NOTE);
    let note = Note {
        url: url.to_owned(),
        token: token.expose().clone(),
    };
    let written = serde_json::to_string(&note)
        .map_err(std::io::Error::other)
        .and_then(|text| {
            // The journal's lock says that the store is ours; a note found here is of a dead process.
            drop(std::fs::remove_file(&path));
            let mut options = std::fs::OpenOptions::new();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            writeln!(file, "{text}")
        });
    match written {
        Ok(()) => Ok(Some(path)),
        Err(error) => Err(Failure::new(
            Exit::Failed,
            format!("cannot write {}: {error}", path.display()),
        )),
    }
}

/// 256 random bits.
fn new_token(entropy: &mut dyn Entropy) -> String {
    let mut bytes = [0_u8; 32];
    entropy.fill(&mut bytes);
    hex(&bytes)
}
