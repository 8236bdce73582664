//! The table: what works between a client and a server, and what is done about the rest.

use drawspan::protocol::revision::Revision;

use crate::hops;
use crate::operations::{OPERATIONS, Operation};

/// What an operation must come to in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Works,
    /// There is one error, which says this.
    Refused(&'static str),
    /// Not done yet. Fails the test as soon as it works, so that the mark goes.
    #[allow(dead_code, reason = "nothing may be pending")]
    Pending(&'static str),
}

/// The two kinds of revisions, as far as the table differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Handshake,
    Stateless,
}

impl Era {
    pub(crate) const fn of(revision: Revision) -> Self {
        match revision.is_stateless() {
            true => Self::Stateless,
            false => Self::Handshake,
        }
    }
}

use Era::{Handshake, Stateless};

/// What is not done yet: rows by the beginning of their name, client, server.
const PENDING: &[(&str, Era, Era)] = &[];

/// Rows that need elicitation, which clients have from 2025-06-18 on; of an older one the server is told so.
const ELICITATION: [&str; 2] = ["question in mid-call: elicitation", "several questions"];

/// What must come of an operation.
pub(crate) fn expected(operation: &Operation, client: Revision, server: Revision) -> Expected {
    let eras = (Era::of(client), Era::of(server));
    let pending = PENDING.iter().find(|(row, client, server)| {
        operation.name.starts_with(row) && (*client, *server) == eras
    });
    if let Some((row, ..)) = pending {
        return Expected::Pending(row);
    }
    let elicits = ELICITATION
        .iter()
        .any(|row| operation.name.starts_with(row));
    match elicits && client < Revision::V2025_06_18 {
        true => Expected::Refused("elicitation"),
        false => Expected::Works,
    }
}

/// The first revision of the same era.
fn oldest(revision: Revision) -> Revision {
    let mut all = Revision::NEWEST_FIRST.into_iter();
    let same = |other: &Revision| Era::of(*other) == Era::of(revision);
    all.rfind(same).unwrap()
}

/// The table of README.md, between its two marks.
fn as_markdown() -> String {
    let [old, new] = [Revision::V2025_11_25, Revision::V2026_07_28];
    let columns = [(old, old), (old, new), (new, old), (new, new)];
    let count = |of: Revision| {
        let era = Era::of(of);
        let same = |(revision, _): &&(Revision, _)| Era::of(*revision) == era;
        hops().iter().filter(same).count()
    };
    let row = |name: &str, cells: [String; 4]| format!("| {name} | {} |\n", cells.join(" | "));
    let word = |revision| match Era::of(revision) {
        Handshake => "2024-11-05 to 2025-11-25",
        Stateless => "2026-07-28",
    };
    let mut text = row("client", columns.map(|(client, _)| word(client).to_owned()));
    text.push_str("| --- | --- | --- | --- | --- |\n");
    text += &row("server", columns.map(|(_, server)| word(server).to_owned()));
    let combinations = columns.map(|(client, server)| count(client) * count(server));
    text += &row(
        "combinations tested",
        combinations.map(|count| count.to_string()),
    );
    for operation in OPERATIONS {
        let words = columns.map(
            |(client, server)| match expected(operation, client, server) {
                Expected::Works => match expected(operation, oldest(client), server) {
                    Expected::Refused(_) => "clients from 2025-06-18 on".to_owned(),
                    Expected::Works | Expected::Pending(_) => "yes".to_owned(),
                },
                Expected::Refused(_) => "no".to_owned(),
                Expected::Pending(_) => "not yet".to_owned(),
            },
        );
        text += &row(operation.name, words);
    }
    text
}

#[test]
fn the_table_of_the_readme_is_this_one() {
    const BEGIN: &str = "<!-- made by tests/matrix.rs -->\n";
    let readme =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let (_, rest) = readme.split_once(BEGIN).expect("the mark in README.md");
    let (block, _) = rest.split_once("<!-- end -->").expect("its end");
    let table = as_markdown();
    assert_eq!(block, table, "\n{table}");
}
