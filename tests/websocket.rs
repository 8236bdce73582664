//! WebSocket connections from end to end in memory, on virtual time.

use drawspan::clock::{Now, Uptime};
use drawspan::entropy::Seeded;
use drawspan::ids::WireId;
use drawspan::limits::Limits;
use drawspan::link::websocket::{CloseReason, ConnectSpec, WebSocketLink, WsLinkEvent};
use drawspan::link::{IoEvent, IoRequest};

const CLIENT: WireId = WireId(1);
const SERVER: WireId = WireId(2);

fn at(ms: u64) -> Now {
    Now {
        up: Uptime::from_millis(ms),
        unix_ms: 0,
    }
}

fn spec(host: &str, port: u16) -> ConnectSpec {
    ConnectSpec {
        host: host.to_owned(),
        port,
        path: "/".to_owned(),
        tls: None,
    }
}

/// One end, as a loop would drive it, with its wire in memory.
struct End {
    link: WebSocketLink,
    events: Vec<WsLinkEvent>,
    asked: Vec<&'static str>,
    write_ended: bool,
    gone: bool,
}

impl End {
    fn new(link: WebSocketLink) -> Self {
        let mut end = Self {
            link,
            events: Vec::new(),
            asked: Vec::new(),
            write_ended: false,
            gone: false,
        };
        end.drain();
        end
    }

    fn client() -> Self {
        let limits = Limits::default();
        let mut entropy = Seeded::new(1);
        let link = WebSocketLink::client(CLIENT, spec("h", 80), &limits, &mut entropy, at(0));
        Self::new(link)
    }

    fn server() -> Self {
        Self::new(WebSocketLink::server(SERVER, &Limits::default(), at(0)))
    }

    fn hear(&mut self, now: Now, event: IoEvent<'_>) {
        if !self.gone {
            self.link.handle_io(now, event);
            self.drain();
        }
    }

    fn drain(&mut self) {
        while let Some(event) = self.link.poll_event() {
            self.events.push(event);
        }
        while let Some(request) = self.link.poll_io() {
            self.asked.push(match request {
                IoRequest::Open(..) => "open",
                IoRequest::Flush(_) => "flush",
                IoRequest::PauseReads(..) => "pause",
                IoRequest::CloseWrite(_) => {
                    self.write_ended = true;
                    "close write"
                }
                IoRequest::Close(_) => {
                    self.gone = true;
                    "close"
                }
                IoRequest::Signal(..) => "signal",
                IoRequest::Append(_) => "append",
            });
        }
    }

    /// Everything that waits to leave, as the loop would write it.
    fn sent(&mut self) -> Vec<u8> {
        let bytes = self.link.outgoing().pending().to_vec();
        self.link.outgoing().advance(bytes.len());
        bytes
    }
}

/// Carries bytes and ends between two ends until nothing moves.
fn settle(now: Now, a: &mut End, b: &mut End) {
    loop {
        let mut moved = false;
        for _ in 0..2 {
            let bytes = a.sent();
            if !bytes.is_empty() {
                a.hear(now, IoEvent::Drained);
                b.hear(now, IoEvent::Bytes(&bytes));
                moved = true;
            }
            if std::mem::take(&mut a.write_ended) {
                b.hear(now, IoEvent::Eof);
                moved = true;
            }
            std::mem::swap(a, b);
        }
        if !moved {
            return;
        }
    }
}

fn pair() -> (End, End) {
    let (mut client, mut server) = (End::client(), End::server());
    client.hear(at(1), IoEvent::Opened);
    settle(at(2), &mut client, &mut server);
    assert_eq!(client.events, [WsLinkEvent::Up]);
    assert_eq!(server.events, [WsLinkEvent::Up]);
    (client, server)
}

#[test]
fn texts_travel_both_ways_and_the_close_is_answered() {
    let (mut client, mut server) = pair();
    client.link.send_text("hello").expect("room");
    server.link.send_text("grüezi").expect("room");
    client.drain();
    server.drain();
    settle(at(3), &mut client, &mut server);
    assert_eq!(client.events[1..], [WsLinkEvent::Text("grüezi".to_owned())]);
    assert_eq!(server.events[1..], [WsLinkEvent::Text("hello".to_owned())]);

    client.link.close(at(4), Some(1000), "bye");
    client.drain();
    settle(at(4), &mut client, &mut server);
    let peer = CloseReason::Peer {
        code: Some(1000),
        reason: "bye".to_owned(),
    };
    assert_eq!(
        client.events[2..],
        [WsLinkEvent::Closed(CloseReason::Local)]
    );
    assert!(client.gone);
    server.hear(at(5), IoEvent::Eof);
    assert_eq!(server.events[2..], [WsLinkEvent::Closed(peer)]);
    assert!(server.gone);
}
