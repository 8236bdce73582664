//! The commands that use MCP servers: `list`, `call`, `read`, `prompt`, `probe`, `status`, `doctor`.
//!
//! Shapes of their JSON and their exit codes are a contract with scripts: cli-json §3 to §8.

mod arguments;
mod call;
mod doctor;
mod list;
mod lock;
mod probe;
mod prompt;
mod read;
mod render;
pub(super) mod servers;
mod session;
mod status;
mod target;
mod terminal;

use clap::Args;

pub(super) use self::target::TargetArgs;
use super::{CommandResult, Exit};
use crate::config::import::Program;
use crate::manager::error::{FailureKind, UpstreamError};

/// `drawspan list`.
#[derive(Debug, Args)]
#[command(
    override_usage = "drawspan list [OPTIONS] TARGET\n       drawspan list [OPTIONS] -- COMMAND..."
)]
pub(super) struct ListArgs {
    /// The server: a configured name, a URL or unix:/path; none with `-- COMMAND`
    #[arg(value_name = "TARGET")]
    words: Vec<String>,
    /// List tools (the default)
    #[arg(long, group = "what")]
    tools: bool,
    /// List resources, and templates of resources
    #[arg(long, group = "what")]
    resources: bool,
    /// List prompts
    #[arg(long, group = "what")]
    prompts: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// `drawspan call`.
#[derive(Debug, Args)]
#[command(
    override_usage = "drawspan call [OPTIONS] TARGET TOOL [K=V]...\n       drawspan call [OPTIONS] TOOL [K=V]... -- COMMAND..."
)]
pub(super) struct CallArgs {
    /// TARGET (none with `-- COMMAND`), the tool, and its arguments: name=value, which is text where the tool
    /// wants text and else JSON where it is JSON, or name:=JSON
    #[arg(value_name = "TARGET TOOL [K=V]", required = true)]
    words: Vec<String>,
    /// All arguments as one JSON object; @FILE reads a file, - reads stdin
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// Print the result as the server sent it
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// `drawspan read`.
#[derive(Debug, Args)]
#[command(
    override_usage = "drawspan read [OPTIONS] TARGET URI\n       drawspan read [OPTIONS] URI -- COMMAND..."
)]
pub(super) struct ReadArgs {
    /// TARGET (none with `-- COMMAND`) and the URI of the resource
    #[arg(value_name = "TARGET URI", required = true)]
    words: Vec<String>,
    /// Print the result as the server sent it
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// `drawspan prompt`.
#[derive(Debug, Args)]
#[command(
    override_usage = "drawspan prompt [OPTIONS] TARGET NAME [K=V]...\n       drawspan prompt [OPTIONS] NAME [K=V]... -- COMMAND..."
)]
pub(super) struct PromptArgs {
    /// TARGET (none with `-- COMMAND`), the prompt, and its arguments as name=value
    #[arg(value_name = "TARGET NAME [K=V]", required = true)]
    words: Vec<String>,
    /// Print the result as the server sent it
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// `drawspan probe`.
#[derive(Debug, Args)]
#[command(
    override_usage = "drawspan probe [OPTIONS] [NAME]...\n       drawspan probe [OPTIONS] -- COMMAND..."
)]
pub(super) struct ProbeArgs {
    /// Configured servers (default: all of them), or one URL or unix:/path
    #[arg(value_name = "NAME")]
    words: Vec<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// `drawspan lock`.
#[derive(Debug, Args)]
#[command(
    override_usage = "drawspan lock [OPTIONS] [TARGET]...\n       drawspan lock [OPTIONS] -- COMMAND..."
)]
pub(super) struct LockArgs {
    /// Servers to lock: configured names, URLs or unix:/path (default: all that are configured)
    #[arg(value_name = "TARGET")]
    words: Vec<String>,
    /// The lock file (default: lock.file of the configuration, else drawspan.lock.json beside it)
    #[arg(long, value_name = "FILE")]
    file: Option<std::path::PathBuf>,
    /// Write nothing; say what differs. Exit code 0: nothing does, 6: something does
    #[arg(long)]
    check: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// `drawspan status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// The server (default: all)
    name: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    source: SourceArgs,
}

/// `drawspan doctor`.
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// The server (default: all)
    name: Option<String>,
    /// Connect to those that have no error
    #[arg(long)]
    probe: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    source: SourceArgs,
}

/// Where the configured servers stand.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct SourceArgs {
    /// Configuration file (default: ./drawspan.json, ./.mcp.json)
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<std::path::PathBuf>,
    /// Read the servers of another program's configuration
    #[arg(long, value_name = "PROGRAM", value_parser = parse_program, conflicts_with = "config")]
    pub(super) import: Option<Program>,
}

/// The program of a word.
fn parse_program(word: &str) -> Result<Program, String> {
    Program::parse(word).ok_or_else(|| {
        let known = Program::ALL.map(Program::as_str).join(", ");
        format!("use one of {known}")
    })
}

pub(super) fn list(args: ListArgs) -> CommandResult {
    let json = args.json;
    list::run(args).map_err(|failure| failure.shaped(json))
}

pub(super) fn lock(args: &LockArgs) -> CommandResult {
    lock::run(args).map_err(|failure| failure.shaped(args.json))
}

pub(super) fn call(args: CallArgs) -> CommandResult {
    let json = args.json;
    call::run(args).map_err(|failure| failure.shaped(json))
}

pub(super) fn read(args: ReadArgs) -> CommandResult {
    let json = args.json;
    read::run(args).map_err(|failure| failure.shaped(json))
}

pub(super) fn prompt(args: PromptArgs) -> CommandResult {
    let json = args.json;
    prompt::run(args).map_err(|failure| failure.shaped(json))
}

pub(super) fn probe(args: ProbeArgs) -> CommandResult {
    let json = args.json;
    probe::run(args).map_err(|failure| failure.shaped(json))
}

pub(super) fn status(args: &StatusArgs) -> CommandResult {
    status::run(args).map_err(|failure| failure.shaped(args.json))
}

pub(super) fn doctor(args: &DoctorArgs) -> CommandResult {
    doctor::run(args).map_err(|failure| failure.shaped(args.json))
}

/// The exit code of a failure. Source: cli-json §8.
pub(super) fn exit_of(error: &UpstreamError) -> Exit {
    match error.kind {
        FailureKind::Authorization => Exit::AuthorizationNeeded,
        FailureKind::Unreachable => Exit::CannotReach,
        FailureKind::TimedOut => Exit::TimedOut,
        FailureKind::Limit => Exit::Limit,
        FailureKind::Protocol => Exit::Protocol,
        FailureKind::Arguments => Exit::ToolError,
        // Which of a server's own errors mean "no such tool" is told by their code alone.
        FailureKind::Remote => match error.facts.rpc.as_ref().map(|error| error.code) {
            Some(-32602) if error.phase == crate::manager::error::Phase::Call => Exit::ToolError,
            Some(_) | None => Exit::Failed,
        },
        FailureKind::Unanswered => match error.facts.rpc.as_ref().map(|error| error.code) {
            Some(-32021) => Exit::Protocol,
            Some(_) | None => Exit::Failed,
        },
        FailureKind::Config
        | FailureKind::Closed
        | FailureKind::Unavailable
        | FailureKind::Disposed
        | FailureKind::Cancelled
        | FailureKind::Other => Exit::Failed,
    }
}
