//! Reads and writes at two replicas: a read with a minimum revision never returns an older one, and concurrent writes or commits
//! with a lost response are applied once.

use std::sync::atomic::Ordering;

use futures::future::join_all;
use jiff::Timestamp;
use muster_core::lookup::Lookups;
use muster_core::names::RunId;
use muster_core::report::{Cause, Counts, Facts, Interfaces, Outcome, Report, Verdict};
use muster_server::register;
use muster_wire::operator::VerifyHostsRequest;
use muster_wire::problem::ProblemCode;
use muster_wire::sync::{ReportResult, SyncOpen};

use crate::cluster::{Cluster, Replica, env, node, registration, until, version};

/// No agent is connected in these tests: the last validation counts.
fn question(wait_seconds: u64) -> VerifyHostsRequest {
    VerifyHostsRequest { version: version("v1"), hosts: vec!["web1".into()], wait_seconds, recorded: true }
}

#[tokio::test(flavor = "multi_thread")]
async fn host_connected_to_another_replica_counts() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    a.client.report(&env(), &passed(&a, "web1", 1)).await.unwrap();
    let question = VerifyHostsRequest { recorded: false, ..question(0) };
    assert!(!b.client.verify_hosts(&env(), &question).await.unwrap().verified);
    let hello = SyncOpen { incarnation: Some(1), ..SyncOpen::default() };
    let stream = a.client.sync(&env(), &node("web1"), &hello).await.unwrap();
    let waiting = VerifyHostsRequest { wait_seconds: 60, ..question.clone() };
    assert!(b.client.verify_hosts(&env(), &waiting).await.unwrap().verified);
    drop(stream);
    b.sees("web1 is silent", |fleet| {
        fleet.get(&node("web1")).and_then(|node| node.presence.as_ref()).is_some_and(|(at, _)| at.replica.is_none())
    })
    .await;
    assert!(!b.client.verify_hosts(&env(), &question).await.unwrap().verified);
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn write_at_one_replica_is_readable_at_another() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    b.way.lag(true);
    let triggered = a.client.trigger_at_once(&env(), version("v2")).await.unwrap();
    let reader = b.client.clone().at_least(triggered.revision);
    // Without a minimum revision the response is older. With one, the request waits until the view has reached it.
    assert_eq!(b.client.current_version(&env()).await.unwrap().version, Some(version("v1")));
    let env = env();
    let (demanded, ()) = tokio::join!(reader.current_version(&env), async { b.way.lag(false) });
    let demanded = demanded.unwrap();
    assert_eq!(demanded.version, Some(version("v2")));
    assert!(demanded.revision >= triggered.revision);
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lagging_view_returns_an_error_not_a_verdict() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    let proved = a.client.report(&env(), &passed(&a, "web1", 1)).await.unwrap();
    assert!(b.client.verify_hosts(&env(), &question(0)).await.unwrap().verified);

    // a receives a failed validation. The view of b lags, and b must not verify the node.
    b.way.lag(true);
    let mut failed = passed(&a, "web1", 2);
    failed.outcome = muster_core::report::Outcome::Validated(muster_core::report::Verdict::Failed);
    let failed = a.client.report(&env(), &failed).await.unwrap();
    assert!(failed.revision > proved.revision);
    let error = b.client.verify_hosts(&env(), &question(0)).await.unwrap_err();
    assert_eq!(error.problem().unwrap().code, ProblemCode::CannotTell);
    b.way.lag(false);
    let verdict = b.client.verify_hosts(&env(), &question(0)).await.unwrap();
    assert!(!verdict.verified && verdict.revision >= failed.revision);
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn shared_store_read_begins_after_each_request() {
    let cluster = Cluster::new().await;
    let way = crate::faulty_client::FaultyClient::new(cluster.store.clone());
    let newest = muster_server::LatestRevision::new(way.clone());
    way.slow.send_replace(true);
    let mut early = std::pin::pin!(newest.read());
    assert!(futures::poll!(&mut early).is_pending());
    until("the first read is under way", || {
        let _ = futures::FutureExt::now_or_never(&mut early);
        way.reads() == 1
    })
    .await;

    // A commit happens before the next callers ask. They must not share the read that is already in progress.
    let txn = muster_store::Txn::new().op(muster_store::Op::put("/muster/x", "y"));
    let muster_store::CommitOutcome::Committed { revision } = cluster.store.commit(txn).await.unwrap() else {
        panic!()
    };
    let late = join_all((0..50).map(|_| newest.read()));
    let (early, late, ()) = tokio::join!(early, late, async {
        way.slow.send_replace(false);
    });
    assert!(early.unwrap() < revision);
    assert!(late.into_iter().all(|answer| answer.unwrap() >= revision));
    assert_eq!(way.reads(), 2, "one for the first, and one for all others");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_share_a_store_read() {
    let cluster = Cluster::patient().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    a.client.report(&env(), &passed(&a, "web1", 1)).await.unwrap();
    let before = b.way.reads();
    let (env, question) = (env(), question(0));
    // All requests arrive while the response of the first read is delayed.
    b.way.slow.send_replace(true);
    let asked = b.app.latest_revision.requests();
    let answers = join_all((0..100).map(|_| b.client.verify_hosts(&env, &question)));
    let (answers, ()) = tokio::join!(answers, async {
        until("all have asked", || b.app.latest_revision.requests() == asked + 100).await;
        b.way.slow.send_replace(false);
    });
    assert!(answers.into_iter().all(|answer| answer.unwrap().verified));
    let reads = b.way.reads() - before;
    assert!(reads <= 2, "{reads} reads: one for the first, and one for all that came while it was under way");
    // A waiting request reads at its beginning and at its end. Changes in between cause no reads.
    let before = b.way.reads();
    let waiting = VerifyHostsRequest { version: version("v2"), wait_seconds: 1, ..question };
    let (answer, ()) = tokio::join!(b.client.verify_hosts(&env, &waiting), async {
        for seq in 2..10 {
            a.client.report(&env, &passed(&a, "web1", seq)).await.unwrap();
        }
    });
    assert!(!answer.unwrap().verified);
    assert_eq!(b.way.reads() - before, 2);
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_store_shows_the_last_state_without_a_verdict() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    a.client.report(&env(), &passed(&a, "web1", 1)).await.unwrap();
    b.sees("web1 runs v1", |fleet| !fleet.running().is_empty()).await;
    b.way.cut(true);
    until("b knows it", || b.app.replica.membership.store_unreachable_since().is_some()).await;
    let status = b.client.status(&env()).await.unwrap();
    assert_eq!(status.store_unreachable_since.unwrap().as_second(), cluster.time.load(Ordering::SeqCst));
    assert_eq!((status.nodes, status.running.get(&version("v1"))), (1, Some(&1)));
    let error = b.client.verify_hosts(&env(), &question(0)).await.unwrap_err();
    assert_eq!(error.problem().unwrap().code, ProblemCode::StoreUnavailable);
    b.way.cut(false);
    until("it is back", || b.app.replica.membership.store_unreachable_since().is_none()).await;
    assert!(b.client.verify_hosts(&env(), &question(0)).await.unwrap().verified);
    a.stop().await;
    b.stop().await;
}

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
        services: Default::default(),
        published: None,
        facts: Facts {
            interfaces: Interfaces::from([("eth0".into(), format!("addr-of-{name}"))]),
            boot: None,
            agent: "test".into(),
            ..Facts::default()
        },
        lookups: Lookups::new(),
        log: format!("log of {name} {seq}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_registrations_of_an_environment_agree() {
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
async fn report_sent_to_two_replicas_is_applied_once() {
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
async fn version_change_with_a_lost_response_is_read_back() {
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
