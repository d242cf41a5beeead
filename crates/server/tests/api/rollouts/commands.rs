//! Operator commands to a rollout.

use muster_core::node::pause::PauseScope;
use muster_core::rollout::progress::{Hold, RolloutNodeState};
use muster_core::rollout::record::{PauseReason, RolloutPhase};
use muster_wire::client::{RolloutRef, RolloutVerb, StatusQuery};
use muster_wire::data::SetPause;
use muster_wire::problem::ProblemCode;
use muster_wire::rollout::OperateRequest;

use super::{WEBS, careful, quick, running};
use crate::fixture::{Fixture, node, version};

#[tokio::test(flavor = "multi_thread")]
async fn pause_outlasts_a_promotion() {
    let (fixture, _agents) = Fixture::webs().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let id = fixture.begin("v2", careful()).await;
    fixture.record(id, "it waits to be promoted", |record| record.waves[0].gate.is_some()).await;
    let status = fixture.rollout(id).await;
    assert!(matches!(status.holds[0], Hold::Promotion { stage: 1, wave: 1 }), "{:?}", status.holds);
    let brief = client.status(env).await.unwrap().rollout.unwrap();
    assert_eq!(brief.next.as_deref(), Some("muster rollout promote"));

    // Two operators send requests at the same time.
    let (paused, promoted) =
        tokio::join!(fixture.command(id, RolloutVerb::Pause), fixture.command(id, RolloutVerb::Promote));
    assert!(paused.changed && promoted.changed, "both count");
    let record = fixture.rollout(id).await.record;
    assert!(
        matches!(&record.phase, RolloutPhase::Paused { why: PauseReason::Operator { by, .. } } if by == "ada"),
        "{record:?}"
    );
    assert!(record.waves[0].promoted.is_some());
    // The controller grants nothing after the pause. Grants between the two requests are allowed.
    let granted = record.steps.grants;
    if paused.revision < promoted.revision {
        assert_eq!(granted, 1, "a promotion grants nothing while the rollout is paused");
    }
    let said = Some(paused.revision.max(promoted.revision));
    let mut looks = fixture.app.replica.rollouts_checked_at.subscribe();
    let looked = looks.wait_for(|at| *at >= said);
    muster_testkit::wait::within("the controller has reconciled the rollout", looked).await.unwrap();
    assert_eq!(fixture.rollout(id).await.record.steps.grants, granted);
    let again = fixture.command(id, RolloutVerb::Pause).await;
    assert!(!again.changed);

    assert!(fixture.command(id, RolloutVerb::Resume).await.changed);
    let audit = client.audit(Some(env), &Default::default()).await.unwrap();
    for action in ["pause", "promote", "resume"] {
        assert!(audit.items.iter().any(|record| record.action == action), "{action} is not in the audit");
    }
    fixture.completed(id).await;
    let over = fixture.try_command(id, RolloutVerb::Pause, &[]).await.unwrap_err();
    assert_eq!(over.problem().unwrap().code, ProblemCode::RolloutRefused);
    assert_eq!(running(&fixture.app.view.fleets()[env], "v2"), WEBS.len());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_rollout_keeps_node_versions() {
    let (fixture, _agents) = Fixture::webs().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let id = fixture.begin("v2", careful()).await;
    fixture.record(id, "it waits to be promoted", |record| record.waves[0].gate.is_some()).await;
    let reason = OperateRequest { reason: "wrong day".into(), by: "ada".into(), ..OperateRequest::default() };
    let done = client.operate_rollout(env, RolloutRef::Active, RolloutVerb::Abort, &reason).await.unwrap();
    assert_eq!(done.phase, RolloutPhase::Aborted { by: "ada".into(), reason: "wrong day".into() });
    let fleet = fixture.app.view.fleets()[env].clone();
    assert_eq!((running(&fleet, "v1"), running(&fleet, "v2")), (3, 1));
    let desired = |name: &str| fleet.desired_of(&node(name)).unwrap().version;
    let at_v2 = WEBS.iter().filter(|(name, _)| desired(name) == version("v2")).count();
    assert_eq!(at_v2, 1, "no node skips a version");
    assert!(!client.operate_rollout(env, id.into(), RolloutVerb::Abort, &reason).await.unwrap().changed);
    // The abort does not change the current version. A request for v2 starts a rollout with the remaining nodes.
    let again = client.trigger_update(env, version("v2")).await.unwrap();
    assert!(again.changed);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_pauses_and_retry_continues() {
    let (fixture, agents) = Fixture::webs().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let plan = client.plan_rollout(env, &super::plan_request("v2", quick())).await.unwrap().plan;
    let canary = plan.waves[0].nodes[0].node.to_string();
    agents.break_at(&canary, "v2");
    let id = fixture.begin("v2", quick()).await;
    fixture.record(id, "it stops", |record| matches!(record.phase, RolloutPhase::Paused { .. })).await;
    let status = fixture.rollout(id).await;
    let RolloutPhase::Paused { why: PauseReason::Failures { failed, tolerated, nodes, .. } } = &status.record.phase
    else {
        panic!("{:?}", status.record.phase)
    };
    assert_eq!((*failed, *tolerated, nodes[0].node.as_str()), (1, 0, canary.as_str()));
    let error = status.failed[0].error.as_ref().unwrap();
    assert_eq!((error.file.as_deref(), error.line), (Some("manifests/site.pp"), Some(12)));
    assert_eq!(status.record.steps.grants, 1, "it stopped after one node");
    assert_eq!((status.slots.len(), status.slots[0].node.as_str()), (1, canary.as_str()));
    let brief = client.status(env).await.unwrap().rollout.unwrap();
    assert_eq!((brief.failed, brief.next.as_deref()), (1, Some("muster rollout retry --failed")));

    let wrong = WEBS.iter().find(|(name, _)| *name != canary).unwrap().0;
    let refused = fixture.try_command(id, RolloutVerb::Retry, &[wrong]).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, ProblemCode::RolloutRefused);
    agents.repair(&canary, "v2");
    assert!(fixture.command(id, RolloutVerb::Retry).await.changed);
    fixture.completed(id).await;
    assert_eq!(fixture.rollout(id).await.record.steps.grants, 5, "one of them twice");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn skipped_node_keeps_its_version() {
    let (fixture, _agents) = Fixture::webs().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let host = PauseScope::Host { node: node("web3") };
    let pause = SetPause { reason: "disk swap".into(), seconds: None, force: false };
    client.pause(env, &host, &pause, "jo").await.unwrap();
    let id = fixture.begin("v2", quick()).await;
    fixture.wait_for("all others", |fleet| running(fleet, "v2") == 3).await;
    let shown = client.node(env, "web3").await.unwrap();
    assert!(matches!(&shown.hold, Some(Hold::Paused { node, .. }) if node.as_str() == "web3"), "{:?}", shown.hold);
    let status = fixture.rollout(id).await;
    assert!(status.holds.iter().any(|hold| matches!(hold, Hold::Paused { .. })), "{:?}", status.holds);
    let history = client.rollouts(env).await.unwrap().items;
    assert_eq!((status.counts.healthy, history[0].healthy), (3, 3), "the history counts as the status does");

    let unknown = fixture.try_command(id, RolloutVerb::Skip, &["web9"]).await.unwrap_err();
    assert_eq!(unknown.problem().unwrap().code, ProblemCode::UnknownNode);
    let error = fixture.try_command(id, RolloutVerb::Skip, &[]).await.unwrap_err();
    assert_eq!(error.problem().unwrap().code, ProblemCode::InvalidRequest);
    // web3 is the last node: without the pause the rollout could complete between the two requests.
    assert!(fixture.command(id, RolloutVerb::Pause).await.changed);
    let skipped = fixture.try_command(id, RolloutVerb::Skip, &["web3"]).await.unwrap();
    assert!(skipped.changed && skipped.nodes == [node("web3")]);
    assert!(!fixture.try_command(id, RolloutVerb::Skip, &["web3"]).await.unwrap().changed);
    assert!(fixture.command(id, RolloutVerb::Resume).await.changed);
    fixture.completed(id).await;
    let status = fixture.rollout(id).await;
    assert_eq!((status.counts.healthy, status.counts.skipped), (3, 1));
    let fleet = fixture.app.view.fleets()[env].clone();
    assert_eq!(fleet.desired_of(&node("web3")).unwrap().version, version("v1"));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreturned_slot_can_be_released() {
    let (fixture, agents) = Fixture::webs().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let mut one_by_one = quick();
    one_by_one.waves.remove(0);
    one_by_one.max_unavailable.default = muster_core::rollout::strategy::Amount::Nodes(1);
    one_by_one.failures.canary = muster_core::rollout::strategy::Amount::Nodes(4);
    one_by_one.failures.total = muster_core::rollout::strategy::Amount::Nodes(4);
    let plan = client.plan_rollout(env, &super::plan_request("v2", one_by_one.clone())).await.unwrap().plan;
    let first = plan.waves[0].nodes[0].node.to_string();
    agents.break_at(&first, "v2");
    let id = fixture.begin("v2", one_by_one).await;
    fixture
        .wait_for("it fails", |fleet| {
            let state = fleet.get(&node(&first)).and_then(|node| node.state());
            state.is_some_and(|(state, _)| state.version() == &version("v2"))
        })
        .await;
    let slots = client.slots(env).await.unwrap().items;
    assert_eq!((slots.len(), slots[0].node.as_str(), slots[0].rollout), (1, first.as_str(), id));
    assert!(matches!(slots[0].state, RolloutNodeState::Failed { .. }));
    let held = fixture.rollout(id).await;
    assert!(held.holds.iter().any(|hold| matches!(hold, Hold::RoleBudget { .. })), "{:?}", held.holds);
    assert_eq!(held.record.steps.grants, 1);

    let released = client.release_slot(env, &first, &OperateRequest::default()).await.unwrap();
    assert!(released.changed);
    assert!(!client.release_slot(env, &first, &OperateRequest::default()).await.unwrap().changed);
    fixture.wait_for("all others", |fleet| running(fleet, "v2") == 3).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_status_request_returns_on_change() {
    let (fixture, _agents) = Fixture::webs().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let id = fixture.begin("v2", careful()).await;
    fixture.record(id, "it waits to be promoted", |record| record.waves[0].gate.is_some()).await;
    let mut seen = fixture.rollout(id).await;
    // Without a change the response arrives after the wait, and is the same.
    let query = |after| StatusQuery { after: Some(after), wait: std::time::Duration::from_secs(1), numbers: true };
    let same = client.rollout(env, id.into(), query(seen.revision)).await.unwrap();
    assert_eq!((same.record_at, same.waves[0].nodes.len()), (seen.record_at, 0));
    let long = |after| StatusQuery { after: Some(after), wait: std::time::Duration::from_secs(30), numbers: false };
    let (next, _) =
        tokio::join!(client.rollout(env, id.into(), long(same.revision)), fixture.command(id, RolloutVerb::Promote));
    seen = next.unwrap();
    assert!(seen.record.waves[0].promoted.is_some());
    while seen.record.phase != RolloutPhase::Completed {
        seen = client.rollout(env, id.into(), long(seen.revision)).await.unwrap();
    }
    assert_eq!(seen.counts.healthy, 4);
    fixture.stop().await;
}
