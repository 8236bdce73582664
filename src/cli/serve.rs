//! `drawspan serve`: an OpenClaw Gateway in an MCP client, over stdin and stdout, HTTP or Unix sockets.

use std::path::PathBuf;
use std::time::Duration;

use super::audit_log::AuditLog;
use super::connection::{Connection, connection, credentials, report, settings};
use super::embedded::{self, Embedded};
use super::listen::{Door, doors, http_config};
use super::lock_file::LockFile;
use super::reload::Reload;
use super::upstreams::{self, Upstreams};
use super::{CommandResult, Exit, Failure, ServeArgs, say};
use crate::clock::Now;
use crate::entropy::Entropy;
use crate::gateway::endpoint::{Credentials, Endpoint, EndpointInputs};
use crate::gateway::identity::{DeviceIdentity, PLATFORM};
use crate::gateway::session::{RefusalKind, SessionConfig};
use crate::hub::{
    GatewayConfig, Hub, HubConfig, HubEvent, HubPolicy, Outcome, ServerIdentity, UpstreamConfig,
};
use crate::ids::WireId;
use crate::io::identity_files::IdentityFiles;
use crate::io::system::OsEntropy;
use crate::io::{EventLoop, HostSignal};
use crate::limits::Limits;
use crate::link::Driven;
use crate::link::websocket::ConnectSpec;

pub(super) fn run(args: ServeArgs) -> CommandResult {
    let doors = doors(&args.listen)?;
    let http = http_config(&args, &doors)?;
    let mut settings = settings(args.target.config.as_deref())?;
    settings.audit.required |= args.audit_required;
    let audit_file = args.audit.clone().or(settings.audit_file);
    if settings.audit.required && audit_file.is_none() {
        let message = "an audit log is required and there is none: give --audit FILE, or audit.file in the configuration";
        return Err(Failure::new(Exit::Usage, message));
    }
    let mut events = start(EventLoop::new(&settings.limits))?;
    super::guard::set_up(&mut events);
    if let Some(shortage) = events.descriptor_shortage(&settings.limits) {
        log::warn!("{shortage}");
    }
    start(events.watch_signals())?;
    if doors.contains(&Door::Stdio) {
        start(events.watch_parent())?;
    }
    let mut entropy = OsEntropy::new();
    let now = events.now();
    let mut embedded = None;
    let Upstreams {
        servers,
        plugins,
        file,
    } = upstreams::find(&args)?;
    let wants_gateway = args.gateway.is_some() || (servers.is_empty() && file.is_none());
    let (gateway, files) = if !wants_gateway {
        (None, None)
    } else if args.gateway.as_deref() == Some("embedded") {
        let opened = open_embedded(&mut events, args.store.clone(), &settings.limits)?;
        let gateway = to_embedded(&opened, &settings.limits, &mut entropy)?;
        embedded = Some(opened);
        (Some(gateway), None)
    } else {
        let Connection { gateway, files } = connection(
            args.gateway.as_deref(),
            credentials(&args.credentials)?,
            &settings.limits,
            now,
            &mut entropy,
        )?;
        (Some(gateway), Some(files))
    };
    let lock = LockFile::find(args.lock.as_ref(), &settings.lock);
    let locked = lock.as_ref().map(LockFile::rule).transpose();
    let locked = locked.map_err(|why| Failure::new(Exit::Usage, why))?;
    let lock_path = lock.as_ref().map(|lock| &lock.path);
    // The servers' file is the settings' one, unless those are the only thing in it.
    let settings_file = file.as_ref().or(settings.file.as_ref());
    for file in settings_file.into_iter().chain(lock_path) {
        if let Err(error) = events.watch_file(file) {
            let name = upstreams::label(file);
            say(&format!("warning: changes of {name} are not seen: {error}"));
        }
    }
    let identity = match &gateway {
        Some(_) => ServerIdentity::bridge(),
        None => ServerIdentity::span(),
    };
    let upstream = (file.is_some() || !servers.is_empty()).then_some(UpstreamConfig {
        servers,
        prefix: args.prefix.0,
    });
    let limit = settings.limits.finish_timeout;
    let audit = settings.audit;
    let log = audit_file.map(|path| AuditLog::open(path, &audit, &settings.limits, now));
    let config = HubConfig {
        limits: settings.limits,
        identity,
        local: None,
        plugins,
        upstream,
        gateway,
        channel_mode: args.claude_channel_mode.0,
        verbose: args.verbose,
        policy: settings.hook.map_or(HubPolicy::Open, HubPolicy::Hook),
        http,
        tap: false,
    };
    let limits = config.limits.clone();
    let mut hub = Hub::new(config, Box::new(entropy), now);
    hub.set_lock(now, locked);
    hub.set_rules(settings.rules)
        .map_err(|error| Failure::new(Exit::Usage, format!("gate.{error}")))?;
    let mut log = log.inspect(|_| hub.keep_audit(audit.required));
    let reload = Reload {
        servers: file,
        lock,
        settings: settings.file,
        limits,
        required: audit.required,
        audit_file: args.audit,
        audit_required: args.audit_required,
    };
    let chosen = open_doors(&mut hub, doors, now);
    match &mut embedded {
        Some(embedded) => {
            events.settle(&mut [&mut embedded.gateway, &mut hub]);
            tell_ports(&events, 1, &chosen);
        }
        None => {
            events.settle(&mut [&mut hub]);
            tell_ports(&events, 0, &chosen);
        }
    }
    let ended = loop {
        match &mut embedded {
            Some(embedded) => {
                start(events.turn(&mut [&mut embedded.gateway, &mut hub]))?;
                embedded.report(args.verbose);
            }
            None => start(events.turn(&mut [&mut hub]))?,
        }
        while let Some(signal) = events.take_signal() {
            let now = events.now();
            match signal {
                HostSignal::Hangup | HostSignal::FileChanged if reload.has_any(log.as_ref()) => {
                    reload.run(&mut hub, log.as_mut(), signal, now);
                }
                HostSignal::Terminate
                | HostSignal::Interrupt
                | HostSignal::Hangup
                | HostSignal::FileChanged => hub.shutdown(now),
            }
        }
        if let Some(log) = &mut log {
            log.carry(&mut hub, events.now());
        }
        match attend(&mut hub, files.as_ref(), args.verbose) {
            Ok(None) => {}
            Ok(Some(exit)) => break Ok(exit),
            Err(failure) => break Err(failure),
        }
    };
    let lingered = match &mut embedded {
        Some(embedded) => linger(&mut events, &mut [&mut embedded.gateway, &mut hub], limit),
        None => linger(&mut events, &mut [&mut hub], limit),
    };
    if let Some(log) = log {
        log.end(&mut hub, events.now());
    }
    ended.and_then(|exit| lingered.map(|()| exit))
}

