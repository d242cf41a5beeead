//! Tests of `muster status`.

use std::sync::atomic::Ordering;

use muster_core::node::status::Activity;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use crate::fixture::{Fleet, Machine, node, read_terminal, shown, terminal};
use crate::snapshot;

#[tokio::test]
async fn nodes_that_are_not_validated_are_listed_with_reasons() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["status"]).await, @"
    exit 0
    --- stdout
    quickstart: 4 nodes should run v1
      state    1 validated, 1 failed, 1 pending, 1 unreachable
      running  v1 on 1 node, no validated version on 3 nodes

    NODE  STATE        FOR  VERSION  WHY
    web1  failed       5d   -        Syntax error at '}' (releases/v1/site.pp:12); attempt 2
    web2  unreachable  5d   -        its agent is not connected
    lb1   pending      5d   -        waiting for role web: 0 of 2 active
    ");
}

#[tokio::test]
async fn validated_environment_is_one_line() {
    let fleet = Fleet::validated().await;
    snapshot!(fleet.muster(&["status"]).await, @"
    exit 0
    --- stdout
    quickstart: all 4 nodes validated at v1
    ");
}

#[tokio::test]
async fn status_is_printed_as_json() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["status", "-o", "json"]).await);
}

#[tokio::test]
async fn status_is_printed_as_yaml() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["status", "-o", "yaml"]).await, @r#"
    exit 0
    --- stdout
    schema: 1
    env: quickstart
    revision: N
    desired: v1
    generation:
      epoch: N
      number: N
    nodes: 4
    counts:
      silent: 1
      pending: 1
      failed: 1
      validated: 1
    running:
      v1: 1
    blockers:
    - node: web1
      role: web
      host: web1
      state: failed
      since: "TIME"
      version: null
      desired: v1
      why:
        why: failed
        reason:
          kind: not_compiled
        errors:
        - file: releases/v1/site.pp
          line: 12
          message: Syntax error at '}'
        attempt: 2
        retry: null
      active: false
      link:
        state: connected
        since: "TIME"
    - node: web2
      role: web
      host: web2
      state: silent
      since: "TIME"
      version: null
      desired: v1
      why:
        why: silent
      active: false
      link:
        state: silent
        since: "TIME"
    - node: lb1
      role: lb
      host: lb1
      state: pending
      since: "TIME"
      version: null
      desired: v1
      why:
        why: waiting
        needs:
        - kind: role
          role: web
          want: 2
          have: 0
      active: false
      link:
        state: connected
        since: "TIME"
    blocked: 3
    leaving: []
    held_domains: []
    unreadable: {}
    "#);
}

#[tokio::test]
async fn activity_of_agents_is_shown() {
    let mut fleet = Fleet::validated().await;
    let since = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(60);
    let (run, v2) = (muster_core::names::RunId::new("run-7").unwrap(), crate::fixture::version("v2"));
    fleet.client.trigger_at_once(&fleet.env, v2.clone()).await.unwrap();
    fleet.connect("web1", Activity::Applying { run, version: v2, since }).await;
    fleet
        .client
        .activity(&fleet.env, &node("lb1"), &Activity::Blocked { problem: "its disk is full".into() })
        .await
        .unwrap();
    snapshot!(fleet.muster(&["status"]).await, @"
    exit 0
    --- stdout
    quickstart: 4 nodes should run v2
      state    2 outdated, 1 blocked, 1 applying
      running  v1 on 4 nodes
      rollout  1 to v2: all at once, 0 of 4 nodes healthy
               db1 is in progress, deadline TIME

    NODE  STATE     FOR  VERSION  WHY
    lb1   blocked   -    v1       its disk is full
    db1   outdated  -    v1       has not begun to run v2
    web2  outdated  -    v1       has not begun to run v2
    web1  applying  2d   v1       run run-7 is in progress
    ");
}

#[tokio::test]
async fn long_list_of_nodes_is_cut() {
    let nodes: Vec<(String, &str)> = (1..=25).map(|number| (format!("web{number}"), "web")).collect();
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|(name, role)| (name.as_str(), *role)).collect();
    let fleet = Fleet::start_with(crate::fixture::Machine::new(), &nodes).await;
    let text = fleet.muster(&["status"]).await;
    assert!(text.ends_with("… and 5 more nodes: muster node list\n"), "{text}");
}

