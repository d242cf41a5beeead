//! Ends of rollouts: rollbacks, automatic and by an operator, and plans and outcomes as blobs.

use std::collections::BTreeMap;

use muster_core::audit::{Actor, AuditChange, AuditRecord, AuditValue};
use muster_core::replica::ControllerName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::progress::RolloutNodeState;
use muster_core::rollout::record::{PauseReason, RolloutPhase};
use muster_core::rollout::strategy::OnFailure;
use muster_wire::audit::AuditQuery;
use muster_wire::client::{RolloutRef, RolloutVerb};
use muster_wire::problem::ProblemCode;
use muster_wire::rollout::{OperateRequest, RolloutStatus, UnmovedNode};
use serde_json::json;

use crate::fixture::{Fixture, version};

use super::{WEBS, careful, plan_request, quick, running};

fn back(request: &str) -> OperateRequest {
    OperateRequest { request: request.into(), reason: "slow".into(), by: "ada".into(), ..OperateRequest::default() }
}

/// A fleet at v2 after a completed rollout, with a release v3.
async fn at_v2() -> (Fixture, super::SimulatedAgents) {
    let (fixture, agents) = Fixture::webs().await;
    fixture.add_release("v3", 3).await;
    let first = fixture.client.trigger_at_once(&fixture.env, version("v2")).await.unwrap();
    fixture.completed(first.rollout.unwrap()).await;
    (fixture, agents)
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_canary_rolls_back_automatically() {
    let (fixture, agents) = at_v2().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let strategy = muster_core::rollout::strategy::Strategy { on_failure: OnFailure::Rollback, ..quick() };
    let plan = client.plan_rollout(env, &plan_request("v3", strategy.clone())).await.unwrap().plan;
    let canary = plan.waves[0].nodes[0].node.to_string();
    agents.break_at(&canary, "v3");
    let id = fixture.begin("v3", strategy).await;
    let by = RolloutId(id.0 + 1);
    fixture.completed(by).await;
    let failed = fixture.rollout(id).await;
    assert!(
        matches!(&failed.record.phase, RolloutPhase::RolledBack { by: other, why: PauseReason::Failures { .. } } if *other == by)
    );
    assert_eq!((failed.rolled_back_by, failed.record.steps.grants), (Some(by), 1), "it stopped after one node");
    let returned = fixture.rollout(by).await.record;
    assert_eq!((returned.rolls_back, returned.to, returned.steps.grants), (Some(id), version("v2"), 1));
    assert_eq!(returned.by, "muster");
    assert_eq!(running(&fixture.app.view.fleets()[env], "v2"), WEBS.len());
    assert_eq!(client.current_version(env).await.unwrap().version, Some(version("v2")));
    fixture.stop().await;
}

/// The controller does not read what its grants replace.
#[tokio::test(flavor = "multi_thread")]
async fn audit_of_grants_has_the_values_before_them() {
    let (fixture, _agents) = at_v2().await;
    fixture.add_release("v4", 4).await;
    for version in ["v3", "v4"] {
        let id = fixture.begin(version, quick()).await;
        fixture.completed(id).await;
    }
    let query = AuditQuery { limit: Some(500), ..AuditQuery::default() };
    let mut records = fixture.client.audit(Some(&fixture.env), &query).await.unwrap().items;
    records.sort_by_key(|record| record.seq);
    let mut stored = BTreeMap::new();
    let mut grants_again = 0;
    let of_rollouts = |change: &AuditChange| change.key.contains("/desired/") || change.key.contains("/rollouts/");
    for change in records.into_iter().flat_map(|record| record.changes).filter(of_rollouts) {
        if let Some(before) = stored.insert(change.key.clone(), change.after) {
            assert_eq!(change.before, before, "{}", change.key);
            grants_again += usize::from(change.key.contains("/desired/"));
        }
    }
    assert_eq!(grants_again, WEBS.len(), "each node was granted twice");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn start_and_grants_of_a_rollout_are_in_the_audit() {
    let (fixture, _agents) = at_v2().await;
    let id = fixture.begin("v3", quick()).await;
    fixture.completed(id).await;
    let query = AuditQuery { limit: Some(500), ..AuditQuery::default() };
    let records = fixture.client.audit(Some(&fixture.env), &query).await.unwrap().items;
    let change = |record: &AuditRecord, key: &str| {
        let key = format!("{}/{key}", fixture.env);
        record.changes.iter().find(|change| change.key == key).cloned()
    };
    let value = |value: Option<AuditValue>| match value {
        Some(AuditValue::Value(value)) => value,
        other => panic!("{other:?}"),
    };
    // The decision of the person.
    let started = records.iter().find(|record| change(record, &format!("rollouts/{}", id.0)).is_some()).unwrap();
    assert_eq!((started.action.as_str(), started.from.as_str()), ("start_rollout", "127.0.0.1"));
    assert!(matches!(started.actor, Actor::Administrator { .. }) && started.request.is_some(), "{started:?}");
    let begun = change(started, &format!("rollouts/{}", id.0)).unwrap();
    assert_eq!((begun.before, &value(begun.after)["to"]), (None, &json!("v3")));
    // Those of the controller: each node is granted once.
    for (node, _) in WEBS {
        let key = format!("desired/{node}");
        let granted: Vec<_> = records.iter().filter(|record| change(record, &key).is_some()).collect();
        let [.., last] = &granted[..] else { panic!("{node} was not granted: {records:#?}") };
        assert!(matches!(&last.actor, Actor::Controller { name: ControllerName::Rollout, .. }), "{last:?}");
        assert!(last.from.starts_with("replica ") && last.request.is_none() && last.action == "rollout", "{last:?}");
        assert_eq!(last.why.as_deref(), Some(&*format!("granted by rollout {}", id.0)));
        let AuditChange { before, after, .. } = change(last, &key).unwrap();
        let after = value(after);
        assert_eq!((&after["version"], &after["rollout"]), (&json!("v3"), &json!(id.0)));
        assert!(before.is_none_or(|before| value(Some(before))["version"] == "v2"));
        let step = change(last, &format!("rollouts/{}", id.0)).unwrap();
        let grants = |of: Option<AuditValue>| value(of)["grants"].as_u64().unwrap();
        assert!(grants(step.before.clone()) < grants(step.after.clone()), "{step:?}");
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_rollback_request_rolls_back_once() {
    let (fixture, _agents) = at_v2().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let id = fixture.begin("v3", careful()).await;
    fixture.record(id, "it waits to be promoted", |record| record.waves[0].gate.is_some()).await;
    let first = client.roll_back(env, RolloutRef::Active, &back("one")).await.unwrap();
    assert_eq!((first.to.clone(), first.changed), (version("v2"), true));
    let again = client.roll_back(env, id.into(), &back("one")).await.unwrap();
    assert_eq!((again.id, again.changed), (first.id, false));
    let other = client.roll_back(env, id.into(), &back("two")).await.unwrap_err();
    assert_eq!(other.problem().unwrap().code, ProblemCode::RolloutRefused);
    // The active rollout is now the rollback. A second request must not roll back to v3.
    for again in [RolloutRef::Active, first.id.into()] {
        let forth = client.roll_back(env, again, &back("three")).await.unwrap_err();
        assert_eq!(forth.problem().unwrap().code, ProblemCode::RolloutRefused);
        assert!(forth.problem().unwrap().detail.contains("is itself the rollback of rollout"), "{forth}");
    }
    assert_eq!(fixture.rollout(first.id).await.stable, None, "no rollback is suggested");
    fixture.completed(first.id).await;
    assert_eq!(client.rollouts(env).await.unwrap().items.len(), 3);
    assert_eq!(running(&fixture.app.view.fleets()[env], "v2"), WEBS.len());
    let why = fixture.rollout(id).await.record.phase;
    let by_hand = PauseReason::by_operator("ada", "slow");
    assert_eq!(why, RolloutPhase::RolledBack { by: first.id, why: by_hand });
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_to_the_first_version_works() {
    let (fixture, agents) = Fixture::webs().await;
    let env = &fixture.env;
    WEBS.iter().for_each(|(name, _)| agents.break_at(name, "v2"));
    let strategy = muster_core::rollout::strategy::Strategy { on_failure: OnFailure::Rollback, ..quick() };
    let id = fixture.begin("v2", strategy).await;
    fixture.record(id, "it rolls back", |record| matches!(record.phase, RolloutPhase::RolledBack { .. })).await;
    let RolloutPhase::RolledBack { by, .. } = fixture.rollout(id).await.record.phase else {
        panic!("it was rolled back")
    };
    fixture.completed(by).await;
    assert_eq!(running(&fixture.app.view.fleets()[env], "v1"), WEBS.len());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_lists_nodes_that_it_does_not_move() {
    let (fixture, _agents) = at_v2().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let id = fixture.begin("v3", careful()).await;
    fixture.record(id, "it waits to be promoted", |record| record.waves[0].gate.is_some()).await;
    let canary = fixture.rollout(id).await.waves[0].nodes[0].node.clone();
    fixture.try_command(id, RolloutVerb::Skip, &[canary.as_str()]).await.unwrap();
    let begun = client.roll_back(env, id.into(), &back("one")).await.unwrap();
    let status = fixture.rollout(begun.id).await;
    assert_eq!((status.counts.nodes, status.already, status.left_alone_count), (0, 4, 1));
    let stays = UnmovedNode { node: canary, version: version("v3"), granted_by: None };
    assert_eq!(status.left_alone, [stays]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_contains_the_plan() {
    let (fixture, _agents) = Fixture::webs().await;
    let id = fixture.begin("v2", quick()).await;
    fixture.completed(id).await;
    let plan = fixture.rollout(id).await.record.plan;
    let mut backup = fixture.client.backup(&fixture.env).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = backup.next().await.unwrap() {
        bytes.extend_from_slice(piece.as_ref());
    }
    let archive = zstd_content(&bytes);
    let named = archive.windows(plan.len()).filter(|window| *window == plan.as_bytes()).count();
    assert!(named >= 2, "the record names it, and it is there under its name");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outcome_survives_the_grants_of_the_next_rollout() {
    let (fixture, _agents) = Fixture::webs().await;
    fixture.add_release("v3", 3).await;
    fixture.add_release("v4", 4).await;
    let granted = |status: &RolloutStatus| {
        let nodes = status.waves.iter().flat_map(|wave| wave.nodes.clone());
        nodes.map(|node| (node.node, node.granted, node.state)).collect::<Vec<_>>()
    };
    let first = fixture.begin("v2", quick()).await;
    fixture.completed(first).await;
    let completed = granted(&fixture.rollout(first).await);
    assert!(completed.iter().all(|(_, granted, state)| granted.is_some() && *state == RolloutNodeState::Healthy));

    // A rollout that is aborted halfway: one node was granted, three were not.
    let second = fixture.begin("v3", careful()).await;
    fixture.record(second, "it waits to be promoted", |record| record.waves[0].gate.is_some()).await;
    fixture.command(second, RolloutVerb::Abort).await;
    let aborted = granted(&fixture.rollout(second).await);
    assert_eq!(aborted.iter().filter(|(_, granted, _)| granted.is_some()).count(), 1);

    let third = fixture.begin("v4", quick()).await;
    fixture.completed(third).await;
    assert_eq!(granted(&fixture.rollout(first).await), completed);
    assert_eq!(granted(&fixture.rollout(second).await), aborted);
    fixture.record(third, "what became of it is kept", |record| record.outcome.is_some()).await;
    // Writing the outcome does not change the phase.
    assert_eq!(fixture.rollout(third).await.record.phase, RolloutPhase::Completed);
    fixture.stop().await;
}

fn zstd_content(bytes: &[u8]) -> Vec<u8> {
    zstd::decode_all(bytes).unwrap_or_else(|_| bytes.to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_without_its_plan_is_blocked_with_a_hint() {
    let (fixture, agents) = Fixture::webs().await;
    let id = fixture.begin("v2", careful()).await;
    fixture.record(id, "it waits to be promoted", |record| record.waves[0].gate.is_some()).await;
    let plan = fixture.rollout(id).await.record.plan;
    let bytes = fixture.app.blobs.get(&plan).unwrap();
    fixture.app.blobs.remove(&plan);
    // A restarted server has not read the plan yet.
    drop(agents);
    let dir = fixture.stop().await;
    let fixture = Fixture::start_in(dir, &crate::rollouts::WEBS, Default::default()).await;
    fixture.record(id, "it is blocked", |record| matches!(record.phase, RolloutPhase::Paused { .. })).await;
    let status = fixture.rollout(id).await;
    let RolloutPhase::Paused { why: PauseReason::Blocked { problem } } = &status.record.phase else {
        panic!("{status:?}")
    };
    assert!(problem.contains("is missing or damaged") && problem.contains("muster rollout resume"), "{problem}");
    assert!(status.problem.is_some() && status.waves.is_empty());
    assert_eq!(fixture.app.blobs.put(&bytes).unwrap(), plan);
    let _agents = crate::rollouts::SimulatedAgents::start(&fixture, &crate::rollouts::WEBS).await;
    // Each agent starts without state and runs again: its second report is the validation.
    let again = |node: &muster_core::fleet::Node| {
        let observed = node.observed.as_ref().map(|(observed, _)| (observed.incarnation, observed.seq));
        observed == Some((2, 2)) && node.state().is_some_and(|(state, _)| state.is_validated())
    };
    fixture.wait_for("all are healthy again", |fleet| fleet.designed().all(|(_, node, _)| again(node))).await;
    fixture.command(id, RolloutVerb::Resume).await;
    fixture.record(id, "it waits again", |r| r.phase == RolloutPhase::Running && r.waves[0].gate.is_some()).await;
    fixture.command(id, RolloutVerb::Promote).await;
    fixture.completed(id).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_sleeps_while_no_rollout_is_in_progress() {
    let (fixture, _agents) = Fixture::webs().await;
    let mut rollouts = fixture.app.view.subscribe_rollouts();
    rollouts.mark_unchanged();
    let mut all = fixture.app.view.subscribe_leading();
    let pause = muster_wire::data::SetPause { reason: "a moment".into(), seconds: None, force: false };
    let (client, env) = (&fixture.client, &fixture.env);
    client.pause(env, &muster_core::node::pause::PauseScope::Global, &pause, "jo").await.unwrap();
    // Subscribers of pauses are notified before subscribers of rollouts. The next change comes after both.
    all.changed().await.unwrap();
    client.resume(env, &muster_core::node::pause::PauseScope::Global, "jo").await.unwrap();
    assert!(!rollouts.has_changed().unwrap(), "no rollout is in progress, and a pause does not concern it");
    fixture.begin("v2", careful()).await;
    rollouts.changed().await.unwrap();
    fixture.stop().await;
}
