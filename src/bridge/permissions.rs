//! Permission prompts of a Claude client, and the chat messages that answer them.
//!
//! | state of a prompt | its code stands in a message of the assistant, or in `messages_send` | `yes CODE` or `no CODE`, role `user` | same words, any other role |
//! |---|---|---|---|
//! | unknown, answered, expired | – | ordinary message | ordinary message |
//! | pending, never announced | announced in that session | answered, with a warning | ordinary message, with a warning |
//! | announced in session S | announced in that session instead | in S: answered; elsewhere: ordinary message, with a warning | ordinary message, with a warning |
//!
//! A prompt that is asked again stays announced and gets its full time again. OpenClaw:
//! `openclaw-serve` §3.7, §5.2; there any message of any role in any session answers. The rule
//! about sessions is that of the design: who has not seen the question must not answer it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::raw_json::is_space;
use crate::clock::{Deadline, Now, Uptime};
use crate::limits::Limits;

/// The code of a prompt that a message can name: five letters `a` to `z` without `l`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Code([u8; 5]);

impl Code {
    /// The code with this spelling, when it can be one. Prompts spelled otherwise, with capitals
    /// for example, can never be answered by message; OpenClaw has the same rule.
    fn new(spelling: &str) -> Option<Self> {
        let code = Self(spelling.as_bytes().try_into().ok()?);
        code.0
            .iter()
            .all(|byte| byte.is_ascii_lowercase() && *byte != b'l')
            .then_some(code)
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(f, "{}", char::from(*byte)))
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Code({self})")
    }
}

#[derive(Debug)]
struct Prompt {
    announced_in: Option<Box<str>>,
    arrival: u64,
    due: Uptime,
}

/// What a chat message means for the pending prompts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing: an ordinary message.
    Ordinary,
    /// It answers the prompt, which is forgotten.
    Answered {
        /// Which prompt.
        code: Code,
        /// Yes or no.
        allow: bool,
        /// Whether the prompt had been announced in this session; if not, nobody knows who was
        /// asked.
        announced: bool,
    },
    /// It names a pending prompt, but its sender may not answer. It is an ordinary message.
    NotTheirs {
        /// Which prompt.
        code: Code,
        /// Why not.
        why: NotTheirs,
    },
}

/// Why a message may not answer a prompt that it names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotTheirs {
    /// It does not come from a user.
    Role,
    /// The prompt was announced in this other session.
    AnnouncedIn(Box<str>),
}

/// The pending prompts.
#[derive(Debug)]
pub(super) struct Permissions {
    pending: BTreeMap<Code, Prompt>,
    arrivals: u64,
    evicted: u64,
    count_max: usize,
    ttl: Duration,
}

impl Permissions {
    /// No prompts.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            pending: BTreeMap::new(),
            arrivals: 0,
            evicted: 0,
            count_max: limits.approvals_pending_max,
            ttl: limits.permission_ttl,
        }
    }

    /// How many prompts are pending.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// A client asks. A code that no message can name is not kept.
    pub(super) fn requested(&mut self, now: Now, request_id: &str) {
        let Some(code) = Code::new(request_id) else {
            return;
        };
        self.arrivals += 1;
        let announced_in = self.pending.remove(&code).and_then(|old| old.announced_in);
        let prompt = Prompt {
            announced_in,
            arrival: self.arrivals,
            due: now.after(self.ttl),
        };
        self.pending.insert(code, prompt);
        while self.pending.len() > self.count_max {
            let oldest = self.pending.iter().min_by_key(|(_, prompt)| prompt.arrival);
            let Some(code) = oldest.map(|(code, _)| *code) else {
                break;
            };
            self.pending.remove(&code);
            self.evicted += 1;
        }
    }

    /// Text that the people of a session get to see, from our side.
    pub(super) fn announced(&mut self, session: &str, text: &str) {
        for word in text.split(|c: char| !c.is_alphanumeric()) {
            let code = Code::new(&word.to_ascii_lowercase());
            if let Some(prompt) = code.and_then(|code| self.pending.get_mut(&code)) {
                prompt.announced_in = Some(session.into());
            }
        }
    }

    /// What a message of this session and role, with this first text, means.
    pub(super) fn message(&mut self, session: &str, role: Option<&str>, text: &str) -> Verdict {
        let Some((allow, code)) = answer(text) else {
            return Verdict::Ordinary;
        };
        let Some(prompt) = self.pending.get(&code) else {
            return Verdict::Ordinary;
        };
        if role != Some("user") {
            let why = NotTheirs::Role;
            return Verdict::NotTheirs { code, why };
        }
        let announced = match &prompt.announced_in {
            Some(other) if **other != *session => {
                let why = NotTheirs::AnnouncedIn(other.clone());
                return Verdict::NotTheirs { code, why };
            }
            Some(_) => true,
            None => false,
        };
        self.pending.remove(&code);
        Verdict::Answered {
            code,
            allow,
            announced,
        }
    }

    /// Whether no prompt is pending, so that nothing needs to be looked at.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// How many were pushed out by newer ones, ever.
    pub(super) const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Forgets those whose time is up.
    pub(super) fn expire(&mut self, now: Now) {
        self.pending.retain(|_, prompt| prompt.due > now.up);
    }

    /// When [`Permissions::expire`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let due = self.pending.values().map(|prompt| prompt.due).min();
        due.map(|at| Deadline::new(at, "a permission prompt expires"))
    }
}

