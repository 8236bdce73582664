//! The command line: parsing, and one file per command.
//!
//! stdout carries results or the protocol and nothing else; everything else is on stderr, one line each.
//! Exit codes are an enum, [`Exit`], and part of the contract with scripts.

mod approvals_command;
mod audit_command;
mod audit_log;
mod client;
mod connection;
mod demo_command;
mod embedded;
mod gateway_command;
pub mod guard;
mod limits_command;
mod listen;
mod lock_file;
mod reload;
mod running;
mod serve;
mod upstreams;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::bridge::ChannelMode;
use crate::codec::json_object::JsonObject;
use crate::manager::Prefix;
use crate::manager::error::UpstreamError;

/// How a command ended. Source: cli-json §8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// Failed otherwise.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// The peer wants other credentials, or an approval of this device.
    AuthorizationNeeded = 3,
    /// Nobody answers.
    CannotReach = 4,
    /// The tool said so itself, is unknown, or was called with the wrong arguments.
    ToolError = 5,
    /// The peer broke the protocol.
    Protocol = 6,
    /// A limit was hit.
    Limit = 7,
    /// A time limit was hit.
    TimedOut = 124,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A command that ended early, and what stderr says about it.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    /// What is known beside the message, when it came from a server.
    upstream: Option<Box<UpstreamError>>,
    /// stderr ends in a JSON document instead of a line.
    json: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            upstream: None,
            json: false,
        }
    }

    /// What a server, or the way to it, has failed with.
    pub(crate) fn upstream(error: UpstreamError) -> Self {
        Self {
            exit: client::exit_of(&error),
            message: error.message.clone(),
            upstream: Some(Box::new(error)),
            json: false,
        }
    }

    /// The same, ending in another way.
    const fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Whether a server has answered that it does not know the method.
    fn is_unknown_method(&self) -> bool {
        let error = self.upstream.as_ref();
        error.is_some_and(|error| error.code() == -32_601)
    }

    /// Whether it says this already, perhaps with more behind it.
    fn repeats(&self, line: &str) -> bool {
        self.message.starts_with(line)
    }

    /// In the shape that was asked for: `--json` makes it a document.
    pub(crate) const fn shaped(mut self, json: bool) -> Self {
        self.json = json;
        self
    }

    /// What stderr ends with. Source: cli-json §6.
    fn last_line(&self) -> String {
        if !self.json {
            return format!("error: {}", self.message);
        }
        let code = self.upstream.as_ref().map_or(-32_603, |error| error.code());
        let mut error = JsonObject::new();
        error.number("code", Some(code));
        error.text("message", &self.message);
        let data = self.upstream.as_ref().map(|error| error.data());
        error.raw("data", data.as_deref().unwrap_or("{}"));
        let mut document = JsonObject::new();
        document.raw("error", &error.end());
        document.end()
    }
}

type CommandResult = Result<Exit, Failure>;

