//! What clients see of the upstream servers: the lists.

use super::UpstreamSide;
use crate::clock::Now;
use crate::codec::json_text::write_string;
use crate::codec::splice::with_member;
use crate::hub::Hub;
use crate::ids::PeerId;
use crate::protocol::server::{Answer, ServerRequest};

impl UpstreamSide {
    /// The tools of a client's runtime, each as its server describes it, under its shown name.
    fn append_tools(&self, peer: PeerId, out: &mut String) {
        let Some(runtime) = self.runtimes.get(&peer) else {
            return;
        };
        for (shown, found) in self
            .manager
            .catalog(*runtime)
            .into_iter()
            .flat_map(|one| one.tools())
        {
            if !out.ends_with('[') {
                out.push(',');
            }
            append_renamed(out, found.tool.raw(), found.tool.name(), shown);
        }
    }
}

/// A tool under another name; every other byte of it stays.
fn append_renamed(out: &mut String, raw: &str, name: &str, shown: &str) {
    if name == shown {
        return out.push_str(raw);
    }
    let mut quoted = String::with_capacity(shown.len() + 2);
    write_string(&mut quoted, shown);
    out.push_str(&with_member(raw, "name", &quoted));
}

impl Hub {
    /// Serves a request that needed to know the tools; gives back a call of somebody else's tool.
    pub(super) fn serve_parked(
        &mut self,
        now: Now,
        peer: PeerId,
        request: ServerRequest,
    ) -> Option<ServerRequest> {
        let side = self.upstream.as_ref()?;
        if &*request.method == "tools/call" {
            return Some(request);
        }
        let mut list = String::from(r#"{"tools":["#);
        if self.gateway.is_some() {
            let ours = self
                .tools
                .trim_start_matches(r#"{"tools":["#)
                .trim_end_matches("]}");
            list.push_str(ours);
        }
        side.append_tools(peer, &mut list);
        list.push_str("]}");
        self.append_local_tools(&mut list);
        self.respond(now, peer, request.key, Answer::List(&list));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_renamed_and_nothing_else_of_it_changes() {
        let raw = r#"{ "x":{"name":"inner"}, "name" : "a\u0062", "n":1.0 }"#;
        let mut out = String::new();
        append_renamed(&mut out, raw, "ab", "s__ab");
        assert_eq!(
            out,
            r#"{ "x":{"name":"inner"}, "name" : "s__ab", "n":1.0 }"#
        );
        let mut same = String::new();
        append_renamed(&mut same, raw, "ab", "ab");
        assert_eq!(same, raw);
    }
}
