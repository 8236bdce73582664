//! An MCP server that does exactly what a case file says: a peer to test clients with, the badly
//! behaved ones included.
//!
//! ```sh
//! scripted_server CASE.json [--server NAME] [--log FILE] [-- ANYTHING…]
//! scripted_server CASE.json --http [--variant N] [--log FILE]
//! ```
//!
//! The first form is a stdio server, to be started by the client under test; `--server` picks one
//! of a case with several. The second listens on loopback, prints its URL and plays until it is
//! killed. `--log` appends one JSON object a line: how it was started, each message as it was read,
//! the end of its input. What stands behind `--` is only noted there.
//!
//! The cases and their language: `protocol-fixtures/cases/README.md`.

#[path = "scripted_server/http.rs"]
mod http;
#[path = "scripted_server/log.rs"]
mod log;
#[path = "scripted_server/steps.rs"]
mod steps;

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use serde_json::Value;

use log::Log;

const USAGE: &str = "usage: scripted_server CASE.json [--server NAME | --http [--variant N]] \
                     [--log FILE] [-- ANYTHING…]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == steps::DESCENDANT) {
        return steps::descendant(&args[1..]);
    }
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "scripted_server: {e}");
            ExitCode::from(2)
        }
    }
}

#[derive(Default)]
struct Options {
    case: Option<String>,
    server: Option<String>,
    http: bool,
    variant: Option<usize>,
    log: Option<String>,
}

fn run(args: &[String]) -> Result<(), Box<dyn Error>> {
    let options = parse(args)?;
    // The descriptors as they were inherited, before one of our own is opened.
    let log = Log::start(options.log.as_deref())?;
    let path = options.case.ok_or(USAGE)?;
    let case: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    if options.http {
        let peer = http::Peer::start(&case["input"], options.variant, log)?;
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "http://127.0.0.1:{}/mcp", peer.port())?;
        stdout.flush()?;
        loop {
            std::thread::park();
        }
    }
    let script = steps::script(&case["input"], options.server.as_deref())?;
    steps::Player::new(log).run(&script)?;
    Ok(())
}

fn parse(args: &[String]) -> Result<Options, Box<dyn Error>> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or(USAGE);
        match arg.as_str() {
            "--" => break,
            "--server" => options.server = Some(value()?),
            "--http" => options.http = true,
            "--variant" => options.variant = Some(value()?.parse()?),
            "--log" => options.log = Some(value()?),
            _ if options.case.is_none() => options.case = Some(arg.clone()),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}
