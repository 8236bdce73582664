//! Command lines and files that make no sense: exit code 2, and one line that says what to change.

use std::os::unix::fs::symlink;

use crate::world::{Home, expect_words};

const GATEWAY: [&str; 3] = ["serve", "--gateway", "ws://127.0.0.1:1"];

#[test]
fn flags_that_make_no_sense() {
    let home = Home::new("flags");
    home.write("secret", "x");
    let rows: [(&[&str], &[&str]); 19] = [
        (&["--bogus"], &["error: unexpected argument '--bogus'"]),
        (&["bogus"], &["error: unrecognized subcommand 'bogus'"]),
        (
            &["serve", "--bogus"],
            &["error: unexpected argument '--bogus'"],
        ),
        (
            &["serve", "--gateway"],
            &["error: a value is required for '--gateway"],
        ),
        (
            &["serve", "--claude-channel-mode", "maybe"],
            &[
                "error: invalid value 'maybe'",
                "--claude-channel-mode",
                "auto, on or off",
            ],
        ),
        (
            &["serve", "--token", "x", "--token-file", "secret"],
            &["error: ", "--token or --token-file", "not both"],
        ),
        (
            &["serve", "--password", "x", "--password-file", "secret"],
            &["error: ", "--password or --password-file", "not both"],
        ),
        (
            &["serve", "--listen", "http://127.0.0.1:0/other"],
            &["error: cannot listen on http://127.0.0.1:0/other"],
        ),
        (
            &["serve", "--listen", "https://127.0.0.1:0"],
            &["error: cannot listen on https://127.0.0.1:0", "unix:/PATH"],
        ),
        (
            &["serve", "--listen", "unix:"],
            &["error: cannot listen on unix:", "give the path"],
        ),
        (
            &["serve", "--listen", "unix:a", "--listen", "unix:a"],
            &["error: unix:a can be listened on once"],
        ),
        (
            &["serve", "--listen", "stdio", "--listen", "stdio"],
            &["error: stdio can be listened on once"],
        ),
        (
            &["serve", "--listen", "http://0.0.0.0:1"],
            &["error: ", "--bearer-token-file"],
        ),
        (
            &["gateway", "--listen", "wss://127.0.0.1:0"],
            &["error: ", "wss://127.0.0.1:0", "ws://"],
        ),
        (
            &["gateway", "--listen", "127.0.0.1"],
            &["error: cannot listen on 127.0.0.1", "scheme"],
        ),
        (&["gateway", "ask"], &["error: ", "<COMMAND>"]),
        (
            &["gateway", "post", "--role", "nobody", "x"],
            &["error: invalid value 'nobody'"],
        ),
        (
            &["gateway", "post", "--url", "x", "--store", "y", "z"],
            &["error: ", "'--url", "'--store"],
        ),
        (
            &["completions", "powerless"],
            &["error: invalid value 'powerless'", "zsh"],
        ),
    ];
    for (args, words) in rows {
        let finished = home.run(args).expect_code(2);
        assert_eq!(finished.stdout, Vec::<String>::new(), "{args:?}");
        expect_words(&finished.stderr[0], &words[..1]);
        expect_words(&finished.stderr.join("\n"), words);
    }
    let usage = home.run(&[]).expect_code(2);
    expect_words(
        &usage.stderr.join("\n"),
        &["Usage: drawspan <COMMAND>", "serve", "demo"],
    );
    assert_eq!(home.listing(), ["secret"], "nothing was begun");
}

#[test]
fn channel_modes_are_read_as_openclaw_reads_them() {
    let home = Home::new("modes");
    for mode in ["auto", "on", "OFF", " Auto ", ""] {
        let finished = home.run(&[
            "serve",
            "--gateway",
            "embedded",
            "--claude-channel-mode",
            mode,
        ]);
        finished.expect_code(0).expect_silence();
    }
}

#[test]
fn gateway_urls_that_cannot_be_used() {
    let home = Home::new("urls");
    let rows: [(&str, &[&str]); 6] = [
        (
            "ws://example.com:1",
            &["ws://example.com:1 from --gateway", "plaintext", "wss://"],
        ),
        ("ws://93.184.216.34", &["plaintext", "wss://"]),
        ("http://example.com", &["plaintext"]),
        ("notaurl", &["from --gateway cannot be used", "no scheme"]),
        ("ftp://127.0.0.1", &["scheme", "ftp"]),
        (
            "ws://me:secret-word@127.0.0.1",
            &["user name", "--token-file"],
        ),
    ];
    for (url, words) in rows {
        let finished = home.run(&["serve", "--gateway", url]).expect_code(2);
        assert!(
            !finished.stderr.join("").contains("secret-word"),
            "{:?}",
            finished.stderr
        );
        finished
            .expect_stderr(words)
            .expect_stderr(&["error: gateway URL "]);

        let mut from_env = home.drawspan(&["serve"]);
        from_env.env("OPENCLAW_GATEWAY_URL", url);
        let finished = crate::world::Process::start(&mut from_env).finish();
        finished
            .expect_code(2)
            .expect_stderr(&["error: ", "from OPENCLAW_GATEWAY_URL"]);
    }
}

