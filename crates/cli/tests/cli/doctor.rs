//! Tests of `muster doctor`.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use muster_core::names::EnvName;
use muster_core::replica::ControllerName;
use muster_etcd_rig::{Cluster, ClusterOptions};

use crate::fixture::{Fleet, Machine, WALL_CLOCK};

/// Replaces values that differ between machines.
const FILTERS: [(&str, &str); 10] = [
    (r"http://127\.0\.0\.1:\d+ on \S+, process \d+", "URL on HOST, process N"),
    (r"\b[a-z0-9-]+-[0-9a-f]{6}\b", "REPLICA"),
    (r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME"),
    (r"\d+(\.\d+)? ms", "N ms"),
    (r"\d+\.\d+ MiB", "N MiB"),
    (r"revision \d+", "revision N"),
    (r"\d+ revisions can be read, from \d+ to \d+", "N revisions can be read"),
    (r"within \d+\.\d+ s", "within N s"),
    (r"\d{6}\.\d+ s behind", "N s behind"),
    (r"(embedded:)?/[^\s:]*/\.tmp\w+/work/\.muster/store", "STORE"),
];

/// Joins the cells of a table: column widths depend on the path of the temporary directory.
fn cells(text: &str) -> String {
    let cells =
        |line: &str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(" | ");
    text.lines().map(cells).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn healthy_server_passes_all_checks() {
    let fleet = Fleet::validated().await;
    fleet.clock.store(WALL_CLOCK, Ordering::SeqCst);
    // A new server acquires its controllers a moment later.
    let is_held = |fleets: &BTreeMap<EnvName, muster_core::fleet::Fleet>| {
        let both = [ControllerName::Leaders, ControllerName::Liveness];
        fleets.get(&fleet.env).is_some_and(|fleet| both.iter().all(|name| fleet.controllers().contains_key(name)))
    };
    fleet.app.view.subscribe_servers().wait_for(|_| is_held(&fleet.app.view.fleets())).await.unwrap();
    let text = fleet.muster(&["doctor"]).await;
    insta::with_settings!({ filters => FILTERS.to_vec() }, {
        insta::assert_snapshot!(cells(&text), @"
        exit 0
        --- stdout
        CHECK | VERDICT | SUBJECT | DETAIL
        store | ok | STORE answers; exclusive to this server, at revision N
        latency | ok | a read takes N ms
        store | ok | all checksums of its file match
        member | ok | STORE | redb, Muster 0.1.0, answers in N ms
        space | ok | STORE | N MiB
        history | ok | N revisions can be read
        version | ok | the store runs redb, Muster 0.1.0
        replica | ok | REPLICA | this one, URL on HOST, process N, since TIME: 4 agents
        version | ok | the servers run Muster 0.1.0
        blobs | ok | reports and logs can be kept
        controller | ok | quickstart leaders | held by REPLICA since TIME
        controller | ok | quickstart liveness | held by REPLICA since TIME
        controller | ok | quickstart rollout | held by REPLICA since TIME
        environment | ok | quickstart | 4 nodes; all keys can be read
        node | ok | quickstart | all agents are connected
        clock | ok | this machine → server | within N s

        healthy
        ");
    });
}

#[tokio::test]
async fn silent_node_is_named_and_fails() {
    let mut fleet = Fleet::validated().await;
    fleet.clock.store(WALL_CLOCK, Ordering::SeqCst);
    fleet.disconnect("web2").await;
    let text = fleet.muster(&["doctor"]).await;
    assert!(text.starts_with("exit 1\n"), "{text}");
    insta::with_settings!({ filters => FILTERS.to_vec() }, {
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("node")).collect();
        insta::assert_snapshot!(cells(&lines.join("\n")), @"
        node | failed | quickstart | 1 of 4 is unreachable: web2 since TIME
        node quickstart: check that the machine and its agent run, and that the agent can reach a server: `muster node show NODE` shows the last report
        ");
    });
}

#[tokio::test]
async fn clock_skew_of_days_fails() {
    let fleet = Fleet::start().await;
    let text = fleet.muster(&["doctor"]).await;
    assert!(text.starts_with("exit 1\n"), "{text}");
    insta::with_settings!({ filters => FILTERS.to_vec() }, {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("clock")).collect();
        insta::assert_snapshot!(cells(&lines.join("\n")), @"
        clock | failed | this machine → server | N s behind
        clock this machine → server: let a time service (chrony, systemd-timesyncd) set the clocks of both machines
        ");
    });
}

#[tokio::test]
async fn store_is_checked_without_a_server() {
    let fleet = Fleet::start().await;
    let store = format!("embedded:{}", fleet.machine.path("work/.muster/store").display());
    let text = fleet.muster(&["doctor", "--store", &store]).await;
    insta::with_settings!({ filters => FILTERS.to_vec() }, {
        insta::assert_snapshot!(text, @"
        exit 2
        --- stderr
        error: the store STORE is in use by another process: stop that process, or choose another store
        hint: if a server uses this store, omit --store: the request then goes to the server
        ");
    });
    let machine = fleet.stop().await;
    let text = machine.run(&["doctor", "--store", &store]).await;
    assert!(text.starts_with("exit 0\n") && text.ends_with("healthy\n"), "{text}");
    let text = machine.run(&["doctor", "--store", "embedded:nothing"]).await;
    assert_eq!(text, "exit 2\n--- stderr\nerror: there is no store at nothing\n");
    assert!(!machine.path("elsewhere/nothing").exists());
}

#[tokio::test]
async fn without_a_server_the_result_is_unknown() {
    let text = Machine::new().run(&["doctor"]).await;
    assert!(text.starts_with("exit 2\n--- stderr\nerror: no server was found"), "{text}");
}

#[tokio::test]
async fn dead_etcd_member_is_named() {
    let cluster = Cluster::start(ClusterOptions::members(3)).await;
    let machine = Machine::new();
    let text = machine.run(&["doctor", "--store", &cluster.spec()]).await;
    assert!(text.starts_with("exit 0\n"), "{text}");
    let dead = &cluster.members()[1];
    dead.kill();
    let text = machine.run(&["doctor", "--store", &cluster.spec()]).await;
    assert!(text.starts_with("exit 1\n"), "{text}");
    let named = text.lines().find(|line| line.starts_with("member") && line.contains("failed")).unwrap_or_default();
    assert!(named.contains(dead.name()) && named.contains(dead.client_url()), "{text}");
    assert!(text.contains("2 of 3 answer, which is just enough") && text.contains("1 failed"), "{text}");
    let text = machine.run(&["doctor", "--store", &cluster.spec(), "-o", "json"]).await;
    assert!(text.starts_with("exit 1\n") && text.contains("\"verdict\": \"failed\""), "{text}");
}
