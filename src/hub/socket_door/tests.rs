use super::*;
use crate::clock::Uptime;
use crate::diagnostic::Level;
use crate::entropy::Seeded;
use crate::hub::{HubConfig, LocalConfig, Outcome};
use crate::limits::Limits;
use crate::link::{Driven, FaultKind, IoEvent};
use crate::local::{Registry, Tool};
use crate::protocol::message::LogLevel;

const START: Now = Now {
    up: Uptime::ZERO,
    unix_ms: 0,
};
const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
const ANNOTATED: &str =
    r#"{"type":"object","properties":{"p":{"type":"string","x-mcp-header":"P"}}}"#;

/// A hub with local tools only that takes two clients on `/run/x`, its listener opened.
fn hub() -> (Hub, WireId) {
    let config = HubConfig {
        limits: Limits {
            socket_clients_max: 2,
            ..Limits::default()
        },
        local: Some(LocalConfig {
            registry: Registry::new(),
            state_key: [1; 32],
        }),
        ..HubConfig::default()
    };
    let mut hub = Hub::new(config, Box::new(Seeded::new(1)), START);
    let listener = hub.listen_unix("/run/x".into());
    let opened = format!("Open({listener:?}, ListenUnix {{ path: \"/run/x\" }})");
    assert_eq!(requests(&mut hub), [opened]);
    (hub, listener)
}

fn requests(hub: &mut Hub) -> Vec<String> {
    std::iter::from_fn(|| hub.poll_io())
        .map(|request| format!("{request:?}"))
        .collect()
}

fn accept(hub: &mut Hub, listener: WireId) -> WireId {
    let wire = hub.handle_accept(START, listener, "unix:uid=1,pid=2");
    wire.expect("a wire, if only to say no")
}

fn tell(hub: &mut Hub, wire: WireId, event: IoEvent<'_>) {
    hub.handle_io(START, wire, event);
}

/// What was written for a wire, which leaves.
fn take(hub: &mut Hub, wire: WireId) -> String {
    let out = hub.outgoing(wire).expect("a wire of the hub");
    let text = String::from_utf8(out.pending().to_vec()).expect("UTF-8");
    out.advance(text.len());
    text
}

fn ask(hub: &mut Hub, wire: WireId) {
    tell(hub, wire, IoEvent::Bytes(format!("{PING}\n").as_bytes()));
    assert_eq!(requests(hub), [format!("Flush({wire:?})")]);
    let answer = "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n";
    assert_eq!(take(hub, wire), answer);
    tell(hub, wire, IoEvent::Drained);
}

#[test]
fn each_client_has_a_peer_of_its_own_and_the_door_outlives_them() {
    let (mut hub, listener) = hub();
    let (one, two) = (accept(&mut hub, listener), accept(&mut hub, listener));
    assert_eq!(requests(&mut hub), Vec::<String>::new());
    ask(&mut hub, one);
    ask(&mut hub, two);
    tell(&mut hub, one, IoEvent::Eof);
    assert_eq!(requests(&mut hub), [format!("Finish({one:?})")]);
    assert!(hub.outgoing(one).is_none());
    ask(&mut hub, two);
    tell(&mut hub, two, IoEvent::WriteClosed);
    assert_eq!(requests(&mut hub), [format!("Close({two:?})")]);
    let three = accept(&mut hub, listener);
    ask(&mut hub, three);
    assert!(hub.poll_event().is_none(), "it goes on");
}

#[test]
fn one_client_too_many_is_told_so_and_nothing_of_it_is_kept() {
    let (mut hub, listener) = hub();
    let one = accept(&mut hub, listener);
    let _two = accept(&mut hub, listener);
    for _ in 0..3 {
        let surplus = accept(&mut hub, listener);
        assert_eq!(
            hub.poll_io().map(|request| format!("{request:?}")),
            Some(format!("Finish({surplus:?})"))
        );
        assert_eq!(
            take(&mut hub, surplus),
            concat!(
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"busy: 2 clients "#,
                "are connected, limit 2 (socket_clients_max)\"}}\n"
            )
        );
        assert!(hub.poll_io().is_none());
        assert!(hub.outgoing(surplus).is_none(), "forgotten");
        // Nothing comes of what such a client says.
        tell(&mut hub, surplus, IoEvent::Bytes(PING.as_bytes()));
        assert_eq!(requests(&mut hub), Vec::<String>::new());
    }
    ask(&mut hub, one);
    tell(&mut hub, one, IoEvent::Eof);
    assert_eq!(requests(&mut hub), [format!("Finish({one:?})")]);
    let next = accept(&mut hub, listener);
    ask(&mut hub, next);
}

