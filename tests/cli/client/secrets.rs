//! Secrets stay where they belong, whatever goes wrong.

use serde_json::json;

use super::failures::canned;
use super::servers::Shop;
use crate::world::{Finished, Home};

const SECRET: &str = "hunter2";

#[track_caller]
fn expect_masked(finished: &Finished, shows: &str) {
    let said = [finished.stdout.join("\n"), finished.stderr.join("\n")].join("\n");
    assert!(!said.contains(SECRET), "{said}");
    assert!(said.contains(shows), "no {shows:?} in {said}");
}

#[test]
fn urls_lose_what_is_secret_in_them() {
    let home = Home::new("secrets-urls");
    for json in [&["--json"][..], &[]] {
        let run = |url: &str| home.run(&[&["list", url], json].concat());
        let finished = run(&format!("http://me:{SECRET}@127.0.0.1:1/mcp")).expect_code(2);
        expect_masked(&finished, "user name or password");
        let finished = run(&format!("http://127.0.0.1:1/mcp?token={SECRET}&a=1")).expect_code(4);
        expect_masked(&finished, "server 127.0.0.1");
        let finished = run(&format!("ftp://h/?key={SECRET}")).expect_code(2);
        expect_masked(&finished, "url must begin with http://");
        let header = format!("Authorization Bearer {SECRET}");
        let args = [&["list", "http://h/", "-H", &header], json].concat();
        expect_masked(&home.run(&args).expect_code(2), "a header must be given as");
    }
}

#[test]
fn what_a_server_says_is_masked() {
    for (i, (before, shows)) in [
        (
            format!("echo Authorization: Bearer {SECRET} >&2; exit 3"),
            "***",
        ),
        (
            format!("echo 'connect postgres://me:{SECRET}@db/x' >&2; exit 3"),
            "***",
        ),
        (
            format!("echo token={SECRET} password={SECRET} >&2; exit 3"),
            "token=***",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let shop = Shop::new(&format!("secrets-stderr-{i}")).with("BEFORE", &before);
        for args in [
            &["list"][..],
            &["list", "--json"],
            &["call", "t", "--json"],
            &["probe", "--json"],
        ] {
            let finished = shop.run(args).expect_code(1);
            expect_masked(&finished, shows);
        }
    }
    let home = Home::new("secrets-body");
    let body = format!("no such token={SECRET}");
    let answer = format!(
        "HTTP/1.1 500 No\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let finished = home
        .run(&["list", "--json", &canned(&answer)])
        .expect_code(1);
    expect_masked(&finished, "token=***");
}

#[test]
fn command_lines_are_shown_without_secrets() {
    let home = Home::new("secrets-launch");
    let file = json!({"mcpServers": {
        "a": {"command": "/no/such", "args": ["--token", SECRET, format!("--key={SECRET}")],
              "env": {"API_KEY": SECRET}},
        "b": {"url": format!("http://127.0.0.1:1/mcp?api_key={SECRET}"),
              "headers": {"Authorization": format!("Bearer {SECRET}")}}}});
    home.write("drawspan.json", &file.to_string());
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["probe"],
        &["probe", "--json"],
        &["list", "a", "--json"],
        &["list", "b"],
    ] {
        expect_masked(&home.run(args), "");
    }
}
