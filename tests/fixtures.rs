//! Replays the transcripts of `protocol-fixtures/` on virtual time. The format is described in
//! `protocol-fixtures/README.md`; one test per area, each file a case of its own in the failure text.

mod support;

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::Travel;
use support::client_player::ClientPlayer;
use support::player::Player;

#[test]
fn legacy_transcripts() {
    replay_all("legacy", replay);
}

#[test]
fn modern_transcripts() {
    replay_all("modern", replay);
}

#[test]
fn gateway_transcripts() {
    replay_all("gateway", replay);
}

#[test]
fn client_transcripts() {
    replay_all("client", replay_client);
}

#[test]
fn a_client_transcript_can_fail() {
    let head = r#"{"fixture":1,"title":"t","revision":"2026-07-28","source":"s","actors":["owner","server"],"settings":{"choice":"legacy"}}"#;
    let asked = r#"{"at_ms":0,"expect":"server","message":"$any"}"#;
    let failure = |steps: &[&str]| {
        let text = [&[head], steps].concat().join("\n");
        replay_client("made up", &text).expect_err("it must fail")
    };
    let left = failure(&[]);
    assert!(left.contains("nobody expected"), "{left}");
    let silent = failure(&[asked, asked]);
    assert!(silent.contains("nothing came to server"), "{silent}");
    let early = failure(&[r#"{"at_ms":0,"expect":"server","io":"nothing"}"#]);
    assert!(early.contains("expected nothing"), "{early}");
    let other = failure(&[asked, r#"{"at_ms":30000,"expect":"owner","io":"ready"}"#]);
    assert!(other.contains("expected \"ready\""), "{other}");
    let dialect = failure(&[r#"{"at_ms":0,"expect":"server","dialect":"x","message":"$any"}"#]);
    assert!(dialect.contains("dialect: expected"), "{dialect}");
    let misspelled = failure(&[r#"{"at_ms":0,"expect":"server","mesage":"$any"}"#]);
    assert!(misspelled.contains("no member mesage"), "{misspelled}");
}

#[test]
fn a_transcript_can_fail() {
    let head = r#"{"fixture":1,"title":"t","revision":"2025-11-25","source":"s","actors":["a","gateway"],"settings":{"gateway":"down"}}"#;
    let ping = r#"{"at_ms":0,"from":"a","message":{"jsonrpc":"2.0","id":1,"method":"ping"}}"#;
    let failure = |steps: &[&str]| {
        let text = [&[head, ping], steps].concat().join("\n");
        replay("made up", &text).expect_err("it must fail")
    };
    let wrong =
        failure(&[r#"{"at_ms":0,"expect":"a","message":{"jsonrpc":"2.0","id":2,"result":{}}}"#]);
    assert!(wrong.contains("id: expected 2, got 1"), "{wrong}");
    let silent = failure(&[
        r#"{"at_ms":0,"expect":"a","message":{"jsonrpc":"2.0","id":1,"result":{}}}"#,
        r#"{"at_ms":5,"expect":"a","message":"$any"}"#,
    ]);
    assert!(silent.contains("nothing came"), "{silent}");
    let left = failure(&[]);
    assert!(left.contains("nobody expected"), "{left}");
    let early = failure(&[r#"{"at_ms":0,"expect":"a","io":"nothing"}"#]);
    assert!(early.contains("expected nothing"), "{early}");
    let misspelled = failure(&[r#"{"at_ms":0,"expect":"a","mesage":"$any"}"#]);
    assert!(misspelled.contains("no member mesage"), "{misspelled}");
    let unbound = failure(&[r#"{"at_ms":0,"from":"a","message":{"id":"$bind:x"}}"#]);
    assert!(unbound.contains("not bound"), "{unbound}");
    let bytes = failure(&[r#"{"at_ms":0,"expect":"a","bytes":"{}"}"#]);
    assert!(bytes.contains("expected the bytes"), "{bytes}");
    for pattern in [
        r#"{"$more":true,"result":"$has:x"}"#,
        r#"{"$all":["$any",{"id":1}]}"#,
        r#"{"$more":true,"id":"$starts:1"}"#,
        r#"{"jsonrpc":"$bind:x","id":"$bind:x","result":{}}"#,
    ] {
        let step = format!(r#"{{"at_ms":0,"expect":"a","message":{pattern}}}"#);
        failure(&[&step]);
    }
}

fn replay_all(area: &str, replay: fn(&str, &str) -> Result<(), String>) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("protocol-fixtures")
        .join(area);
    let files = files(&root);
    assert!(!files.is_empty(), "no fixtures in {}", root.display());
    let mut failures = Vec::new();
    for file in &files {
        let name = file
            .strip_prefix(&root)
            .expect("below the root")
            .display()
            .to_string();
        let text = std::fs::read_to_string(file).expect("readable");
        if let Err(failure) = replay(&name, &text) {
            failures.push(failure);
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} failed:\n{}",
        failures.len(),
        files.len(),
        failures.join("\n")
    );
}

/// Plays one transcript, once with whole chunks and once with bytes cut at random, which must make no
/// difference. An error says file, line and what was wrong.
fn replay(name: &str, text: &str) -> Result<(), String> {
    for cut in [false, true] {
        let how = if cut { " (in pieces)" } else { "" };
        let name = format!("{name}{how}");
        let travel = Travel { delay_ms: 0, cut };
        // A panic costs its own transcript, and is told with its name.
        catch_unwind(|| replay_once(&name, text, travel))
            .unwrap_or_else(|_| Err(format!("{name}: panicked, see above")))?;
    }
    Ok(())
}

fn replay_once(name: &str, text: &str, travel: Travel) -> Result<(), String> {
    let head = head(name, text)?;
    let mut player =
        Player::new(&head["settings"], travel).map_err(|why| format!("{name}:1: {why}"))?;
    each_step(name, text, |line| player.line(line))?;
    player
        .finish()
        .map_err(|why| format!("{name}: at the end: {why}"))
}

/// Plays one transcript against the client's side of a conversation.
fn replay_client(name: &str, text: &str) -> Result<(), String> {
    let head = head(name, text)?;
    let play = || {
        let mut player =
            ClientPlayer::new(&head["settings"]).map_err(|why| format!("{name}:1: {why}"))?;
        each_step(name, text, |line| player.line(line))?;
        player
            .finish()
            .map_err(|why| format!("{name}: at the end: {why}"))
    };
    catch_unwind(play).unwrap_or_else(|_| Err(format!("{name}: panicked, see above")))
}

/// The first line of a transcript.
fn head(name: &str, text: &str) -> Result<Value, String> {
    let head: Value = text
        .lines()
        .next()
        .and_then(|line| serde_json::from_str(line).ok())
        .ok_or_else(|| format!("{name}:1: no JSON"))?;
    for member in ["title", "revision", "source", "actors"] {
        if head.get(member).is_none() {
            return Err(format!("{name}:1: {member} is missing"));
        }
    }
    if head["fixture"] != 1 {
        return Err(format!("{name}:1: fixture must be 1"));
    }
    Ok(head)
}

/// All other lines; an error says which.
fn each_step(
    name: &str,
    text: &str,
    mut step: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), String> {
    for (number, line) in text.lines().enumerate().skip(1) {
        step(line).map_err(|why| format!("{name}:{}: {why}", number + 1))?;
    }
    Ok(())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            found.push(path);
        }
    }
    found.sort();
    found
}
