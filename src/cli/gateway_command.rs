//! `drawspan gateway`: the embedded Gateway on its own, and two requests to a Gateway for people who want
//! to see something happen: post a message, ask for an approval.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::connection::{connection, credentials, settings};
use super::embedded;
use super::serve::start;
use super::{
    CommandResult, Exit, Failure, GatewayArgs, GatewayRequest, GatewayTarget, Speaker, print,
};
use crate::codec::json_text::write_string;
use crate::codec::object::from_object;
use crate::codec::uri::{Scheme, Uri};
use crate::gateway::endpoint::Credentials;
use crate::hub::gateway_call::{Asked, CallOutcome, GatewayCall};
use crate::io::EventLoop;
use crate::io::identity_files::read_secret_file;
use crate::io::system::OsEntropy;
use crate::secret::Secret;

pub(super) fn run(args: GatewayArgs) -> CommandResult {
    match args.request {
        None => serve(&args),
        Some(GatewayRequest::Post {
            target,
            session,
            role,
            channel,
            to,
            text,
        }) => {
            let role = match role {
                Speaker::User => "user",
                Speaker::Assistant => "assistant",
            };
            let members = [
                ("sessionKey", &*session),
                ("role", role),
                ("text", &*text),
                ("channel", &*channel),
                ("to", &*to),
            ];
            ask(&target, ("drawspan.post", object(&members, "")), None).map(|_| Exit::Ok)
        }
        Some(GatewayRequest::Ask {
            target,
            timeout,
            command,
        }) => {
            let params = object(
                &[("command", &*command)],
                &format!(r#","timeoutMs":{timeout}"#),
            );
            let second = ("exec.approval.request", params.clone());
            let answer = ask(&target, ("drawspan.ask", params), Some(second))?;
            let decision = from_object::<Decided<'_>>(answer.get()).map(|decided| decided.decision);
            match decision {
                Ok(None) => Err(Failure::new(
                    Exit::TimedOut,
                    format!("nobody decided within {timeout} ms, limit --timeout"),
                )),
                Ok(Some(_)) | Err(_) => Ok(Exit::Ok),
            }
        }
    }
}

fn serve(args: &GatewayArgs) -> CommandResult {
    let settings = settings(None)?;
    let listen = listen_address(&args.listen)?;
    let token = match &args.token_file {
        Some(path) => Some(
            read_secret_file("token", path)
                .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?,
        ),
        None => None,
    };
    let store = match &args.store {
        Some(store) => store.clone(),
        None => embedded::usual_store()?,
    };
    let mut events = start(EventLoop::new(&settings.limits))?;
    start(events.watch_signals())?;
    let named = token.is_some();
    let mut embedded = embedded::open(&mut events, listen, token, Some(&store), &settings.limits)?;
    // Whoever reads stdout learns how to connect; a token of one's own is not repeated.
    let mut line = format!("gateway {} store {}", embedded.url, store.display());
    if !named {
        line.push_str(&format!(" token {}", embedded.token.expose()));
    }
    print(&format!("{line}\n"))?;
    while !embedded.gateway.is_stopped() {
        start(events.turn(&mut [&mut embedded.gateway]))?;
        embedded.report(true);
        while events.take_signal().is_some() {
            embedded.gateway.stop(events.now());
        }
    }
    // The last frames leave.
    events.settle(&mut [&mut embedded.gateway]);
    Ok(Exit::Ok)
}

/// What came of an approval; no decision when its time was up.
#[derive(Deserialize)]
struct Decided<'a> {
    #[serde(borrow)]
    decision: Option<Cow<'a, str>>,
}

/// Sends one request, prints the answer and gives it.
fn ask(
    target: &GatewayTarget,
    first: Asked,
    second: Option<Asked>,
) -> Result<Box<RawValue>, Failure> {
    let settings = settings(None)?;
    let mut events = start(EventLoop::new(&settings.limits))?;
    let mut entropy = OsEntropy::new();
    let now = events.now();
    let (url, flags) = find(target)?;
    let connection = connection(url.as_deref(), flags, &settings.limits, now, &mut entropy)?;
    let mut call = GatewayCall::new(
        connection.gateway,
        &settings.limits,
        first,
        second,
        Box::new(entropy),
        now,
    );
    loop {
        start(events.turn(&mut [&mut call]))?;
        let Some(outcome) = call.poll_outcome() else {
            continue;
        };
        events.settle(&mut [&mut call]);
        return match outcome {
            CallOutcome::Answered(payload) => {
                print(&format!("{}\n", payload.get()))?;
                Ok(payload)
            }
            CallOutcome::Failed(error) => Err(Failure::new(Exit::Failed, error.to_string())),
            CallOutcome::Refused(refusal) => {
                Err(Failure::new(Exit::AuthorizationNeeded, refusal.to_string()))
            }
            CallOutcome::Unreachable(why) => Err(Failure::new(Exit::CannotReach, why)),
        };
    }
}

/// The Gateway named, else the one that runs on the store, else the one `serve` would find.
fn find(target: &GatewayTarget) -> Result<(Option<String>, Credentials), Failure> {
    if target.url.is_some() {
        return Ok((target.url.clone(), credentials(&target.credentials)?));
    }
    let store = match &target.store {
        Some(store) => store.clone(),
        None => embedded::usual_store()?,
    };
    match (embedded::read_note(&store), &target.store) {
        (Some(note), _) => {
            let flags = Credentials {
                token: Some(Secret::new(note.token)),
                password: None,
            };
            Ok((Some(note.url), flags))
        }
        (None, Some(store)) => Err(Failure::new(
            Exit::CannotReach,
            format!("no gateway runs on the store {}", store.display()),
        )),
        (None, None) => Ok((None, credentials(&target.credentials)?)),
    }
}

/// `ws://HOST:PORT` with an address literal; port 0 lets the system choose one.
fn listen_address(text: &str) -> Result<(String, u16), Failure> {
    let usage = |why: &str| Failure::new(Exit::Usage, format!("cannot listen on {text}: {why}"));
    // A URL to call has no port 0, so the parser refuses it.
    let (url, usual_port) = match text.trim_end_matches('/').strip_suffix(":0") {
        Some(host) => (host, 0),
        None => (text, 18_789),
    };
    let uri = Uri::parse(url).map_err(|error| usage(&error.to_string()))?;
    match uri.scheme {
        Scheme::Ws => Ok((uri.host.clone(), uri.port.unwrap_or(usual_port))),
        Scheme::Wss | Scheme::Http | Scheme::Https => {
            Err(usage("the embedded Gateway speaks ws://"))
        }
    }
}

/// A raw JSON object of texts, and more members as they stand.
fn object(members: &[(&str, &str)], more: &str) -> String {
    let mut json = String::from("{");
    for (i, (name, value)) in members.iter().enumerate() {
        if i > 0 {
            json.push(',');
        }
        write_string(&mut json, name);
        json.push(':');
        write_string(&mut json, value);
    }
    json.push_str(more);
    json.push('}');
    json
}
