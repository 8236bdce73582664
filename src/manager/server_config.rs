//! One server as the manager needs it: validated, aliases folded, defaults filled in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::codec::shared_text::SharedText;
use crate::codec::uri::Uri;
use crate::link::http_client::HttpProxy;
use crate::link::{ChildSpec, TlsSpec};
use crate::protocol::client::peer::EraChoice;
use crate::secret::Secret;

/// A key of the configured server map, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerKey(pub SharedText);

impl ServerKey {
    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One server, ready to be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Its key.
    pub key: ServerKey,
    /// How it is reached.
    pub transport: Transport,
    /// Which era is spoken.
    pub protocol: EraChoice,
    /// Time limits.
    pub times: Times,
    /// Calls may overlap. OpenClaw's default is false.
    pub parallel: bool,
    /// The record says itself that they may not: that also holds for calls that are passed on.
    pub serial: bool,
    /// Which tools are shown.
    pub filter: ToolFilter,
    /// Bounds of its own that replace the process-wide ones.
    pub bounds: Bounds,
    /// Failures in a row before the pause, and its length.
    pub pause: (usize, Duration),
    /// Whether runtimes have a connection each or one together.
    pub isolation: Isolation,
    /// Check calls and results against the server's schemas in the span too.
    pub validate_calls: bool,
    /// The command line or URL, with everything secret masked.
    pub launch: String,
    /// SHA-256 over the canonical record, expanded secrets included: equal exactly when a connection can be
    /// kept. Hexadecimal.
    pub fingerprint: String,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A program that speaks lines.
    Stdio(StdioTransport),
    /// A URL.
    Http(HttpTransport),
    /// The socket of a program on this host that speaks lines.
    Unix {
        /// Its file.
        path: PathBuf,
    },
}

/// A program to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StdioTransport {
    /// Program, looked up in the PATH of its own environment.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment, inherited names included. Values may be secrets.
    pub env: BTreeMap<String, Secret<String>>,
    /// Where it starts.
    pub cwd: Option<PathBuf>,
}

impl StdioTransport {
    /// What the loop starts. Secrets are in the clear here.
    pub(crate) fn spec(&self) -> ChildSpec {
        let env = self.env.iter();
        ChildSpec {
            program: self.command.clone(),
            args: self.args.clone(),
            env: env
                .map(|(name, value)| (name.clone(), value.expose().clone()))
                .collect(),
            cwd: self.cwd.clone(),
        }
    }
}

/// A server behind a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTransport {
    /// Where. Userinfo is refused when the record is read.
    pub url: Uri,
    /// The URL as configured, for the wire; for people there is [`ServerConfig::launch`].
    pub text: Secret<String>,
    /// Streamable HTTP first and then the older pair, or one of them only.
    pub kind: HttpKind,
    /// Headers of every request to the URL's origin.
    pub headers: Vec<(String, Secret<String>)>,
    /// TLS settings; used when the scheme is `https`.
    pub tls: TlsSpec,
    /// `auth: oauth` and its settings.
    pub oauth: Option<Box<OAuth>>,
    /// The HTTP proxy to go through, found in the environment and not excluded by `NO_PROXY`.
    pub proxy: Option<HttpProxy>,
}

/// How to sign in. OpenClaw: oauth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OAuth {
    /// The scope to ask for.
    pub scope: Option<String>,
    /// Where the browser comes back to.
    pub redirect_url: Option<String>,
    /// The document that describes us as a client.
    pub client_metadata_url: Option<String>,
}

/// Which of the two HTTP transports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpKind {
    /// Streamable HTTP, and the pair of 2024-11-05 where that is refused.
    #[default]
    Auto,
    /// Streamable HTTP.
    Streamable,
    /// The pair of 2024-11-05.
    Sse,
}

/// Time limits of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Start, discovery and handshake together.
    pub connect: Duration,
    /// How long `server/discover` may stay unanswered.
    pub discover: Duration,
    /// One walk over the pages of a list.
    pub list: Duration,
    /// One request.
    pub request: Duration,
    /// One request all in all, when progress extends it; `None`: progress extends nothing.
    pub total: Option<Duration>,
}

/// Bounds of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// One message from it.
    pub message_bytes_max: usize,
    /// Bytes waiting to be written to it.
    pub out_bytes_max: usize,
    /// GETs with `Last-Event-ID` for one interrupted answer.
    pub resume_attempts_max: usize,
}

/// Whether runtimes share a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each runtime has its own. As OpenClaw.
    #[default]
    Session,
    /// All runtimes have one together.
    Shared,
}

/// Which tools are shown: `include` is empty or one of it matches, and none of `exclude` does.
/// OpenClaw: toolFilter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// Patterns, trimmed; `*` is any run of characters.
    pub include: Vec<String>,
    /// As `include`.
    pub exclude: Vec<String>,
}
