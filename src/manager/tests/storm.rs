//! Virtual hours of anything at all, from a seed.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::*;

const SERVERS: [&str; 4] = ["a", "b", "c", "shared"];

/// What a server of the storm does, at random.
fn moody(heard: &Heard, dice: &mut Seeded) -> Vec<Act> {
    let mut acts = match dice.below(40) {
        0 => return Vec::new(),
        1 => return vec![Act::Stderr("dying\n".to_owned()), Act::Exit(1)],
        2 => return vec![Act::Wait(dice.below(90_000)), Act::Exit(2)],
        3 => return vec![Act::Eof],
        4 => vec![Act::Say("not a message\n".to_owned())],
        5 => vec![Act::Say(
            "{\"jsonrpc\":\"2.0\",\"id\":99999999,\"result\":{}}\n".to_owned(),
        )],
        6 => vec![say(
            json!({"jsonrpc": "2.0", "id": dice.below(5), "method": "sampling/createMessage"}),
        )],
        7 => vec![say(
            json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
        )],
        8 => return vec![error(heard, -32000, "no")],
        9..16 => vec![Act::Wait(dice.below(100_000))],
        _ => Vec::new(),
    };
    let tools: &[&str] = match dice.below(3) {
        0 => &["t"],
        _ => &["t", "u"],
    };
    acts.extend(legacy(heard, tools));
    if dice.below(30) == 0 {
        let again = acts.clone();
        acts.extend(again);
    }
    acts
}

struct Storm {
    world: World,
    dice: Rc<RefCell<Seeded>>,
    runtimes: Vec<RuntimeId>,
    /// Tickets that must be answered, and those that must not be.
    asked: Vec<TicketId>,
    cancelled: Vec<TicketId>,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let limits = Limits {
            runtime_idle_ttl: Duration::from_secs(90),
            upstream_requests_open_max: 8,
            runtimes_max: 4,
            ..Limits::default()
        };
        let mut world = World::with(&SERVERS, limits);
        let dice = Rc::new(RefCell::new(Seeded::new(seed)));
        for name in SERVERS {
            let dice = Rc::clone(&dice);
            world.server(name, move |heard| moody(heard, &mut dice.borrow_mut()));
        }
        Self {
            world,
            dice,
            runtimes: Vec::new(),
            asked: Vec::new(),
            cancelled: Vec::new(),
        }
    }

    fn below(&self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("small");
        usize::try_from(self.dice.borrow_mut().below(bound)).expect("small")
    }

    fn configure(&mut self) {
        let mut map = Vec::new();
        for name in SERVERS {
            let (args, parallel) = (self.below(2), self.below(2) == 0);
            let isolation = if name == "shared" {
                "shared"
            } else {
                "session"
            };
            if self.below(8) > 0 {
                map.push((
                    name,
                    format!(
                        r#"{{"command":"{name}","args":["{args}"],"supportsParallelToolCalls":{parallel},"isolation":"{isolation}"}}"#
                    ),
                ));
            }
        }
        let map: Vec<(&str, &str)> = map.iter().map(|(k, v)| (*k, v.as_str())).collect();
        self.world.configure(&map);
    }

    fn step(&mut self) {
        let server = SERVERS[self.below(SERVERS.len())];
        let runtime = match self.runtimes.len() {
            0 => RuntimeId(0),
            count => self.runtimes[self.below(count)],
        };
        match self.below(24) {
            0 => self.configure(),
            1 | 2 => {
                let now = self.world.now();
                if let Ok(id) = self.world.manager.open_runtime(now, Prefix::Always) {
                    self.runtimes.push(id);
                }
                self.world.drain();
            }
            3 if self.below(3) == 0 => {
                self.world.close_runtime(runtime);
                self.runtimes.retain(|id| *id != runtime);
            }
            4 => self.world.connect(runtime),
            5 => self.world.kill(server),
            6 => {
                let manners = self.world.manners(server);
                manners.missing = !manners.missing;
            }
            7 => {
                let after = [Some(0), Some(3_000), None][self.below(3)];
                self.world.manners(server).opens_after = after;
            }
            8 => {
                let manners = self.world.manners(server);
                manners.heeds_term = !manners.heeds_term;
                manners.ends_with_input = manners.heeds_term;
            }
            9 => {
                let manners = self.world.manners(server);
                manners.reads = !manners.reads;
            }
            10 => {
                if let Some(ticket) = self.asked.pop() {
                    if self.world.answer(ticket).is_none() {
                        self.world.cancel(ticket);
                        self.cancelled.push(ticket);
                    }
                }
            }
            11 => {
                let open: Vec<QuestionId> = self.world.manager.questions.keys().copied().collect();
                let now = self.world.now();
                for id in open {
                    self.world.manager.answer(now, id, Ok("{}"));
                }
                self.world.drain();
            }
            12 | 13 => {
                let ticket = self.world.request(runtime, server, "prompts/list");
                self.asked.push(ticket);
            }
            14 => {
                let now = self.world.now();
                let list = PagedList::Prompts;
                let ticket = self.world.manager.list(now, runtime, &key(server), list);
                self.world.drain();
                self.asked.push(ticket);
            }
            15..19 => {
                let tool = ["a__t", "b__u", "shared__t", "typo"][self.below(4)];
                let ticket = self.world.call(runtime, tool);
                self.asked.push(ticket);
            }
            _ => {
                let ms = [1, 50, 2_000, 40_000, 200_000][self.below(5)];
                self.world.run(ms);
            }
        }
        // What is told is bounded by what happens.
        assert!(self.world.told.len() < 3_000, "{}", self.world.told.len());
        self.world.told.clear();
        self.world.heard.clear();
    }
}

#[test]
fn whatever_happens_each_ticket_has_one_answer_and_nothing_is_left() {
    let mut answered = 0;
    for seed in 0..300 {
        let mut storm = Storm::new(seed);
        for _ in 0..80 {
            storm.step();
        }
        // An hour in which nothing more is asked: whatever was open has come to an end.
        storm.world.run(3_600_000);
        for ticket in &storm.asked {
            assert!(
                storm.world.answer(*ticket).is_some(),
                "seed {seed}: {ticket} is still open"
            );
        }
        assert!(storm.world.manager.tickets.is_empty(), "seed {seed}");
        answered += storm.asked.len();
        storm.world.close();
        storm.world.run(2_500);
        let manager = &storm.world.manager;
        assert!(manager.is_gone(), "seed {seed}");
        assert_eq!(storm.world.running(), 0, "seed {seed}");
        assert_eq!(manager.next_deadline(), None, "seed {seed}");
        let left = (
            manager.wires_of.len(),
            manager.timers.len(),
            manager.idle.len(),
            manager.questions.len(),
            manager.shared.len(),
        );
        assert_eq!(left, (0, 0, 0, 0, 0), "seed {seed}");
        for ticket in &storm.cancelled {
            assert!(storm.world.answer(*ticket).is_none(), "seed {seed}");
        }
    }
    assert!(answered > 4_000, "{answered}");
}
