//! The table in virtual time, without a process.

use super::*;
use crate::link::{ExitReport, FaultKind, IoFault};
use crate::protocol::client::{Dialect, OutgoingKind};

const WIRE: WireId = WireId(3);
const OPEN: &str = "open up ";

/// A link, and a log of what it says and asks for.
struct World {
    link: StdioChild,
    mint: WireMint,
    story: String,
}

fn at(ms: u64) -> Now {
    Now {
        up: Uptime::from_millis(ms),
        unix_ms: 0,
    }
}

impl World {
    fn new() -> Self {
        let spec = ChildSpec {
            program: "server".into(),
            args: vec![],
            env: vec![],
            cwd: None,
        };
        let mut world = Self {
            link: StdioChild::new("made", spec, 64, 32, &Limits::DEFAULT),
            mint: WireMint::starting_at(WIRE),
            story: String::new(),
        };
        world.link.start(at(0), &mut world.mint);
        world.note();
        world
    }

    fn open() -> Self {
        let mut world = Self::new();
        world.hear(0, IoEvent::Opened);
        assert_eq!(world.told(), OPEN);
        world
    }

    fn hear(&mut self, ms: u64, event: IoEvent<'_>) {
        self.link.handle_io(at(ms), WIRE, event, &mut self.mint);
        self.note();
    }

    /// Rings every deadline up to this time, at its time.
    fn pass(&mut self, ms: u64) {
        while let Some(due) = self.link.next_deadline().filter(|due| due.at <= at(ms).up) {
            self.link.handle_timeout(
                Now {
                    up: due.at,
                    unix_ms: 0,
                },
                &mut self.mint,
            );
            self.story.push_str(&format!("@{} ", due.at.as_millis()));
            self.note();
        }
    }

    fn close(&mut self, ms: u64) {
        self.link.close(at(ms), &mut self.mint);
        self.note();
    }

    fn send(&mut self, ms: u64, text: &str) -> Result<(), Full> {
        let message = Outgoing {
            kind: OutgoingKind::Answer,
            dialect: Dialect::Handshake,
            body: text.as_bytes().to_vec(),
        };
        let sent = self.link.send(at(ms), &message, &mut self.mint);
        self.note();
        sent
    }

    fn note(&mut self) {
        let story = &mut self.story;
        while let Some(request) = self.link.poll_io() {
            story.push_str(match request {
                IoRequest::Open(..) => "open ",
                IoRequest::Flush(_) => "flush ",
                IoRequest::CloseWrite(_) => "end-input ",
                IoRequest::Close(_) => "close ",
                IoRequest::Signal(_, Signal::Kill) => "kill ",
                IoRequest::Signal(_, Signal::Term) => "term ",
                IoRequest::Finish(_) | IoRequest::PauseReads(..) | IoRequest::Append(_) => "?",
            });
        }
        while let Some(event) = self.link.poll_event() {
            story.push_str(&match event {
                UpstreamEvent::Up => "up ".to_owned(),
                UpstreamEvent::Message { text, .. } => format!("{text} "),
                UpstreamEvent::Unreadable { why, .. } => format!("({why}) "),
                UpstreamEvent::Ending(why) => format!("<{why}> "),
                UpstreamEvent::Closed(why) => format!("[{why}] "),
                UpstreamEvent::RequestEnded { .. }
                | UpstreamEvent::Resuming { .. }
                | UpstreamEvent::Remark { .. } => "?".into(),
            });
        }
    }

    fn told(&mut self) -> String {
        std::mem::take(&mut self.story)
    }
}

const CODE_3: IoEvent<'static> = IoEvent::Exited(ExitReport::Code(3));

#[test]
fn a_start_that_fails_says_why() {
    let mut world = World::new();
    let fault = IoFault {
        kind: FaultKind::Unreachable,
        message: "cannot start server: no such program in PATH".to_owned(),
    };
    world.hear(0, IoEvent::Failed(fault));
    assert_eq!(
        world.told(),
        "open [cannot start server: no such program in PATH] "
    );
    world.close(1);
    assert_eq!(world.told(), "", "closed once");
}

