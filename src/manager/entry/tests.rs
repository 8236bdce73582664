use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::manager::server_config::{
    HttpKind, HttpTransport, Isolation, StdioTransport, Transport,
};
use crate::protocol::client::peer::EraChoice;
use crate::protocol::revision::Revision;

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(own).collect()
}

fn read_with(entry: &Value, pairs: &[(&str, &str)]) -> Configured {
    let map = [("srv".to_owned(), entry.to_string())];
    let mut read = read_servers(&map, &env(pairs), &Limits::DEFAULT);
    read.pop().expect("one in, one out")
}

fn read(entry: Value) -> Configured {
    read_with(&entry, &[])
}

fn config(configured: &Configured) -> &ServerConfig {
    configured.outcome.as_ref().expect("usable")
}

fn http(configured: &Configured) -> &HttpTransport {
    match &config(configured).transport {
        Transport::Http(http) => http,
        Transport::Stdio(_) | Transport::Unix { .. } => panic!("not HTTP"),
    }
}

fn stdio(configured: &Configured) -> &StdioTransport {
    match &config(configured).transport {
        Transport::Stdio(stdio) => stdio,
        Transport::Http(_) | Transport::Unix { .. } => panic!("not a program"),
    }
}

fn warnings(configured: &Configured) -> Vec<&str> {
    configured
        .issues
        .iter()
        .map(|i| i.message.as_str())
        .collect()
}

fn error(configured: &Configured) -> &str {
    let errors = configured.outcome.as_ref().expect_err("refused");
    &errors[0].message
}

const URL: &str = "http://127.0.0.1:1/mcp";

#[test]
fn the_spellings_people_write_are_understood() {
    for (entry, kind) in [
        (json!({"url": URL}), HttpKind::Auto),
        (json!({"type": "http", "url": URL}), HttpKind::Streamable),
        (
            json!({"transport": "streamable_http", "url": URL}),
            HttpKind::Streamable,
        ),
        (
            json!({"transport": "http", "url": URL}),
            HttpKind::Streamable,
        ),
        (json!({"transport": " SSE ", "url": URL}), HttpKind::Sse),
        (
            json!({"transport": "", "type": "sse", "url": URL}),
            HttpKind::Sse,
        ),
        (
            json!({"transport": "auto", "url": format!("  {URL} ")}),
            HttpKind::Auto,
        ),
    ] {
        let read = read(entry.clone());
        assert_eq!(http(&read).kind, kind, "{entry}");
        assert!(read.enabled && read.issues.is_empty(), "{entry}");
        assert_eq!(config(&read).launch, URL);
    }
}

#[test]
fn errors_name_the_key_and_the_fix() {
    for (entry, says) in [
        (json!({"baseUrl": URL}), "url is missing (found baseUrl)"),
        (json!({"URL": URL}), "url is missing (found URL)"),
        (json!({"cmd": "x"}), "command is missing (found cmd)"),
        (json!({}), "command is missing and url is missing"),
        (
            json!({"command": "x", "args": "--one --two"}),
            "args must be an array of strings (found a string)",
        ),
        (
            json!({"command": ["x", "y"]}),
            "command must be a string (found an array): put its arguments into args",
        ),
        (json!({"url": 5}), "url must be a string (found a number)"),
        (
            json!({"url": URL, "transport": "pigeon"}),
            "transport pigeon is not supported",
        ),
        (
            json!({"url": URL, "transport": "stdio"}),
            "command is missing (transport is stdio)",
        ),
        (
            json!({"url": "wss://h/"}),
            "url must begin with http:// or https://, or be unix:/path (found wss:)",
        ),
        (
            json!({"url": "h/mcp?token=hunter2"}),
            "url must begin with http:// or https:// (found h/mcp?token=***)",
        ),
        (
            json!({"url": "http://u:hunter2@h/"}),
            "url must not hold a user name or password",
        ),
        (json!({"url": "u:hunter2@h/mcp"}), "(found h/mcp)"),
        (
            json!({"url": "u:hunter2@h://x"}),
            "url must begin with http:// or https://",
        ),
        (json!({"url": "unix:run/x"}), "url must be unix:/path"),
        (
            json!({"url": URL, "headers": {"X-A": "a\r\nX-B: hunter2"}}),
            "headers.X-A holds a line break",
        ),
        (
            json!({"url": URL, "headers": {"X A": "hunter2"}}),
            "headers.X A is no name a header can have",
        ),
        (
            json!({"url": URL, "clientCert": "/c.pem"}),
            "clientKey is missing (found clientCert)",
        ),
        (
            json!({"url": URL, "protocol": "2031-01-01"}),
            "protocol must be auto, legacy, modern or a revision",
        ),
        (
            json!({"command": "x", "enabled": "no"}),
            "enabled must be true or false (found a string)",
        ),
        (
            json!({"command": "x", "toolFilter": {"only": ["a"]}}),
            "toolFilter.only is not known: write include or exclude",
        ),
        (
            json!({"command": "x\u{0}"}),
            "command, args and cwd must not hold a NUL byte",
        ),
        (json!("x"), "the entry must be an object (found a string)"),
    ] {
        let read = read(entry.clone());
        assert!(error(&read).contains(says), "{entry}: {}", error(&read));
        assert!(
            !format!("{read:?}").contains("hunter2"),
            "{entry} shows a secret"
        );
    }
}

