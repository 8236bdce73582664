//! What people and scripts are told of one server, beside results and errors.

use crate::codec::json_object::JsonObject;
use crate::diagnostic::Level;
use crate::manager::error::Phase;
use crate::manager::server_config::ServerKey;

/// One thing about one server. Source: the command line's contract (`probe --json`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerDiagnostic {
    /// Whose.
    pub server: ServerKey,
    /// In which part of the work.
    pub phase: Phase,
    /// How much it matters.
    pub level: Level,
    /// One line: what happened, the limit and the value; secrets masked, foreign text escaped.
    pub message: String,
    /// A word for scripts.
    pub code: Option<&'static str>,
    /// The tool it is about, by the server's own name.
    pub tool: Option<String>,
    /// How often it happened.
    pub count: Option<u64>,
    /// The first of it, escaped and cut.
    pub sample: Option<String>,
    /// When the next try is due. Unit: milliseconds from now.
    pub retry_in_ms: Option<u64>,
    /// The command line or URL, masked.
    pub launch: Option<String>,
    /// The server's name as it stands in the names of its tools.
    pub safe_name: Option<String>,
}

impl ServerDiagnostic {
    /// A diagnostic about which nothing else is known.
    #[must_use]
    pub fn new(server: &ServerKey, phase: Phase, level: Level, message: String) -> Self {
        Self {
            server: server.clone(),
            phase,
            level,
            message,
            code: None,
            tool: None,
            count: None,
            sample: None,
            retry_in_ms: None,
            launch: None,
            safe_name: None,
        }
    }

    /// The same, with a word for scripts.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The same, about one tool.
    #[must_use]
    pub fn with_tool(mut self, tool: &str) -> Self {
        self.tool = Some(tool.to_owned());
        self
    }

    /// The diagnostic as one raw JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = JsonObject::new();
        json.text("serverName", self.server.as_str());
        json.text("message", &self.message);
        json.text("level", self.level.as_str());
        json.text("phase", self.phase.as_str());
        json.maybe_text("safeServerName", self.safe_name.as_deref());
        json.maybe_text("launchSummary", self.launch.as_deref());
        json.maybe_text("code", self.code);
        json.maybe_text("tool", self.tool.as_deref());
        json.count("count", self.count);
        json.maybe_text("sample", self.sample.as_deref());
        json.count("retryInMs", self.retry_in_ms);
        json.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_those_of_the_contract() {
        let server = ServerKey("a \"b\"".into());
        let mut one = ServerDiagnostic::new(&server, Phase::List, Level::Info, "m".to_owned());
        assert_eq!(
            one.to_json(),
            r#"{"serverName":"a \"b\"","message":"m","level":"info","phase":"list"}"#
        );
        one = one.with_code("stdout-noise").with_tool("t");
        one.count = Some(3);
        one.sample = Some("s".to_owned());
        one.retry_in_ms = Some(1_500);
        one.launch = Some("l".to_owned());
        one.safe_name = Some("a".to_owned());
        assert_eq!(
            one.to_json(),
            r#"{"serverName":"a \"b\"","message":"m","level":"info","phase":"list","safeServerName":"a","launchSummary":"l","code":"stdout-noise","tool":"t","count":3,"sample":"s","retryInMs":1500}"#
        );
    }
}