#[test]
fn secret_files_that_do_not_qualify() {
    let home = Home::new("secrets");
    home.write("empty", " \n");
    home.write("long", &"x".repeat(16_385));
    home.write("linked", "x");
    std::fs::hard_link(home.path("linked"), home.path("other-name")).unwrap();
    symlink("linked", home.path("symlink")).unwrap();
    std::fs::create_dir(home.path("folder")).unwrap();
    std::fs::write(home.path("binary"), [0xff, 0xfe]).unwrap();
    let rows: [(&str, &[&str]); 7] = [
        ("missing", &["missing", "No such file"]),
        ("empty", &["is empty"]),
        ("long", &["exceeds 16384 bytes", "16385"]),
        ("linked", &["one name only", "2 hard links"]),
        ("symlink", &["must not be a symlink"]),
        ("folder", &["must be a regular file"]),
        ("binary", &["not UTF-8"]),
    ];
    for (name, words) in rows {
        let path = home.path(name);
        let path = path.to_str().unwrap();
        for flag in ["--token-file", "--password-file"] {
            let mut args = GATEWAY.to_vec();
            args.extend([flag, path]);
            let finished = home.run(&args).expect_code(2);
            finished
                .expect_stderr(words)
                .expect_stderr(&["error: ", path]);
        }
        let args = [
            "gateway",
            "--listen",
            "ws://127.0.0.1:0",
            "--token-file",
            path,
        ];
        let finished = home.run(&args).expect_code(2);
        finished
            .expect_stderr(words)
            .expect_stderr(&["error: ", path]);
    }
    // In the home directory, and at the longest that is taken.
    home.write("good", &"x".repeat(16_384));
    let mut args = GATEWAY.to_vec();
    args.extend(["--token-file", "~/good"]);
    home.run(&args).expect_code(0).expect_silence();
}

#[test]
fn configuration_files_that_cannot_be_used() {
    let home = Home::new("configs");
    let rows: [(&str, &[&str]); 10] = [
        (
            r#"{"limits":{"no_such_limit":1}}"#,
            &["no_such_limit", "drawspan limits"],
        ),
        (
            r#"{"limits":{"waiters_max":"many"}}"#,
            &["limits.waiters_max", "a string"],
        ),
        (
            r#"{"limits":{"waiters_max":0}}"#,
            &["waiters_max", "at least 1"],
        ),
        (
            r#"{"limits":{"waiters_max":1.5}}"#,
            &["limits.waiters_max", "a fraction"],
        ),
        (
            r#"{"limits":{"out_low_bytes":99999999}}"#,
            &["out_low_bytes must be below"],
        ),
        (r#"{"limits":[]}"#, &["limits must be an object"]),
        (
            r#"{"hooks":{"beforeToolCall":{"command":"sh"}}}"#,
            &["hooks.beforeToolCall.command"],
        ),
        (
            r#"{"hooks":{"beforeToolCall":{"command":[]}}}"#,
            &["hooks.beforeToolCall.command"],
        ),
        ("{limits: {waiters_max: 1}", &["is not JSON5"]),
        ("[]", &["the document must be an object"]),
    ];
    let commands: [&[&str]; 4] = [
        &GATEWAY,
        &["limits"],
        &["gateway", "--listen", "ws://127.0.0.1:0"],
        &["gateway", "post", "hello"],
    ];
    for (text, words) in rows {
        home.write("drawspan.json", text);
        for args in commands {
            let finished = home.run(args).expect_code(2);
            assert_eq!(finished.stdout, Vec::<String>::new());
            finished
                .expect_stderr(words)
                .expect_stderr(&["error: configuration drawspan.json "]);
        }
    }
    std::fs::remove_file(home.path("drawspan.json")).unwrap();

    // One that is named is read, and must be there.
    home.write("other.json", r#"{"limits":{"no_such_limit":1}}"#);
    for name in ["other.json", "nowhere.json"] {
        for command in [&["limits"][..], &GATEWAY] {
            let args = [command, &["--config", name]].concat();
            let finished = home.run(&args).expect_code(2);
            finished.expect_stderr(&["error: configuration", name]);
        }
    }

    // OpenClaw's own.
    std::fs::create_dir(home.path(".openclaw")).unwrap();
    home.write(".openclaw/openclaw.json", "{gateway: {port: 'many'}}");
    let finished = home.run(&["serve"]).expect_code(2);
    finished.expect_stderr(&[
        "error: OpenClaw's configuration",
        "openclaw.json",
        "gateway.port",
    ]);
}

#[test]
fn without_a_home_it_says_what_to_set() {
    let home = Home::new("homeless");
    for args in [
        &["serve"][..],
        &["serve", "--gateway", "embedded"],
        &["gateway"],
    ] {
        let mut command = home.drawspan(args);
        let finished = crate::world::Process::start(command.env_remove("HOME")).finish();
        finished
            .expect_code(2)
            .expect_stderr(&["error: no home directory: "]);
    }
}