/// Two-way bridge for the Model Context Protocol.
#[derive(Debug, Parser)]
#[command(name = "drawspan", version, about, long_about = None, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Command {
    /// Serve an OpenClaw Gateway or MCP servers to MCP clients: on stdin and stdout, HTTP or a Unix socket
    Serve(Box<ServeArgs>),
    /// Run the embedded Gateway on its own, or talk to a Gateway
    Gateway(GatewayArgs),
    /// Show everything at work in one process: embedded Gateway, bridge and client
    Demo,
    /// List what a server offers: its tools, resources or prompts
    List(client::ListArgs),
    /// Call a tool of a server
    Call(client::CallArgs),
    /// Read a resource of a server
    Read(client::ReadArgs),
    /// Get a prompt of a server, filled in
    Prompt(client::PromptArgs),
    /// Connect to the configured servers and say how each is doing
    Probe(client::ProbeArgs),
    /// Show the configured servers; connects to nothing
    Status(client::StatusArgs),
    /// Check the configured servers for mistakes
    Doctor(client::DoctorArgs),
    /// Write down what the tools of servers say of themselves, so that `serve` sees when it changes
    Lock(client::LockArgs),
    /// Show the tool calls that wait for your approval at a running server, and answer them
    Approvals(ApprovalsArgs),
    /// Check the log that `serve --audit FILE` has written
    Audit(audit_command::AuditArgs),
    /// Print every limit, its value and its reason; of a running server also how much of it is in use
    Limits {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
        /// Configuration file whose limits apply
        #[arg(long, value_name = "FILE", conflicts_with = "connect")]
        config: Option<PathBuf>,
        /// A running `drawspan serve --listen unix:/PATH`: what it has in force, how much of each count is in use
        /// now, and the peak where one is kept
        #[arg(long, value_name = "unix:/PATH")]
        connect: Option<String>,
    },
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the version
    Version {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// Servers to offer: configured names, URLs or unix:/PATH (default: all that are configured, with pluginTools, or the Gateway)
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Show the tools of servers as server__tool: always, never, or when there are several
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = parse_prefix)]
    prefix: PrefixArg,
    #[command(flatten)]
    target: client::TargetArgs,
    /// Where to serve: `stdio`, http://HOST:PORT or unix:/PATH; may be given several times. Port 0 lets
    /// the system choose one, which stderr tells
    #[arg(long, value_name = "ADDR", default_value = "stdio")]
    listen: Vec<String>,
    /// Host names that HTTP requests may name beside those of this machine
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// Origins of web pages that may call, beside those of this machine
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// File that holds the token HTTP clients must show; required beyond loopback
    #[arg(long, value_name = "FILE")]
    bearer_token_file: Option<PathBuf>,
    /// The Gateway: a ws:// or wss:// URL, or `embedded` for one in this process
    #[arg(long, visible_alias = "url", value_name = "URL")]
    gateway: Option<String>,
    #[command(flatten)]
    credentials: CredentialArgs,
    /// Announce messages to Claude as channel notifications
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = parse_mode)]
    claude_channel_mode: Mode,
    /// Where the embedded Gateway keeps its conversations
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Record every decision about a tool call, and every call, as a line of this file; see `drawspan audit`.
    /// SIGHUP opens it anew
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Refuse tool calls while the audit log cannot be written
    #[arg(long)]
    audit_required: bool,
    /// Show only tools that are as `drawspan lock` has written them to this file (default: lock.file of the
    /// configuration, or drawspan.lock.json beside it)
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// Say more on stderr
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Clone, Debug, Default, Args)]
struct CredentialArgs {
    /// Token of the Gateway; visible in the process list, so prefer --token-file
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// File that holds the token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Password of the Gateway; visible in the process list, so prefer --password-file
    #[arg(long, value_name = "PASSWORD")]
    password: Option<String>,
    /// File that holds the password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
struct GatewayArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDR", default_value = "ws://127.0.0.1:18789")]
    listen: String,
    /// Where conversations are kept
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// File that holds the token clients must know; without it one is made and printed
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(subcommand)]
    request: Option<GatewayRequest>,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum GatewayRequest {
    /// Post a message into a conversation of a running embedded Gateway
    Post {
        #[command(flatten)]
        target: GatewayTarget,
        /// Key of the conversation, made when it is new
        #[arg(long, default_value = "agent:main:main")]
        session: String,
        /// Who speaks
        #[arg(long, value_enum, default_value = "user")]
        role: Speaker,
        /// Channel of a new conversation
        #[arg(long, default_value = "demo")]
        channel: String,
        /// Address of a new conversation in its channel
        #[arg(long, default_value = "local")]
        to: String,
        /// What is said
        text: String,
    },
    /// Raise an approval at a running Gateway and wait for the decision
    Ask {
        #[command(flatten)]
        target: GatewayTarget,
        /// How long the approval may stay open
        #[arg(long, value_name = "MS", default_value_t = 120_000)]
        timeout: u64,
        /// The command to be approved; it is not run
        command: String,
    },
}

#[derive(Clone, Debug, Args)]
struct GatewayTarget {
    /// The Gateway, as for `serve`
    #[arg(long, visible_alias = "gateway", value_name = "URL")]
    url: Option<String>,
    /// The store of a running embedded Gateway (default: where `serve --gateway embedded` keeps its own)
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    store: Option<PathBuf>,
    #[command(flatten)]
    credentials: CredentialArgs,
}

