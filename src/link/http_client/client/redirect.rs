//! Redirects: within one origin, a few, no loops.
//!
//! Nothing that is meant for the target leaves it, so there is nothing to be taken off a message that follows.
//!
//! Source: RFC 9110 §15.4; reliability-security T34, T36.

use super::{Client, Fault, Job, Method, Step, What};
use crate::clock::Now;
use crate::codec::uri::Uri;
use crate::ids::{WireId, WireMint};
use crate::link::http_client::{resolve, same_origin};
use crate::secret::UrlForLog;

#[derive(Debug)]
pub(super) struct Redirect {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    /// Bytes of its body so far.
    pub(super) skipped: usize,
}

impl Method {
    /// Whether it stays itself, body included, behind a redirect with this status. RFC 9110 §15.4.
    const fn survives(self, status: u16) -> bool {
        match self {
            Self::Get => matches!(status, 301 | 302 | 303 | 307 | 308),
            Self::Post | Self::Delete => matches!(status, 307 | 308),
        }
    }
}

impl Client {
    /// Follows a redirect, or says why not. `kept` is the connection it came on, if it can be used.
    pub(super) fn follow(
        &mut self,
        now: Now,
        mut job: Job,
        kept: Option<WireId>,
        wires: &mut WireMint,
    ) -> Option<Step<'static>> {
        self.places.remove(&job.exchange);
        let redirect = job.redirect.take()?;
        let from = Uri {
            path_and_query: job.path.to_string(),
            ..self.target.url.clone()
        };
        let location = redirect.location.as_deref().unwrap_or("");
        match self.next_path(&job, &from, &redirect) {
            Ok(path) => {
                job.visited
                    .push(std::mem::replace(&mut job.path, path.into()));
                job.written = false;
                self.place(now, job, kept, wires);
                None
            }
            Err(why) => {
                if let Some(id) = kept {
                    self.keep(id);
                }
                let to = match resolve(&from, location) {
                    Ok(to) => to.to_string(),
                    Err(_) => location.to_owned(),
                };
                let fault = Fault::Redirect {
                    from: UrlForLog(&from.to_string()).to_string(),
                    to: UrlForLog(&to).to_string(),
                    why,
                };
                Some(Step {
                    exchange: job.exchange,
                    what: What::Failed(fault),
                })
            }
        }
    }

    fn next_path(
        &self,
        job: &Job,
        from: &Uri,
        redirect: &Redirect,
    ) -> Result<String, &'static str> {
        if !job.method.survives(redirect.status) {
            return Err("a message follows only 307 and 308");
        }
        let location = redirect.location.as_deref().unwrap_or("");
        if location.is_empty() {
            return Err("it names no place");
        }
        let to = resolve(from, location).map_err(|_| "it names no URL that we can call")?;
        if to.userinfo || !same_origin(from, &to) {
            return Err("it leads to another origin");
        }
        let path = to.path_and_query.as_str();
        if *job.path == *path || job.visited.iter().any(|before| **before == *path) {
            return Err("it leads back to where it came from");
        }
        if job.visited.len() >= self.redirects_max {
            return Err("there were too many before it");
        }
        if job.rest.is_none() {
            return Err("the message was too long to be kept");
        }
        Ok(to.path_and_query)
    }
}
