//! A server behind a URL: `url`, `headers`, `auth`, certificates, proxy.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::fields::{Fields, kind, scalar};
use super::transport::home_expanded;
use crate::codec::http1::is_token;
use crate::codec::uri::{Scheme, Uri, UriError};
use crate::link::TlsSpec;
use crate::link::http_client::is_reserved;
use crate::manager::proxy::proxy_for;
use crate::manager::server_config::{HttpKind, HttpTransport, OAuth};
use crate::secret::{Quoted, Secret, mask_text};

/// `None` after an error.
pub(super) fn read(
    fields: &mut Fields<'_>,
    text: &str,
    kind: HttpKind,
    env: &BTreeMap<String, String>,
) -> Option<HttpTransport> {
    let url = match parse(text) {
        Ok(url) => url,
        Err(message) => {
            fields.fail(message);
            return None;
        }
    };
    let headers = headers(fields)?;
    let proxy = match proxy_for(&url, env) {
        Ok(proxy) => proxy,
        Err(error) => {
            fields.fail(error.to_string());
            return None;
        }
    };
    Some(HttpTransport {
        tls: tls(fields, &url, env)?,
        oauth: oauth(fields),
        url,
        text: Secret::new(text.to_owned()),
        kind,
        headers,
        proxy,
    })
}

/// # Errors
/// What is wrong with the URL, without what may be a secret in it.
fn parse(text: &str) -> Result<Uri, String> {
    match Uri::parse(text) {
        Ok(uri) if uri.userinfo => Err(
            "url must not hold a user name or password: put them into headers, as Authorization"
                .to_owned(),
        ),
        Ok(uri) => match uri.scheme {
            Scheme::Http | Scheme::Https => Ok(uri),
            Scheme::Ws | Scheme::Wss => Err(wrong_scheme(uri.scheme.as_str())),
        },
        Err(UriError::Scheme(scheme)) => Err(wrong_scheme(&scheme)),
        Err(UriError::NoScheme) => Err(format!(
            "url must begin with http:// or https:// (found {})",
            Quoted(&mask_text(text.rsplit('@').next().unwrap_or("")))
        )),
        Err(error) => Err(format!("url is not usable: {error}")),
    }
}

fn wrong_scheme(scheme: &str) -> String {
    let must = "url must begin with http:// or https://, or be unix:/path";
    let is_scheme = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    if scheme.bytes().all(is_scheme) {
        format!("{must} (found {}:)", Quoted(scheme))
    } else {
        must.to_owned()
    }
}

/// A field that cannot be sent as it is stops the server: without it the server would see somebody else.
/// `None` after an error.
fn headers(fields: &mut Fields<'_>) -> Option<Vec<(String, Secret<String>)>> {
    let mut headers: Vec<(String, Secret<String>)> = Vec::new();
    let members = match fields.get("headers") {
        None => return Some(headers),
        Some(Value::Object(members)) => members,
        Some(other) => {
            fields.ignore("headers", "an object", other);
            return Some(headers);
        }
    };
    let mut usable = true;
    for (name, value) in members {
        let quoted = Quoted(name);
        let Some(value) = scalar(value) else {
            let found = kind(value);
            fields.warn(format!(
                "headers.{quoted} must be a string, number or boolean (found {found}) and was left out"
            ));
            continue;
        };
        let value = value.trim_matches([' ', '\t']);
        if !is_token(name.as_bytes()) {
            fields.fail(format!("headers.{quoted} is no name a header can have"));
            usable = false;
        } else if !value
            .bytes()
            .all(|b| b == b'\t' || (0x20..0x7f).contains(&b))
        {
            fields.fail(format!(
                "headers.{quoted} holds a line break or another character that no header can have"
            ));
            usable = false;
        } else if is_reserved(name) {
            fields.warn(format!(
                "headers.{quoted} is set by the transport and was left out"
            ));
        } else if headers
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name))
        {
            fields.warn(format!(
                "headers.{quoted} is there twice, in another case; left out"
            ));
        } else {
            headers.push((name.clone(), Secret::new(value.to_owned())));
        }
    }
    usable.then_some(headers)
}

/// `None` after an error.
fn tls(fields: &mut Fields<'_>, url: &Uri, env: &BTreeMap<String, String>) -> Option<TlsSpec> {
    let mut path = |name| Some(PathBuf::from(home_expanded(fields.text(name)?, env)));
    let (ca_file, cert, key) = (path("caFile"), path("clientCert"), path("clientKey"));
    let insecure = fields.flag("sslVerify") == Some(false);
    let client = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => {
            fields.fail("clientKey is missing (found clientCert): both or none");
            return None;
        }
        (None, Some(_)) => {
            fields.fail("clientCert is missing (found clientKey): both or none");
            return None;
        }
    };
    let spec = TlsSpec {
        ca_file,
        client,
        insecure,
    };
    if spec != TlsSpec::default() && !url.scheme.is_tls() {
        fields.warn("sslVerify, caFile, clientCert and clientKey have no effect on an http:// url");
    } else if insecure {
        fields.warn("sslVerify is false: anybody on the way can read and change what is said");
    }
    Some(spec)
}

/// `None` when it is not asked for, or after an error.
fn oauth(fields: &mut Fields<'_>) -> Option<Box<OAuth>> {
    let must = "oauth, or be left out";
    let auth = fields.word("auth", must, |word| (word == "oauth").then_some(()));
    let settings = match fields.get("oauth") {
        None => OAuth::default(),
        Some(Value::Object(members)) => oauth_settings(fields, members),
        Some(other) => {
            let found = kind(other);
            fields.fail(format!("oauth must be an object (found {found})"));
            return None;
        }
    };
    auth.map(|()| Box::new(settings))
}

fn oauth_settings(fields: &mut Fields<'_>, members: &Map<String, Value>) -> OAuth {
    let mut settings = OAuth::default();
    for (name, value) in members {
        let text = value
            .as_str()
            .map(str::trim)
            .filter(|text| !text.is_empty());
        let url = text.and_then(|text| Uri::parse(text).ok());
        let (slot, must) = match name.as_str() {
            "scope" => (&mut settings.scope, text.is_some()),
            "redirectUrl" => {
                let http = |url: &Uri| matches!(url.scheme, Scheme::Http | Scheme::Https);
                (&mut settings.redirect_url, url.as_ref().is_some_and(http))
            }
            "clientMetadataUrl" => {
                let named = |url: &Uri| url.scheme == Scheme::Https && url.path_and_query != "/";
                let slot = &mut settings.client_metadata_url;
                (slot, url.as_ref().is_some_and(named))
            }
            other => {
                fields.fail(format!("oauth.{} is not known: remove it", Quoted(other)));
                continue;
            }
        };
        if must {
            *slot = text.map(str::to_owned);
        } else {
            let must = match name.as_str() {
                "scope" => "a text that is not empty",
                "redirectUrl" => "an http:// or https:// URL",
                _ => "an https:// URL with a path",
            };
            fields.fail(format!(
                "oauth.{name} must be {must} (found {})",
                kind(value)
            ));
        }
    }
    settings
}
