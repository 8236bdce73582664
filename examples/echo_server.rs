//! The smallest server of its own tools, and the subject of the measurements in README.md: one tool,
//! `echo`, which answers with its `text`.
//!
//! ```text
//! echo_server                                     serves stdin and stdout
//! echo_server --listen http://127.0.0.1:PORT/mcp  serves HTTP
//! ```

use std::error::Error;

use drawspan::codec::uri::Uri;
use drawspan::entropy::Entropy;
use drawspan::hub::{Hub, HubConfig, HubEvent, LocalConfig, Outcome, ServerIdentity};
use drawspan::io::EventLoop;
use drawspan::io::system::OsEntropy;
use drawspan::limits::Limits;
use drawspan::local::{Registry, Tool};

fn main() -> Result<(), Box<dyn Error>> {
    let listen = address(std::env::args().skip(1))?;
    let limits = Limits::default();
    let mut events = EventLoop::new(&limits)?;
    events.watch_signals()?;
    let mut entropy = OsEntropy::new();
    let mut state_key = [0; 32];
    entropy.fill(&mut state_key);
    let config = HubConfig {
        limits,
        identity: ServerIdentity {
            name: "echo".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..ServerIdentity::default()
        },
        local: Some(LocalConfig {
            registry: registry()?,
            state_key,
        }),
        ..HubConfig::default()
    };
    let now = events.now();
    let mut hub = Hub::new(config, Box::new(entropy), now);
    match listen {
        None => {
            hub.serve_stdio(now);
        }
        Some(address) => {
            let uri = Uri::parse(&address)?;
            hub.listen_http(&uri.host, uri.port.unwrap_or(80));
        }
    }
    loop {
        events.turn(&mut [&mut hub])?;
        while events.take_signal().is_some() {
            hub.shutdown(events.now());
        }
        while let Some(event) = hub.poll_event() {
            match event {
                HubEvent::ListenFailed { message } => return Err(message.into()),
                HubEvent::Finished(Outcome::ClientFailed) => return Err("stdout failed".into()),
                HubEvent::Finished(_) => return Ok(()),
                // The tool answers at once, and there is neither Gateway nor gate keeper.
                HubEvent::Local(_)
                | HubEvent::LocalCancelled(_)
                | HubEvent::ClientNotification { .. }
                | HubEvent::GateAsked { .. }
                | HubEvent::GatewayFrame { .. }
                | HubEvent::StoreToken(_)
                | HubEvent::ForgetToken
                | HubEvent::Diagnostic(_) => {}
            }
        }
    }
}

fn registry() -> Result<Registry, Box<dyn Error>> {
    let mut registry = Registry::new();
    let schema = r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}"#;
    let echo =
        Tool::new("echo", "Answers with its text.", schema).answered_in_place(|call, answer| {
            match call.argument_text("text") {
                Some(text) => answer.same_text(text),
                None => {
                    answer.text("text is missing");
                    answer.failed();
                }
            }
        });
    registry.add_tool(echo)?;
    Ok(registry)
}

/// Where to listen; `None` is stdin and stdout.
fn address(mut words: impl Iterator<Item = String>) -> Result<Option<String>, String> {
    match (words.next().as_deref(), words.next()) {
        (None, _) => Ok(None),
        (Some("--listen"), Some(address)) => Ok((address != "stdio").then_some(address)),
        (Some("--listen"), None) => Err("--listen needs a value".to_owned()),
        (Some(other), _) => Err(format!("unknown argument {other}")),
    }
}
