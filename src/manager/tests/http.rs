//! Servers behind Streamable HTTP: lost sessions, and servers that ask to be left alone.

use super::*;
use crate::manager::error::FailureKind;

/// One request, as a server sees it.
pub(super) struct Asked {
    pub(super) verb: String,
    pub(super) session: Option<String>,
    pub(super) body: Value,
}

/// Answers requests; `None` leaves one open.
pub(super) type Site = Box<dyn FnMut(&Asked) -> Option<String>>;

impl World {
    /// Reads what came on a socket, and answers it.
    pub(super) fn serve(&mut self, wire: WireId) {
        while let Some(one) = self.wires.get_mut(&wire) {
            let end = one.input.windows(4).position(|four| four == b"\r\n\r\n");
            let Some(end) = end else { return };
            let head = String::from_utf8_lossy(&one.input[..end]).into_owned();
            let field = |name: &str| {
                head.lines().find_map(|line| {
                    let (key, value) = line.split_once(':')?;
                    key.eq_ignore_ascii_case(name)
                        .then(|| value.trim().to_owned())
                })
            };
            let length = field("content-length").map_or(0, |n| n.parse().expect("a length"));
            if one.input.len() < end + 4 + length {
                return;
            }
            let body: Vec<u8> = one.input.drain(..end + 4 + length).skip(end + 4).collect();
            let asked = Asked {
                verb: head.split(' ').next().unwrap_or_default().to_owned(),
                session: field("mcp-session-id"),
                body: serde_json::from_slice(&body).unwrap_or(Value::Null),
            };
            let site = self.http.as_mut().expect("somebody serves");
            if let Some(answer) = site(&asked) {
                self.plan(0, wire, Event::Bytes(answer.into_bytes()));
            }
        }
    }
}

fn status(status: &str, fields: &str, body: &str) -> Option<String> {
    Some(format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

fn answered(asked: &Asked, result: &Value, fields: &str) -> Option<String> {
    let body = json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": result}).to_string();
    let fields = format!("Content-Type: application/json\r\n{fields}");
    status("200 OK", &fields, &body)
}

/// A server with sessions. `call` answers calls of the session of that number.
fn sessions(
    mut call: impl FnMut(&Asked, usize) -> Option<String> + 'static,
) -> (Site, std::rc::Rc<std::cell::RefCell<Vec<String>>>) {
    let log = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let heard = std::rc::Rc::clone(&log);
    let mut opened = 0;
    let site: Site = Box::new(move |asked| {
        let method = asked.body["method"].as_str().unwrap_or_default();
        heard
            .borrow_mut()
            .push(format!("{} {method}", asked.verb).trim().to_owned());
        let session: usize = asked
            .session
            .as_deref()
            .and_then(|id| id.strip_prefix('s'))
            .map_or(0, |n| n.parse().expect("one of ours"));
        match (asked.verb.as_str(), method) {
            ("POST", "initialize") => {
                opened += 1;
                answered(
                    asked,
                    &json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                            "serverInfo": {"name": "s", "version": "1"}}),
                    &format!("Mcp-Session-Id: s{opened}\r\n"),
                )
            }
            ("POST", "tools/list") => answered(
                asked,
                &json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
                "",
            ),
            ("POST", "tools/call") => call(asked, session),
            ("POST", method) if method.starts_with("notifications/") => {
                status("202 Accepted", "", "")
            }
            ("POST", _) => status("400 Bad Request", "", ""),
            ("DELETE", _) => status("200 OK", "", ""),
            _ => status("405 Method Not Allowed", "", ""),
        }
    });
    (site, log)
}

fn world(site: Site) -> (World, RuntimeId) {
    let mut world = World::new(&[]);
    world.http = Some(site);
    world.configure(&[(
        "h",
        r#"{"url":"http://127.0.0.1:9/mcp","supportsParallelToolCalls":true}"#,
    )]);
    let runtime = world.connected();
    assert_eq!(world.tools(runtime), ["h__t"]);
    (world, runtime)
}

fn lost() -> Option<String> {
    status("404 Not Found", "", "")
}

fn fine(asked: &Asked) -> Option<String> {
    answered(asked, &json!({"content": []}), "")
}

fn counted(log: &std::rc::Rc<std::cell::RefCell<Vec<String>>>, what: &str) -> usize {
    log.borrow().iter().filter(|one| *one == what).count()
}

