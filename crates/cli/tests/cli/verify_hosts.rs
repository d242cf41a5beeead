//! Tests of `muster verify-hosts`.

use muster_core::node::status::Activity;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStderr};

use crate::fixture::{self, Fleet, Machine, QUICKSTART, shown};
use crate::snapshot;

const ALL: [&str; 4] = ["db1", "web1", "web2", "lb1"];

#[tokio::test]
async fn validated_hosts_are_verified() {
    let fleet = Fleet::validated().await;
    snapshot!(fleet.muster(&[&["verify-hosts", "v1"], &ALL[..]].concat()).await, @"
    exit 0
    --- stdout
    all 4 hosts run v1
    ");
    snapshot!(fleet.muster(&["verify-hosts", "v1", "db1"]).await, @"
    exit 0
    --- stdout
    the host runs v1
    ");
    snapshot!(fleet.muster(&["verify-hosts", "v1", "--all", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "verified": true,
      "hosts": 4,
      "missing": [],
      "revision": N,
      "micros": N
    }
    "#);
}

#[tokio::test]
async fn missing_hosts_are_listed_with_reasons() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["verify-hosts", "v1", "db1", "web1", "web2", "lb1", "db7"]).await, @"
    exit 1
    --- stdout
    1 of 5 hosts run v1
    web1 has no validated version: failed, Syntax error at '}' (releases/v1/site.pp:12); attempt 2
    web2 has no validated version: unreachable, its agent is not connected
    lb1 has no validated version: pending, waiting for role web: 0 of 2 active
    db7 is not in the design
    ");
    snapshot!(fleet.muster(&["verify-hosts", "v1", "db1", "lb1", "-o", "json"]).await, @r#"
    exit 1
    --- stdout
    {
      "schema": 1,
      "verified": false,
      "hosts": 2,
      "missing": [
        {
          "host": "lb1",
          "state": "pending",
          "version": null,
          "why": {
            "why": "waiting",
            "needs": [
              {
                "kind": "role",
                "role": "web",
                "want": 2,
                "have": 0
              }
            ]
          }
        }
      ],
      "revision": N,
      "micros": N
    }
    "#);
}

#[tokio::test]
async fn silent_hosts_count_only_as_recorded() {
    let mut fleet = Fleet::validated().await;
    fleet.disconnect("web2").await;
    snapshot!(fleet.muster(&["verify-hosts", "v1", "--all"]).await, @"
    exit 1
    --- stdout
    3 of 4 hosts run v1
    web2 last validated v1: unreachable for 5d
    ");
    snapshot!(fleet.muster(&["verify-hosts", "v1", "--all", "--recorded"]).await, @"
    exit 0
    --- stdout
    all 4 hosts last validated v1
    ");
    snapshot!(fleet.muster(&["running-versions"]).await, @"
    exit 0
    --- stdout
    VERSION  NODES
    v1       3
    --- stderr
    note: 1 node does not count: web2 (v1, unreachable for 5d)
    ");
    snapshot!(fleet.muster(&["running-versions", "--recorded"]).await, @"
    exit 0
    --- stdout
    VERSION  NODES
    v1       4
    ");
    snapshot!(fleet.muster(&["hosts-at-version", "v1"]).await, @"
    exit 0
    --- stdout
    db1
    lb1
    web1
    --- stderr
    note: 1 node does not count: web2 (v1, unreachable for 5d)
    ");
    snapshot!(fleet.muster(&["check-single-version", "v1", "-v"]).await, @"
    exit 1
    --- stdout
    Wanted version found: yes, on 3 nodes
    Unwanted versions found: none
    --- stderr
    note: 1 node does not count: web2 (v1, unreachable for 5d)
    ");
    snapshot!(fleet.muster(&["check-single-version", "v1", "--recorded"]).await, @"exit 0");

    // Nothing is connected after a restart of the fleet.
    let fleet = Fleet::serve(fleet.stop().await).await;
    snapshot!(fleet.muster(&["verify-hosts", "v1", "db1"]).await, @"
    exit 1
    --- stdout
    db1 last validated v1: unreachable for 5d
    ");
    let single = fleet.muster(&["check-single-version", "v1"]).await;
    assert!(
        single.starts_with("exit 1\n--- stderr\nnote: 4 nodes do not count: db1 (v1, unreachable for "),
        "{single}"
    );
}

#[tokio::test]
async fn hosts_are_read_from_standard_input() {
    let fleet = Fleet::validated().await;
    snapshot!(fleet.muster_with(&["verify-hosts", "v1"], "db1 web1\n\tweb2\r\n\nlb1 db1").await, @"
    exit 0
    --- stdout
    all 4 hosts run v1
    ");
    snapshot!(fleet.muster_with(&["verify-hosts", "v1", "-", "db7"], "db1\n").await, @"
    exit 1
    --- stdout
    1 of 2 hosts run v1
    db7 is not in the design
    ");
    snapshot!(fleet.muster_with(&["verify-hosts", "v1", "db1"], "db7\n").await, @"
    exit 0
    --- stdout
    the host runs v1
    ");
}

#[tokio::test]
async fn empty_list_is_refused_and_no_list_means_all() {
    let fleet = Fleet::validated().await;
    snapshot!(fleet.muster_with(&["verify-hosts", "v1"], " \n").await, @"
    exit 0
    --- stdout
    all 4 hosts run v1
    ");
    snapshot!(fleet.muster_with(&["verify-hosts", "v1", "-"], " \n").await, @"
    exit 64
    --- stderr
    error: standard input has no hosts
    hint: omit `-` to check every node of the design
    ");
    snapshot!(fleet.muster(&["verify-hosts", "v1", "--all", "db1"]).await, @"
    exit 64
    --- stderr
    error: the argument '--all' cannot be used with '[HOST]...'

    Usage: muster verify-hosts --all <VERSION> [HOST]...

    For more information, try '--help'.
    ");
}

#[tokio::test]
async fn wait_ends_with_the_last_report() {
    let mut fleet = Fleet::halfway().await;
    let (child, mut notes) = waiting(&fleet, &["verify-hosts", "v1", "--wait", "--all"]);
    assert_eq!(notes.next_line().await.unwrap().unwrap(), "note: 1 of 4 hosts at v1; waiting");
    for (name, _) in &QUICKSTART[1..] {
        fleet.validate(name, 2).await;
    }
    fleet.connect("web2", Activity::Idle).await;
    snapshot!(shown(&child.wait_with_output().await.unwrap()), @"
    exit 0
    --- stdout
    all 4 hosts run v1
    ");
}

#[tokio::test]
async fn wait_timeout_lists_missing_hosts() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["verify-hosts", "v1", "--wait", "--timeout", "100ms", "db1", "lb1"]).await, @"
    exit 1
    --- stdout
    1 of 2 hosts run v1
    lb1 has no validated version: pending, waiting for role web: 0 of 2 active
    --- stderr
    note: 1 of 2 hosts at v1; waiting
    ");
    snapshot!(fleet.muster(&["verify-hosts", "v1", "--wait", "--timeout", "0s", "-q", "lb1"]).await, @"
    exit 1
    --- stdout
    lb1 has no validated version: pending, waiting for role web: 0 of 2 active
    ");
}

#[tokio::test]
async fn wait_continues_after_a_server_restart() {
    let fleet = Fleet::halfway().await;
    let late = ["web1", "web2", "lb1"].map(|name| fleet.report(name, 2, crate::fixture::PASSED));
    let (child, mut notes) = waiting(&fleet, &["verify-hosts", "v1", "--wait", "--all"]);
    assert_eq!(notes.next_line().await.unwrap().unwrap(), "note: 1 of 4 hosts at v1; waiting");

    let machine = fleet.stop().await;
    let note = notes.next_line().await.unwrap().unwrap();
    assert!(note.ends_with("; waiting for the server"), "{note}");

    // The restarted server listens on another port.
    let mut fleet = Fleet::serve(machine).await;
    assert_eq!(notes.next_line().await.unwrap().unwrap(), "note: the server is reachable again");
    for report in &late {
        fleet.send(report).await;
    }
    for name in ALL {
        fleet.connect(name, Activity::Idle).await;
    }
    snapshot!(shown(&child.wait_with_output().await.unwrap()), @"
    exit 0
    --- stdout
    all 4 hosts run v1
    ");
}

#[tokio::test]
async fn unreachable_server_at_the_timeout_is_unknown() {
    let machine = Machine::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let args = ["verify-hosts", "v1", "db1", "--wait", "--timeout", "100ms", "--env", "prod", "--server", &server];
    let child = machine.muster(&args).spawn().unwrap();
    // A server that answers one request and stops.
    let (stream, _) = listener.accept().await.unwrap();
    drop(listener);
    let missing = r#"{"host": "db1", "state": null, "version": null, "why": null}"#;
    let body = format!(r#"{{"verified": false, "hosts": 1, "missing": [{missing}], "revision": 1, "micros": 1}}"#);
    let mut stream = BufReader::new(stream);
    while stream.read_line(&mut String::new()).await.unwrap() > 2 {}
    let answer = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    let text = shown(&output);
    assert!(text.starts_with("exit 2\n--- stderr\nnote: 0 of 1 host at v1; waiting\nnote: cannot reach"), "{text}");
    assert!(text.contains(&format!("error: cannot reach the server at {server}\n")), "{text}");
}

#[tokio::test]
async fn wait_for_a_missing_release_ends_at_once() {
    let fleet = Fleet::validated().await;
    for wait in [&["--wait", "--timeout", "1h"][..], &[]] {
        let text = fleet.muster(&[&["verify-hosts", "v99", "db1"], wait].concat()).await;
        assert!(text.starts_with("exit 1\n"), "{text}");
        let warning = "warning: there is no release v99: no node can run it; there is v1, v2\n";
        assert!(text.contains(warning), "{text}");
    }
}

#[tokio::test]
async fn progress_line_is_cleared_on_a_terminal() {
    let fleet = Fleet::halfway().await;
    let (reader, terminal) = fixture::terminal();
    let args = ["verify-hosts", "v1", "--wait", "--timeout", "100ms", "db1", "lb1"];
    let mut command = fleet.machine.muster(&args);
    let output = command.stderr(terminal).spawn().unwrap().wait_with_output().await.unwrap();
    drop(command);
    let text = fixture::read_terminal(reader);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.starts_with("1 of 2 hosts at v1 (") && text.ends_with(" \r") && !text.contains('\n'), "{text:?}");
}

/// Starts a command; returns it with the lines of its standard error.
fn waiting(fleet: &Fleet, args: &[&str]) -> (Child, Lines<BufReader<ChildStderr>>) {
    let mut child = fleet.machine.muster(args).spawn().unwrap();
    let notes = BufReader::new(child.stderr.take().unwrap()).lines();
    (child, notes)
}