/// c09: what was written just before the exit is read before the exit is told.
#[test]
fn an_answer_in_the_pipe_comes_before_the_exit() {
    let mut world = World::open();
    world.hear(1, IoEvent::Exited(ExitReport::Code(0)));
    world.hear(1, IoEvent::Bytes(b"{\"last\":"));
    world.hear(2, IoEvent::Bytes(b"\"words\"}\n"));
    world.hear(2, IoEvent::Eof);
    world.hear(2, IoEvent::WriteClosed);
    assert_eq!(
        world.told(),
        "end-input term {\"last\":\"words\"} close [exited with code 0] "
    );
    assert_eq!(world.link.next_deadline(), None);
}

#[test]
fn end_of_output_and_exit_in_any_order_are_one_exit() {
    for late in [0, 99] {
        let mut world = World::open();
        world.hear(1, IoEvent::WriteClosed);
        world.hear(1, IoEvent::Eof);
        world.pass(1 + late);
        world.hear(1 + late, CODE_3);
        assert_eq!(world.told(), "end-input close [exited with code 3] ");
    }
}

#[test]
fn a_grandchild_that_holds_the_pipe_delays_by_the_drain_time_only() {
    let mut world = World::open();
    world.hear(10, IoEvent::Exited(ExitReport::Signal(9)));
    world.pass(5_000);
    assert_eq!(
        world.told(),
        "end-input term @210 close [killed by SIGKILL] "
    );
}

/// c02: the reason on stderr is there when the exit is told.
#[test]
fn a_crash_has_its_reason() {
    let mut world = World::open();
    world.hear(1, IoEvent::Eof);
    world.hear(1, IoEvent::StderrBytes(b"fatal: MADE_TOKEN is not set\n"));
    world.hear(2, CODE_3);
    assert!(world.told().ends_with("[exited with code 3] "));
    assert_eq!(world.link.stderr_tail(), "fatal: MADE_TOKEN is not set");
}

/// c11: closed output is the end, told within 200 ms, and the process is ended.
#[test]
fn closed_output_is_the_end_of_a_server_that_runs_on() {
    let mut world = World::open();
    world.hear(50, IoEvent::Bytes(b"[1"));
    world.hear(50, IoEvent::Eof);
    world.pass(10_000);
    let why = "server closed its output: stream ended within a message";
    assert_eq!(
        world.told(),
        format!("end-input (stream ended) @150 <{why}> @1050 term @2050 kill @2550 close [{why}] ")
    );
}

/// c12: end of input, SIGTERM, SIGKILL; all within three seconds.
#[test]
fn the_ladder_goes_as_far_as_it_has_to() {
    let mut obedient = World::open();
    obedient.close(0);
    obedient.hear(5, IoEvent::Eof);
    obedient.hear(6, IoEvent::Exited(ExitReport::Code(0)));
    assert_eq!(obedient.told(), "end-input close [connection closed] ");

    let mut needs_term = World::open();
    needs_term.close(0);
    needs_term.close(500);
    needs_term.pass(1_001);
    needs_term.hear(1_002, IoEvent::Exited(ExitReport::Signal(15)));
    needs_term.hear(1_003, IoEvent::Bytes(b"{}\n"));
    needs_term.hear(1_003, IoEvent::Eof);
    assert_eq!(
        needs_term.told(),
        "end-input @1000 term end-input term {} close [connection closed] "
    );

    let mut stubborn = World::open();
    stubborn.close(0);
    stubborn.pass(2_001);
    stubborn.hear(2_002, IoEvent::Eof);
    stubborn.hear(2_002, IoEvent::Exited(ExitReport::Signal(9)));
    assert_eq!(
        stubborn.told(),
        "end-input @1000 term @2000 kill close [connection closed] "
    );
}

