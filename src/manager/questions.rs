//! Questions that servers ask: who is asked, and how each ends.
//!
//! | happening                                | what becomes of the question                     |
//! |------------------------------------------|--------------------------------------------------|
//! | it came for a call, or has one runtime   | that runtime is asked                            |
//! | it came for no call, to several runtimes | refused, for there is no one it could be put to  |
//! | it is answered                           | the server is told                               |
//! | the server does not want to know any more | the runtime is told                             |
//! | the runtime is closed                    | refused; both are told                           |

use super::runtime::UpstreamId;
use super::server_config::ServerKey;
use super::{Manager, ManagerOutput, explain};
use crate::clock::Now;
use crate::ids::{QuestionId, RuntimeId, TicketId};
use crate::protocol::error::RpcError;

/// A question that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    upstream: UpstreamId,
    question: QuestionId,
    runtime: RuntimeId,
}

/// What a server asks.
#[derive(Debug)]
pub(super) struct Asking {
    /// As the server's connection counts it.
    pub(super) question: QuestionId,
    pub(super) method: Box<str>,
    pub(super) params: Option<Box<str>>,
    /// For which piece of work, when that is known.
    pub(super) ticket: Option<TicketId>,
}

/// Questions of servers.
impl Manager {
    /// A server asks something: it is put to the runtime whose call it belongs to, or to the only one there is.
    pub(super) fn ask(
        &mut self,
        now: Now,
        id: UpstreamId,
        key: ServerKey,
        owners: &[RuntimeId],
        asking: Asking,
    ) {
        let Asking {
            question,
            method,
            params,
            ticket,
        } = asking;
        // A shared server's question that belongs to no call has no one it could be put to.
        let Some(runtime) = self.one_concerned(owners, ticket) else {
            if let Some(slot) = self.slots.get_mut(&id) {
                if !std::mem::replace(&mut slot.asks_nobody, true) {
                    let diagnostic = explain::question_of_no_call(&key, &method);
                    self.tell(&owners[..owners.len().min(1)], &diagnostic);
                }
            }
            let refusal = explain::nobody_to_ask();
            return self.with(now, id, |one, turn| {
                one.answer(turn, question, Err(refusal))
            });
        };
        let asked = self.next_question;
        self.next_question = asked.next();
        let of = Asked {
            upstream: id,
            question,
            runtime,
        };
        self.questions.insert(asked, of);
        if let Some(runtime) = self.runtimes.get_mut(&runtime) {
            runtime.questions += 1;
        }
        self.outputs.push_back(ManagerOutput::Question {
            id: asked,
            runtime,
            server: key,
            method,
            params,
            ticket,
        });
    }

    fn one_concerned(&self, owners: &[RuntimeId], ticket: Option<TicketId>) -> Option<RuntimeId> {
        match *self.concerned(owners, ticket) {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Answers a question of a server; one that is gone is left alone.
    pub fn answer(&mut self, now: Now, question: QuestionId, answer: Result<&str, RpcError>) {
        if let Some(asked) = self.question_over(now, question) {
            self.with(now, asked.upstream, |one, turn| {
                one.answer(turn, asked.question, answer)
            });
        }
    }

    /// The server that asked does not want to know any more.
    pub(super) fn question_gone(&mut self, now: Now, id: UpstreamId, question: QuestionId) {
        let asked = self
            .questions
            .iter()
            .find(|(_, of)| of.upstream == id && of.question == question)
            .map(|(asked, _)| *asked);
        if let Some(asked) = asked {
            self.question_over(now, asked);
            self.outputs.push_back(ManagerOutput::QuestionGone(asked));
        }
    }

    /// Nobody is left whom these questions could be put to: the servers are told.
    pub(super) fn withdraw_questions(&mut self, now: Now, id: RuntimeId) {
        let asked: Vec<(QuestionId, Asked)> = self
            .questions
            .iter()
            .filter(|(_, asked)| asked.runtime == id)
            .map(|(question, asked)| (*question, *asked))
            .collect();
        for (question, asked) in asked {
            self.question_over(now, question);
            self.outputs
                .push_back(ManagerOutput::QuestionGone(question));
            self.with(now, asked.upstream, |one, turn| {
                one.answer(turn, asked.question, Err(explain::client_is_gone()))
            });
        }
    }

    /// A question waits no more.
    fn question_over(&mut self, now: Now, question: QuestionId) -> Option<Asked> {
        let asked = self.questions.remove(&question)?;
        if let Some(runtime) = self.runtimes.get_mut(&asked.runtime) {
            runtime.questions = runtime.questions.saturating_sub(1);
        }
        self.touch(now, asked.runtime);
        Some(asked)
    }
}