#[test]
fn what_cannot_be_used_is_left_out_with_a_warning() {
    for (entry, says) in [
        (
            json!({"command": "x", "url": URL}),
            "url is ignored because command is there",
        ),
        (
            json!({"command": "x", "transport": "streamable-http"}),
            "transport streamable-http is ignored",
        ),
        (
            json!({"command": "x", "headers": {}}),
            "headers has no effect on a command",
        ),
        (
            json!({"command": "x", "args": ["a", 1]}),
            "args.1 must be a string (found a number) and was left out",
        ),
        (
            json!({"command": "x", "requestTimeoutMs": "soon"}),
            "requestTimeoutMs must be a number above 0 (found a string) and was ignored",
        ),
        (
            json!({"command": "x", "arguments": ["a"]}),
            "arguments is not known: rename it to args",
        ),
        (
            json!({"command": "x", "env": ["A=1"]}),
            "env must be an object (found an array)",
        ),
        (
            json!({"command": "x", "maxTotalTimeoutMs": 5}),
            "maxTotalTimeoutMs has no effect",
        ),
        (
            json!({"command": "x", "isolation": "none"}),
            "isolation must be session or shared",
        ),
        (
            json!({"command": "x", "enabled": true, "disabled": true}),
            "enabled and disabled contradict",
        ),
        (
            json!({"url": URL, "ssl_verify": "no"}),
            "ssl_verify is of the wrong type for sslVerify",
        ),
        (
            json!({"url": URL, "type": "websocket"}),
            "type websocket is not known",
        ),
        (
            json!({"url": URL, "sslVerify": false}),
            "have no effect on an http:// url",
        ),
        (
            json!({"url": "https://h/", "sslVerify": false}),
            "sslVerify is false",
        ),
        (
            json!({"url": URL, "headers": {"Host": "x"}}),
            "headers.Host is set by the transport",
        ),
        (
            json!({"url": URL, "headers": {"Accept-Encoding": "gzip"}}),
            "headers.Accept-Encoding is set by the transport",
        ),
        (
            json!({"url": URL, "headers": {"Proxy-Authenticate": "x"}}),
            "headers.Proxy-Authenticate is set by the transport",
        ),
        (
            json!({"url": URL, "headers": {"X-Null": null}}),
            "headers.X-Null must be a string, number or boolean (found null)",
        ),
    ] {
        let read = read(entry.clone());
        config(&read);
        assert_eq!(read.issues.len(), 1, "{entry}: {:?}", read.issues);
        assert!(
            warnings(&read)[0].contains(says),
            "{entry}: {:?}",
            read.issues
        );
    }
}