#[derive(Debug, Args)]
struct ApprovalsArgs {
    /// The server, by its socket: it runs as `drawspan serve --listen unix:/PATH`
    #[arg(long, global = true, value_name = "unix:/PATH")]
    connect: Option<String>,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    request: Option<ApprovalsRequest>,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum ApprovalsRequest {
    /// List them; what is done without a subcommand
    List,
    /// Let calls run
    Allow {
        /// Which, as listed
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Let calls run, and later ones of the same tool, server, client and way in without asking, until the
    /// server ends
    AllowAlways {
        /// Which, as listed
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Refuse calls
    Deny {
        /// Which, as listed
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        /// What the caller is told
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Speaker {
    User,
    Assistant,
}

#[derive(Clone, Copy, Debug)]
struct Mode(ChannelMode);

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            ChannelMode::Auto => "auto",
            ChannelMode::On => "on",
            ChannelMode::Off => "off",
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct PrefixArg(Prefix);

impl std::fmt::Display for PrefixArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Prefix::Always => "always",
            Prefix::Auto => "auto",
            Prefix::Never => "never",
        })
    }
}

fn parse_prefix(text: &str) -> Result<PrefixArg, String> {
    match text {
        "always" => Ok(PrefixArg(Prefix::Always)),
        "auto" => Ok(PrefixArg(Prefix::Auto)),
        "never" => Ok(PrefixArg(Prefix::Never)),
        _ => Err("use always, auto or never".to_owned()),
    }
}

/// As OpenClaw reads it: trimmed, any case, blank means `auto`.
fn parse_mode(text: &str) -> Result<Mode, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "" | "auto" => Ok(Mode(ChannelMode::Auto)),
        "on" => Ok(Mode(ChannelMode::On)),
        "off" => Ok(Mode(ChannelMode::Off)),
        _ => Err("use auto, on or off".to_owned()),
    }
}

/// Runs the program with these arguments, the first being its own name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Exit {
    crate::logging::install();
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return misread(&error, &args),
    };
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Gateway(args) => gateway_command::run(args),
        Command::List(args) => client::list(args),
        Command::Call(args) => client::call(args),
        Command::Read(args) => client::read(args),
        Command::Prompt(args) => client::prompt(args),
        Command::Probe(args) => client::probe(args),
        Command::Status(args) => client::status(&args),
        Command::Doctor(args) => client::doctor(&args),
        Command::Lock(args) => client::lock(&args),
        Command::Approvals(args) => approvals_command::run(&args),
        Command::Audit(args) => match args.command {
            audit_command::AuditCommand::Verify(args) => audit_command::verify(&args),
        },
        Command::Demo => demo_command::run(),
        Command::Limits {
            json,
            config,
            connect,
        } => limits_command::run(json, config.as_deref(), connect.as_deref()),
        Command::Completions { shell } => {
            // Written to stdout directly, a full disk would be a panic.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "drawspan", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        Command::Version { json } => version(json),
    };
    match outcome {
        Ok(exit) => exit,
        Err(failure) => {
            say(&failure.last_line());
            failure.exit
        }
    }
}

/// What clap has to say, in the shape that was asked for.
fn misread(error: &clap::Error, args: &[OsString]) -> Exit {
    // clap knows which of help, version and errors goes to which stream.
    drop(error.print());
    if !error.use_stderr() {
        return Exit::Ok;
    }
    let mut ours = args.iter().take_while(|arg| *arg != "--");
    if ours.any(|arg| arg == "--json") {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or("no usable command line");
        let message = line.strip_prefix("error: ").unwrap_or(line);
        say(&Failure::new(Exit::Usage, message).shaped(true).last_line());
    }
    Exit::Usage
}

fn version(json: bool) -> CommandResult {
    let version = env!("CARGO_PKG_VERSION");
    let mut features = Vec::new();
    if cfg!(feature = "tls") {
        features.push("tls");
    }
    let newest =
        crate::protocol::revision::Revision::NEWEST_FIRST.map(|revision| revision.as_str());
    if json {
        let document = serde_json::json!({
            "name": "drawspan", "version": version, "features": features, "revisions": newest,
        });
        return print(&format!("{document}\n"));
    }
    print(&format!("drawspan {version}\n"))
}

/// Writes a result to stdout.
fn print(text: &str) -> CommandResult {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Exit::Ok),
        // Whoever read us has heard enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Exit::Ok),
        Err(error) => Err(Failure::new(
            Exit::Failed,
            format!("cannot write to stdout: {error}"),
        )),
    }
}

/// Writes one line to stderr; a stderr that takes nothing is nobody's problem.
fn say(line: &str) {
    let mut text = line.to_owned();
    text.push('\n');
    drop(std::io::stderr().lock().write_all(text.as_bytes()));
}
