//! Reports: ordered, applied once, committed in groups, and still there after a restart.

use futures::future::join_all;
use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_core::node::liveness::LivenessTimeouts;
use muster_core::node::status::NodeState;
use muster_core::report::record::RunHistory;
use muster_core::report::{Outcome as RunOutcome, RunResult};
use muster_core::txn::{Op, Revision, Txn};
use muster_store::CommitOutcome;
use muster_wire::problem::ProblemCode;
use muster_wire::sync::ReportResult;

use crate::fixture::{CHANGED, Fixture, PASSED, node, version};

#[tokio::test(flavor = "multi_thread")]
async fn two_reports_make_a_run_and_move_the_node() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let _stream = fixture.open("db1", &Default::default()).await;
    let mut configured = fixture.report("db1", 1, 1, CHANGED);
    configured.run = muster_core::names::RunId::new("run-a").unwrap();
    fixture.send(&configured).await;
    let mut validated = fixture.report("db1", 1, 2, PASSED);
    validated.run = configured.run.clone();
    let taken = fixture.send(&validated).await;

    let client = fixture.client.clone().at_least(taken.revision);
    let shown = client.node(&fixture.env, &node("db1")).await.unwrap();
    assert_eq!(shown.row.state, NodeState::Validated);
    assert_eq!(shown.row.running, Some(version("v1")));
    assert_eq!(shown.history.len(), 1, "both reports make one run: {:?}", shown.history);
    assert_eq!(shown.log.as_deref(), Some("log of db1 2"));
    let run = client.run(&fixture.env, &node("db1"), &configured.run).await.unwrap();
    assert_eq!((run.reports, run.missing), (vec![configured, validated], 0));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_and_outdated_reports_change_nothing() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    fixture.send(&fixture.report("db1", 2, 5, PASSED)).await;
    let before = fixture.state().await;

    let again = fixture.send(&fixture.report("db1", 2, 5, PASSED)).await;
    assert_eq!(again.taken, ReportResult::AlreadyApplied);
    let failed = RunOutcome::Configured(RunResult::Failed);
    let older = fixture.send(&fixture.report("db1", 2, 4, failed)).await;
    assert_eq!(older.taken, ReportResult::Outdated);
    let zombie = fixture.send(&fixture.report("db1", 1, 99, failed)).await;
    assert_eq!(zombie.taken, ReportResult::Outdated);

    assert_eq!(fixture.state().await, before, "nothing was written");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_of_a_node_outside_the_design_is_refused() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let before = fixture.state().await;
    let error = fixture.client.report(&fixture.env, &fixture.report("db2", 1, 1, PASSED)).await.unwrap_err();
    let problem = error.problem().unwrap();
    assert_eq!(problem.code, ProblemCode::UnknownNode);
    assert_eq!(problem.detail, "db2 is not in the design of test");
    assert!(problem.hint.is_some() && problem.request_id.is_some(), "{problem:?}");
    assert_eq!(fixture.state().await, before);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_reports_are_committed_in_groups_once_each() {
    let names: Vec<String> = (1..=80).map(|number| format!("web{number}")).collect();
    let nodes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "web")).collect();
    let fixture = Fixture::start(&nodes).await;
    let before = fixture.store.stats();
    let reports = 5;
    let agent = async |name: &str| {
        for seq in 1..=reports {
            let outcome = if seq == reports { PASSED } else { CHANGED };
            assert_eq!(fixture.send(&fixture.report(name, 1, seq, outcome)).await.taken, ReportResult::Applied);
        }
    };
    join_all(names.iter().map(|name| agent(name))).await;
    let after = fixture.store.stats();
    let transactions = after.transactions - before.transactions;
    assert!(transactions < 80 * reports, "{transactions} transactions for {} reports", 80 * reports);
    fixture.app.view.reach(fixture.store.revision().await.unwrap()).await.unwrap();
    let running = fixture.app.view.fleets()[&fixture.env].running()[&version("v1")].len();
    assert_eq!(running, 80);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_report_survives_a_restart() {
    let nodes = [("db1", "db"), ("web1", "web")];
    let fixture = Fixture::start(&nodes).await;
    fixture.validate("db1", 1).await;
    let shown = fixture.app.view.fleets()[&fixture.env].clone();
    fixture.app.view.reach(fixture.store.revision().await.unwrap()).await.unwrap();
    let dir = fixture.stop().await;

    let fixture = Fixture::start_in(dir, &nodes, LivenessTimeouts::default()).await;
    let fleet = fixture.app.view.fleets()[&fixture.env].clone();
    assert_eq!(fleet.running()[&version("v1")].len(), 1);
    assert_eq!(fleet.epoch(), shown.epoch());
    assert_eq!(fixture.send(&fixture.report("db1", 1, 1, PASSED)).await.taken, ReportResult::AlreadyApplied);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_are_removed_with_the_history_that_refers_to_them() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    for seq in 1..=30 {
        fixture.send(&fixture.report("db1", 1, seq, CHANGED)).await;
    }
    only_so_many_are_kept(&fixture, 20).await;
    fixture.stop().await;
}

