//! Two conversations for somebody who has none.

use super::message_rpc::{Post, Role};

/// What is posted, in order.
pub(super) fn posts() -> [Post; 4] {
    let ada = |role, text: &str| Post {
        session_key: "agent:main:telegram:direct:ada".to_owned(),
        role,
        text: text.to_owned(),
        channel: Some("telegram".to_owned()),
        to: Some("ada".to_owned()),
        display_name: Some("Ada (sample)".to_owned()),
        ..Post::default()
    };
    let room = |role, text: &str| Post {
        session_key: "agent:main:slack:channel:build".to_owned(),
        role,
        text: text.to_owned(),
        channel: Some("slack".to_owned()),
        to: Some("channel:build".to_owned()),
        thread_id: Some("1".to_owned()),
        display_name: Some("#build (sample)".to_owned()),
        ..Post::default()
    };
    [
        ada(Role::User, "Hello, is anybody there?"),
        ada(Role::Assistant, "Yes. This is a sample conversation."),
        room(Role::User, "The nightly build is red."),
        room(Role::Assistant, "Looking into it."),
    ]
}