#[test]
fn a_lost_session_is_renewed_and_what_never_ran_is_sent_once_more() {
    let (site, log) = sessions(|asked, session| match session {
        1 => lost(),
        _ => fine(asked),
    });
    let (mut world, runtime) = world(site);
    // All of them were refused, so none of them has run.
    let tickets = [(); 3].map(|()| world.call(runtime, "h__t"));
    world.run(2_000);
    for ticket in tickets {
        world.ok(ticket);
    }
    assert_eq!(counted(&log, "POST initialize"), 2, "one renewal for all");
    assert_eq!(counted(&log, "POST tools/call"), 6);
    let later = world.call(runtime, "h__t");
    world.run(0);
    world.ok(later);
}

#[test]
fn there_is_no_third_time() {
    let (site, log) = sessions(|_, _| lost());
    let (mut world, runtime) = world(site);
    let ticket = world.call(runtime, "h__t");
    world.run(60_000);
    let error = world.failure(ticket);
    assert_eq!(
        (error.facts.status, error.facts.never_ran),
        (Some(404), true)
    );
    assert!(error.message.contains("safe to retry"), "{error}");
    assert_eq!(counted(&log, "POST tools/call"), 2);
}

#[test]
fn what_may_have_run_is_not_sent_again() {
    for answer in ["400 Bad Request", "410 Gone"] {
        let (site, log) = sessions(move |asked, session| match session {
            1 => status(answer, "", "session not found"),
            _ => fine(asked),
        });
        let (mut world, runtime) = world(site);
        let ticket = world.call(runtime, "h__t");
        world.run(5_000);
        let error = world.failure(ticket);
        assert!(!error.facts.never_ran, "{answer}: {error}");
        assert_eq!(counted(&log, "POST tools/call"), 1, "{answer}");
        // The next one has a new session.
        let next = world.call(runtime, "h__t");
        world.run(5_000);
        world.ok(next);
        assert_eq!(counted(&log, "POST initialize"), 2, "{answer}");
    }
}

#[test]
fn what_is_open_in_a_lost_session_has_a_second_to_be_answered() {
    let mut calls = 0;
    let (site, _) = sessions(move |asked, session| {
        calls += 1;
        match (session, calls) {
            (1, 1) => None,
            (1, _) => lost(),
            _ => fine(asked),
        }
    });
    let (mut world, runtime) = world(site);
    let hangs = world.call(runtime, "h__t");
    let refused = world.call(runtime, "h__t");
    world.run(999);
    assert!(world.answer(hangs).is_none() && world.answer(refused).is_none());
    world.run(1);
    world.ok(refused);
    let error = world.failure(hangs);
    assert!(error.message.contains("may have run"), "{error}");
    assert!(!error.facts.never_ran && !error.message.contains("safe to retry"));
}

#[test]
fn a_server_that_says_when_to_come_back_is_not_asked_before() {
    let mut busy = true;
    let (site, log) = sessions(move |asked, _| match std::mem::take(&mut busy) {
        true => status("429 Too Many Requests", "Retry-After: 7\r\n", ""),
        false => fine(asked),
    });
    let (mut world, runtime) = world(site);
    let first = world.call(runtime, "h__t");
    world.run(0);
    let error = world.failure(first);
    assert_eq!(error.kind, FailureKind::Unavailable);
    assert_eq!(error.facts.retry_in_ms, Some(7_000));

    world.run(6_000);
    let early = world.call(runtime, "h__t");
    let error = world.failure(early);
    assert!(error.message.contains("retry after 1 s"), "{error}");
    assert_eq!(counted(&log, "POST tools/call"), 1);
    world.run(1_000);
    let next = world.call(runtime, "h__t");
    world.run(0);
    world.ok(next);
}

#[test]
fn when_the_older_pair_fails_too_the_first_refusal_is_told() {
    let mut world = World::new(&[]);
    world.http = Some(Box::new(|asked| match asked.verb.as_str() {
        "POST" => status("405 Method Not Allowed", "", "post refused"),
        _ => status("404 Not Found", "", "no stream here"),
    }));
    world.configure(&[("h", r#"{"url":"http://127.0.0.1:9/mcp"}"#)]);
    let runtime = world.open();
    let ticket = world.request(runtime, "h", "prompts/list");
    world.run(0);
    let error = world.failure(ticket);
    assert_eq!(error.facts.status, Some(405), "{error}");
    assert!(error.message.contains("older pair"), "{error}");
    assert!(error.message.contains("404"), "{error}");
}
