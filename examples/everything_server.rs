//! A server with one of everything, built on the public API of the library: what the official conformance
//! suite runs against, and a place to copy from.
//!
//! ```text
//! everything_server                                     serves stdin and stdout
//! everything_server --listen http://127.0.0.1:PORT/mcp  serves HTTP
//! ```
//!
//! * `offers.rs`: what is offered, and what can be answered at once
//! * `questions.rs`: tools that ask the client something
//! * `work.rs`: tools that take time, tasks among them
//! * `samples.rs`: a picture, a sound, schemas

#[path = "everything_server/offers.rs"]
mod offers;
#[path = "everything_server/questions.rs"]
mod questions;
#[path = "everything_server/samples.rs"]
mod samples;
#[path = "everything_server/work.rs"]
mod work;

use std::error::Error;

/// Where to listen; `None` is stdin and stdout.
fn listen_address(mut words: impl Iterator<Item = String>) -> Result<Option<String>, String> {
    let mut address = None;
    while let Some(word) = words.next() {
        match (word.as_str(), words.next()) {
            ("--listen", Some(given)) if given == "stdio" => address = None,
            ("--listen", Some(given)) => address = Some(given),
            ("--listen", None) => return Err("--listen needs an address".to_owned()),
            (other, _) => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(address)
}

fn main() -> Result<(), Box<dyn Error>> {
    let _listen = listen_address(std::env::args().skip(1))?;
    let _registry = offers::registry()?;
    let _work = work::Work::default();
    Err("the hub serves no local tools yet".into())
}
