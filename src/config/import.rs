//! Servers out of the files of other programs, on request only (`--import`).
//!
//! | program | files, the first entry of a name counts |
//! |---------|------------------------------------------|
//! | `openclaw` | its configuration (`openclaw.json`) |
//! | `claude` | `~/.claude.json` for this directory, `./.mcp.json`, `~/.claude.json`, Claude Desktop's |
//! | `vscode` | `./.vscode/mcp.json`, then the person's `mcp.json` and `settings.json` |
//! | `cursor` | `./.cursor/mcp.json`, then `~/.cursor/mcp.json` |
//! | `codex` | `./.codex/config.toml`, then `config.toml` in `$CODEX_HOME` or `~/.codex` |
//!
//! A file that is not there says nothing; one that cannot be read is an error that names it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::document::Document;
use super::{
    ConfigError, ServerMap, codex, openclaw_config, read_json5, read_text, read_toml, state_dir,
};

/// A program whose servers can be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// OpenClaw.
    OpenClaw,
    /// Claude Code and Claude Desktop.
    Claude,
    /// Visual Studio Code.
    VsCode,
    /// Cursor.
    Cursor,
    /// Codex.
    Codex,
}

impl Program {
    /// All of them, for help and errors.
    pub const ALL: [Self; 5] = [
        Self::OpenClaw,
        Self::Claude,
        Self::VsCode,
        Self::Cursor,
        Self::Codex,
    ];

    /// The word on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenClaw => "openclaw",
            Self::Claude => "claude",
            Self::VsCode => "vscode",
            Self::Cursor => "cursor",
            Self::Codex => "codex",
        }
    }

    /// The program of that word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|program| program.as_str() == word)
    }
}

/// Why nothing can be taken over.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImportError {
    /// None of its files is there; where we looked.
    Nothing {
        /// The program.
        program: Program,
        /// The files.
        looked: Vec<PathBuf>,
    },
    /// One of its files cannot be used.
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: ConfigError,
    },
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing { program, looked } => {
                write!(
                    f,
                    "no configuration of {} found, looked for",
                    program.as_str()
                )?;
                for (i, path) in looked.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma} {}", path.display())?;
                }
                Ok(())
            }
            Self::File { path, error } => write!(f, "{} {error}", path.display()),
        }
    }
}

impl std::error::Error for ImportError {}

/// Which part of a file holds servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Any of the usual maps: the file is made for servers.
    Maps,
    /// `mcpServers` and nothing else: the file holds other things too.
    McpServers,
    /// `mcp` of OpenClaw's configuration.
    Mcp,
    /// Those of `projects.<directory>`.
    Project,
    /// `mcp.servers` of an editor's settings.
    Settings,
    /// `mcp_servers` of a TOML file.
    Codex,
}

/// The servers of `program` for a person working in `directory`, an absolute path.
///
/// # Errors
/// When none of its files is there, or one cannot be read.
pub fn import(
    program: Program,
    env: &BTreeMap<String, String>,
    directory: &Path,
) -> Result<ServerMap, ImportError> {
    let files = files(program, env, directory);
    let mut map = ServerMap::default();
    for (path, part) in &files {
        let file = |error| ImportError::File {
            path: path.clone(),
            error,
        };
        let text = match read_text(path) {
            Err(ConfigError::Io(error)) if is_absent(&error) => continue,
            other => other.map_err(file)?,
        };
        let document = if *part == Part::Codex {
            codex::translated(read_toml(&text).map_err(file)?)
        } else {
            let mut document = read_json5(&text).map_err(file)?;
            document.each_text(&|text| filled_in(text, env, directory));
            document
        };
        let mut found = part.of(&document, directory);
        found.path = Some(path.clone());
        map.merge(found);
    }
    if map.path.is_none() {
        let looked = files.into_iter().map(|(path, _)| path).collect();
        return Err(ImportError::Nothing { program, looked });
    }
    Ok(map)
}

fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

impl Part {
    fn of(self, document: &Document, directory: &Path) -> ServerMap {
        let named = |name| document.get(name).map(|part| wrapped(name, part));
        let part = match self {
            Self::Maps => Some(document.clone()),
            Self::McpServers | Self::Codex => named("mcpServers"),
            Self::Mcp => named("mcp"),
            Self::Project => {
                let projects = document.get("projects");
                let project = projects.and_then(|all| all.get(directory.to_str()?));
                project
                    .and_then(|project| project.get("mcpServers"))
                    .map(|servers| wrapped("mcpServers", servers))
            }
            Self::Settings => {
                let nested = document.get("mcp").and_then(|mcp| mcp.get("servers"));
                nested
                    .or_else(|| document.get("mcp.servers"))
                    .map(|servers| wrapped("servers", servers))
            }
        };
        ServerMap::of(&part.unwrap_or(Document::Object(Vec::new())))
    }
}

