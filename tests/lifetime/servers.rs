//! Every way a server can end or refuse to, with drawspan there to end it.

use std::time::{Duration, Instant};

use drawspan::limits::Limits;
use rustix::process::{Signal, kill_process};

use crate::census::{Census, children};
use crate::common::until;
use crate::host::Host;

/// Ends with its input.
pub(crate) const OBEDIENT: &str = "echo '\"ready\"'; cat >/dev/null";

/// Does not.
pub(crate) const IGNORES_EOF: &str = "echo '\"ready\"'; while :; do sleep 1; done";

/// Ignores SIGTERM too.
pub(crate) const IGNORES_TERM: &str =
    "trap '' TERM INT HUP; echo '\"ready\"'; while :; do sleep 1; done";

/// Leaves its group, its session and its parent.
pub(crate) const DAEMON: &str = r#"
    setsid sh -c 'trap "" TERM HUP; sleep 1000 & while :; do sleep 1; done' </dev/null >/dev/null 2>&1 &
    setsid sleep 1000 </dev/null >/dev/null 2>&1 &
    "#;

fn with_daemon(script: &str) -> String {
    format!("{DAEMON} {script}")
}

#[test]
fn one_that_obeys_the_end_of_its_input() {
    let mut host = Host::new();
    host.start(OBEDIENT);
    host.until_ready();
    // The shell, cat and the guardian.
    host.until("the three", |host| host.census.count().len() == 3);
    let since = host.close();
    host.until_closed();
    assert!(since.elapsed() < Duration::from_millis(900));
    assert_eq!(host.told(0).why(), "connection closed");
    host.expect_nothing(since);
}

#[test]
fn one_that_ignores_the_end_of_its_input() {
    let mut host = Host::new();
    host.start(IGNORES_EOF);
    host.until_ready();
    let since = host.close();
    host.until_closed();
    let (.., at) = host.told(0).closed.as_ref().unwrap();
    assert!(at.duration_since(since) >= Duration::from_millis(900));
    host.expect_nothing(since);
}

#[test]
fn one_that_ignores_sigterm_too_and_has_a_daemon() {
    let mut host = Host::new();
    host.start(&with_daemon(IGNORES_TERM));
    let other = host.start(OBEDIENT);
    host.until_ready();
    let since = host.close();
    host.until("the other's end", |host| host.told(other).closed.is_some());
    assert!(
        host.told(0).closed.is_none() && since.elapsed() < Duration::from_secs(1),
        "one does not wait for the other"
    );
    host.until_closed();
    host.expect_nothing(since);
}

#[test]
fn one_that_becomes_a_daemon_and_exits() {
    let mut host = Host::new();
    host.start(&with_daemon("echo '\"ready\"'; exit 0"));
    host.until_closed();
    let (.., since) = host.told(0).closed.as_ref().unwrap();
    let since = *since;
    assert_eq!(host.told(0).why(), "exited with code 0");
    host.expect_nothing(since);
}

#[test]
fn a_launcher_that_leaves_a_grandchild_with_the_pipes() {
    let mut host = Host::new();
    let script = r#"exec 3<&0; sh -c 'echo "\"ready\""; cat >/dev/null; sleep 1000' <&3 & exec sh -c 'exit 3'"#;
    let began = Instant::now();
    host.start(script);
    host.until_closed();
    assert_eq!(host.told(0).why(), "exited with code 3");
    host.expect_nothing(began);
}

