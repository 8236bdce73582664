//! What is told of servers that fail, and what a guardian must not change.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::time::Duration;

use drawspan::limits::Limits;
use drawspan::link::ChildSpec;
use drawspan::link::upstream::UpstreamClosed;

use crate::census::{Census, children};
use crate::common::Home;
use crate::host::Host;
use crate::servers::{IGNORES_TERM, OBEDIENT};

/// c02
#[test]
fn a_crash_at_the_start_has_its_reason() {
    for _ in 0..40 {
        let mut host = Host::new();
        host.start("echo 'fatal: MADE_TOKEN is not set' >&2; exit 3");
        host.until_closed();
        assert_eq!(host.told(0).why(), "exited with code 3");
        assert_eq!(host.stderr_tail(0), "fatal: MADE_TOKEN is not set");
    }
}

/// c09
#[test]
fn the_last_answer_is_never_lost_to_the_exit() {
    for _ in 0..40 {
        let mut host = Host::new();
        host.start(r#"echo '"ready"'; read x; echo '"bye"'; echo "$x"; exit 0"#);
        host.until_ready();
        host.send(0, r#"{"last":"words"}"#);
        host.until_closed();
        assert_eq!(
            host.told(0).messages,
            ["\"ready\"", "\"bye\"", r#"{"last":"words"}"#]
        );
        assert_eq!(host.told(0).why(), "exited with code 0");
    }
}

/// c11
#[test]
fn closed_output_is_the_end() {
    let mut host = Host::new();
    host.start("echo '\"ready\"'; exec >&-; while :; do sleep 1; done");
    host.until_ready();
    let since = std::time::Instant::now();
    host.until("word of it", |host| host.told(0).ending.is_some());
    assert!(since.elapsed() < Duration::from_millis(500));
    host.until_closed();
    assert_eq!(host.told(0).why(), "server closed its output");
    host.expect_nothing(since);
}

/// c15, and bytes that are no message
#[test]
fn noise_is_no_failure() {
    let mut host = Host::new();
    host.start(
        r#"i=0; while [ $i -lt 512 ]; do i=$((i+1)); echo "noise line on stderr 0123456789" >&2; done
           head -c 1048576 /dev/zero | tr '\0' 'e' >&2
           printf '\377\n'; head -c 1048577 /dev/zero | tr '\0' 'x'; echo; echo '"ready"'; cat"#,
    );
    host.until_ready();
    assert_eq!(
        host.told(0).unreadable,
        [
            "not UTF-8",
            "message too large: 1048577 bytes, limit 1048576"
        ]
    );
    let kept = host.stderr_tail(0).len();
    assert!(kept > 0 && kept <= Limits::DEFAULT.stderr_tail_bytes_max);
    host.send(0, "[]");
    host.until("the echo", |host| host.told(0).messages.len() == 2);
}

#[test]
fn a_program_that_cannot_start_says_why() {
    let home = Home::new("cannot-start");
    let script = |name: &str, text: &str, mode: u32| {
        let path = home.path(name);
        let mut options = std::fs::File::options();
        let mut file = options
            .create(true)
            .write(true)
            .mode(mode)
            .open(&path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let folder = home.path("").to_str().unwrap().to_owned();
    let said = |program: &str, path: &str, cwd: Option<&str>| {
        let mut host = Host::new();
        host.start_spec(ChildSpec {
            program: program.to_owned(),
            args: vec![],
            env: vec![("PATH".to_owned(), path.to_owned())],
            cwd: cwd.map(Into::into),
        });
        host.until_closed();
        let told = host.told(0);
        assert!(matches!(&told.closed, Some((UpstreamClosed::Io(_), _))));
        told.why()
    };
    assert_eq!(
        said("no-such-program", "/bin:/usr/bin", None),
        "cannot start no-such-program: no such program in PATH"
    );
    let private = script("private", "#!/bin/sh\n", 0o644);
    assert_eq!(
        said("private", &format!("/bin:{folder}"), None),
        format!("cannot start private: {private}: permission denied")
    );
    assert_eq!(
        said(&private, "", None),
        format!("cannot start {private}: permission denied")
    );
    script("lost", "#!/no/such/interpreter\n", 0o755);
    assert_eq!(
        said("lost", &folder, None),
        "cannot start lost: the interpreter it names does not exist"
    );
    let text = script("text", "\u{1}\u{2}", 0o755);
    assert!(said(&text, "", None).ends_with("not a program, and does not begin with #!"));
    assert_eq!(
        said("sh", "/bin:/usr/bin", Some("/no/such/folder")),
        "cannot start sh: no such directory: /no/such/folder"
    );
    // Busy while somebody has it open for writing.
    let busy = home.path("busy");
    std::fs::copy("/bin/true", &busy).unwrap();
    std::fs::set_permissions(&busy, std::fs::Permissions::from_mode(0o755)).unwrap();
    let open = std::fs::File::options().append(true).open(&busy).unwrap();
    assert_eq!(
        said("busy", &folder, None),
        "cannot start busy: its file is open for writing"
    );
    drop(open);
}

#[test]
fn a_guardian_that_does_not_work_is_told_from_the_server() {
    let mut host = Host::new();
    host.events.set_guardian("/no/such/program", vec![]);
    host.start(OBEDIENT);
    // A program that is no guardian.
    host.until_closed();
    assert_eq!(
        host.told(0).why(),
        "cannot start a guardian for sh: no such file or directory"
    );
    host.events.set_guardian("/bin/true", vec![]);
    let second = host.start(OBEDIENT);
    host.until_closed();
    assert_eq!(host.told(second).why(), "sh: its guardian is gone");
}

#[test]
fn the_server_sees_nothing_of_its_guardian() {
    let home = Home::new("sees-nothing");
    let mut host = Host::new();
    let cwd = home.path("");
    host.start_spec(ChildSpec {
        program: "sh".to_owned(),
        args: [
            "-c",
            r#"env >env; pwd >pwd; ls /proc/$$/fd >fds
            cat /proc/$$/cmdline >cmdline; ulimit -n >limit; cat /proc/$$/oom_score_adj >oom
            echo '"ready"'; cat >/dev/null"#,
            "",
            "a b",
        ]
        .map(str::to_owned)
        .into(),
        env: vec![
            ("PATH".to_owned(), "/bin:/usr/bin".to_owned()),
            ("ODD".to_owned(), "a=b\n".to_owned()),
            host.census.variable(),
        ],
        cwd: Some(cwd.clone()),
    });
    host.until_ready();
    let read = |name: &str| std::fs::read_to_string(home.path(name)).unwrap();
    let mut env: Vec<String> = read("env").split('\n').map(str::to_owned).collect();
    env.retain(|line| {
        !["_=", "PWD=", "SHLVL=", "OLDPWD="]
            .iter()
            .any(|p| line.starts_with(p))
    });
    env.sort();
    assert_eq!(
        env,
        [
            "",
            "",
            &host.census.argument(),
            "ODD=a=b",
            "PATH=/bin:/usr/bin"
        ]
    );
    assert_eq!(
        std::path::Path::new(read("pwd").trim()),
        cwd.canonicalize().unwrap()
    );
    // What we were started with and did not ask for is not ours to close.
    let plain = std::process::Command::new("sh")
        .args(["-c", "ls /proc/$$/fd >plain"])
        .current_dir(&cwd)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .output()
        .unwrap();
    assert!(plain.status.success());
    assert_eq!(read("fds"), read("plain"), "no descriptor of ours");
    assert_eq!(
        read("limit").trim(),
        given_limit(),
        "not the one we have raised"
    );
    assert!(read("cmdline").starts_with("sh\0-c\0"), "its own name");
    assert!(read("cmdline").ends_with("\0\0a b\0"), "its own arguments");
    assert_eq!(read("oom").trim(), "1000");
    // Its guardian has what we have.
    let guardian = host.census.guardians()[0];
    let score = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    assert_eq!(score(&guardian.to_string()), score("self"));
    // The group is the server's own, and so is the session from ours.
    let (server, _) = children(guardian)[0];
    let stat = std::fs::read_to_string(format!("/proc/{server}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    assert_eq!(fields[2], server.to_string(), "process group");
    assert_eq!(fields[3], guardian.to_string(), "session");
}

#[test]
fn the_number_of_children_is_bounded() {
    let limits = Limits {
        children_max: 2,
        ..Limits::DEFAULT
    };
    let mut host = Host::with(Census::new(), &limits);
    host.start(IGNORES_TERM);
    host.start(OBEDIENT);
    host.until_ready();
    let third = host.start(OBEDIENT);
    host.until("the refusal", |host| host.told(third).closed.is_some());
    assert_eq!(
        host.told(third).why(),
        "cannot start sh: 2 processes run, limit children_max 2"
    );
}

#[test]
fn the_budget_of_descriptors_is_known() {
    let host = Host::new();
    let most = host.events.descriptors_max();
    let limits = Limits {
        connections_max: most,
        children_max: 1,
        ..Limits::DEFAULT
    };
    let said = host.events.descriptor_shortage(&limits).unwrap();
    assert!(
        said.contains(&format!("may have {most} descriptors")),
        "{said}"
    );
    let limits = Limits {
        connections_max: 1,
        children_max: 1,
        ..Limits::DEFAULT
    };
    assert_eq!(host.events.descriptor_shortage(&limits), None);
}

/// The limit of descriptors that this test was started with: its parent's.
fn given_limit() -> String {
    let parent = std::os::unix::process::parent_id();
    let limits = std::fs::read_to_string(format!("/proc/{parent}/limits")).unwrap();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    line.unwrap().split_whitespace().next().unwrap().to_owned()
}
