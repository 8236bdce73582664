//! What cannot work, and who says so: pairs that no transport carries, revisions that one side does not speak,
//! and questions to clients that cannot be asked.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;

use drawspan::protocol::client::peer::CallFault;
use drawspan::protocol::revision::Revision;
use rustix::process::Signal;

use crate::client::{Address, Client};
use crate::common::{Home, Process};
use crate::places::{Place, Transport, everything_server, older};

/// What a client hears of a server that cannot be spoken to: when it connects, or else when it asks.
fn complaint(address: &Address, client: Revision) -> String {
    let mut client = match Client::connect(address, client) {
        Ok(client) => client,
        Err(why) => return why,
    };
    let outcome = client.ask("resources/list", "{}");
    client.end();
    match outcome {
        Err(CallFault::Remote(error)) => error.message,
        other => format!("no error: {other:?}"),
    }
}

#[test]
fn a_client_of_2026_07_28_does_not_take_the_older_pair() {
    let place = Place::new(Revision::V2025_11_25, Transport::Unix);
    let address = place.address(Transport::Sse);
    let why = complaint(&address, Revision::V2026_07_28);
    assert_eq!(
        why,
        "the transport of 2024-11-05 carries revisions with a handshake only"
    );
    place.end();
}

/// Each client of each revision is told, in one error.
#[track_caller]
fn expect_told(home: &Home, target: &[&str], words: &[&str]) {
    let door = home.path("door.sock");
    let unix = format!("unix:{}", door.display());
    let args = ["serve", "--listen", "http://127.0.0.1:0", "--listen", &unix];
    let (drawspan, url) = Process::listening(&mut home.drawspan(&[&args, target].concat()));
    let mut missing = Vec::new();
    for client in Revision::NEWEST_FIRST {
        let pair = Address::Sse(older(&url));
        for address in [
            Address::Unix(door.clone()),
            Address::Http(url.clone()),
            pair,
        ] {
            if matches!(address, Address::Sse(_)) && client.is_stateless() {
                continue;
            }
            let why = complaint(&address, client);
            if !words.iter().all(|word| why.contains(word)) {
                missing.push(format!("{client} {address:?}: {why}"));
            }
        }
    }
    drawspan.signal(Signal::TERM);
    drawspan.end().expect_code(0);
    assert_eq!(missing, Vec::<String>::new(), "{words:?}");
}

#[test]
fn an_upstream_of_2026_07_28_is_not_reached_by_the_older_pair() {
    let home = Home::new("refusal-pair");
    let server = everything_server();
    let listen = ["--listen", "http://127.0.0.1:0/mcp"];
    let (server, url) = Process::listening(&mut home.program(&server, &listen));
    let url = older(&url);
    let target = ["--transport", "sse", "--protocol", "2026-07-28", &url];
    expect_told(
        &home,
        &target,
        &["2024-11-05 carries revisions with a handshake only"],
    );
    drop(server);
}

#[test]
fn who_cannot_be_asked_is_not_asked() {
    for server in [Revision::V2025_11_25, Revision::V2026_07_28] {
        let place = Place::new(server, Transport::Unix);
        for client in [Revision::V2025_11_25, Revision::V2026_07_28] {
            for transport in [Transport::Unix, Transport::Http] {
                // Two clients of one caller: only one of them has a model.
                let address = place.address(transport);
                let mut other = Client::connect(&address, client).unwrap();
                let mut client = Client::connect_as(&address, client, "{}").unwrap();
                drop(other.call("test_simple_text", "{}"));
                let why = match client.call("test_sampling", r#"{"prompt":"?"}"#) {
                    Ok(result) if result["isError"] == true => result.to_string(),
                    Err(CallFault::Remote(error)) => error.message,
                    other => panic!("no error: {other:?}"),
                };
                assert!(why.contains("sampling"), "{why}");
                let text = client.call("test_simple_text", "{}").unwrap().to_string();
                assert!(text.contains("a simple text response"), "{text}");
                for client in [&mut client, &mut other] {
                    assert_eq!(client.told().asked, Vec::<String>::new());
                }
                client.end();
                other.end();
            }
        }
        place.end();
    }
}

#[test]
fn two_sides_without_a_common_revision_are_both_named() {
    let home = Home::new("refusal-revision");
    let path = home.path("server.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let mut out = stream.try_clone().unwrap();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let id = line.split(r#""id":"#).nth(1);
                    let Some(id) = id.and_then(|rest| rest.split([',', '}']).next()) else {
                        continue;
                    };
                    let outcome = match line.contains(r#""initialize""#) {
                        true => concat!(
                            r#""result":{"protocolVersion":"2024-11-05","capabilities":{},"#,
                            r#""serverInfo":{"name":"old","version":"1"}}"#
                        ),
                        false => r#""error":{"code":-32601,"message":"Method not found"}"#,
                    };
                    drop(writeln!(out, r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#));
                }
            });
        }
    });
    let target = format!("unix:{}", path.display());
    let target = ["--protocol", "2025-06-18", &target];
    expect_told(&home, &target, &["2024-11-05", "2025-06-18"]);
}
