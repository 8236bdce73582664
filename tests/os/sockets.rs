//! Adopted streams and TCP.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use drawspan::ids::WireId;
use drawspan::limits::Limits;
use drawspan::link::{FaultKind, IoRequest, OpenSpec};

use crate::deserted::port_of_nobody;
use crate::probe::{HIGH, PATIENCE, Probe, Seen, World, assert_fault, pattern, shell, tcp};

#[test]
fn an_adopted_stream_is_open_and_says_so_when_asked() {
    let mut world = World::new(Probe::echo());
    let mut quiet = world.adopt(1);
    let _asked = world.adopt(2);
    world.probe.open(2, OpenSpec::HostStdio);
    quiet.write_all(b"ping").unwrap();
    world.until("the echo", |p| p.saw(1, &Seen::Drained));
    let mut back = [0; 4];
    quiet.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"ping");
    assert_eq!(world.probe.story(1), [Seen::Bytes]);
    assert_eq!(world.probe.story(2), [Seen::Opened]);
}

#[test]
fn bytes_come_before_the_end_of_the_same_turn() {
    let mut world = World::new(Probe::new());
    let mut peer = world.adopt(1);
    peer.write_all(b"last words").unwrap();
    drop(peer);
    world.until("the end", |p| p.saw(1, &Seen::Eof));
    assert_eq!(world.probe.story(1), [Seen::Bytes, Seen::Eof]);
    assert_eq!(world.probe.bytes(1), b"last words");
    assert_eq!(world.probe.turns, 1);
}

#[test]
fn tcp_both_ways_through_one_loop() {
    let mut world = World::new(Probe::new());
    world.probe.accepts = 1;
    let port = world.listen("127.0.0.1");
    world.probe.open(2, tcp("127.0.0.1", port));
    // Written before it is open; leaves with the opening.
    world.probe.send(2, b"hello");
    world.until("hello", |p| p.bytes(100) == b"hello");
    world.probe.send(100, b"welcome");
    world.until("welcome", |p| p.bytes(2) == b"welcome");
    assert!(world.probe.accepted[0].1.starts_with("127.0.0.1:"));
    assert_eq!(world.probe.story(2), [Seen::Opened, Seen::Bytes]);
    assert_eq!(
        world.probe.story(100),
        [Seen::Bytes],
        "an accepted wire is open from the start"
    );
}

#[test]
fn tcp_over_ipv6() {
    if TcpListener::bind("[::1]:0").is_err() {
        // Not a peer to be skipped: this system has no IPv6 at all.
        return;
    }
    let mut world = World::new(Probe::new());
    world.probe.accepts = 1;
    let port = world.listen("[::1]");
    world.probe.open(2, tcp("::1", port));
    world.probe.send(2, b"six");
    world.until("six", |p| p.bytes(100) == b"six");
    assert!(world.probe.accepted[0].1.starts_with("[::1]:"));
    world.probe.accepts = 1;
    world.probe.open(3, tcp("[::1]", port));
    world.probe.send(3, b"six again");
    world.until("six again", |p| p.bytes(101) == b"six again");
}

#[test]
fn several_listeners_have_a_port_each() {
    let mut world = World::new(Probe::new());
    world.probe.accepts = 2;
    for wire in [1, 2] {
        let host = "127.0.0.1".to_owned();
        world.probe.open(wire, OpenSpec::Listen { host, port: 0 });
    }
    world.settle();
    let port = |wire| world.events.local_port(0, WireId(wire));
    let ports = [port(1).unwrap(), port(2).unwrap()];
    assert_ne!(ports[0], ports[1]);
    assert_eq!(port(3), None);
    for (wire, port) in [(3, ports[0]), (4, ports[1])] {
        world.probe.open(wire, tcp("127.0.0.1", port));
    }
    world.until("both", |p| p.accepted.len() == 2);
}

#[test]
fn a_closed_listener_leaves_its_port_and_its_connections() {
    let mut world = World::new(Probe::echo());
    world.probe.accepts = 2;
    let port = world.listen("127.0.0.1");
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    world.until("the connection", |p| p.accepted.len() == 1);
    world.probe.ask(IoRequest::Close(WireId(1)));
    world.settle();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    client.write_all(b"ping").unwrap();
    world.until("the echo", |p| p.saw(100, &Seen::Drained));
    client.read_exact(&mut [0; 4]).unwrap();

    // Our side ends first, so the system remembers the connection for a minute. A successor gets the
    // port all the same.
    world.probe.ask(IoRequest::Close(WireId(100)));
    world.settle();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    drop(client);
    let host = "127.0.0.1".to_owned();
    world.probe.open(2, OpenSpec::Listen { host, port });
    world.settle();
    assert_eq!(world.events.local_port(0, WireId(2)), Some(port));
}