#[test]
fn a_client_whose_wire_breaks_is_no_failure_of_ours() {
    let (mut hub, listener) = hub();
    let one = accept(&mut hub, listener);
    let fault = IoFault {
        kind: FaultKind::Broken,
        message: "reset".to_owned(),
    };
    tell(&mut hub, one, IoEvent::Failed(fault));
    assert_eq!(requests(&mut hub), [format!("Close({one:?})")]);
    let Some(HubEvent::Diagnostic(line)) = hub.poll_event() else {
        panic!("a diagnostic");
    };
    assert_eq!((line.level, line.message.as_str()), (Level::Info, "reset"));
    hub.shutdown(START);
    assert_eq!(requests(&mut hub), [format!("Close({listener:?})")]);
    let Some(HubEvent::Finished(outcome)) = hub.poll_event() else {
        panic!("the end");
    };
    assert_eq!(outcome, Outcome::Stopped);
}

#[test]
fn a_listener_that_fails_is_told_once_and_lets_nobody_in() {
    let (mut hub, listener) = hub();
    let fault = IoFault {
        kind: FaultKind::Exhausted,
        message: "cannot listen on unix:/run/x: why".to_owned(),
    };
    tell(&mut hub, listener, IoEvent::Failed(fault));
    let Some(HubEvent::ListenFailed { message }) = hub.poll_event() else {
        panic!("a failure");
    };
    assert_eq!(message, "cannot listen on unix:/run/x: why");
    assert!(hub.poll_event().is_none());
    assert_eq!(hub.handle_accept(START, listener, ""), None);
    assert_eq!(requests(&mut hub), Vec::<String>::new());
}

#[test]
fn the_end_closes_the_door_first_and_the_clients_in_good_order() {
    let (mut hub, listener) = hub();
    let one = accept(&mut hub, listener);
    tell(
        &mut hub,
        one,
        IoEvent::Bytes(format!("{PING}\n").as_bytes()),
    );
    hub.shutdown(START);
    assert_eq!(hub.handle_accept(START, listener, ""), None);
    assert_eq!(
        requests(&mut hub),
        [format!("Flush({one:?})"), format!("Close({listener:?})")]
    );
    assert!(hub.poll_event().is_none(), "the answer has not left");
    assert!(take(&mut hub, one).contains("\"id\":7"));
    tell(&mut hub, one, IoEvent::Drained);
    assert_eq!(requests(&mut hub), [format!("Finish({one:?})")]);
    assert!(matches!(
        hub.poll_event(),
        Some(HubEvent::Finished(Outcome::Stopped))
    ));
}

#[test]
fn what_a_client_tells_reaches_the_program() {
    let (mut hub, listener) = hub();
    let (one, two) = (accept(&mut hub, listener), accept(&mut hub, listener));
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1.0}}"#;
    let ours = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let lines = format!("{ours}\n{changed}\n{progress}\n");
    tell(&mut hub, one, IoEvent::Bytes(lines.as_bytes()));
    tell(
        &mut hub,
        two,
        IoEvent::Bytes(format!("{changed}\n").as_bytes()),
    );
    let mut told = Vec::new();
    while let Some(event) = hub.poll_event() {
        let HubEvent::ClientNotification {
            client,
            method,
            params,
        } = event
        else {
            panic!("{event:?}");
        };
        told.push((client.0, method, params));
    }
    let list = "notifications/roots/list_changed".to_owned();
    let raw = r#"{"progressToken":"t","progress":1.0}"#;
    let progress = "notifications/progress".to_owned();
    assert_eq!(
        told,
        [
            (0, list.clone(), None),
            (0, progress, Some(raw.into())),
            (1, list, None)
        ]
    );
}

#[test]
fn headers_of_tools_are_read_when_the_registry_may_have_changed() {
    let (mut hub, _) = hub();
    let headers = |hub: &Hub| {
        let local = hub.local.as_ref().expect("local tools");
        local.headers_of("t").len()
    };
    hub.with_local(START, |local| {
        let tool = Tool::new("t", "t", ANNOTATED);
        local.registry_mut().add_tool(tool).expect("a good tool");
    });
    assert_eq!(headers(&hub), 1);
    // Whoever reads them again would find them again.
    let local = hub.local.as_mut().expect("local tools");
    local.forget_headers();
    hub.with_local(START, |local| {
        local.log(crate::ids::CallId(1), LogLevel::Info, "l", "1")
    });
    assert_eq!(headers(&hub), 0);
    hub.with_local(START, |local| local.registry_mut().remove_tool("t"));
    assert_eq!(headers(&hub), 0);
}