#[test]
fn one_bad_entry_costs_one_server() {
    let map: Vec<(String, String)> = [("a", "{"), ("b", r#"{"command":"x"}"#), ("a", "{}")]
        .map(|(key, raw)| (key.to_owned(), raw.to_owned()))
        .into();
    let read = read_servers(&map, &env(&[]), &Limits::DEFAULT);
    let usable: Vec<bool> = read.iter().map(|server| server.outcome.is_ok()).collect();
    assert_eq!(usable, [false, true, false]);
    assert!(error(&read[0]).starts_with("the entry is not JSON"));
    assert!(error(&read[2]).starts_with("the name is there twice"));
}

#[test]
fn placeholders_are_filled_in_and_never_sent_as_text() {
    let entry = json!({"url": URL, "headers": {"Authorization": "Bearer ${MADE_TOKEN}"}});
    let read = read_with(&entry, &[("MADE_TOKEN", "t0ken")]);
    let (name, value) = &http(&read).headers[0];
    assert_eq!(
        (name.as_str(), value.expose().as_str()),
        ("Authorization", "Bearer t0ken")
    );
    assert!(!format!("{read:?}").contains("t0ken"));

    let refused = read_with(&entry, &[]);
    assert_eq!(
        error(&refused),
        "headers.Authorization needs the variable MADE_TOKEN, which is not set or empty"
    );
    let note = read_with(&json!({"command": "x", "note": "${MADE_TOKEN}"}), &[]);
    assert!(note.outcome.is_ok(), "nobody reads note");
}

#[test]
fn arguments_arrive_as_written() {
    let args = ["--header", "Authorization: Bearer a b", "", "\"quoted\""];
    let read = read(json!({"command": "made", "args": args}));
    assert_eq!(stdio(&read).args, args);
    assert_eq!(
        config(&read).launch,
        "made --header \"Authorization: ***\" \"\" \"quoted\""
    );
}

#[test]
fn launch_lines_show_no_secret() {
    let args = json!([
        "-y",
        "srv",
        "--api-key",
        "hunter2",
        "--token=hunter2",
        "-H",
        "X-Api-Key:hunter2",
        "${SECRET}",
        "postgres://u:hunter2@db/x",
        "--verbose"
    ]);
    let entry = json!({"command": "npx", "args": args, "cwd": "/srv"});
    let read = read_with(&entry, &[("SECRET", "hunter2")]);
    assert_eq!(
        config(&read).launch,
        "npx -y srv --api-key *** --token=*** -H X-Api-Key:*** ${SECRET} postgres://***:***@db/x \
         --verbose (cwd=/srv)"
    );
    assert_eq!(stdio(&read).args[7], "hunter2");
    let url = super::read_servers(
        &[(
            "u".to_owned(),
            json!({"url": "https://h/?key=hunter2&x=1"}).to_string(),
        )],
        &env(&[]),
        &Limits::DEFAULT,
    );
    assert_eq!(config(&url[0]).launch, "https://h/?key=***&x=1");
}

#[test]
fn children_inherit_an_allow_list_and_what_their_entry_says() {
    let parent = [
        ("PATH", "/made/bin"),
        ("HOME", "/made/home"),
        ("LANG", "C.UTF-8"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("MY_FLAG", "1"),
        ("LD_PRELOAD", "/made.so"),
        ("EVIL", "() { :; }"),
    ];
    let names = |read: &Configured| {
        let names: Vec<String> = stdio(read).env.keys().cloned().collect();
        names.join(" ")
    };
    let plain = read_with(&json!({"command": "env"}), &parent);
    assert_eq!(names(&plain), "HOME LANG PATH");

    let entry = json!({"command": "env", "cwd": "~/x", "inheritEnv": ["AWS_*", "LD_PRELOAD"],
        "env": {"MY_FLAG": "${MY_FLAG}", "EXTRA": 1, "NODE_OPTIONS": "--inspect"}});
    let declared = read_with(&entry, &parent);
    assert_eq!(
        names(&declared),
        "AWS_SECRET_ACCESS_KEY EXTRA HOME LANG MY_FLAG PATH"
    );
    assert_eq!(stdio(&declared).env["MY_FLAG"].expose(), "1");
    assert_eq!(stdio(&declared).cwd, Some(PathBuf::from("/made/home/x")));
    assert_eq!(
        warnings(&declared),
        [
            "inheritEnv.LD_PRELOAD is blocked, since it changes how programs start, and was left out",
            "env.NODE_OPTIONS is blocked, since it changes how programs start, and was left out"
        ]
    );

    let bad = json!({"command": "env", "env": {"A=B": "1", "": "2", "OK": "a\u{0}b"}});
    let bad = read_with(&bad, &parent);
    assert_eq!(names(&bad), "HOME LANG PATH");
    assert_eq!(bad.issues.len(), 3);
}

#[test]
fn defaults_come_from_the_limits_and_members_win() {
    let limits = Limits::DEFAULT;
    let plain = read(json!({"command": "x"}));
    let plain = config(&plain);
    assert_eq!(plain.times.connect, limits.connect_timeout);
    assert_eq!(plain.times.list, limits.list_timeout);
    assert_eq!(plain.times.request, limits.request_timeout);
    assert_eq!(plain.times.total, None);
    assert_eq!(
        plain.pause,
        (limits.failure_pause_after, limits.failure_pause)
    );
    assert_eq!(
        plain.bounds.message_bytes_max,
        limits.upstream_message_bytes_max
    );
    assert_eq!(
        (plain.protocol, plain.isolation),
        (EraChoice::Auto, Isolation::Session)
    );

    let set = read(json!({
        "command": "x", "connectTimeout": 1.5, "timeout": 20, "discoverTimeoutMs": 9000,
        "resetTimeoutOnProgress": true, "maxTotalTimeoutMs": 90_000, "maxMessageBytes": 7,
        "writeQueueBytes": 8, "resumeAttempts": 0, "failurePauseAfter": 1, "failurePauseMs": 0.5,
        "isolation": "shared", "validateCalls": true, "protocol": "2025-06-18",
        "supports_parallel_tool_calls": true, "toolFilter": {"include": [" a* "]},
    }));
    assert!(set.issues.is_empty(), "{:?}", set.issues);
    let set = config(&set);
    let ms = Duration::from_millis;
    assert_eq!(
        (set.times.connect, set.times.discover),
        (ms(1_500), ms(1_500))
    );
    assert_eq!(
        (set.times.request, set.times.list),
        (ms(20_000), ms(20_000))
    );
    assert_eq!(set.times.total, Some(ms(90_000)));
    assert_eq!(
        (set.bounds.message_bytes_max, set.bounds.out_bytes_max),
        (7, 8)
    );
    assert_eq!((set.bounds.resume_attempts_max, set.pause), (0, (1, ms(1))));
    assert_eq!(set.isolation, Isolation::Shared);
    assert_eq!(set.protocol, EraChoice::Only(Revision::V2025_06_18));
    assert!(set.validate_calls && set.parallel);
    assert_eq!(set.filter.include, ["a*"]);
}

#[test]
fn sockets_certificates_and_proxies() {
    for url in ["unix:/run/x", "unix:///run/x", "unix:~/x"] {
        let read = read_with(&json!({"url": url}), &[("HOME", "/run/")]);
        let path = PathBuf::from("/run/x");
        assert_eq!(config(&read).transport, Transport::Unix { path }, "{url}");
        assert_eq!(config(&read).launch, url);
    }
    let entry = json!({"url": "https://h/", "caFile": "~/ca.pem", "client_cert": " /c.pem ", "clientKey": "/k.pem"});
    let pairs = [
        ("HOME", "/home/me"),
        ("HTTPS_PROXY", "http://me:pw@proxy:3128"),
    ];
    let read = read_with(&entry, &pairs);
    let http = http(&read);
    assert_eq!(http.tls.ca_file, Some(PathBuf::from("/home/me/ca.pem")));
    assert_eq!(http.tls.client, Some(("/c.pem".into(), "/k.pem".into())));
    let proxy = http.proxy.as_ref().expect("set");
    assert_eq!((proxy.host.as_str(), proxy.port), ("proxy", 3_128));
    let socks = read_with(&entry, &[("HTTPS_PROXY", "socks5://me:pw@proxy")]);
    assert!(error(&socks).starts_with("HTTPS_PROXY must begin with http://"));
}

#[test]
fn disabled_servers_are_read_and_stay_off() {
    for entry in [
        json!({"command": "made", "disabled": true}),
        json!({"command": "made", "enabled": false}),
    ] {
        let read = read(entry);
        assert!(!read.enabled && read.outcome.is_ok());
    }
    let on = read(json!({"command": "made", "enabled": true, "disabled": false}));
    assert!(on.enabled && on.issues.is_empty());
}

#[test]
fn fingerprints_see_changes_and_no_spelling() {
    let of = |entry: Value| config(&read(entry)).fingerprint.clone();
    let base = of(json!({"command": "x"}));
    assert_eq!(base.len(), 64);
    assert_eq!(
        base,
        of(json!({"enabled": true, "command": " x ", "connectTimeout": 30}))
    );
    assert_eq!(
        of(json!({"url": URL, "type": "http", "connect_timeout": 3})),
        of(json!({"connectionTimeoutMs": 3000, "transport": "streamable-http", "url": URL}))
    );
    for other in [
        json!({"command": "y"}),
        json!({"command": "x", "args": [""]}),
        json!({"command": "x", "env": {"A": "1"}}),
        json!({"command": "x", "cwd": "/"}),
        json!({"command": "x", "timeout": 61}),
        json!({"command": "x", "note": {"b": 1, "a": 2}}),
        json!({"command": "x", "toolFilter": {"exclude": ["a"]}}),
        json!({"command": "x", "validateCalls": true}),
    ] {
        assert_ne!(base, of(other.clone()), "{other}");
    }
    let raw = |text: &str| {
        let map = [("srv".to_owned(), text.to_owned())];
        let read = read_servers(&map, &env(&[]), &Limits::DEFAULT);
        config(&read[0]).fingerprint.clone()
    };
    assert_eq!(
        raw(r#"{"command":"x","n":{"b":1,"a":2},"cwd":"/s"}"#),
        raw(r#"{"cwd":"/s", "n":{"a":2,"b":1}, "command":"x"}"#)
    );
    let secret = json!({"command": "x", "env": {"A": "${A}"}});
    let print = |value| {
        config(&read_with(&secret, &[("A", value)]))
            .fingerprint
            .clone()
    };
    assert_ne!(print("1"), print("2"));
}

#[test]
fn command_lines_go_the_same_way() {
    let ours = env(&[("FROM_US", "1"), ("HOME", "/h")]);
    let mut spec = AdHoc::new(Target::Command(vec![
        "/bin/my srv".into(),
        "${X}".into(),
        "".into(),
    ]));
    spec.env = vec!["K=a=b".into(), "FROM_US".into()];
    spec.cwd = Some("/srv".into());
    spec.timeout = Some(Duration::from_millis(1_500));
    spec.include = vec!["a,b*".into(), "c".into()];
    let read = ad_hoc(&spec, &ours, &Limits::DEFAULT);
    assert!(read.issues.is_empty(), "{:?}", read.issues);
    assert_eq!(read.key.as_str(), "my srv");
    let program = stdio(&read);
    assert_eq!(
        program.args,
        ["${X}", ""],
        "no placeholders on a command line"
    );
    assert_eq!(program.env["K"].expose(), "a=b");
    assert_eq!(program.env["FROM_US"].expose(), "1");
    assert_eq!(config(&read).filter.include, ["a", "b*", "c"]);
    assert_eq!(config(&read).times.request, Duration::from_millis(1_500));

    let mut spec = AdHoc::new(Target::Url("http://h:1/mcp".into()));
    spec.headers = vec!["X-A:1".into(), "Authorization: Bearer x".into()];
    spec.transport = Some("sse".into());
    spec.protocol = Some("modern".into());
    let read = ad_hoc(&spec, &ours, &Limits::DEFAULT);
    assert_eq!((read.key.as_str(), http(&read).kind), ("h", HttpKind::Sse));
    assert_eq!(http(&read).headers.len(), 2);
    assert_eq!(config(&read).protocol, EraChoice::Modern);

    let none = ad_hoc(
        &AdHoc::new(Target::Command(Vec::new())),
        &ours,
        &Limits::DEFAULT,
    );
    assert_eq!(error(&none), "there is no command behind --");
    let mut spec = AdHoc::new(Target::Url("http://h/".into()));
    spec.headers = vec!["X-A hunter2".into()];
    let bad = ad_hoc(&spec, &ours, &Limits::DEFAULT);
    assert_eq!(error(&bad), "a header must be given as 'Name: value'");
}

#[test]
fn options_win_over_an_entry() {
    let raw =
        json!({"url": "http://h/", "headers": {"x-a": "${FROM_US}", "X-B": "2"}, "timeout": 5});
    let mut spec = AdHoc::new(Target::Entry {
        key: "k".into(),
        raw: raw.to_string(),
    });
    spec.headers = vec!["X-A: ${NOT_A_PLACEHOLDER}".into()];
    spec.timeout = Some(Duration::from_secs(7));
    let read = ad_hoc(&spec, &env(&[("FROM_US", "1")]), &Limits::DEFAULT);
    let headers: Vec<(&str, &str)> = http(&read)
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose().as_str()))
        .collect();
    assert_eq!(headers, [("X-A", "${NOT_A_PLACEHOLDER}"), ("X-B", "2")]);
    assert_eq!(config(&read).times.request, Duration::from_secs(7));
}

#[test]
fn secrets_in_clear_are_pointed_out() {
    let raw = json!({
        "headers": {"Authorization": "Bearer hunter2", "X-Api-Key": "${KEY}", "Cookie": "x"},
        "env": {"GITHUB_TOKEN": "hunter2", "A_TOKEN": "Bearer ${T}", "PORT": 5},
    });
    let issues: Vec<String> = literal_secrets(&raw.to_string())
        .into_iter()
        .map(|issue| issue.message)
        .collect();
    assert_eq!(
        issues,
        [
            "headers.Authorization holds a secret in clear: write ${NAME} and set that variable",
            "env.GITHUB_TOKEN holds a secret in clear: write ${NAME} and set that variable",
        ]
    );
}
