//! Which server a command is about: a configured name, a URL, a socket, or a command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::super::{Exit, Failure};
use super::SourceArgs;
use crate::config::import::Program;
use crate::manager::entry::{AdHoc, Target};
use crate::protocol::revision::Revision;

/// Options of every command that takes a TARGET.
#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct TargetArgs {
    /// Configuration file (default: ./drawspan.json, ./.mcp.json)
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) config: Option<PathBuf>,
    /// Read the servers of another program's configuration
    #[arg(long, value_name = "PROGRAM", value_parser = super::parse_program, conflicts_with = "config")]
    pub(in crate::cli) import: Option<Program>,
    /// Environment variable of the server, NAME=VALUE, or NAME for our own value; may be given several times
    #[arg(short = 'e', long = "env", value_name = "K=V")]
    env: Vec<String>,
    /// Directory the server starts in
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Header of HTTP requests, `Name: value`; may be given several times
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    header: Vec<String>,
    /// HTTP transport
    #[arg(long, value_enum)]
    transport: Option<TransportArg>,
    /// Revision to speak: auto, legacy, modern, or one by its date
    #[arg(long, value_name = "PROTOCOL", value_parser = parse_protocol)]
    protocol: Option<String>,
    /// Time limit of one request, in seconds, or with a unit: 500ms, 2s
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    timeout: Option<Duration>,
    /// Time limit of connecting, as --timeout
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    connect_timeout: Option<Duration>,
    /// Show only tools that match; may be given several times
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Hide tools that match; may be given several times
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// The server as a command, in place of TARGET
    #[arg(last = true, value_name = "COMMAND")]
    pub(in crate::cli) command: Vec<String>,
}

/// Which of the HTTP transports.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TransportArg {
    /// Streamable HTTP, else the older pair
    Auto,
    /// Streamable HTTP
    Http,
    /// The pair of 2024-11-05
    Sse,
}

/// What `--protocol` may name.
fn parse_protocol(text: &str) -> Result<String, String> {
    let word = text.trim().to_ascii_lowercase();
    let known = ["auto", "legacy", "modern"].contains(&word.as_str());
    match known || Revision::parse(&word).is_some() {
        true => Ok(word),
        false => {
            let dates = Revision::NEWEST_FIRST.map(|revision| revision.as_str());
            Err(format!("use auto, legacy, modern, {}", dates.join(", ")))
        }
    }
}

/// A time limit.
fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, factor) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1.0),
        (None, Some(number)) => (number, 1_000.0),
        (None, None) => (text, 1_000.0),
    };
    let value: f64 = number.trim().parse().unwrap_or(f64::NAN);
    let millis = value * factor;
    if (1.0..=1e12).contains(&millis) {
        return Ok(Duration::from_secs_f64(millis / 1_000.0));
    }
    Err("use seconds or a time like 500ms, at least 1ms".to_owned())
}

impl TargetArgs {
    /// The same options for a target that is named.
    pub(in crate::cli) fn without_command(&self) -> Self {
        Self {
            command: Vec::new(),
            ..self.clone()
        }
    }

    /// Takes the target off the words of a command line; where the server is given as a command there is
    /// none among them.
    ///
    /// # Errors
    /// When there is neither, or a header is none.
    pub(super) fn take(&self, words: &mut Vec<String>) -> Result<Word, Failure> {
        let is_header = |text: &String| {
            let name = text.split_once(':').map(|(name, _)| name.trim());
            name.is_some_and(|name| !name.is_empty())
        };
        if !self.header.iter().all(is_header) {
            // Its text is not repeated: it may be a secret.
            let what = "a header must be given as -H 'Name: value'";
            return Err(Failure::new(Exit::Usage, what));
        }
        if !self.command.is_empty() {
            return Ok(Word::Target(Target::Command(self.command.clone())));
        }
        if words.is_empty() {
            return Err(Failure::new(
                Exit::Usage,
                "TARGET is missing: a configured name, a URL, unix:/path, or `-- command`",
            ));
        }
        let word = words.remove(0);
        Ok(match is_url(&word) {
            true => Word::Target(Target::Url(word)),
            false => Word::Name(word),
        })
    }

    /// Where configured servers stand.
    pub(super) fn source(&self) -> SourceArgs {
        SourceArgs {
            config: self.config.clone(),
            import: self.import,
        }
    }

    /// Whether there is an option that changes what an entry says.
    pub(super) fn changes_entries(&self) -> bool {
        let AdHoc {
            target: _,
            env,
            cwd,
            headers,
            transport,
            protocol,
            timeout,
            connect_timeout,
            include,
            exclude,
        } = self.with_options(Target::Command(Vec::new()));
        let lists = [env, headers, include, exclude];
        let words = [cwd, transport, protocol];
        lists.iter().any(|list| !list.is_empty())
            || words.iter().any(Option::is_some)
            || timeout.or(connect_timeout).is_some()
    }

    /// The target with the options put on top.
    pub(super) fn with_options(&self, target: Target) -> AdHoc {
        let transport = self.transport.map(|transport| match transport {
            TransportArg::Auto => "auto",
            TransportArg::Http => "streamable-http",
            TransportArg::Sse => "sse",
        });
        AdHoc {
            target,
            env: self.env.clone(),
            cwd: self.cwd.clone(),
            headers: self.header.clone(),
            transport: transport.map(str::to_owned),
            protocol: self.protocol.clone(),
            timeout: self.timeout,
            connect_timeout: self.connect_timeout,
            include: self.include.clone(),
            exclude: self.exclude.clone(),
        }
    }
}

/// Whether a word is no name of a configured server.
pub(super) fn is_url(word: &str) -> bool {
    word.contains("://") || word.to_ascii_lowercase().starts_with("unix:")
}

/// What the first word of a command line means.
pub(super) enum Word {
    /// A target of its own.
    Target(Target),
    /// A key of the configured server map.
    Name(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let millis = |text| parse_time(text).map(|time| time.as_millis());
        assert_eq!(millis("2"), Ok(2_000));
        assert_eq!(millis("0.5"), Ok(500));
        assert_eq!(millis("500ms"), Ok(500));
        assert_eq!(millis("3s"), Ok(3_000));
        for bad in ["", "0", "-1", "x", "NaN", "inf", "0.0001"] {
            assert!(parse_time(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_command_stands_in_place_of_the_target() {
        let mut words = vec!["echo".to_owned(), "text=hi".to_owned()];
        let args = TargetArgs {
            command: vec!["./server".to_owned(), String::new()],
            ..TargetArgs::default()
        };
        let taken = args.take(&mut words).expect("a target");
        assert!(matches!(taken, Word::Target(Target::Command(words)) if words.len() == 2));
        assert_eq!(words.len(), 2);

        let args = TargetArgs::default();
        let mut words = vec!["HTTPS://h/mcp".to_owned(), "name".to_owned()];
        let taken = args.take(&mut words).expect("a target");
        assert!(matches!(taken, Word::Target(Target::Url(url)) if url == "HTTPS://h/mcp"));
        let taken = args.take(&mut words).expect("a target");
        assert!(matches!(taken, Word::Name(name) if name == "name"));
        assert!(args.take(&mut words).is_err());
    }
}