/// Reads `yes CODE` or `no CODE`, in any case of letters, with nothing before or after. The pattern
/// on the wire is `^(yes|no)\s+([a-km-z]{5})$`. OpenClaw: `openclaw-serve` §3.7.
fn answer(text: &str) -> Option<(bool, Code)> {
    let (word, rest) = text.split_at(text.find(is_space)?);
    let allow = match word.to_ascii_lowercase().as_str() {
        "yes" => true,
        "no" => false,
        _ => return None,
    };
    let code = Code::new(&rest.trim_start_matches(is_space).to_ascii_lowercase())?;
    Some((allow, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now {
            up: Uptime::from_millis(ms),
            unix_ms: 0,
        }
    }

    fn prompts(codes: &[&str]) -> Permissions {
        let mut permissions = Permissions::new(&Limits {
            approvals_pending_max: 2,
            ..Limits::DEFAULT
        });
        for code in codes {
            permissions.requested(at(0), code);
        }
        permissions
    }

    fn code(spelling: &str) -> Code {
        Code::new(spelling).expect("a code")
    }

    #[test]
    fn only_the_exact_words_are_an_answer() {
        for (text, allow) in [
            ("yes abcde", true),
            ("no abcde", false),
            ("YES\t\u{a0}\n ABCDE", true),
            ("nO abCde", false),
        ] {
            assert_eq!(answer(text), Some((allow, code("abcde"))), "{text:?}");
        }
        for text in [
            "",
            "yes",
            "yes ",
            "yesabcde",
            " yes abcde",
            "yes abcde ",
            "yes abcd",
            "yes abcdef",
            "yes abcdl",
            "yes abcd1",
            "maybe abcde",
            "yes, abcde",
            "yes abcde\n",
            "yes abcdé",
            "ja abcde",
        ] {
            assert_eq!(answer(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_user_of_the_announced_session_answers_once() {
        let mut pending = prompts(&["abcde"]);
        pending.announced("s1", "Reply `yes abcde` or `no ABCDE`.");
        let first = pending.message("s1", Some("user"), "No abcde");
        let (code, allow, announced) = (code("abcde"), false, true);
        assert_eq!(
            first,
            Verdict::Answered {
                code,
                allow,
                announced
            }
        );
        assert_eq!(
            pending.message("s1", Some("user"), "no abcde"),
            Verdict::Ordinary
        );
    }

    #[test]
    fn other_roles_and_other_sessions_do_not_answer() {
        let mut pending = prompts(&["abcde"]);
        pending.announced("s1", "code abcde");
        for role in [Some("assistant"), Some("system"), Some("User"), None] {
            let verdict = pending.message("s1", role, "yes abcde");
            let (code, why) = (code("abcde"), NotTheirs::Role);
            assert_eq!(verdict, Verdict::NotTheirs { code, why }, "{role:?}");
        }
        let verdict = pending.message("s2", Some("user"), "yes abcde");
        let (code, why) = (code("abcde"), NotTheirs::AnnouncedIn("s1".into()));
        assert_eq!(verdict, Verdict::NotTheirs { code, why });
        pending.announced("s2", "abcde again");
        let verdict = pending.message("s2", Some("user"), "yes abcde");
        assert!(
            matches!(
                verdict,
                Verdict::Answered {
                    announced: true,
                    ..
                }
            ),
            "the last announcement counts"
        );
    }

    #[test]
    fn a_prompt_never_announced_is_answered_by_any_user_and_that_is_told() {
        let mut pending = prompts(&["abcde"]);
        pending.announced("s1", "abcdef xabcde abcd e");
        let verdict = pending.message("s9", Some("user"), "yes abcde");
        let (code, allow, announced) = (code("abcde"), true, false);
        assert_eq!(
            verdict,
            Verdict::Answered {
                code,
                allow,
                announced
            }
        );
    }

    #[test]
    fn codes_that_no_message_can_name_are_not_kept() {
        let pending = prompts(&["ABCDE", "abcd", "abcdef", "abcdl", "", "abcd\u{e9}"]);
        assert!(pending.is_empty());
        assert_eq!(pending.next_deadline(), None);
    }

    #[test]
    fn a_prompt_expires_exactly_and_asking_again_renews_it() {
        let mut pending = prompts(&["abcde"]);
        pending.announced("s1", "abcde");
        let ttl = Limits::DEFAULT.permission_ttl;
        let ttl_ms = u64::try_from(ttl.as_millis()).expect("small");
        pending.requested(at(10), "abcde");
        pending.expire(at(ttl_ms));
        assert!(!pending.is_empty());
        assert_eq!(
            pending.next_deadline().map(|d| d.at),
            Some(at(10).after(ttl))
        );
        let elsewhere = pending.message("s2", Some("user"), "yes abcde");
        assert!(
            matches!(elsewhere, Verdict::NotTheirs { .. }),
            "still announced in s1"
        );
        pending.expire(at(ttl_ms + 10));
        assert!(pending.is_empty());
    }

    #[test]
    fn the_oldest_prompt_goes_at_one_past_the_limit() {
        for (codes, evicted) in [
            (&["aaaaa"][..], 0),
            (&["aaaaa", "bbbbb"], 0),
            (&["aaaaa", "bbbbb", "ccccc"], 1),
        ] {
            let mut pending = prompts(codes);
            assert_eq!(pending.evicted(), evicted);
            let oldest = pending.message("s", Some("user"), "yes aaaaa");
            assert_eq!(oldest == Verdict::Ordinary, evicted == 1, "{codes:?}");
        }
    }
}
