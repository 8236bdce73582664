//! How much of each counted limit is in use. Counted when somebody asks; only the few peaks are kept, by a
//! comparison where something is opened.
//!
//! A program asks [`Hub::usage`]; a client on a Unix socket, which is our own user or root, asks by the
//! method `drawspan/limits`. Nobody else can: on other doors the method does not exist.

use std::collections::BTreeMap;

use super::Hub;
use crate::codec::json_text::write_string;
use crate::ids::PeerId;
use crate::limits::Entry;
use crate::protocol::server::ServerPeer;

/// The method that asks for all limits of a running hub.
pub const LIMITS_METHOD: &str = "drawspan/limits";

/// One limit in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The limit, as [`crate::limits::Entry::name`].
    pub name: &'static str,
    /// How much is in use. Of a limit of one client, session or connection: by the one with the most.
    pub now: usize,
    /// The most since the hub was made, where that is kept.
    pub peak: Option<usize>,
}

impl Hub {
    /// How much of each limit that counts something is in use now.
    #[must_use]
    pub fn usage(&self) -> Vec<Usage> {
        let (requests, listens, subscriptions) = self.fullest_client();
        let http = self.http.usage();
        let bridge = self.bridge.usage();
        let (commands, commands_peak) = self.plugins.usage();
        let with_peak = |name, now, peak| Usage {
            name,
            now,
            peak: Some(peak),
        };
        let now = |name, now| Usage {
            name,
            now,
            peak: None,
        };
        let mut all = vec![
            now("requests_open_max", requests),
            with_peak("calls_open_max", self.ledger.len(), self.ledger.peak()),
            now("subscriptions_open_max", listens),
            now("resource_subscriptions_max", subscriptions),
            now("events_queued_max", bridge.events),
            now("events_queued_bytes_max", bridge.event_bytes),
            with_peak("plugin_runs_max", commands, commands_peak),
            now("waiters_max", bridge.waiters),
            now("approvals_pending_max", bridge.approvals),
            now("pipelined_requests_max", http.pipelined),
            with_peak("connections_max", http.connections, http.connections_peak),
            with_peak(
                "socket_clients_max",
                self.sockets.clients(),
                self.sockets.clients_peak(),
            ),
            with_peak("sessions_max", http.sessions, http.sessions_peak),
            now("streams_per_session_max", http.streams),
            now("sse_replay_events_max", http.replay_events),
            now("sse_replay_bytes_max", http.replay_bytes),
            now("sse_replay_total_bytes_max", http.replay_total_bytes),
        ];
        if let Some(trail) = &self.trail {
            let (unwritten, peak) = trail.unwritten();
            all.push(with_peak("audit_queue_bytes_max", unwritten, peak));
        }
        if let Some(side) = &self.upstream {
            let (parked, peak, bytes) = side.questions.usage();
            all.push(with_peak("parked_calls_max", parked, peak));
            all.push(now("parked_bytes_max", bytes));
        }
        if let Some(local) = &self.local {
            let (tasks, bytes) = local.desk.tasks_kept();
            all.push(now("tasks_max", tasks));
            all.push(now("task_results_bytes_max", bytes));
        }
        all
    }

    /// The most requests, listen streams and subscriptions of any one client.
    fn fullest_client(&self) -> (usize, usize, usize) {
        let lines = self.lines.values().map(|client| &client.peer);
        lines
            .chain(self.http.peers())
            .map(ServerPeer::open_of_fullest_scope)
            .fold((0, 0, 0), |most, of| {
                (most.0.max(of.0), most.1.max(of.1), most.2.max(of.2))
            })
    }

    /// Whether this client may ask for the limits.
    pub(super) fn may_see_limits(&self, peer: PeerId) -> bool {
        self.lines.get(&peer).is_some_and(|client| client.accepted)
    }

    /// The answer to [`LIMITS_METHOD`].
    pub(super) fn limits_document(&self) -> String {
        let usage: BTreeMap<_, _> = self.usage().into_iter().map(|u| (u.name, u)).collect();
        let mut json = String::from(r#"{"limits":["#);
        for (i, entry) in self.limits.entries().iter().enumerate() {
            json.push_str(if i == 0 { "" } else { "," });
            write_row(&mut json, entry, usage.get(entry.name));
        }
        json.push_str("]}");
        json
    }
}

fn write_row(json: &mut String, entry: &Entry, usage: Option<&Usage>) {
    json.push_str(r#"{"name":"#);
    write_string(json, entry.name);
    json.push_str(&format!(r#","value":{},"unit":"#, entry.value));
    write_string(json, entry.unit);
    if let Some(usage) = usage {
        json.push_str(&format!(r#","now":{}"#, usage.now));
        if let Some(peak) = usage.peak {
            json.push_str(&format!(r#","peak":{peak}"#));
        }
    }
    json.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    #[test]
    fn a_row_holds_what_is_known() {
        let entry = Limits::DEFAULT.entries()[0];
        let row = |usage: Option<Usage>| {
            let mut json = String::new();
            write_row(&mut json, &entry, usage.as_ref());
            json
        };
        let plain = r#"{"name":"message_bytes_max","value":4194304,"unit":"bytes"}"#;
        assert_eq!(row(None), plain);
        let usage = |peak| Usage {
            name: entry.name,
            now: 3,
            peak,
        };
        let open = &plain[..plain.len() - 1];
        assert_eq!(row(Some(usage(None))), format!(r#"{open},"now":3}}"#));
        assert_eq!(
            row(Some(usage(Some(7)))),
            format!(r#"{open},"now":3,"peak":7}}"#)
        );
    }
}
