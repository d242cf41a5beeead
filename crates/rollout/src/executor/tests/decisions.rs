//! Tests that stale decisions are not committed, and that records at the size limit still fit.

use muster_core::names::NodeName;
use muster_core::report::ResourceError;
use muster_core::rollout::record::{
    FailedNode, FailureKind, GateVerdict, NAMED_FAILURES, OperatorDecisions, PauseReason, Promotion, RolloutPhase,
    RolloutRecord, Threshold, WaveState,
};
use muster_core::txn::MAX_VALUE;

use super::host::{apply, started_rollout};
use crate::command::RolloutCommand;
use crate::executor::reconcile::{DecisionBasis, needs_fresh_view};
use crate::plan::MAX_PLANNED_WAVES;
use crate::record_limit;
use crate::step::{RolloutChange, pause_change};
use crate::testing::FakeFleet;

fn decided(world: &FakeFleet) -> DecisionBasis {
    let (record, at) = world.fleet.active_rollout_record().unwrap();
    DecisionBasis { id: record.id, at }
}

#[test]
fn command_after_a_decision_invalidates_it() {
    let words = [RolloutCommand::Pause { reason: String::new() }, RolloutCommand::Abort { reason: String::new() }];
    for word in words {
        let (mut world, _) = started_rollout();
        let on = decided(&world);
        assert!(on.unchanged_in(&world.fleet).is_some());
        apply(&mut world, &word);
        assert!(on.unchanged_in(&world.fleet).is_none(), "{word:?}");
        assert!(decided(&world).unchanged_in(&world.fleet).is_none(), "the decision is stale for every reader");
    }
    let (mut world, _) = started_rollout();
    let on = decided(&world);
    apply(&mut world, &RolloutCommand::Pause { reason: String::new() });
    apply(&mut world, &RolloutCommand::Resume);
    assert!(on.unchanged_in(&world.fleet).is_none(), "the rollout is running, but the decision is stale");
    assert!(decided(&world).unchanged_in(&world.fleet).is_some());
}

#[test]
fn only_grants_and_wave_ends_need_a_fresh_view() {
    let (world, _) = started_rollout();
    let (record, _) = world.fleet.active_rollout_record().unwrap();
    let moves = |change: RolloutChange| needs_fresh_view(record, &change);
    let with = |then: fn(&mut RolloutRecord)| {
        let mut record = record.clone();
        then(&mut record);
        moves(RolloutChange { record, grants: Vec::new(), completes: false })
    };
    assert!(!with(|record| record.steps.healthy = 2));
    assert!(!with(|record| record.waves[0].settled = Some(record.started)));
    assert!(!moves(world.with_input(|input| pause_change(
        record.clone(),
        PauseReason::Blocked { problem: "it".into() },
        input
    ))));
    assert!(with(|record| record.waves[0].gate = Some(GateVerdict::Passed { at: record.started })));
    assert!(with(|record| record.waves[0].passed = Some(record.started)));
    assert!(with(|record| record.waves.push(WaveState::begun(record.started))));
    assert!(moves(RolloutChange { record: record.clone(), grants: Vec::new(), completes: true }));
}

#[test]
fn oversized_record_shrinks_until_its_pause_fits() {
    let (world, _) = started_rollout();
    let (record, _) = world.fleet.active_rollout_record().unwrap();
    let names = |from: usize, to: usize| (from..to).map(|n| NodeName::new(format!("some-long-name-{n:04}")).unwrap());
    let blocked = RolloutPhase::Paused { why: PauseReason::Blocked { problem: "it".into() } };
    let mut full = RolloutRecord { phase: blocked, ..record.clone() };
    full.operator.skipped = names(0, 200).collect();
    full.operator.released = names(200, 400).collect();
    full.operator.retry = names(400, 1000).collect();
    assert!(serde_json::to_vec(&full).unwrap().len() > MAX_VALUE);
    record_limit::fit(&mut full);
    assert!(serde_json::to_vec(&full).unwrap().len() <= MAX_VALUE);
    assert_eq!(
        (full.operator.skipped.len(), full.operator.released.len(), full.operator.retry.len()),
        (200, 200, 0),
        "only as much as needed"
    );
    let mut small = record.clone();
    record_limit::fit(&mut small);
    assert_eq!(&small, record);
    let mut runs = RolloutRecord { phase: RolloutPhase::Running, ..full.clone() };
    runs.operator.retry = names(0, 1000).collect();
    record_limit::fit(&mut runs);
    assert_eq!(runs.operator.retry.len(), 1000, "a running rollout needs the complete record");
    let problem = record_limit::problem("too big");
    assert!(problem.contains("muster rollout abort"), "{problem}");
}

/// The largest record: as many waves as possible, each promoted by an operator with a long name, as many named failures
/// as possible with long errors, and as many skipped nodes as possible.
#[test]
fn failures_fit_into_the_largest_possible_record() {
    let (world, _) = started_rollout();
    let (record, _) = world.fleet.active_rollout_record().unwrap();
    let (at, by) = (record.started, "operator-with-a-long-name@some-long-machine.example.org".to_owned());
    let passed = WaveState {
        began: at,
        settled: Some(at),
        gate: Some(GateVerdict::Passed { at }),
        promoted: Some(Promotion { by, at }),
        passed: Some(at),
    };
    let name = |n: usize| NodeName::new(format!("some-long-name-{n:04}")).unwrap();
    let error = || ResourceError {
        resource: Some("r".repeat(300)),
        file: Some("f".repeat(300)),
        line: Some(1),
        message: "m".repeat(600),
    };
    let node = |n| FailedNode { node: name(n), how: FailureKind::NotConfigured, error: Some(error()) };
    let nodes: Vec<FailedNode> = (0..NAMED_FAILURES).map(node).collect();
    let failures = |nodes| PauseReason::Failures { threshold: Threshold::Wave, failed: 9, tolerated: 1, nodes };
    let mut full = RolloutRecord {
        phase: RolloutPhase::Paused { why: PauseReason::NoRollbackTarget { why: Box::new(failures(nodes)) } },
        waves: vec![passed; MAX_PLANNED_WAVES],
        operator: OperatorDecisions {
            skipped: (0..crate::command::MAX_NAMED_NODES).map(name).collect(),
            command_ids: vec!["s".repeat(64); 16],
            ..OperatorDecisions::default()
        },
        ..record.clone()
    };
    assert!(serde_json::to_vec(&full).unwrap().len() > MAX_VALUE);
    record_limit::fit(&mut full);
    assert!(serde_json::to_vec(&full).unwrap().len() <= MAX_VALUE);
    assert_eq!((full.operator.skipped.len(), full.waves.len()), (crate::command::MAX_NAMED_NODES, MAX_PLANNED_WAVES));
    assert!(full.waves.iter().all(|wave| wave.passed == Some(at)));
    let RolloutPhase::Paused { why: PauseReason::NoRollbackTarget { why } } = &full.phase else {
        panic!("{:?}", full.phase)
    };
    let PauseReason::Failures { failed: 9, nodes, .. } = &**why else { panic!("{why:?}") };
    assert_eq!(nodes.len(), NAMED_FAILURES, "failed nodes are still named");
}