/// An environment that was restored under another name shares the history, and its blobs, with the first one.
#[tokio::test(flavor = "multi_thread")]
async fn blob_of_another_environment_is_kept() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    fixture.validate("db1", 1).await;
    let history = fixture.store.get(&Keys::new(&fixture.env).history(&node("db1"))).await.unwrap().unwrap().value;
    // Read from the store: the view may lag.
    let runs: RunHistory = serde_json::from_slice(&history).unwrap();
    let shared = runs.0[0].logs[0].clone();
    let copy = Op::put(Keys::new(&EnvName::new("other").unwrap()).history(&node("db1")), history.to_vec());
    let CommitOutcome::Committed { revision } = fixture.store.commit(Txn::new().op(copy)).await.unwrap() else {
        panic!("refused")
    };
    fixture.app.view.reach(revision).await.unwrap();
    for seq in 2..=30 {
        fixture.send(&fixture.report("db1", 1, seq, CHANGED)).await;
    }
    only_so_many_are_kept(&fixture, 21).await;
    assert!(fixture.app.blobs.get(&shared).is_some());
    fixture.stop().await;
}

/// Waits until the number of stored reports is as expected: a background task removes them. The marks of servers and the
/// file with the name of the store are not counted.
async fn only_so_many_are_kept(fixture: &Fixture, many: usize) {
    let blobs = fixture.dir.path().join("blobs");
    // The two bundles of the fixture are not reports.
    let kept = || walk(&blobs) - 2 - walk(&blobs.join(".replicas")) - usize::from(blobs.join(".store").exists());
    muster_testkit::wait::until(&format!("exactly {many} reports are kept"), || kept() == many).await;
}

fn walk(dir: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { walk(&path) } else { 1 }).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn late_report_does_not_restore_a_removed_node() {
    let fixture = Fixture::start(&[("db1", "db"), ("web1", "web")]).await;
    fixture.validate("db1", 1).await;
    // The design changes in the store. Reports continue to arrive until the view has applied the change.
    let key = Keys::new(&fixture.env).node(&node("db1"));
    let gone = fixture.store.commit(Txn::new().op(Op::delete(key))).await.unwrap();
    let mut seq = 2;
    while fixture.client.report(&fixture.env, &fixture.report("db1", 1, seq, PASSED)).await.is_ok() {
        seq += 1;
    }
    let CommitOutcome::Committed { revision: gone } = gone else { panic!("nothing guards it") };
    let observed = fixture.store.get(&Keys::new(&fixture.env).observed(&node("db1"))).await.unwrap().unwrap();
    assert!(observed.revision < gone, "a report was applied after the node had left");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upgraded_node_is_active_at_every_revision() {
    let fixture = Fixture::start(&[("lb1", "lb")]).await;
    let before = fixture.validate("lb1", 1).await.revision;
    let mut after = before;
    for (seq, outcome) in [(2, CHANGED), (3, PASSED)] {
        let mut report = fixture.report("lb1", 1, seq, outcome);
        report.version = version("v2");
        after = fixture.send(&report).await.revision;
    }
    let prefix = format!("{}active_roles/", Keys::new(&fixture.env).prefix());
    for revision in before.0..=after.0 {
        let range = fixture.store.range(&prefix, Some(Revision(revision))).await.unwrap();
        let keys: Vec<_> = range.kvs.iter().map(|kv| kv.key.trim_start_matches(&prefix)).collect();
        let version = if revision == after.0 { "v2" } else { "v1" };
        assert_eq!(keys, [format!("{version}/lb1/address")], "at revision {revision} of {before} to {after}");
    }
    fixture.stop().await;
}
