//! Whatever JSON the Gateway or a client sends: no panic, one answer per call, nothing but JSON
//! out.

use super::*;

/// Names that the bridge acts on, so that random objects hit them.
const NAMES: [&str; 24] = [
    "sessionKey",
    "message",
    "messageId",
    "messageSeq",
    "role",
    "content",
    "text",
    "type",
    "id",
    "__openclaw",
    "lastChannel",
    "lastTo",
    "lastThreadId",
    "deliveryContext",
    "channel",
    "to",
    "key",
    "request",
    "createdAtMs",
    "expiresAtMs",
    "sessions",
    "session",
    "messages",
    "x",
];

const SCALARS: [&str; 16] = [
    "null",
    "true",
    "0",
    "-1",
    "1e999",
    "12345678901234567890",
    "\"\"",
    "\" \"",
    "\"user\"",
    "\"assistant\"",
    "\"yes abcde\"",
    "\"text\"",
    "\"\\ud800\"",
    "\"\\u0000\\n\"",
    "\"a\"",
    "1.5",
];

fn pick<'a>(dice: &mut Seeded, from: &[&'a str]) -> &'a str {
    from[usize::try_from(dice.below(from.len() as u64)).expect("small")]
}

/// A random value; objects are likelier near the top, where they are expected.
fn value(dice: &mut Seeded, depth: u64) -> String {
    let shape = dice.below(6 + 3 * depth);
    let size = dice.below(6);
    if shape < 4 && depth < 5 {
        let members: Vec<_> = (0..size)
            .map(|_| format!("\"{}\":{}", pick(dice, &NAMES), value(dice, depth + 1)))
            .collect();
        format!("{{{}}}", members.join(","))
    } else if shape < 6 && depth < 5 {
        let elements: Vec<_> = (0..size).map(|_| value(dice, depth + 1)).collect();
        format!("[{}]", elements.join(", "))
    } else {
        pick(dice, &SCALARS).to_owned()
    }
}

#[test]
fn odd_values_do_no_harm() {
    const EVENTS: [&str; 5] = [
        "session.message",
        "exec.approval.requested",
        "exec.approval.resolved",
        "plugin.approval.requested",
        "plugin.approval.resolved",
    ];
    const KEY: &str = r#"{"session_key":"a","message_id":"a","text":"yes abcde"}"#;
    let mut dice = Seeded::new(7);
    let mut rig = Rig::ready(&Limits::DEFAULT);
    for round in 0..3_000 {
        rig.prompt("abcde");
        let payload = value(&mut dice, 0);
        rig.event(pick(&mut dice, &EVENTS), &payload);
        let list = rig.bridge.steps.ask_approvals(Kind::Exec, 0);
        rig.bridge.outputs.push_back(list);
        rig.drain();
        let (ticket, ..) = rig.request();
        rig.respond(ticket, &value(&mut dice, 0));
        let tool = Bridge::tool_list()[round % 9].name;
        let call = rig.call(tool, if round % 2 == 0 { KEY } else { &payload });
        if tool == "events_wait" {
            rig.advance(300_000);
        }
        while let Some((ticket, ..)) = rig.requests.pop_front() {
            rig.respond(ticket, &value(&mut dice, 0));
        }
        assert!(rig.answer(call).is_some(), "{tool} is answered");
        rig.advance(dice.below(1_000));
    }
    assert!(rig.answers.is_empty());
    for (_, params) in &rig.notes {
        serde_json::from_str::<&RawValue>(params).expect(params);
    }
}
