//! `drawspan audit verify`: whether an audit log is what was written.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{CommandResult, Exit, Failure, print, say};
use crate::audit::{Fault, LINE_BYTES_MAX, Report, Verifier};
use crate::codec::json_object::JsonObject;
use crate::crypto::hex;
use crate::secret::Quoted;

/// `drawspan audit`.
#[derive(Debug, Args)]
pub(super) struct AuditArgs {
    #[command(subcommand)]
    pub(super) command: AuditCommand,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(super) enum AuditCommand {
    /// Check that no line of an audit log was changed, removed, inserted, moved or cut off
    ///
    /// Exit code 0: the log is whole. 6: it is not; the first line that is wrong is named. Whoever can write the
    /// file can also cut off its end or write all of it anew: note the hash that is printed, and give it to
    /// --holds later.
    Verify(VerifyArgs),
}

/// `drawspan audit verify`.
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// The log; several files are one that was rotated, the oldest first
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// A hash that was printed earlier: its line must still be there
    #[arg(long, value_name = "HASH")]
    holds: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn verify(args: &VerifyArgs) -> CommandResult {
    let mut verifier = Verifier::new();
    if let Some(hash) = &args.holds {
        verifier = verifier.look_for(hash).ok_or_else(|| {
            let message = format!(
                "--holds wants 64 hexadecimal digits (found {})",
                Quoted(hash)
            );
            Failure::new(Exit::Usage, message)
        })?;
    }
    for (i, path) in args.files.iter().enumerate() {
        if i > 0 {
            verifier.begin_file();
        }
        read(path, &mut verifier).map_err(|error| {
            let path = path.display().to_string();
            let message = format!("cannot read {}: {error}", Quoted(&path));
            Failure::new(Exit::Failed, message)
        })?;
    }
    let outcome = verifier.finish();
    if args.json {
        print(&document(args, &outcome))?;
    }
    let failure = match &outcome {
        Ok(Report {
            found: Some(false), ..
        }) => format!("{}: no line has the hash of --holds", name(args, 0)),
        Ok(report) => {
            if !args.json {
                print(&text(report))?;
            }
            return Ok(Exit::Ok);
        }
        Err(fault) => format!("{}: {fault}", name(args, fault.file)),
    };
    match args.json {
        // The document says it.
        true => Ok(Exit::Protocol),
        false => {
            say(&format!("error: {failure}"));
            Ok(Exit::Protocol)
        }
    }
}

fn name(args: &VerifyArgs, file: usize) -> String {
    let path = args.files.get(file).map(|path| path.display().to_string());
    Quoted(&path.unwrap_or_default()).to_string()
}

fn read(path: &PathBuf, verifier: &mut Verifier) -> std::io::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    let most = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
    let mut line = Vec::new();
    loop {
        line.clear();
        if file.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let mut ended = line.last() == Some(&b'\n');
        line.truncate(line.len() - usize::from(ended));
        if !ended && line.len() == LINE_BYTES_MAX {
            // None of ours; what it begins with tells that, too.
            file.skip_until(b'\n')?;
            ended = true;
        }
        verifier.line(&line, ended);
    }
}

fn text(report: &Report) -> String {
    let Report {
        lines, first, last, ..
    } = report;
    let torn = match report.torn {
        0 => String::new(),
        torn => format!(", {torn} of them cut off by a crash and marked so"),
    };
    match last {
        0 => "whole: no lines\n".to_owned(),
        _ => format!(
            "whole: {lines} lines{torn}, numbers {first} to {last}, last hash {}\n",
            hex(&report.hash)
        ),
    }
}

fn document(args: &VerifyArgs, outcome: &Result<Report, Fault>) -> String {
    let mut document = JsonObject::new();
    let missing = matches!(
        outcome,
        Ok(Report {
            found: Some(false),
            ..
        })
    );
    document.flag("ok", outcome.is_ok() && !missing);
    match outcome {
        Ok(report) => {
            document.count("lines", Some(report.lines));
            document.count("torn", Some(report.torn));
            document.count("first", Some(report.first));
            document.count("last", Some(report.last));
            document.text("hash", &hex(&report.hash));
            if let Some(found) = report.found {
                document.flag("holds", found);
            }
        }
        Err(fault) => {
            let mut object = JsonObject::new();
            object.text(
                "file",
                &args.files[fault.file.min(args.files.len() - 1)]
                    .display()
                    .to_string(),
            );
            object.count("line", Some(fault.line));
            object.text("kind", fault.kind.as_str());
            object.text("message", &fault.message);
            document.raw("fault", &object.end());
        }
    }
    format!("{}\n", document.end())
}