/// c14: the answer is there at once, however long the end takes.
#[test]
fn the_end_is_not_in_the_way_of_an_answer() {
    let mut world = World::open();
    world.hear(10, IoEvent::Bytes(b"{\"id\":1}\n"));
    assert_eq!(world.told(), "{\"id\":1} ");
    world.close(10);
    world.pass(2_010);
    assert_eq!(world.told(), "end-input @1010 term @2010 kill ");
}

#[test]
fn a_process_that_hangs_in_the_kernel_does_not_hold_us() {
    let mut world = World::open();
    world.close(0);
    world.pass(2_500);
    assert!(
        world
            .told()
            .ends_with("kill @2500 close [connection closed] ")
    );
}

#[test]
fn closing_before_it_runs_still_ends_it() {
    let mut world = World::new();
    world.close(0);
    world.hear(1, IoEvent::Opened);
    world.hear(2, IoEvent::Eof);
    world.hear(2, IoEvent::Exited(ExitReport::Code(0)));
    assert_eq!(world.told(), "open end-input close [connection closed] ");
    let mut never = StdioChild::new("x", world.link.spec.clone(), 1, 1, &Limits::DEFAULT);
    never.close(at(0), &mut WireMint::default());
    assert!(matches!(
        never.poll_event(),
        Some(UpstreamEvent::Closed(UpstreamClosed::Local))
    ));
}

#[test]
fn a_server_that_closed_its_input_cannot_be_spoken_to() {
    // Everything was read, and it may still answer.
    let mut world = World::open();
    assert_eq!(world.send(1, "{}"), Ok(()));
    world.hear(1, IoEvent::Drained);
    world.hear(2, IoEvent::WriteClosed);
    world.pass(60_000);
    world.hear(60_000, IoEvent::Bytes(b"{}\n"));
    assert_eq!(world.told(), "flush {} ");
    // The next message shows it.
    assert_eq!(world.send(60_000, "{}"), Ok(()));
    world.pass(60_200);
    assert_eq!(world.told(), "@60200 end-input <server closed its input> ");

    // A message was on its way; but it was the exit.
    let mut world = World::open();
    assert_eq!(world.send(1, "{}"), Ok(()));
    world.hear(2, IoEvent::WriteClosed);
    world.hear(2, IoEvent::Eof);
    world.hear(3, CODE_3);
    assert_eq!(world.told(), "flush end-input close [exited with code 3] ");
}

#[test]
fn a_queue_that_is_full_costs_that_message() {
    let mut world = World::open();
    assert_eq!(world.send(0, &"x".repeat(31)), Ok(()));
    let full = Full {
        limit: 32,
        value: 34,
    };
    assert_eq!(world.send(0, "x"), Err(full));
    world.link.frames.outgoing().clear();
    assert_eq!(world.send(0, "x"), Ok(()));
    assert_eq!(world.told(), "flush flush ");
}

#[test]
fn a_line_too_long_costs_that_line() {
    let mut world = World::open();
    world.hear(0, IoEvent::Bytes(&[b'x'; 65]));
    world.hear(0, IoEvent::Bytes(b"x\n{}\n"));
    assert_eq!(world.told(), "(message too large: 65 bytes, limit 64) {} ");
}

/// c15: stderr is no sign of anything, and what is kept of it is bounded.
#[test]
fn a_flood_on_stderr_is_harmless() {
    let mut world = World::open();
    for _ in 0..32 {
        let part = "noise line on stderr 0123456789\n".repeat(1_024);
        world.hear(0, IoEvent::StderrBytes(part.as_bytes()));
    }
    world.hear(1, IoEvent::Bytes(b"{}\n"));
    assert_eq!(world.told(), "{} ");
    assert!(world.link.stderr_tail().len() <= Limits::DEFAULT.stderr_tail_bytes_max);
}

#[test]
fn after_the_end_nothing_is_said() {
    let mut world = World::open();
    world.hear(1, IoEvent::Eof);
    world.hear(1, CODE_3);
    world.told();
    assert_eq!(world.send(2, "{}"), Ok(()));
    world.hear(3, IoEvent::WriteClosed);
    world.hear(3, CODE_3);
    world.close(4);
    world.pass(99_999);
    assert_eq!(world.told(), "");
}