/// Opens the doors; gives those whose port the system chooses.
fn open_doors(hub: &mut Hub, doors: Vec<Door>, now: Now) -> Vec<(String, WireId)> {
    let mut chosen = Vec::new();
    for door in doors {
        match door {
            Door::Stdio => {
                hub.serve_stdio(now);
            }
            Door::Http { host, port } => {
                let wire = hub.listen_http(&host, port);
                if port == 0 {
                    chosen.push((host, wire));
                }
            }
            Door::Unix { path } => {
                hub.listen_unix(path);
            }
        }
    }
    chosen
}

/// Says where we listen when nobody could know. A door that could not be opened is told by the hub.
fn tell_ports(events: &EventLoop, machine: usize, chosen: &[(String, WireId)]) {
    for (host, wire) in chosen {
        let Some(port) = events.local_port(machine, *wire) else {
            continue;
        };
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.clone()
        };
        super::say(&format!("listening on http://{host}:{port}/mcp"));
    }
}

/// Turns on until the connections that were ended in good order have had their last bytes, for `limit` at
/// most. A signal ends the wait.
fn linger(
    events: &mut EventLoop,
    machines: &mut [&mut dyn Driven],
    limit: Duration,
) -> Result<(), Failure> {
    let until = events.now().after(limit);
    events.settle(machines);
    while events.finishing() > 0 && events.now().up < until && events.take_signal().is_none() {
        start(events.turn(machines))?;
    }
    Ok(())
}

/// The embedded Gateway of this process, on a port of its own.
fn open_embedded(
    events: &mut EventLoop,
    store: Option<PathBuf>,
    limits: &Limits,
) -> Result<Embedded, Failure> {
    let store = match store {
        Some(store) => store,
        None => embedded::usual_store()?,
    };
    let mut opened = embedded::open(
        events,
        ("127.0.0.1".to_owned(), 0),
        None,
        Some(&store),
        limits,
    )?;
    let now = events.now();
    let samples = opened.gateway.post_samples(now);
    samples.map_err(|refusal| Failure::new(Exit::Failed, refusal.to_string()))?;
    Ok(opened)
}

/// How the hub reaches the embedded Gateway: by the front door, as a device that lives as long as we do.
pub(super) fn to_embedded(
    embedded: &Embedded,
    limits: &Limits,
    entropy: &mut dyn Entropy,
) -> Result<GatewayConfig, Failure> {
    let inputs = EndpointInputs {
        url: Some(embedded.url.clone()),
        flags: Credentials {
            token: Some(embedded.token.clone()),
            password: None,
        },
        ..EndpointInputs::default()
    };
    let endpoint = Endpoint::resolve(&inputs)
        .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    let connect = ConnectSpec {
        host: endpoint.host,
        port: endpoint.port,
        path: endpoint.path,
        tls: None,
    };
    let session = SessionConfig {
        url_for_log: endpoint.url_for_log,
        loopback: endpoint.loopback,
        identity: DeviceIdentity::generate(entropy),
        credentials: endpoint.credentials,
        stored_token: None,
        platform: PLATFORM,
        limits: limits.clone(),
    };
    Ok(GatewayConfig { connect, session })
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
            // A person answers on a Unix socket, by a channel tool or at the Gateway; nobody can be asked on stdin
            // and stdout.
            HubEvent::GateAsked { .. }
            | HubEvent::GatewayFrame { .. }
            | HubEvent::Local(_)
            | HubEvent::LocalCancelled(_)
            | HubEvent::ClientNotification { .. } => {}
            HubEvent::ListenFailed { message } => {
                return Err(Failure::new(Exit::Failed, message));
            }
            HubEvent::Finished(Outcome::ClientDone | Outcome::Stopped) => {
                return Ok(Some(Exit::Ok));
            }
            HubEvent::Finished(Outcome::ClientFailed) => return Ok(Some(Exit::Failed)),
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
