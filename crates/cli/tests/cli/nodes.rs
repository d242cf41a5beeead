//! Tests of `muster node list`, `muster node show`, `muster env list`, `muster failures`, and of filters.

use muster_core::lookup::services::Service;
use muster_core::names::{HostName, ServiceName};
use muster_core::node::status::Activity;
use muster_core::report::{Cause, CheckResult, Outcome, Report, ResourceChange, RunResult, Verdict};
use muster_testkit::records::node_records;

use crate::fixture::{Fleet, Machine, PASSED, QUICKSTART};
use crate::snapshot;

#[tokio::test]
async fn nodes_are_listed_in_design_order() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["node", "list"]).await, @"
    exit 0
    --- stdout
    NODE  STATE        FOR  VERSION  WHY
    db1   validated    5d   v1
    web1  failed       5d   -        Syntax error at '}' (releases/v1/site.pp:12); attempt 2
    web2  unreachable  5d   -        its agent is not connected
    lb1   pending      5d   -        waiting for role web: 0 of 2 active
    ");
}

#[tokio::test]
async fn validation_without_checks_says_so() {
    let mut fleet = Fleet::validated().await;
    let report = Report { checks: Vec::new(), ..fleet.report("lb1", 2, PASSED) };
    fleet.send(&report).await;
    fleet.connect("lb1", Activity::Idle).await;
    snapshot!(fleet.muster(&["node", "list", "role=lb,web"]).await, @"
    exit 0
    --- stdout
    NODE  STATE                 FOR  VERSION  WHY
    web1  validated             5d   v1
    web2  validated             5d   v1
    lb1   validated (0 checks)  5d   v1
    ");
    snapshot!(fleet.muster(&["status"]).await, @"
    exit 0
    --- stdout
    quickstart: all 4 nodes validated at v1 (1 of them with 0 checks)
    ");
    snapshot!(fleet.muster(&["runs", "--node", "lb1", "--limit", "1"]).await, @"
    exit 0
    --- stdout
    AGO  NODE  RUN    VERSION  RESULT                TOOK  CAUSES AND REASON
    3d   lb1   run-2  v1       validated (0 checks)  3.4s  agent started, version v1
    ");
    let shown = fleet.muster(&["node", "show", "lb1"]).await;
    assert!(shown.contains("\nstate       validated (0 checks) for 5d\n"), "{shown}");
}

#[tokio::test]
async fn nodes_are_listed_as_json() {
    let fleet = Fleet::start_with(Machine::new(), &[("db1", "db")]).await;
    snapshot!(fleet.muster(&["node", "list", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "items": [
        {
          "node": "db1",
          "role": "db",
          "host": "db1",
          "state": "silent",
          "since": "TIME",
          "version": null,
          "desired": "v1",
          "why": {
            "why": "silent"
          },
          "active": false,
          "link": {
            "state": "silent",
            "since": "TIME"
          }
        }
      ],
      "revision": N
    }
    "#);
}

#[tokio::test]
async fn failed_node_shows_error_and_log() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["node", "show", "web1"]).await, @"
    exit 0
    --- stdout
    node        web1 (role web)
    state       failed for 5d: Syntax error at '}' (releases/v1/site.pp:12); attempt 2
    version     no validated version
    desired     v1
    in service  no
    agent       connected for 5d
    domain      rack1
    addresses   eth0 127.77.0.1

    RUN    AGO  VERSION  RESULT  TOOK  CAUSES AND REASON
    run-1  3d   v1       failed  3.4s  agent started, version v1 → the content could not be compiled; nothing was applied

    Errors of run run-1
      Syntax error at '}' (releases/v1/site.pp:12)

    End of the log
      Info: Loading facts
      Error: Syntax error at '}' (line: 12)
    Full log: muster node logs web1 --run run-1
    ");
}

#[tokio::test]
async fn validated_node_shows_its_checks() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["node", "show", "db1"]).await, @"
    exit 0
    --- stdout
    node        db1 (role db)
    state       validated for 5d
    version     v1
    desired     v1
    in service  yes
    agent       connected for 5d
    domain      rack1
    addresses   eth0 127.77.0.1
    drift       unknown: its release has no timed runs

    RUN    AGO  VERSION  RESULT     TOOK  CAUSES AND REASON
    run-1  3d   v1       validated  3.4s  agent started, version v1

    CHECK  RESULT  TOOK  MESSAGE
    port   passed  3ms   connected

    End of the log
      Notice: Applied catalog on db1
    Full log: muster node logs db1 --run run-1
    ");
}

#[tokio::test]
async fn drift_and_services_of_a_node_are_shown() {
    let fleet = Fleet::validated().await;
    let service = Service { address: "127.77.0.1".into(), port: 8080, tags: vec!["blue".into()] };
    let services = [(ServiceName::new("http").unwrap(), service)].into();
    fleet.send(&Report { services, ..fleet.report("web1", 2, PASSED) }).await;
    let mut preview = fleet.report("web1", 3, Outcome::Previewed(RunResult::Changed));
    preview.causes = vec![Cause::Schedule];
    preview.checks = Vec::new();
    preview.changes = vec![ResourceChange {
        resource: "File[/etc/motd]".into(),
        property: Some("content".into()),
        old: "{md5}1".into(),
        new: "{md5}2".into(),
        noop: true,
        ..ResourceChange::default()
    }];
    preview.log = "notice: /Stage[main]/Main/File[/etc/motd]/content (site.pp:1)\n  -hacked\n  +welcome\n".into();
    fleet.send(&preview).await;
    snapshot!(fleet.muster(&["node", "show", "web1"]).await);
    let json = fleet.muster(&["node", "show", "web1", "-o", "json"]).await;
    for text in ["\"services\": [", "\"passing_since\": ", "\"drift\": \"differs\"", "\"diff\": \"-hacked"] {
        assert!(json.contains(text), "{text}: {json}");
    }
}

#[tokio::test]
async fn failed_check_is_shown_once() {
    let fleet = Fleet::validated().await;
    let mut report = fleet.report("web1", 2, Outcome::Validated(Verdict::Failed));
    report.checks = vec![CheckResult {
        name: "web-answers".into(),
        verdict: Verdict::Failed,
        message: "answered 500, expected 200".into(),
        millis: 3,
    }];
    report.log = "Notice: Applied catalog on web1".into();
    fleet.send(&report).await;
    let shown = fleet.muster(&["node", "show", "web1"]).await;
    let (_, details) = shown.split_once("RUN ").unwrap();
    assert_eq!(details.matches("answered 500, expected 200").count(), 1, "{shown}");
    assert!(details.contains("web-answers  failed"), "{shown}");
}

#[tokio::test]
async fn node_without_reports_is_shown() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["node", "show", "web2"]).await, @"
    exit 0
    --- stdout
    node        web2 (role web)
    state       unreachable for 5d: its agent is not connected
    version     no validated version
    desired     v1
    in service  no
    agent       not connected for 5d
    domain      rack1

    No run was reported yet.
    ");
}

