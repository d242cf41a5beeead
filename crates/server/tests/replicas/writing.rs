//! Concurrent writes of two replicas to the same keys, and commits whose response is lost.

use std::sync::atomic::Ordering;

use jiff::Timestamp;
use muster_core::lookup::Lookups;
use muster_core::names::RunId;
use muster_core::report::{Cause, Counts, Facts, Interfaces, Outcome, Report, Verdict};
use muster_server::register;
use muster_wire::sync::ReportResult;

use crate::cluster::{Cluster, Replica, env, node, registration, version};

/// The report of a node whose validation passed at v1.
pub(crate) fn passed(replica: &Replica, name: &str, seq: u64) -> Report {
    let now = Timestamp::from_second(1_000_000).unwrap();
    Report {
        node: node(name),
        incarnation: 1,
        seq,
        run: RunId::new(format!("r{seq}")).unwrap(),
        outcome: Outcome::Validated(Verdict::Passed),
        version: version("v1"),
        digest: "sha256:1".into(),
        generation: replica.fleet().desired().unwrap().generation,
        causes: vec![Cause::AgentStarted],
        reason: None,
        attempt: 0,
        started: now,
        ended: now,
        counts: Counts::default(),
        errors: Vec::new(),
        changes: Vec::new(),
        first_failure: None,
        checks: Vec::new(),
        hooks: Vec::new(),
        published: None,
        facts: Facts {
            interfaces: Interfaces::from([("eth0".into(), format!("addr-of-{name}"))]),
            boot: None,
            agent: "test".into(),
        },
        lookups: Lookups::new(),
        log: format!("log of {name} {seq}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_that_register_the_same_environment_agree() {
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.replica().await, cluster.replica().await);
    let nodes: Vec<String> = (1..=150).map(|number| format!("web{number}")).collect();
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|name| (name.as_str(), "web")).collect();
    let registration = registration(&nodes);
    let (one, other) = tokio::join!(register(&a.app, &registration), register(&b.app, &registration));
    one.unwrap();
    other.unwrap();
    let newest = cluster.store.revision().await.unwrap();
    for replica in [&a, &b] {
        replica.app.view.reach(newest).await.unwrap();
        let fleet = replica.fleet();
        assert_eq!((fleet.designed().count(), fleet.epoch()), (150, 7));
        assert_eq!(fleet.current_version().unwrap().0, &version("v1"));
        let serials: Vec<u64> = fleet.releases().values().map(|release| release.serial).collect();
        assert_eq!(serials, [1, 2]);
    }
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_arrives_at_both_replicas_is_applied_once() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    for seq in 1..20 {
        let report = passed(&a, "web1", seq);
        let env = env();
        let (one, other) = tokio::join!(a.client.report(&env, &report), b.client.report(&env, &report));
        let mut taken = [one.unwrap().taken, other.unwrap().taken];
        taken.sort_by_key(|taken| *taken != ReportResult::Applied);
        assert_eq!(taken, [ReportResult::Applied, ReportResult::AlreadyApplied]);
    }
    assert_eq!(a.fleet().get(&node("web1")).unwrap().states.len(), 1);
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_whose_answer_was_lost_is_read_back() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    a.way.loses_next_answer.store(true, Ordering::SeqCst);
    let triggered = a.client.trigger_at_once(&env(), version("v2")).await.unwrap();
    assert!(!a.way.loses_next_answer.load(Ordering::SeqCst), "the answer was lost");
    assert_eq!((triggered.changed, triggered.from, triggered.to), (true, Some(version("v1")), version("v2")));
    let seen = b.client.clone().at_least(triggered.revision).current_version(&env()).await.unwrap();
    assert_eq!(seen.version, Some(version("v2")));
    a.stop().await;
    b.stop().await;
}
