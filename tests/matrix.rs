//! The span as a table: clients of all five revisions and servers of all five, each over stdio, Streamable
//! HTTP, the pair of 2024-11-05 and Unix sockets, through a real `drawspan serve`.
//!
//! The server is `examples/everything_server`; which revision is spoken to it is pinned by `--protocol`. There
//! is one `drawspan serve` for each upstream revision and transport, with all doors open. The client is the
//! library's own, pinned to a revision. What is done in each cell: `matrix/operations.rs`; what must come of
//! it: `matrix/table.rs`, from which the table in README.md is made.
#![cfg(all(target_os = "linux", feature = "cli"))]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails with the line that could not"
)]

mod common;

#[path = "matrix/client.rs"]
mod client;
#[path = "matrix/exact.rs"]
mod exact;
#[path = "matrix/operations.rs"]
mod operations;
#[path = "matrix/places.rs"]
mod places;
#[path = "matrix/refusals.rs"]
mod refusals;
#[path = "matrix/table.rs"]
mod table;

use std::collections::BTreeMap;
use std::sync::Mutex;

use drawspan::protocol::revision::Revision;

use crate::client::Client;
use crate::operations::OPERATIONS;
use crate::places::{Place, Transport};
use crate::table::{Expected, expected};

/// Places at work at once. Two cores are busy with as many; most of the time of a place is waiting.
const AT_ONCE: usize = 19;

/// Upstream hops that can exist.
fn hops() -> Vec<(Revision, Transport)> {
    let all = Revision::NEWEST_FIRST.into_iter();
    all.flat_map(|revision| Transport::ALL.map(|transport| (revision, transport)))
        .filter(|(revision, transport)| transport.carries(*revision))
        .collect()
}

/// What is wrong, by row and kind of cell; each with all cells it is so in.
#[derive(Default)]
struct Report(BTreeMap<String, Vec<String>>);

impl Report {
    fn add(&mut self, what: String, cell: &str) {
        self.0.entry(what).or_default().push(cell.to_owned());
    }

    fn names(&self, row: &str) -> bool {
        self.0.keys().any(|what| what.starts_with(row))
    }

    fn lines(&self) -> Vec<String> {
        let line = |(what, cells): (&String, &Vec<String>)| {
            format!(
                "{what}\n    in {} cells: {}",
                cells.len(),
                cells[..cells.len().min(6)].join(", ")
            )
        };
        self.0.iter().map(line).collect()
    }
}

#[test]
fn every_client_works_with_every_server() {
    let waiting = Mutex::new(hops());
    let report = Mutex::new(Report::default());
    let only = std::env::var("DRAWSPAN_MATRIX_ONLY").unwrap_or_default();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().pop();
                    let Some((revision, transport)) = next else {
                        return;
                    };
                    let name = format!("{} {revision}", transport.name());
                    if name.contains(&only) {
                        play(revision, transport, &report);
                    }
                }
            });
        }
    });
    let report = report.into_inner().unwrap().lines();
    assert!(report.is_empty(), "\n{}\n", report.join("\n"));
}

/// All clients of one upstream hop, one after the other.
fn play(server: Revision, up: Transport, report: &Mutex<Report>) {
    let place = Place::new(server, up);
    for (client, down) in hops() {
        let cell = format!("{client} {} -> {} {server}", down.name(), up.name());
        let add = |what: String| report.lock().unwrap().add(what, &cell);
        let mut found = match Client::connect(&place.address(down), client) {
            Ok(client) => client,
            Err(why) => {
                add(format!("cannot connect: {why}"));
                continue;
            }
        };
        for operation in OPERATIONS {
            let expected = expected(operation, client, server);
            // Where it has failed before it is not waited for as long again.
            let failed = report.lock().unwrap().names(operation.name);
            found.hopes = !matches!(expected, Expected::Pending(_)) && !failed;
            let name = operation.name;
            let outcome = (operation.check)(&mut found);
            let noise = std::mem::take(&mut found.told().noise);
            let quiet = noise
                .is_empty()
                .then_some(())
                .ok_or(format!("noise: {noise:?}"));
            match (expected, outcome.and(quiet)) {
                (Expected::Works, Ok(())) | (Expected::Pending(_), Err(_)) => {}
                (Expected::Refused(word), Err(why)) if why.contains(word) => {}
                (Expected::Refused(_), Ok(())) => add(format!("{name}: works, and should not")),
                (Expected::Works | Expected::Refused(_), Err(why)) => {
                    let eras = (client.is_stateless(), server.is_stateless());
                    add(format!(
                        "{name} {eras:?}: {}",
                        why.chars().take(300).collect::<String>()
                    ));
                }
                (Expected::Pending(mark), Ok(())) => {
                    add(format!(
                        "{name}: works now, take the mark {mark:?} out of the table"
                    ));
                }
            }
        }
        found.end();
    }
    for line in place.end() {
        report
            .lock()
            .unwrap()
            .add(format!("on stderr: {line}"), up.name());
    }
}