#[tokio::test]
async fn silent_failure_domain_is_shown() {
    let mut fleet = Fleet::validated().await;
    // After the grace period.
    fleet.clock.fetch_add(3_600, Ordering::SeqCst);
    let env = fleet.env.clone();
    fleet.streams.clear();
    // Liveness is evaluated once a second.
    let held = async {
        while fleet.client.status(&env).await.unwrap().held_domains.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    muster_testkit::wait::within("the domain is held", held).await;
    let text = fleet.muster(&["status"]).await;
    let expected = "failure domain rack1: 4 of 4 nodes are unreachable, most likely because of the network or the server; \
                    they are not declared lost\n";
    assert!(text.ends_with(expected), "{text}");
}

#[tokio::test]
async fn unreadable_key_is_shown() {
    use muster_core::txn::{Op, Txn};
    let fleet = Fleet::validated().await;
    let txn = Txn::new().op(Op::put("/muster/quickstart/nodes/db2", "not json"));
    let muster_store::CommitOutcome::Committed { revision } = fleet.app.store.commit(txn).await.unwrap() else {
        panic!()
    };
    fleet.app.view.reach(revision).await.unwrap();
    let text = fleet.muster(&["status"]).await;
    snapshot!(text, @"
    exit 0
    --- stdout
    quickstart: all 4 nodes validated at v1

    unreadable key /muster/quickstart/nodes/db2: expected ident at line 1 column 2
    ");
}

#[tokio::test]
async fn unreachable_store_is_shown_with_the_revision() {
    let machine = Machine::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let child = machine.muster(&["status", "--env", "prod", "--server", &server]).spawn().unwrap();
    let body = r#"{"env": "prod", "revision": 7, "desired": "v1", "generation": null, "nodes": 2, "counts": {},
        "running": {"v1": 2}, "blockers": [], "blocked": 0, "held_domains": [], "unreadable": {},
        "store_unreachable_since": "2026-11-15T12:01:03Z"}"#;
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = BufReader::new(stream);
    while stream.read_line(&mut String::new()).await.unwrap() > 2 {}
    let answer = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
    let text = shown(&child.wait_with_output().await.unwrap());
    let first = "exit 0\n--- stdout\nstore: unreachable since 12:01:03 UTC; this is the state of revision 7\n\n";
    assert_eq!(text, format!("{first}prod: all 2 nodes validated at v1\n"));
}

/// A command whose output is read line by line.
struct Watched {
    child: tokio::process::Child,
    lines: tokio::io::Lines<tokio::io::BufReader<tokio::process::ChildStdout>>,
}

impl Watched {
    fn start(fleet: &Fleet, args: &[&str]) -> Self {
        let mut child = fleet.machine.muster(args).spawn().unwrap();
        let lines = tokio::io::BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Reads until a line ends with this text.
    async fn expect(&mut self, end: &str) {
        let mut seen = Vec::new();
        while let Some(line) = self.lines.next_line().await.unwrap() {
            if line.ends_with(end) {
                return;
            }
            seen.push(line);
        }
        panic!("{end:?} was not printed: {seen:#?}");
    }

    async fn interrupt(mut self) {
        let pid = rustix::process::Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert_eq!(self.child.wait().await.unwrap().code(), Some(0));
    }
}

fn applying() -> Activity {
    let (run, version) = (muster_core::names::RunId::new("run-7").unwrap(), crate::fixture::version("v1"));
    Activity::Applying { run, version, since: jiff::Timestamp::now() }
}

#[tokio::test]
async fn watched_status_prints_a_line_per_change() {
    let mut fleet = Fleet::start_with(Machine::new(), &[("db1", "db"), ("web1", "web")]).await;
    let mut status = Watched::start(&fleet, &["status", "--watch"]);
    let mut nodes = Watched::start(&fleet, &["node", "list", "--watch", "role=db"]);
    let mut open = Watched::start(&fleet, &["node", "list", "--watch", "state!=validated"]);
    for watched in [&mut status, &mut nodes, &mut open] {
        watched.expect("its agent is not connected").await;
    }
    fleet.connect("db1", applying()).await;
    nodes.expect("db1  applying v1").await;
    status.expect("db1 applying: run run-7 is in progress").await;
    fleet.client.activity(&fleet.env, &node("db1"), &Activity::Idle).await.unwrap();
    fleet.validate("db1", 1).await;
    nodes.expect("db1  validated v1").await;
    open.expect("db1   no longer matches").await;
    for watched in [status, nodes, open] {
        watched.interrupt().await;
    }
}

#[tokio::test]
async fn watched_answer_is_a_json_document_per_change() {
    let mut fleet = Fleet::start_with(Machine::new(), &[("db1", "db")]).await;
    let mut nodes = Watched::start(&fleet, &["node", "list", "--watch", "-o", "json"]);
    nodes.expect(r#""node": "db1","#).await;
    fleet.connect("db1", applying()).await;
    nodes.expect(r#": "applying","#).await;
    nodes.interrupt().await;
}

#[tokio::test]
async fn watched_nodes_are_redrawn_on_a_terminal() {
    let fleet = Fleet::halfway().await;
    let (mut reader, terminal) = terminal();
    let mut command = fleet.machine.muster(&["node", "list", "--watch"]);
    command.env("TERM", "xterm").stdout(terminal.try_clone().unwrap()).stderr(terminal);
    let mut child = command.spawn().unwrap();
    drop(command);
    let reading = tokio::task::spawn_blocking(move || {
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&text).contains("lb1") {
            let read = std::io::Read::read(&mut reader, &mut piece).unwrap();
            text.extend_from_slice(&piece[..read]);
        }
        (reader, String::from_utf8_lossy(&text).into_owned())
    });
    let (reader, screen) = reading.await.unwrap();
    assert!(screen.contains("NODE"), "{screen}");
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    // The last screen stays.
    let rest = tokio::task::spawn_blocking(move || read_terminal(reader)).await.unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
    assert!(rest.contains("web2"), "{rest}");
}
