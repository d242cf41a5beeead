//! `muster node list`, `muster node show`, `muster env list`

use crate::fixture::{Fleet, Machine};
use crate::snapshot;

#[tokio::test]
async fn the_list_has_the_order_of_the_design() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["node", "list"]).await, @"
    exit 0
    --- stdout
    NODE  STATE      FOR  RUNS  WHY
    db1   validated  5d   v1
    web1  failed     5d   -     Syntax error at '}' (releases/v1/site.pp:12); attempt 2
    web2  silent     5d   -     its agent is not connected
    lb1   pending    5d   -     waiting for role web: 0 of 2 active
    ");
}

#[tokio::test]
async fn the_list_as_data() {
    let fleet = Fleet::start_with(Machine::new(), &[("db1", "db")]).await;
    snapshot!(fleet.muster(&["node", "list", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "items": [
        {
          "node": "db1",
          "role": "db",
          "standing": "silent",
          "since": "TIME",
          "running": null,
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
async fn a_node_that_failed_shows_where_and_the_log() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["node", "show", "web1"]).await, @"
    exit 0
    --- stdout
    node        web1 (role web)
    state       failed for 5d: Syntax error at '}' (releases/v1/site.pp:12); attempt 2
    runs        nothing that it has proved
    should run  v1
    active      no
    agent       connected for 5d
    domain      rack1
    addresses   eth0 127.77.0.1

    RUN    AGO  VERSION  RESULT  TOOK  CAUSES AND REASON
    run-1  3d   v1       failed  3.4s  agent started, version v1 → the content could not be compiled; nothing was applied

    Errors of run run-1
      Syntax error at '}' (releases/v1/site.pp:12)

    The end of the log
      Info: Loading facts
      Error: Syntax error at '}' (line: 12)
    All of it: muster node logs web1 --run run-1
    ");
}

#[tokio::test]
async fn a_node_that_is_fit_shows_its_checks() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["node", "show", "db1"]).await, @"
    exit 0
    --- stdout
    node        db1 (role db)
    state       validated for 5d
    runs        v1
    should run  v1
    active      yes: others may count on it
    agent       connected for 5d
    domain      rack1
    addresses   eth0 127.77.0.1

    RUN    AGO  VERSION  RESULT     TOOK  CAUSES AND REASON
    run-1  3d   v1       validated  3.4s  agent started, version v1

    CHECK  RESULT  TOOK  SAID
    port   passed  3ms   connected

    The end of the log
      Notice: Applied catalog on db1
    All of it: muster node logs db1 --run run-1
    ");
}

#[tokio::test]
async fn a_node_that_never_reported() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["node", "show", "web2"]).await, @"
    exit 0
    --- stdout
    node        web2 (role web)
    state       silent for 5d: its agent is not connected
    runs        nothing that it has proved
    should run  v1
    active      no
    agent       not connected for 5d
    domain      rack1

    It has not reported a run yet.
    ");
}

#[tokio::test]
async fn a_node_as_data() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["node", "show", "lb1", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "node": "lb1",
      "role": "lb",
      "standing": "pending",
      "since": "TIME",
      "running": null,
      "desired": "v1",
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
      },
      "active": false,
      "link": {
        "state": "connected",
        "since": "TIME"
      },
      "record": {
        "role": "lb",
        "failure_domain": "rack1",
        "position": 3
      },
      "machine": null,
      "states": [
        {
          "state": "configured",
          "result": "pending",
          "version": "v1"
        }
      ],
      "activity": {
        "activity": "idle"
      },
      "interfaces": {
        "eth0": "127.77.0.1"
      },
      "incarnation": 1,
      "last": {
        "run": "run-1",
        "phase": "configured",
        "result": "pending",
        "version": "v1",
        "digest": "sha256:1",
        "generation": {
          "epoch": N,
          "number": N
        },
        "causes": [
          {
            "kind": "agent_started"
          },
          {
            "kind": "version",
            "version": "v1"
          }
        ],
        "reason": {
          "kind": "waiting",
          "needs": [
            {
              "kind": "role",
              "role": "web",
              "want": 2,
              "have": 0
            }
          ]
        },
        "attempt": 0,
        "started": "TIME",
        "ended": "TIME",
        "counts": {
          "total": 0,
          "changed": 0,
          "failed": 0,
          "skipped": 0
        },
        "log": "DIGEST"
      },
      "history": [
        {
          "run": "run-1",
          "version": "v1",
          "phase": "configured",
          "result": "pending",
          "causes": [
            {
              "kind": "agent_started"
            },
            {
              "kind": "version",
              "version": "v1"
            }
          ],
          "started": "TIME",
          "ended": "TIME",
          "reason": "waiting for role web: 0 of 2 active",
          "logs": [
            "DIGEST"
          ]
        }
      ],
      "lookups": [],
      "log": "Notice: Applied catalog on lb1",
      "revision": N
    }
    "#);
}

#[tokio::test]
async fn a_node_by_its_host_name() {
    let fleet = Fleet::start_with(Machine::new(), &[("db1_blue", "db")]).await;
    let text = fleet.muster(&["node", "show", "db1-blue"]).await;
    assert!(text.starts_with("exit 0\n--- stdout\nnode        db1_blue (role db)\n"), "{text}");
}

#[tokio::test]
async fn a_node_that_is_not_there() {
    let fleet = Fleet::start().await;
    snapshot!(fleet.muster(&["node", "show", "db7"]).await, @"
    exit 1
    --- stderr
    error: db7 is not in the design of quickstart
    hint: add it to the environment file; `muster node list` shows the nodes that are there
    ");
}

#[tokio::test]
async fn environments() {
    let fleet = Fleet::start().await;
    fleet.register("staging", &[("db1", "db")]).await;
    snapshot!(fleet.muster(&["env", "list"]).await, @"
    exit 0
    --- stdout
    ENVIRONMENT  NODES  VERSION
    quickstart   4      v1
    staging      1      v1
    ");
    snapshot!(fleet.muster(&["env", "list", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
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
