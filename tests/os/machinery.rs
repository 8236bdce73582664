//! Timers, journal, several machines.

use std::time::Duration;

use drawspan::clock::Deadline;
use drawspan::entropy::{Entropy, Seeded};
use drawspan::ids::WireId;
use drawspan::io::EventLoop;
use drawspan::io::journal::Journal;
use drawspan::limits::Limits;
use drawspan::link::IoRequest;

use crate::probe::{Probe, Seen, World};

#[test]
fn a_deadline_is_met_and_never_early() {
    let mut world = World::new(Probe::new());
    let at = world.events.now().after(Duration::from_millis(30));
    world.probe.deadline = Some(Deadline::new(at, "test"));
    world.until("the deadline", |p| !p.rung.is_empty());
    assert!(world.probe.rung[0] >= at);
    assert!(world.probe.turns <= 2, "{} turns", world.probe.turns);
}

#[test]
fn two_machines_may_use_the_same_wire_numbers() {
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut events = EventLoop::new(&Limits::default()).unwrap();
    let (mut caller, mut echo) = (Probe::new(), Probe::echo());
    events.adopt(0, WireId(1), a).unwrap();
    events.adopt(1, WireId(1), b).unwrap();
    echo.wire(1);
    caller.send(1, b"there and back");
    while caller.bytes(1) != b"there and back" {
        events.turn(&mut [&mut caller, &mut echo]).unwrap();
    }
    caller.close_write(1);
    while !caller.saw(1, &Seen::Eof) {
        events.turn(&mut [&mut caller, &mut echo]).unwrap();
    }
}

#[test]
fn the_journal_is_written_before_anything_is_sent() {
    let mut tag = [0; 4];
    Seeded::new(u64::from(std::process::id())).fill(&mut tag);
    let dir = std::env::temp_dir().join(format!("drawspan-os-journal-{tag:?}"));
    let (journal, _) = Journal::open(&dir).unwrap();
    let mut world = World::new(Probe::new());
    let mut peer = world.adopt(1);
    world.events.set_journal(0, journal);
    // The answer is asked for first; the record is in the file all the same when the answer is out.
    world.probe.send(1, b"done");
    world.probe.ask(IoRequest::Append(b"record\n".to_vec()));
    world.until("the answer", |p| p.saw(1, &Seen::Drained));
    let mut answer = [0; 4];
    std::io::Read::read_exact(&mut peer, &mut answer).unwrap();
    let file = dir.join(drawspan::io::journal::FILE_NAME);
    assert_eq!(std::fs::read(file).unwrap(), b"record\n");
    drop(world);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_record_without_a_journal_is_a_fault() {
    let mut world = World::new(Probe::new());
    world.probe.ask(IoRequest::Append(b"record".to_vec()));
    let _peer = world.adopt(1);
    world.probe.send(1, b"x");
    world.until("the flush", |p| p.saw(1, &Seen::Drained));
    assert_eq!(world.probe.journal_faults.len(), 1);
}