fn wrapped(name: &str, servers: &Document) -> Document {
    Document::Object(vec![(name.to_owned(), servers.clone())])
}

fn files(
    program: Program,
    env: &BTreeMap<String, String>,
    directory: &Path,
) -> Vec<(PathBuf, Part)> {
    let home = ["HOME", "USERPROFILE"]
        .into_iter()
        .find_map(|name| env.get(name));
    let home = home.filter(|home| !home.is_empty()).map(PathBuf::from);
    let in_home = |path: &str| home.as_ref().map(|home| home.join(path));
    let applications = applications(env, home.as_deref());
    let in_applications = |path: &str| applications.as_ref().map(|folder| folder.join(path));
    let here = |path: &str| Some(directory.join(path));
    let files = match program {
        Program::OpenClaw => {
            let file = state_dir(env).map(|dir| openclaw_config(env, &dir));
            vec![(file, Part::Mcp)]
        }
        Program::Claude => vec![
            (in_home(".claude.json"), Part::Project),
            (here(".mcp.json"), Part::Maps),
            (in_home(".claude.json"), Part::McpServers),
            (
                in_applications("Claude/claude_desktop_config.json"),
                Part::McpServers,
            ),
        ],
        Program::VsCode => vec![
            (here(".vscode/mcp.json"), Part::Maps),
            (in_applications("Code/User/mcp.json"), Part::Maps),
            (in_applications("Code/User/settings.json"), Part::Settings),
        ],
        Program::Cursor => vec![
            (here(".cursor/mcp.json"), Part::Maps),
            (in_home(".cursor/mcp.json"), Part::Maps),
        ],
        Program::Codex => {
            let own = env.get("CODEX_HOME").filter(|dir| !dir.is_empty());
            let own = own.map(PathBuf::from).or_else(|| in_home(".codex"));
            vec![
                (here(".codex/config.toml"), Part::Codex),
                (own.map(|dir| dir.join("config.toml")), Part::Codex),
            ]
        }
    };
    let there = files.into_iter();
    there
        .filter_map(|(path, part)| Some((path?, part)))
        .collect()
}

/// Where programs with a window keep their files.
fn applications(env: &BTreeMap<String, String>, home: Option<&Path>) -> Option<PathBuf> {
    let var = |name: &str| env.get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if cfg!(windows) {
        var("APPDATA")
    } else if cfg!(target_os = "macos") {
        Some(home?.join("Library/Application Support"))
    } else {
        var("XDG_CONFIG_HOME").or_else(|| Some(home?.join(".config")))
    }
}

