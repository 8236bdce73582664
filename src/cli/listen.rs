//! `--listen ADDR`: which doors a hub opens, and who may come in by the HTTP one.

use std::path::{Path, PathBuf};

use super::{Exit, Failure, ServeArgs};
use crate::codec::uri::{Scheme, Uri};
use crate::hub::HttpConfig;
use crate::io::identity_files::read_secret_file;
use crate::link::http_rules::AccessRules;

/// What an address may look like.
const FORMS: &str = "use stdio, http://HOST:PORT or unix:/PATH";

/// One door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// Our own stdin and stdout.
    Stdio,
    /// HTTP on an address literal; with port 0 the system chooses one, which is told once it has.
    Http { host: String, port: u16 },
    /// Lines on a Unix socket.
    Unix { path: PathBuf },
}

/// Reads the doors asked for.
pub(super) fn doors(listen: &[String]) -> Result<Vec<Door>, Failure> {
    let doors = listen
        .iter()
        .map(|text| door(text))
        .collect::<Result<Vec<_>, _>>()?;
    if doors.iter().filter(|door| **door == Door::Stdio).count() > 1 {
        return Err(Failure::new(Exit::Usage, "stdio can be listened on once"));
    }
    for (i, door) in doors.iter().enumerate() {
        if let Door::Unix { path } = door {
            if doors[..i].contains(door) {
                let message = format!("{} can be listened on once", label(path));
                return Err(Failure::new(Exit::Usage, message));
            }
        }
    }
    Ok(doors)
}

fn label(path: &Path) -> String {
    format!("unix:{}", path.display())
}

fn door(text: &str) -> Result<Door, Failure> {
    let usage = |why: &str| Failure::new(Exit::Usage, format!("cannot listen on {text}: {why}"));
    if text == "stdio" {
        return Ok(Door::Stdio);
    }
    if let Some(path) = text.strip_prefix("unix:") {
        if path.is_empty() {
            return Err(usage("give the path of the socket, unix:/PATH"));
        }
        let path = PathBuf::from(path);
        return Ok(Door::Unix { path });
    }
    if !text.starts_with("http://") {
        return Err(usage(FORMS));
    }
    // A URL to call has no port 0, so the parser refuses it.
    let chosen = [":0", ":0/", ":0/mcp"];
    let (url, usual_port) = match chosen.iter().find_map(|end| text.strip_suffix(end)) {
        Some(host) => (host, 0),
        None => (text, 80),
    };
    let uri = Uri::parse(url).map_err(|error| usage(&error.to_string()))?;
    if uri.scheme != Scheme::Http {
        return Err(usage(FORMS));
    }
    if !matches!(uri.path_and_query.as_str(), "/" | "/mcp") {
        return Err(usage("MCP is served at /mcp; leave the path out"));
    }
    let port = uri.port.unwrap_or(usual_port);
    let host = if uri.host.eq_ignore_ascii_case("localhost") {
        "127.0.0.1".to_owned()
    } else {
        uri.host
    };
    Ok(Door::Http { host, port })
}

/// Who may come in: anybody on this machine, unless a token is asked for; from elsewhere only with one.
pub(super) fn http_config(args: &ServeArgs, doors: &[Door]) -> Result<HttpConfig, Failure> {
    let usage = |message: String| Failure::new(Exit::Usage, message);
    let token = match &args.bearer_token_file {
        Some(path) => Some(read_token(path)?),
        None => None,
    };
    let loopback = doors.iter().all(|door| match door {
        // The io layer lets in our own user and root.
        Door::Stdio | Door::Unix { .. } => true,
        Door::Http { host, .. } => host
            .parse::<core::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback()),
    });
    AccessRules::new(&args.allow_host, &args.allow_origin, token, loopback)
        .map(|rules| HttpConfig { rules })
        .map_err(|error| {
            usage(format!(
                "{error}; give --bearer-token-file FILE, or listen on 127.0.0.1"
            ))
        })
}

fn read_token(path: &Path) -> Result<crate::secret::Secret<String>, Failure> {
    read_secret_file("bearer token", path)
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()))
}
