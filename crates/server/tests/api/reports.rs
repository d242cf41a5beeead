//! Reports: ordered, applied once, committed in groups, and still there after a restart.

use futures::future::join_all;
use muster_core::keys::Keys;
use muster_core::node::liveness::LivenessTimeouts;
use muster_core::node::status::NodeState;
use muster_core::report::history::HISTORY_LENGTH;
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
async fn reports_that_are_stored_together_read_back() {
    let names: Vec<String> = (1..=40).map(|number| format!("web{number}")).collect();
    let nodes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "web")).collect();
    let fixture = Fixture::start(&nodes).await;
    let reports: Vec<_> = names.iter().map(|name| fixture.report(name, 1, 1, PASSED)).collect();
    let taken = join_all(reports.iter().map(|report| fixture.send(report))).await;
    let revision = taken.iter().map(|taken| taken.revision).max().unwrap();
    let client = fixture.client.clone().at_least(revision);
    for report in &reports {
        let run = client.run(&fixture.env, &report.node, &report.run).await.unwrap();
        assert_eq!((run.reports, run.missing), (vec![report.clone()], 0));
    }
    let (written, _) = fixture.app.blobs.written();
    assert!(written < 40, "{written} blobs for 40 reports");
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
async fn history_has_the_newest_runs_under_keys() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let mut taken = None;
    for seq in 1..=30 {
        taken = Some(fixture.send(&fixture.report("db1", 1, seq, CHANGED)).await);
    }
    let keys = fixture.store.range(&Keys::new(&fixture.env).past_runs(&node("db1")), None).await.unwrap().kvs;
    assert_eq!(keys.len(), HISTORY_LENGTH, "the run without a validation has no key");
    let client = fixture.client.clone().at_least(taken.unwrap().revision);
    let shown = client.node(&fixture.env, &node("db1")).await.unwrap().history;
    let runs: Vec<String> = shown.iter().map(|past| past.run.to_string()).collect();
    assert_eq!(runs, (11..=30).rev().map(|run| format!("r{run}")).collect::<Vec<_>>());
    fixture.stop().await;
}

/// The history as an earlier version has left it: the last run was applied, and is not validated yet.
#[tokio::test(flavor = "multi_thread")]
async fn history_of_an_earlier_version_continues() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let keys = Keys::new(&fixture.env);
    let log = |run: u32| fixture.app.blobs.put(format!("not a report of r{run}").as_bytes()).unwrap();
    let past = |run: u32| {
        serde_json::json!({"run": format!("r{run}"), "version": "v1", "phase": "configured", "result": "changed",
            "causes": [{"kind": "operator", "id": format!("request-{run}"), "by": "ann"}], "logs": [log(run)],
            "started": format!("2027-01-15T08:00:{run}Z"), "ended": format!("2027-01-15T08:01:{run}Z")})
    };
    let list: Vec<_> = (11..=30).rev().map(past).collect();
    let put = Op::put_json(keys.run_list(&node("db1")), &list).unwrap();
    let CommitOutcome::Committed { revision } = fixture.store.commit(Txn::new().op(put)).await.unwrap() else {
        panic!("refused")
    };
    let env = &fixture.env;
    let shown = async |revision| {
        let client = fixture.client.clone().at_least(revision);
        let of_node = client.node(env, &node("db1")).await.unwrap().history;
        let of_fleet = client.runs(env, "", 50).await.unwrap().items.into_iter().map(|row| row.run.run.to_string());
        let of_node: Vec<String> = of_node.into_iter().map(|past| past.run.to_string()).collect();
        assert_eq!(of_node, of_fleet.collect::<Vec<_>>());
        assert_eq!(client.run(env, &node("db1"), &"r12".parse().unwrap()).await.unwrap().missing, 1, "no report");
        of_node
    };
    let newest_first = |from: u32, to: u32| (from..=to).rev().map(|run| format!("r{run}")).collect::<Vec<_>>();
    assert_eq!(shown(revision).await, newest_first(11, 30));

    let mut validated = fixture.report("db1", 1, 2, PASSED);
    (validated.run, validated.ended) = ("r30".parse().unwrap(), "2027-01-15T08:02:00Z".parse().unwrap());
    let taken = fixture.send(&validated).await;
    assert_eq!(shown(taken.revision).await, newest_first(11, 30));
    assert_eq!(fixture.store.get(&keys.run_list(&node("db1"))).await.unwrap(), None);
    let run = fixture.client.run(env, &node("db1"), &validated.run).await.unwrap();
    assert_eq!((run.reports.len(), run.missing), (1, 1), "both logs are of one run");

    let mut next = fixture.report("db1", 1, 4, PASSED);
    (next.run, next.ended) = ("r31".parse().unwrap(), "2027-01-15T08:03:00Z".parse().unwrap());
    let taken = fixture.send(&next).await;
    assert_eq!(shown(taken.revision).await, newest_first(12, 31));
    fixture.stop().await;
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