#[test]
fn a_launcher_that_stays() {
    let mut host = Host::new();
    // As npx: the server is a grandchild, and the launcher only waits for it.
    host.start(r#"exec 3<&0; sh -c "echo '\"ready\"'; cat >/dev/null" <&3 & exec 3<&-; wait"#);
    host.start(r#"(sh -c 'trap "" TERM; echo "\"ready\""; while :; do sleep 1; done'); exit 5"#);
    host.until("both", |host| host.census.count().len() >= 6);
    let since = host.close();
    host.until_closed();
    host.expect_nothing(since);
}

#[test]
fn one_that_kills_itself() {
    let mut host = Host::new();
    host.start(&with_daemon("sleep 1000 & echo '\"ready\"'; kill -9 $$"));
    host.until_closed();
    let (.., since) = host.told(0).closed.as_ref().unwrap();
    let since = *since;
    assert_eq!(host.told(0).messages, ["\"ready\""]);
    assert_eq!(host.told(0).why(), "killed by SIGKILL");
    host.expect_nothing(since);
}

#[test]
fn one_that_never_stays_where_it_is() {
    let home = crate::common::Home::new("moving");
    // Each starts the next one in a session of its own and is gone.
    home.write("moving.sh", "trap '' TERM; setsid sh moving.sh & exit 0");
    let mut host = Host::new();
    let folder = home.path("");
    host.start(&format!(
        "cd {} && setsid sh moving.sh & {OBEDIENT}",
        folder.display()
    ));
    host.until_ready();
    let since = host.close();
    host.until_closed();
    host.expect_nothing(since);
}

#[test]
fn one_that_was_stopped() {
    let mut host = Host::new();
    host.start("echo '\"ready\"'; kill -STOP $$; sleep 1000");
    host.until_ready();
    let since = host.close();
    host.until_closed();
    host.expect_nothing(since);
}

#[test]
fn the_loop_is_dropped() {
    for script in [OBEDIENT, IGNORES_TERM, &with_daemon(IGNORES_TERM)] {
        let mut host = Host::new();
        host.start(script);
        host.until_ready();
        // Its sleep comes and goes.
        assert!(host.census.count().len() >= 2);
        let (census, since) = (host.census.clone(), Instant::now());
        drop(host);
        census.expect_nothing(since);
    }
}

#[test]
fn the_loop_is_dropped_while_a_server_starts() {
    let mut host = Host::new();
    for _ in 0..4 {
        host.start(IGNORES_TERM);
    }
    host.events.settle(&mut [&mut host.links]);
    let (census, since) = (host.census.clone(), Instant::now());
    drop(host);
    census.expect_nothing(since);
}

#[test]
fn a_guardian_is_killed() {
    let mut host = Host::new();
    host.start(IGNORES_TERM);
    host.until_ready();
    let guardians = host.census.guardians();
    assert_eq!(guardians.len(), 1);
    let since = Instant::now();
    let guardian = guardians[0];
    kill_process(guardian, Signal::KILL).unwrap();
    host.until_closed();
    assert_eq!(host.told(0).why(), "sh: its guardian is gone");
    host.expect_nothing(since);
}

#[test]
fn a_guardian_is_asked_to_end() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut host = Host::new();
        host.start(&with_daemon(IGNORES_TERM));
        host.until_ready();
        let since = Instant::now();
        let guardian = host.census.guardians()[0];
        kill_process(guardian, signal).unwrap();
        host.until_closed();
        assert_eq!(host.told(0).why(), "killed by SIGKILL");
        host.expect_nothing(since);
    }
}

#[test]
fn orphans_are_reaped_while_their_server_runs() {
    let mut host = Host::new();
    // Each inner shell is gone before what it has started, which thereby becomes an orphan.
    host.start(
        r#"for i in 1 2 3 4 5 6 7 8 9 10; do sh -c 'sh -c "exit 0" & exit 0'; done
           echo '"ready"'; cat >/dev/null"#,
    );
    host.until_ready();
    let guardian = host.census.guardians()[0];
    until("the orphans to be reaped", || {
        let found = children(guardian);
        (found.len() == 1)
            .then_some(())
            .ok_or_else(|| format!("{found:?}"))
    });
}

#[test]
fn who_is_closed_before_it_runs_is_reaped() {
    let mut host = Host::new();
    for script in [OBEDIENT, "exit 0", IGNORES_TERM] {
        host.start(script);
    }
    host.start_program("no-such-program", &[]);
    host.start_program("/etc", &[]);
    host.events.settle(&mut [&mut host.links]);
    let since = host.close();
    host.until_closed();
    host.expect_nothing(since);
    host.until_reaped();
}

#[test]
fn no_zombie_is_left_of_many_short_lives() {
    let census = Census::new();
    let limits = Limits {
        children_max: 8,
        ..Limits::DEFAULT
    };
    let mut host = Host::with(census, &limits);
    for _ in 0..15 {
        let first: Vec<usize> = (0..4).map(|_| host.start("exit 0")).collect();
        host.until_closed();
        assert!(
            first
                .iter()
                .all(|n| host.told(*n).why() == "exited with code 0")
        );
    }
    host.until_reaped();
}