/// What editors put in for directories; variables are for `manager::placeholder`.
fn filled_in(text: &str, env: &BTreeMap<String, String>, directory: &Path) -> Option<String> {
    if !text.contains("${") {
        return None;
    }
    let directory = directory.to_string_lossy();
    let name = directory.rsplit('/').next().unwrap_or("");
    let mut text = text
        .replace("${workspaceFolder}", &directory)
        .replace("${workspaceFolderBasename}", name)
        .replace("${/}", "/")
        .replace("${pathSeparator}", "/");
    if let Some(home) = env.get("HOME") {
        text = text.replace("${userHome}", home);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A home and a project of its own, gone when the test ends.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let name = format!("drawspan-import-{name}-{}", std::process::id());
            let base = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&base);
            std::fs::create_dir_all(base.join("project")).expect("made");
            Self(base)
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().expect("not the root")).expect("made");
            std::fs::write(path, text).expect("written");
        }

        fn import(&self, program: Program) -> Result<ServerMap, ImportError> {
            let home = self.0.to_str().expect("text").to_owned();
            let env = [
                ("HOME".to_owned(), home.clone()),
                ("APPDATA".to_owned(), home),
            ]
            .into();
            import(program, &env, &self.0.join("project"))
        }

        fn keys(&self, program: Program) -> String {
            let map = self.import(program).expect("found");
            let keys: Vec<String> = map.servers.into_iter().map(|(key, _)| key).collect();
            keys.join(" ")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn openclaws_file_is_found() {
        let place = Place::new("openclaw");
        let config = "{mcp: {sessionIdleTtlMs: 5, servers: {b: {command: 'x'}, a: {}}}}";
        place.file(".openclaw/openclaw.json", config);
        let map = place.import(Program::OpenClaw).expect("found");
        assert_eq!(map.path, Some(place.0.join(".openclaw/openclaw.json")));
        assert!(map.runtime_idle_ttl.is_some());
        assert_eq!(place.keys(Program::OpenClaw), "b a");
    }

    #[test]
    fn claude_has_servers_of_a_project_and_of_a_person() {
        let place = Place::new("claude");
        let project = place.0.join("project");
        let projects = serde_json::json!({
            "numStartups": 5,
            "statusLine": {"type": "command", "command": "x"},
            "mcpServers": {"mine": {"command": "m"}, "both": {"command": "last"}},
            "projects": {
                project.to_str().expect("text"): {"mcpServers": {"local": {"command": "l"}}},
                "/elsewhere": {"mcpServers": {"other": {"command": "o"}}},
            },
        });
        place.file(".claude.json", &projects.to_string());
        let shared = r#"{"mcpServers": {"both": {"type": "http", "url": "${URL:-http://h}"}}}"#;
        place.file("project/.mcp.json", shared);
        assert_eq!(place.keys(Program::Claude), "local both mine");
        let map = place.import(Program::Claude).expect("found");
        assert!(map.servers[1].1.contains("${URL:-http://h}"));
    }

    #[test]
    fn editors_put_in_directories() {
        let place = Place::new("editors");
        let text = r#"{ // JSON with comments
            "servers": {"fs": {"command": "${userHome}/srv", "args": ["${workspaceFolder}", "${input:k}"]}},
            "inputs": [{"id": "k"}], }"#;
        place.file("project/.vscode/mcp.json", text);
        place.file(
            "project/.cursor/mcp.json",
            r#"{"mcpServers": {"c": {"url": "http://h"}}}"#,
        );
        place.file(
            ".cursor/mcp.json",
            r#"{"mcpServers": {"d": {"url": "http://h"}, "c": {}}}"#,
        );
        assert_eq!(place.keys(Program::Cursor), "c d");
        let map = place.import(Program::VsCode).expect("found");
        let base = place.0.display();
        assert_eq!(
            map.servers[0].1,
            format!(r#"{{"command":"{base}/srv","args":["{base}/project","${{input:k}}"]}}"#)
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn settings_of_an_editor_hold_servers_too() {
        let place = Place::new("settings");
        let settings = r#"{"editor.x": 1, "mcp": {"servers": {"s": {"command": "x"}}}}"#;
        place.file(".config/Code/User/settings.json", settings);
        assert_eq!(place.keys(Program::VsCode), "s");
        place.file(
            ".config/Claude/claude_desktop_config.json",
            r#"{"mcpServers": {"t": {}}}"#,
        );
        assert_eq!(place.keys(Program::Claude), "t");
    }

    #[test]
    fn codex_writes_toml_and_has_names_of_its_own() {
        let place = Place::new("codex");
        let text = r#"
            model = "x"  # a comment
            [mcp_servers.docs]
            command = "npx"
            args = ["-y", "docs", "${HOME}"]
            env_vars = ["TOKEN"]
            startup_timeout_sec = 20.5
            [mcp_servers.docs.env]
            A = "1"
            [mcp_servers."far away"]
            url = "https://h/mcp"
            bearer_token_env_var = "far_token"
            http_headers = { "X-A" = "1" }
            env_http_headers = { "X-B" = "B" }
            disabled_tools = ["rm"]
            enabled = false
        "#;
        place.file(".codex/config.toml", text);
        let map = place.import(Program::Codex).expect("found");
        let entry = |key: &str| -> serde_json::Value {
            let found = map.servers.iter().find(|(other, _)| other == key);
            serde_json::from_str(&found.expect(key).1).expect("JSON")
        };
        assert_eq!(
            entry("docs"),
            serde_json::json!({
                "command": "npx", "args": ["-y", "docs", "$${HOME}"], "inheritEnv": ["TOKEN"],
                "connectTimeout": 20.5, "env": {"A": "1"},
            })
        );
        assert_eq!(
            entry("far away"),
            serde_json::json!({
                "url": "https://h/mcp", "enabled": false, "toolFilter": {"exclude": ["rm"]},
                "headers": {"Authorization": "Bearer ${env:far_token}", "X-A": "1", "X-B": "${env:B}"},
            })
        );
        place.file(".codex/config.toml", "[mcp_servers");
        let broken = place
            .import(Program::Codex)
            .expect_err("broken")
            .to_string();
        assert!(
            broken.contains(".codex/config.toml is not TOML: "),
            "{broken}"
        );
    }

    #[test]
    fn errors_name_the_files() {
        let place = Place::new("errors");
        let nothing = place
            .import(Program::Cursor)
            .expect_err("no file")
            .to_string();
        assert!(
            nothing.contains("no configuration of cursor found"),
            "{nothing}"
        );
        assert!(nothing.contains("project/.cursor/mcp.json, "), "{nothing}");
        place.file("project/.cursor/mcp.json", "{mcpServers: {");
        let broken = place
            .import(Program::Cursor)
            .expect_err("broken")
            .to_string();
        assert!(
            broken.contains("project/.cursor/mcp.json is not JSON5: "),
            "{broken}"
        );
        assert_eq!(Program::parse("cursor"), Some(Program::Cursor));
        assert_eq!(Program::parse("emacs"), None);
    }
}
