//! Permission prompts and the messages that answer them.

use super::*;

#[test]
fn a_prompt_is_answered_by_a_user_of_the_session_that_saw_it() {
    let mut rig = Rig::new(&Limits::DEFAULT, ChannelMode::Off);
    rig.prompt("abcde");
    assert!(rig.diagnostics[0].message.contains("abcde"), "verbose");
    assert!(rig.now("events_poll", "{}").contains(
        r#"{"cursor":1,"type":"claude_permission_request","requestId":"abcde","toolName":"Bash","description":"d","inputPreview":"p"}"#
    ));
    rig.message("s1", "assistant", "may I? yes abcde / no abcde");
    rig.message("s2", "user", "yes abcde");
    rig.message("s1", "assistant", "yes abcde");
    assert!(rig.notes.is_empty());
    let warnings = rig.warnings();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("session s2") && warnings[0].contains("shown in session s1"));
    assert!(warnings[1].contains("role is assistant"), "{warnings:?}");
    rig.message("s1", "user", "No  ABCDE");
    let (method, params) = rig.notes.pop_front().expect("the answer");
    assert_eq!(method, "notifications/claude/channel/permission");
    assert_eq!(params, r#"{"request_id":"abcde","behavior":"deny"}"#);
    assert!(rig.warnings().is_empty());
    let poll = rig.now("events_poll", "{}");
    assert!(
        poll.contains("events: 4"),
        "the answer is not queued, the others are: {poll}"
    );
    rig.message("s1", "user", "no abcde");
    assert!(rig.notes.is_empty(), "a code works once");
}

#[test]
fn a_prompt_nobody_was_shown_is_answered_by_any_user_with_a_warning() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    rig.prompt("abcde");
    rig.message("s9", "user", "yes abcde");
    assert_eq!(
        rig.notes[0].1,
        r#"{"request_id":"abcde","behavior":"allow"}"#
    );
    let warnings = rig.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("s9"),
        "{warnings:?}"
    );
}

#[test]
fn sending_a_code_announces_the_prompt_in_the_canonical_session() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    rig.prompt("abcde");
    rig.call(
        "messages_send",
        r#"{"session_key":"main","text":"reply yes ABCDE"}"#,
    );
    let (ticket, ..) = rig.request();
    rig.respond(
        ticket,
        r#"{"session":{"key":"agent:main:main","lastChannel":"c","lastTo":"t"}}"#,
    );
    rig.message("main", "user", "yes abcde");
    assert!(rig.notes.is_empty());
    rig.message("agent:main:main", "user", "yes abcde");
    assert_eq!(rig.notes.len(), 1);
}

#[test]
fn a_code_in_a_later_block_is_an_announcement_too() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    rig.prompt("abcde");
    rig.event("session.message", r#"{"sessionKey":"s1","message":{"role":"assistant","content":[{"type":"thinking"},{"type":"text","text":"code abcde"}]}}"#);
    rig.message("s2", "user", "yes abcde");
    assert!(rig.notes.is_empty());
}

#[test]
fn prompts_that_lack_a_string_are_ignored() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    let method = "notifications/claude/channel/permission_request";
    for params in [
        None,
        Some("null"),
        Some("[]"),
        Some(r#"{"request_id":"abcde","tool_name":"Bash"}"#),
        Some(r#"{"request_id":"abcde","tool_name":"Bash","description":"d","input_preview":null}"#),
    ] {
        rig.bridge.handle_notification(rig.now, method, params);
    }
    rig.bridge
        .handle_notification(rig.now, "notifications/initialized", None);
    rig.drain();
    assert!(rig.now("events_poll", "{}").contains("events: 0"));
}

#[test]
fn a_prompt_is_gone_when_its_time_is_up_even_if_nobody_called_the_timeout() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    rig.prompt("abcde");
    let due = rig.now.after(Limits::DEFAULT.permission_ttl);
    rig.set_clock(due);
    rig.message("s", "user", "yes abcde");
    assert!(rig.notes.is_empty());
    assert!(
        rig.now("events_poll", "{}").contains("events: 2"),
        "an ordinary message"
    );
}