#[tokio::test]
async fn node_is_shown_as_json() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["node", "show", "lb1", "-o", "json"]).await);
}

#[tokio::test]
async fn node_is_found_by_host_name() {
    let fleet = Fleet::start_with(Machine::new(), &[("db1_blue", "db")]).await;
    let text = fleet.muster(&["node", "show", "db1-blue"]).await;
    assert!(text.starts_with("exit 0\n--- stdout\nnode        db1_blue (role db)\n"), "{text}");
}

#[tokio::test]
async fn host_names_of_the_design_are_shown_and_accepted() {
    let mut fleet = Fleet::validated().await;
    let mut design = node_records(&QUICKSTART, "rack1");
    design.get_mut("web1").unwrap().host_name = Some(HostName::new("www.example.org").unwrap());
    muster_server::follow_design(&fleet.app, &fleet.env, &design).await.unwrap();
    snapshot!(fleet.muster(&["node", "list", "role=db,web"]).await);
    for args in [
        &["node", "show", "www.example.org"][..],
        &["node", "list", "name=www.*"],
        &["verify-hosts", "v1", "www.example.org", "web2"],
        &["node", "run", "www.example.org", "--no-wait"],
        &["lookup", "www.example.org", "muster::active_roles::db"],
        &["data", "set", "motd", "welcome", "--host", "www.example.org"],
        &["pause", "--host", "www.example.org", "--reason", "disk"],
    ] {
        let text = fleet.muster(args).await;
        assert!(text.starts_with("exit 0\n"), "{args:?}: {text}");
    }
    let shown = fleet.muster(&["node", "show", "web1"]).await;
    assert!(shown.contains("\nhost        www.example.org\n"), "{shown}");
    assert!(shown.contains("node web1 is paused"), "{shown}");
    snapshot!(fleet.muster(&["data", "get", "motd", "--host", "web2.example.org"]).await, @"
    exit 1
    --- stderr
    error: web2.example.org is not in the design of quickstart
    hint: add it to the environment file; `muster node list` shows the nodes that are there
    ");

    // The names of the agent's own configuration.
    let mut report = fleet.report("web1", 2, PASSED);
    report.facts.host = Some(HostName::new("web01.example.org").unwrap());
    report.facts.certname = Some(HostName::new("web01").unwrap());
    fleet.send(&report).await;
    fleet.connect("web1", Activity::Idle).await;
    let shown = fleet.muster(&["node", "show", "web1"]).await;
    let host = "\nhost        web01.example.org (in its agent.toml; the design has www.example.org), for Puppet web01 (in its agent.toml)\n";
    assert!(shown.contains(host), "{shown}");
}

#[tokio::test]
async fn unknown_node_has_a_hint() {
    let fleet = Fleet::start().await;
    snapshot!(fleet.muster(&["node", "show", "db7"]).await, @"
    exit 1
    --- stderr
    error: db7 is not in the design of quickstart
    hint: add it to the environment file; `muster node list` shows the nodes that are there
    ");
}

#[tokio::test]
async fn environments_are_listed() {
    let fleet = Fleet::start().await;
    fleet.register("staging", &[("db1", "db")]).await;
    snapshot!(fleet.muster(&["env", "list"]).await, @"
    exit 0
    --- stdout
    ENV         NODES  CURRENT VERSION
    quickstart  4      v1
    staging     1      v1
    ");
    snapshot!(fleet.muster(&["env", "list", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "items": [
        {
          "env": "quickstart",
          "nodes": 4,
          "current_version": "v1",
          "design": {
            "head": null,
            "applied": null
          },
          "destroying": false
        },
        {
          "env": "staging",
          "nodes": 1,
          "current_version": "v1",
          "design": {
            "head": null,
            "applied": null
          },
          "destroying": false
        }
      ],
      "revision": N
    }
    "#);
}

#[tokio::test]
async fn filter_terms_must_all_match() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["node", "list", "role=web,lb", "state!=unreachable"]).await, @"
    exit 0
    --- stdout
    NODE  STATE    FOR  VERSION  WHY
    web1  failed   5d   -        Syntax error at '}' (releases/v1/site.pp:12); attempt 2
    lb1   pending  5d   -        waiting for role web: 0 of 2 active
    ");
    snapshot!(fleet.muster(&["node", "list", "reason=not_compiled liveness=connected"]).await, @"
    exit 0
    --- stdout
    NODE  STATE   FOR  VERSION  WHY
    web1  failed  5d   -        Syntax error at '}' (releases/v1/site.pp:12); attempt 2
    ");
    snapshot!(fleet.muster(&["node", "list", "!reason", "name=d*", "version=v1", "active=true"]).await, @"
    exit 0
    --- stdout
    NODE  STATE      FOR  VERSION  WHY
    db1   validated  5d   v1
    ");
    snapshot!(fleet.muster(&["node", "list", "label.rack=r1"]).await, @"
    exit 0
    --- stderr
    note: quickstart has no matching nodes
    ");
}

#[tokio::test]
async fn status_counts_the_matching_nodes() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["status", "role=web"]).await, @"
    exit 0
    --- stdout
    quickstart, role=web: 2 nodes should run v1
      state    1 failed, 1 unreachable
      running  no validated version on 2 nodes

    NODE  STATE        FOR  VERSION  WHY
    web1  failed       5d   -        Syntax error at '}' (releases/v1/site.pp:12); attempt 2
    web2  unreachable  5d   -        its agent is not connected
    ");
    snapshot!(fleet.muster(&["status", "role=db"]).await, @"
    exit 0
    --- stdout
    quickstart, role=db: 1 node validated at v1
    ");
    snapshot!(fleet.muster(&["status", "name=none*"]).await, @"
    exit 0
    --- stdout
    quickstart, name=none*: no matching nodes
    ");
}

#[tokio::test]
async fn invalid_filter_has_a_hint() {
    let fleet = Fleet::start().await;
    snapshot!(fleet.muster(&["node", "list", "role=web", "stat=pending"]).await, @r#"
    exit 64
    --- stderr
    error: invalid filter at character 10, "stat=pending": unknown key "stat"
    hint: did you mean state? known keys: name, role, state, reason, version, desired, liveness, active, policy, phase, failure_domain, profile, label.NAME
    "#);
    snapshot!(fleet.muster(&["status", "label.owner=\"the team"]).await, @r#"
    exit 64
    --- stderr
    error: invalid filter at character 13, "label.owner=\"the team": the quote " is not closed
    hint: close it with "; the shell removes quotes on a command line, so quote the whole term too
    "#);
    snapshot!(fleet.muster(&["node", "list", "role>web"]).await, @r#"
    exit 64
    --- stderr
    error: invalid filter at character 5, "role>web": unexpected '>'
    hint: values are compared with = and !=, and * stands for any text: name=web*
    "#);
    let unknown = fleet.muster(&["node", "list", "role=wbe"]).await;
    assert!(unknown.starts_with("exit 64\n") && unknown.contains("this value of role never matches"), "{unknown}");
    assert!(unknown.contains("did you mean role=web?"), "{unknown}");
    for key in ["version", "desired"] {
        let unknown = fleet.muster(&["node", "list", &format!("{key}=v9")]).await;
        assert!(unknown.starts_with("exit 64\n") && unknown.contains("never matches"), "{unknown}");
        assert!(unknown.contains(&format!("values of {key}: v1, v2\n")), "{unknown}");
    }
}

#[tokio::test]
async fn failures_is_empty_when_no_node_failed() {
    let fleet = Fleet::validated().await;
    snapshot!(fleet.muster(&["failures"]).await, @"
    exit 0
    --- stderr
    note: no node of quickstart has failed
    ");
    snapshot!(fleet.muster(&["failures", "-q"]).await, @"exit 0");
    snapshot!(fleet.muster(&["failures", "-q", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "items": [],
      "groups": [],
      "revision": N
    }
    "#);
}

#[tokio::test]
async fn failures_lists_failed_nodes() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["failures"]).await, @"
    exit 1
    --- stdout
    1 node: Syntax error at '}' (releases/v1/site.pp:12)
      web1
      failed for 5d, attempt 2
    ");
    snapshot!(fleet.muster(&["failures", "-o", "json"]).await, @r#"
    exit 1
    --- stdout
    {
      "schema": 1,
      "items": [
        {
          "node": "web1",
          "role": "web",
          "host": "web1",
          "state": "failed",
          "since": "TIME",
          "version": null,
          "desired": "v1",
          "why": {
            "why": "failed",
            "reason": {
              "kind": "not_compiled"
            },
            "errors": [
              {
                "file": "releases/v1/site.pp",
                "line": 12,
                "message": "Syntax error at '}'"
              }
            ],
            "attempt": 2,
            "retry": null
          },
          "active": false,
          "link": {
            "state": "connected",
            "since": "TIME"
          }
        }
      ],
      "groups": [
        {
          "error": {
            "file": "releases/v1/site.pp",
            "line": 12,
            "message": "Syntax error at '}'"
          },
          "nodes": [
            {
              "node": "web1",
              "since": "TIME",
              "attempt": 2
            }
          ],
          "run": "run-1",
          "errors": [
            {
              "file": "releases/v1/site.pp",
              "line": 12,
              "message": "Syntax error at '}'"
            }
          ]
        }
      ],
      "revision": N
    }
    "#);
    assert_eq!(fleet.muster(&["failures"]).await, fleet.muster(&["runs", "--failed"]).await);
}

#[tokio::test]
async fn cordoned_node_is_shown_in_lists() {
    let fleet = Fleet::validated().await;
    snapshot!(fleet.muster(&["node", "cordon", "web1", "--reason", "disk swap"]).await, @"
    exit 0
    --- stdout
    web1 is cordoned (revision N)
    ");
    snapshot!(fleet.muster(&["node", "cordon", "web1", "web2", "--reason", "rack move"]).await, @"
    exit 0
    --- stdout
    web1 is already cordoned by jo@desk: disk swap (5d ago)
    web2 is cordoned (revision N)
    ");
    snapshot!(fleet.muster(&["node", "list"]).await, @"
    exit 0
    --- stdout
    NODE  STATE      FOR  VERSION  POLICY    WHY
    db1   validated  5d   v1       -
    web1  validated  5d   v1       cordoned
    web2  validated  5d   v1       cordoned
    lb1   validated  5d   v1       -
    ");
    let shown = fleet.muster(&["node", "show", "web1"]).await;
    assert!(shown.contains("\npolicy      cordoned by "), "{shown}");
    snapshot!(fleet.muster(&["status"]).await, @"
    exit 0
    --- stdout
    quickstart: all 4 nodes validated at v1

    web1 is cordoned by jo@desk: disk swap
    web2 is cordoned by jo@desk: rack move
    ");
    snapshot!(fleet.muster(&["node", "uncordon", "web1", "db1"]).await, @"
    exit 0
    --- stdout
    web1 is no longer cordoned by jo@desk: disk swap (revision N)
    db1 was not cordoned
    ");
    snapshot!(fleet.muster(&["node", "cordon", "wbe1", "--reason", "x"]).await, @"
    exit 1
    --- stderr
    error: wbe1 is not in the design of quickstart
    hint: did you mean web1? `muster node list` shows the nodes that are there
    ");
    snapshot!(fleet.muster(&["node", "cordon", "web1"]).await, @"
    exit 64
    --- stderr
    error: the following required arguments were not provided:
      --reason <TEXT>

    Usage: muster node cordon --reason <TEXT> <NODE>...

    For more information, try '--help'.
    ");
    snapshot!(fleet.muster(&["node", "list", "policy=cordoned", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "items": [
        {
          "node": "web2",
          "role": "web",
          "host": "web2",
          "state": "validated",
          "since": "TIME",
          "version": "v1",
          "desired": "v1",
          "why": null,
          "active": true,
          "link": {
            "state": "connected",
            "since": "TIME"
          },
          "policy": {
            "policy": "cordoned",
            "by": "jo@desk",
            "reason": "rack move",
            "since": "TIME",
            "keeps": {
              "version": "v1",
              "generation": {
                "epoch": N,
                "number": N
              },
              "allow_older": false
            }
          },
          "checks": 1
        }
      ],
      "revision": N
    }
    "#);
}

#[tokio::test]
async fn retired_node_leaves_and_can_come_back() {
    let fleet = Fleet::validated().await;
    snapshot!(fleet.muster(&["node", "retire", "web2", "--dry-run"]).await, @"
    exit 0
    --- stdout
    web2 would leave role web; it has no machine; its keys would be removed
    ");
    snapshot!(fleet.muster(&["node", "retire", "web2", "lb1"]).await, @"
    exit 64
    --- stderr
    error: 2 nodes (web2, lb1) will be drained and removed from quickstart. Continue? There is no terminal to ask: nothing was changed
    hint: confirm with --yes
    ");
    snapshot!(fleet.muster(&["node", "retire", "web2", "--yes", "--reason", "end of lease"]).await, @"
    exit 0
    --- stdout
    web2 is retired (revision N)
    --- stderr
    note: a machine of a driver is drained first, as `muster node show NODE` shows; one that joined with a token has left
    ");
    snapshot!(fleet.muster(&["node", "retire", "web3", "--yes"]).await, @"
    exit 1
    --- stderr
    error: web3 is not in the design of quickstart
    hint: add it to the environment file; `muster node list` shows the nodes that are there
    ");
    snapshot!(fleet.muster(&["node", "uncordon", "web2"]).await, @"
    exit 1
    --- stderr
    error: web2 is retired by jo@desk: end of lease
    hint: `muster node unretire web2` lets the design bring it back
    ");
    snapshot!(fleet.muster(&["status"]).await, @"
    exit 0
    --- stdout
    quickstart: all 3 nodes validated at v1

    web2 is retired by jo@desk: end of lease
    ");
    snapshot!(fleet.muster(&["node", "unretire", "web2", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "items": [
        {
          "node": "web2",
          "policy": null,
          "before": {
            "policy": "retired",
            "by": "jo@desk",
            "reason": "end of lease",
            "since": "TIME"
          },
          "changed": true,
          "revision": N
        }
      ]
    }
    "#);
}