#[test]
fn who_connects_to_a_paused_listener_waits() {
    let mut world = World::new(Probe::new());
    let mut other = world.adopt(2);
    world.probe.accepts = 2;
    let port = world.listen("127.0.0.1");
    world.probe.ask(IoRequest::PauseReads(WireId(1), true));
    let _waiting = TcpStream::connect(("127.0.0.1", port)).unwrap();
    for round in 1..=3 {
        other.write_all(b"x").unwrap();
        world.until("the other wire", |p| p.bytes(2).len() == round);
        assert_eq!(world.probe.accepted.len(), 0);
    }
    world.probe.ask(IoRequest::PauseReads(WireId(1), false));
    world.until("the connection", |p| p.accepted.len() == 1);
    let _next = TcpStream::connect(("127.0.0.1", port)).unwrap();
    world.until("the next one", |p| p.accepted.len() == 2);
}

#[test]
fn what_is_finished_before_it_is_open_is_closed() {
    let mut world = World::new(Probe::new());
    let mut other = world.adopt(3);
    world.probe.accepts = 1;
    let port = world.listen("127.0.0.1");
    world.probe.open(2, tcp("127.0.0.1", port));
    world.probe.send(2, b"never sent");
    world.probe.ask(IoRequest::Finish(WireId(2)));
    world.until("the end", |p| p.saw(100, &Seen::Eof));
    assert_eq!(world.probe.bytes(100), b"");
    other.write_all(b"x").unwrap();
    world.until("another turn", |p| !p.bytes(3).is_empty());
    assert_eq!(world.probe.story(2), []);
}

