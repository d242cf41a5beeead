//! `muster user`, `login`, `whoami` and `audit`.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::time::timeout;

use crate::fixture::{Fleet, Machine, WALL_CLOCK, shown};

/// Longer than any of these tests takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a command of a person with a home of their own, and with no announced server.
async fn at_home(machine: &Machine, args: &[&str], input: &str) -> String {
    let mut command = machine.muster(args);
    command.env("XDG_CONFIG_HOME", machine.path("config")).env("XDG_RUNTIME_DIR", machine.path("nothing"));
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
    shown(&child.wait_with_output().await.unwrap())
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

#[tokio::test]
async fn audit_is_followed() {
    let fleet = Fleet::start().await;
    fleet.clock.store(WALL_CLOCK, std::sync::atomic::Ordering::SeqCst);
    has(&fleet.muster(&["data", "set", "pool", "16"]).await, &["exit 0"]);
    let mut child = fleet.machine.muster(&["audit", "-f"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Each line arrives while the command waits for further records.
    let mut next = async |key: &str| {
        while !timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap().unwrap().contains(key) {}
    };
    next("created quickstart/data/global/pool").await;
    has(&fleet.muster(&["data", "set", "threads", "4"]).await, &["exit 0"]);
    next("created quickstart/data/global/threads").await;
    child.kill().await.unwrap();
}

#[tokio::test]
async fn person_logs_in_works_and_is_in_the_audit() {
    let fleet = Fleet::start().await;
    fleet.clock.store(WALL_CLOCK, std::sync::atomic::Ordering::SeqCst);
    let made = fleet.muster(&["user", "create", "ann", "--role", "operator", "--in", "quickstart"]).await;
    has(&made, &["exit 0", "ann: operator in quickstart", "muster user token create ann"]);
    let again = fleet.muster(&["user", "create", "ann", "--role", "admin", "--in", "*"]).await;
    has(&again, &["exit 1", "there is a user ann already", "muster user role ann"]);
    let token = fleet.muster(&["user", "token", "create", "ann", "--note", "laptop", "-q"]).await;
    let token = token.lines().find(|line| line.starts_with("muster_user_")).unwrap().to_owned();
    has(&fleet.muster(&["user", "list"]).await, &["NAME", "operator in quickstart", "enabled"]);
    has(&fleet.muster(&["user", "token", "list", "ann"]).await, &["laptop", "in 29d"]);
    has(&fleet.muster(&["whoami"]).await, &["administrator of this server"]);

    let machine = &fleet.machine;
    let url = fleet.url.clone();
    has(&at_home(machine, &["login", &url], "muster_user_0\n").await, &["exit 64", "not a complete token"]);
    let wrong = token.replace(|digit: char| digit.is_ascii_digit(), "0");
    has(&at_home(machine, &["login", &url], &wrong).await, &["exit 1", "not valid, or was revoked"]);
    let login = at_home(machine, &["login", &url], &format!("{token}\n")).await;
    has(&login, &["exit 0", "ann (token ", "quickstart", "operator", "logged in to http://127.0.0.1:"]);
    // The login is used without --server, and with it.
    has(&at_home(machine, &["whoami"], "").await, &["exit 0", "ann (token "]);
    let set = at_home(machine, &["data", "set", "pool", "16", "--server", &url, "-m", "bigger pool"], "").await;
    has(&set, &["exit 0"]);
    let refused = at_home(machine, &["user", "list"], "").await;
    has(&refused, &["exit 1", "ann may not do this: it needs the role admin for the whole server", "--in '*'"]);

    let audit = fleet.muster(&["audit", "--by", "ann"]).await;
    has(
        &audit,
        &["quickstart  ann from 127.0.0.1: set_datum (bigger pool)", "created quickstart/data/global/pool", "+ {"],
    );
    let lines = fleet.muster(&["audit", "-o", "json"]).await;
    has(&lines, &["\"action\":\"create_user\"", "\"action\":\"set_datum\""]);
    assert!(!lines.contains("\"hash\""), "hashes of tokens: {lines}");
    has(&at_home(machine, &["audit", "--env", "quickstart"], "").await, &["exit 0", "set_datum"]);
    let verified = fleet.muster(&["audit", "verify"]).await;
    has(&verified, &["exit 0", "none changed or missing; the last one has the hash "]);
    has(&fleet.muster(&["audit", "verify", "--hash", "00"]).await, &["exit 1", "no record has the expected hash"]);

    let id = token.split('_').nth(2).unwrap();
    has(&fleet.muster(&["user", "token", "revoke", "ann", id]).await, &["exit 0", "revoked"]);
    has(&at_home(machine, &["whoami"], "").await, &["exit 1", "not valid, or was revoked", "muster login"]);
    let disabled = fleet.muster(&["user", "disable", "ann"]).await;
    has(&disabled, &["ann: operator in quickstart, disabled"]);
    has(&fleet.muster(&["user", "role", "ann", "none", "--in", "quickstart"]).await, &["ann: no role, disabled"]);
    has(&fleet.muster(&["user", "enable", "ann"]).await, &["exit 0", "ann: no role"]);
    has(&at_home(machine, &["logout"], "").await, &["exit 0", "logged out of http://127.0.0.1:"]);
    has(&at_home(machine, &["logout"], "").await, &["exit 0", "you are not logged in"]);
    fleet.stop().await;
}
