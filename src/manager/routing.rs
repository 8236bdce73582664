//! What an upstream says: which runtimes it concerns, and what they are told.

use super::diagnostic::ServerDiagnostic;
use super::questions::Asking;
use super::runtime::UpstreamId;
use super::server_config::Transport;
use super::upstream::UpstreamOutput;
use super::{Manager, ManagerOutput, explain};
use crate::clock::Now;
use crate::ids::{RuntimeId, TicketId};

impl Manager {
    /// Hands on one thing that an upstream has said.
    pub(super) fn route(&mut self, now: Now, id: UpstreamId, output: UpstreamOutput) {
        if let UpstreamOutput::Answer { ticket, outcome } = output {
            return self.conclude(now, ticket, outcome);
        }
        let Some(slot) = self.slots.get(&id) else {
            return;
        };
        let key = slot.key.clone();
        let owners: Vec<RuntimeId> = slot.owners.iter().copied().collect();
        match output {
            // Answers have gone before: they are most of what comes, and concern nobody else.
            UpstreamOutput::Answer { .. } => {}
            UpstreamOutput::Progress { ticket, params } => {
                if let Some(known) = self.tickets.get(&ticket) {
                    let runtime = known.runtime;
                    self.outputs
                        .push_back(ManagerOutput::Progress { ticket, params });
                    self.touch(now, runtime);
                }
            }
            UpstreamOutput::Notification {
                method,
                params,
                ticket,
            } => {
                for runtime in self.concerned(&owners, ticket) {
                    self.outputs.push_back(ManagerOutput::Notification {
                        runtime,
                        server: key.clone(),
                        method: method.clone(),
                        params: params.clone(),
                        ticket,
                    });
                }
            }
            UpstreamOutput::Question {
                id: question,
                method,
                params,
                ticket,
            } => {
                let asking = Asking {
                    question,
                    method,
                    params,
                    ticket,
                };
                self.ask(now, id, key, &owners, asking);
            }
            UpstreamOutput::QuestionGone(question) => self.question_gone(now, id, question),
            UpstreamOutput::Tools(outcome) => self.publish(now, id, &owners, outcome),
            UpstreamOutput::Subscribed { topic, outcome } => {
                self.route_subscribed(now, &key, &owners, &topic, &outcome);
            }
            UpstreamOutput::ListChanged(list) => {
                for runtime in owners {
                    self.outputs.push_back(ManagerOutput::ListChanged {
                        runtime,
                        server: key.clone(),
                        list,
                    });
                }
            }
            UpstreamOutput::StateChanged => {
                for runtime in &owners {
                    self.outputs.push_back(ManagerOutput::StateChanged {
                        runtime: *runtime,
                        server: key.clone(),
                    });
                }
                self.reconsider(now, &owners);
            }
            UpstreamOutput::ConnectFailed(error) => {
                self.tell(&owners, &explain::diagnostic(&error));
                self.reconsider(now, &owners);
            }
            UpstreamOutput::Noise(noise) => {
                let is_process = matches!(slot.upstream.config().transport, Transport::Stdio(_));
                let mut diagnostic = explain::noise(&key, is_process, &noise.why, &noise.sample);
                diagnostic.count = Some(noise.count);
                self.tell(&owners, &diagnostic);
            }
            UpstreamOutput::Diagnostic(diagnostic) => self.tell(&owners, &diagnostic),
        }
    }

    /// Tells these runtimes what a person should know.
    pub(super) fn tell(&mut self, owners: &[RuntimeId], diagnostic: &ServerDiagnostic) {
        for runtime in owners {
            self.outputs.push_back(ManagerOutput::Diagnostic {
                runtime: *runtime,
                diagnostic: diagnostic.clone(),
            });
        }
    }

    /// Whose it is: of the runtime that the piece of work is for, or of all that have the connection.
    pub(super) fn concerned(
        &self,
        owners: &[RuntimeId],
        ticket: Option<TicketId>,
    ) -> Vec<RuntimeId> {
        match ticket.and_then(|ticket| self.tickets.get(&ticket)) {
            Some(known) => vec![known.runtime],
            None => owners.to_vec(),
        }
    }
}