#[test]
fn a_child_is_finished_without_an_exit() {
    let mut world = World::new(Probe::new());
    let mut other = world.adopt(3);
    let script = "read line; echo $line >&2; exec sleep 1000";
    let file = std::env::temp_dir().join(format!("drawspan-finish-{}", std::process::id()));
    let script = script.replace("&2", &file.display().to_string());
    world.probe.open(2, shell(&script));
    world.until("the child", |p| p.saw(2, &Seen::Opened));
    world.probe.send(2, b"last words\n");
    world.probe.ask(IoRequest::Finish(WireId(2)));
    let mut round = 0;
    while std::fs::read(&file).unwrap_or_default() != b"last words\n" {
        round += 1;
        other.write_all(b"x").unwrap();
        world.until("another turn", |p| p.bytes(3).len() >= round);
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(world.probe.story(2), [Seen::Opened]);
}

#[test]
fn a_name_is_resolved_and_its_addresses_tried_in_turn() {
    // Bound to IPv4 alone: where localhost is ::1 first, that is refused and the next one is taken.
    let mut world = World::new(Probe::new());
    world.probe.accepts = 1;
    let port = world.listen("127.0.0.1");
    world.probe.open(2, tcp("localhost", port));
    world.probe.send(2, b"hi");
    world.until("hi", |p| p.bytes(100) == b"hi");
}

#[test]
fn refused_says_who_refused() {
    let (_held, nobody) = port_of_nobody(Ipv4Addr::LOCALHOST);
    let port = nobody.port();
    let mut world = World::new(Probe::new());
    world.probe.open(1, tcp("127.0.0.1", port));
    world.probe.open(2, tcp("localhost", port));
    world.until("both faults", |p| {
        p.fault(1).is_some() && p.fault(2).is_some()
    });
    let address = format!("127.0.0.1:{port}");
    assert_fault(
        world.probe.fault(1),
        FaultKind::Unreachable,
        &["cannot connect to", &address, "connection refused"],
    );
    let name = format!("localhost:{port}");
    assert_fault(
        world.probe.fault(2),
        FaultKind::Unreachable,
        &[&name, "tried", "127.0.0.1", "connection refused"],
    );
    assert_eq!(
        world.probe.wires[&1].seen.len(),
        1,
        "nothing follows a fault"
    );
}

#[test]
fn an_unknown_name_is_a_fault_of_its_own_kind() {
    let mut world = World::new(Probe::new());
    world.probe.open(1, tcp("no such name", 1));
    world.until("the fault", |p| p.fault(1).is_some());
    assert_fault(
        world.probe.fault(1),
        FaultKind::Resolve,
        &["cannot resolve no such name"],
    );
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut world = World::new(Probe::new());
    let host = "127.0.0.1".to_owned();
    world.probe.open(1, OpenSpec::Listen { host, port });
    let host = "not.an.address".to_owned();
    world.probe.open(2, OpenSpec::Listen { host, port });
    // An address of no host at all. RFC 5737.
    let host = "192.0.2.1".to_owned();
    world.probe.open(3, OpenSpec::Listen { host, port });
    world.until("three faults", |p| (1..=3).all(|w| p.fault(w).is_some()));
    let address = format!(
        "cannot listen on 127.0.0.1:{port}: address already in use (another process listens there)"
    );
    assert_fault(world.probe.fault(1), FaultKind::Exhausted, &[&address]);
    assert_fault(
        world.probe.fault(3),
        FaultKind::Exhausted,
        &["192.0.2.1:", "this host does not have it"],
    );
    assert_fault(
        world.probe.fault(2),
        FaultKind::Resolve,
        &["not.an.address", "not an address literal"],
    );
}

#[test]
fn an_answer_may_follow_the_end_of_the_question() {
    let mut world = World::new(Probe::new());
    world.probe.accepts = 1;
    let port = world.listen("127.0.0.1");
    world.probe.open(2, tcp("127.0.0.1", port));
    world.probe.send(2, b"question");
    world.probe.close_write(2);
    world.until("the end of the question", |p| p.saw(100, &Seen::Eof));
    assert_eq!(world.probe.bytes(100), b"question");
    world.probe.send(100, b"answer");
    world.probe.close_write(100);
    world.until("the end of the answer", |p| p.saw(2, &Seen::Eof));
    assert_eq!(world.probe.bytes(2), b"answer");
}

#[test]
fn a_reset_is_a_broken_wire() {
    let mut world = World::new(Probe::new());
    world.probe.accepts = 1;
    let port = world.listen("127.0.0.1");
    let peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    world.until("the connection", |p| p.accepted.len() == 1);
    // Closing with no time to linger sends a reset.
    let at_once = Some(std::time::Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&peer, at_once).unwrap();
    drop(peer);
    world.until("the fault", |p| p.fault(100).is_some());
    assert_fault(
        world.probe.fault(100),
        FaultKind::Broken,
        &["127.0.0.1:", "connection reset by peer"],
    );
}

#[test]
fn a_slow_reader_bounds_what_waits() {
    const TOTAL: usize = 24 * 1024 * 1024;
    let mut world = World::new(Probe::echo());
    let peer = world.adopt(1);
    let mut writer = peer.try_clone().unwrap();
    let sent = std::thread::spawn(move || {
        writer.write_all(&pattern(TOTAL)).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let received = std::thread::spawn(move || {
        // Odd little reads: every write of the loop is cut somewhere.
        let (mut peer, mut all, mut piece) = (peer, Vec::new(), [0; 7_001]);
        loop {
            match peer.read(&mut piece).unwrap() {
                0 => return all,
                n => all.extend_from_slice(&piece[..n]),
            }
        }
    });
    world.until("all of it", |p| {
        p.saw(1, &Seen::Eof) && p.wires[&1].out.is_empty() && p.wires[&1].received == TOTAL
    });
    world.turn_until_closed(1);
    sent.join().unwrap();
    assert!(received.join().unwrap() == pattern(TOTAL), "bytes differ");
    let most = world.probe.wires[&1].out_most;
    let bound = HIGH + Limits::default().turn_bytes_max;
    assert!(most <= bound, "{most} bytes waited, allowed are {bound}");
}

#[test]
fn a_paused_wire_is_silent_and_forgets_nothing() {
    let mut world = World::new(Probe::new());
    let mut paused = world.adopt(1);
    let mut other = world.adopt(2);
    world.probe.ask(IoRequest::PauseReads(WireId(1), true));
    paused.write_all(b"held").unwrap();
    // The second wire's bytes were sent later: once they are here, the poll has spoken of the
    // first.
    for round in 1..=3 {
        other.write_all(b"x").unwrap();
        world.until("the other wire", |p| p.bytes(2).len() == round);
        assert_eq!(world.probe.bytes(1), b"");
    }
    world.probe.resume(1);
    world.until("what was held", |p| p.bytes(1) == b"held");
}

#[test]
fn a_flood_on_one_wire_does_not_starve_another() {
    let mut world = World::new(Probe::new());
    let mut flood = world.adopt(1);
    let mut other = world.adopt(2);
    let writer = std::thread::spawn(move || {
        let piece = vec![0; 64 * 1024];
        while flood.write_all(&piece).is_ok() {}
    });
    world.until("the flood", |p| p.bytes(1).len() > 1_000_000);
    other.write_all(b"x").unwrap();
    let before = world.probe.turns;
    world.until("the other wire", |p| !p.bytes(2).is_empty());
    let turns = world.probe.turns - before;
    assert!(turns <= 2, "{turns} turns");
    world.probe.ask(IoRequest::Close(WireId(1)));
    other.write_all(b"x").unwrap();
    world.until("another turn", |p| p.bytes(2).len() == 2);
    writer.join().unwrap();
}

#[test]
fn only_so_many_are_accepted() {
    let mut world = World::new(Probe::new());
    world.probe.accepts = 1;
    let port = world.listen("127.0.0.1");
    let mut peers: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
        .collect();
    world.until("three decisions", |p| {
        p.accepted.len() == 1 && p.refused == 2
    });
    for peer in &mut peers[1..] {
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(matches!(peer.read(&mut [0; 1]), Ok(0) | Err(_)), "refused");
    }
    peers[0].write_all(b"served").unwrap();
    world.until("the one that was accepted", |p| p.bytes(100) == b"served");
}

#[test]
fn turn_accepts_max() {
    let limits = Limits {
        turn_accepts_max: 2,
        ..Limits::default()
    };
    for (waiting, turns) in [(1, 1), (2, 1), (3, 2), (5, 3)] {
        let mut world = World::with(Probe::new(), &limits);
        world.probe.accepts = 9;
        let port = world.listen("127.0.0.1");
        let connect = |_| TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _peers: Vec<TcpStream> = (0..waiting).map(connect).collect();
        let before = world.probe.turns;
        world.until("all of them", |p| p.accepted.len() == waiting);
        assert_eq!(world.probe.turns - before, turns, "{waiting}");
    }
}

#[test]
fn nothing_is_heard_of_a_closed_wire() {
    let mut world = World::new(Probe::new());
    let mut closed = world.adopt(1);
    let mut other = world.adopt(2);
    world.probe.open(1, OpenSpec::HostStdio);
    world.probe.ask(IoRequest::Close(WireId(1)));
    assert!(matches!(closed.write_all(b"x"), Ok(()) | Err(_)));
    other.write_all(b"x").unwrap();
    world.until("the other wire", |p| !p.bytes(2).is_empty());
    assert_eq!(world.probe.story(1), []);
    assert!(
        matches!(closed.read(&mut [0; 1]), Ok(0) | Err(_)),
        "it is closed"
    );
}

#[test]
#[cfg(not(feature = "tls"))]
fn without_the_feature_tls_says_so() {
    let mut world = World::new(Probe::new());
    world.probe.open(
        1,
        OpenSpec::Tcp {
            host: "127.0.0.1".to_owned(),
            port: 1,
            tls: Some(drawspan::link::TlsSpec::default()),
        },
    );
    world.until("the fault", |p| p.fault(1).is_some());
    let words = ["127.0.0.1:1", "built without the feature tls"];
    assert_fault(world.probe.fault(1), FaultKind::Tls, &words);
}

#[test]
fn what_nobody_reads_is_dropped_with_word_of_it() {
    let mut world = World::new(Probe::new());
    let peer = world.adopt(1);
    peer.shutdown(std::net::Shutdown::Read).unwrap();
    world.probe.send(1, b"into the void");
    world.until("word of it", |p| p.saw(1, &Seen::WriteClosed));
    assert!(world.probe.wires[&1].out.is_empty());
    // The other direction is as good as before.
    let mut peer = peer;
    peer.write_all(b"still here").unwrap();
    world.until("the other direction", |p| p.bytes(1) == b"still here");
}

impl World {
    /// Turns until our direction of an echo has been ended, which needs no event.
    fn turn_until_closed(&mut self, wire: u32) {
        self.probe.close_write(wire);
        self.probe.deadline_at_once();
        self.turn();
    }
}
