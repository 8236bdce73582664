//! `drawspan serve`: an OpenClaw Gateway in an MCP client, over stdin and stdout.

use super::connection::{Connection, connection, report, settings};
use super::{CommandResult, Exit, Failure, ServeArgs};
use crate::gateway::session::RefusalKind;
use crate::hub::{Hub, HubConfig, HubEvent, HubPolicy, Outcome};
use crate::io::EventLoop;
use crate::io::identity_files::IdentityFiles;
use crate::io::system::OsEntropy;

pub(super) fn run(args: ServeArgs) -> CommandResult {
    if let Some(other) = args.listen.iter().find(|addr| *addr != "stdio") {
        return Err(Failure::new(
            Exit::Usage,
            format!("cannot listen on {other}: this version serves stdio"),
        ));
    }
    let settings = settings(args.config.as_deref())?;
    let mut events = start(EventLoop::new(&settings.limits))?;
    start(events.watch_signals())?;
    start(events.watch_parent())?;
    let mut entropy = OsEntropy::new();
    let now = events.now();
    let Connection { gateway, files } = connection(
        args.gateway.as_deref(),
        &args.credentials,
        &settings.limits,
        now,
        &mut entropy,
    )?;
    let config = HubConfig {
        limits: settings.limits,
        version: env!("CARGO_PKG_VERSION"),
        gateway,
        channel_mode: args.claude_channel_mode.0,
        verbose: args.verbose,
        policy: settings.hook.map_or(HubPolicy::Open, HubPolicy::Hook),
    };
    let mut hub = Hub::new(config, Box::new(entropy), now);
    hub.serve_stdio(now);
    loop {
        start(events.turn(&mut [&mut hub]))?;
        while events.take_signal().is_some() {
            hub.shutdown(events.now());
        }
        if let Some(exit) = attend(&mut hub, Some(&files), args.verbose)? {
            return Ok(exit);
        }
    }
}

/// Does what the hub asks of its program; gives the exit code once the hub has finished.
pub(super) fn attend(
    hub: &mut Hub,
    files: Option<&IdentityFiles>,
    verbose: bool,
) -> Result<Option<Exit>, Failure> {
    while let Some(event) = hub.poll_event() {
        match event {
            HubEvent::Diagnostic(diagnostic) => report(&diagnostic, verbose),
            HubEvent::StoreToken(token) => keep(files.map(|files| files.store_token(&token))),
            HubEvent::ForgetToken => keep(files.map(IdentityFiles::forget_token)),
            // Held calls expire by themselves; nobody can be asked on stdin and stdout.
            HubEvent::GateAsked { .. } => {}
            HubEvent::Finished(Outcome::ClientDone | Outcome::Stopped) => {
                return Ok(Some(Exit::Ok));
            }
            HubEvent::Finished(Outcome::Refused(refusal)) => {
                let exit = match refusal.kind {
                    RefusalKind::Credentials | RefusalKind::Pairing | RefusalKind::Device => {
                        Exit::AuthorizationNeeded
                    }
                    RefusalKind::Protocol | RefusalKind::Request => Exit::Failed,
                };
                return Err(Failure::new(exit, refusal.to_string()));
            }
        }
    }
    Ok(None)
}

/// The device token is a convenience: not being able to keep it is worth a line, not an end.
fn keep(stored: Option<Result<(), crate::io::identity_files::FileError>>) {
    if let Some(Err(error)) = stored {
        super::say(&format!("warning: {error}"));
    }
}

pub(super) fn start<T>(done: std::io::Result<T>) -> Result<T, Failure> {
    done.map_err(|error| Failure::new(Exit::Failed, format!("the event loop failed: {error}")))
}
