//! Plans and outcomes of rollouts as blobs.

use muster_core::rollout::progress::RolloutNodeState;
use muster_core::rollout::record::{PauseReason, RolloutPhase};
use muster_wire::client::RolloutVerb;
use muster_wire::rollout::RolloutStatus;

use super::{careful, quick};
use crate::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_holds_the_plan() {
    let (fixture, _robots) = Fixture::webs().await;
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
    let (fixture, _robots) = Fixture::webs().await;
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
    fixture.say(second, RolloutVerb::Abort).await;
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
    let (fixture, robots) = Fixture::webs().await;
    let id = fixture.begin("v2", careful()).await;
    fixture.record(id, "it waits to be promoted", |record| record.waves[0].gate.is_some()).await;
    let plan = fixture.rollout(id).await.record.plan;
    let bytes = fixture.app.blobs.get(&plan).unwrap();
    fixture.app.blobs.remove(&plan);
    // A restarted server has not read the plan yet.
    drop(robots);
    let dir = fixture.stop().await;
    let fixture = Fixture::start_in(dir, &super::WEBS, Default::default()).await;
    fixture.record(id, "it is blocked", |record| matches!(record.phase, RolloutPhase::Paused { .. })).await;
    let status = fixture.rollout(id).await;
    let RolloutPhase::Paused { why: PauseReason::Blocked { problem } } = &status.record.phase else {
        panic!("{status:?}")
    };
    assert!(problem.contains("is missing or damaged") && problem.contains("muster rollout resume"), "{problem}");
    assert!(status.problem.is_some() && status.waves.is_empty());
    assert_eq!(fixture.app.blobs.put(&bytes).unwrap(), plan);
    let _robots = super::Robots::start(&fixture, &super::WEBS).await;
    // Each agent starts without state and runs again.
    let again = |node: &muster_core::fleet::Node| {
        let observed = node.observed.as_ref().map(|(observed, _)| observed.incarnation);
        observed == Some(2) && node.state().is_some_and(|(state, _)| state.is_validated())
    };
    fixture.wait_for("all are well again", |fleet| fleet.designed().all(|(_, node, _)| again(node))).await;
    fixture.say(id, RolloutVerb::Resume).await;
    fixture.record(id, "it waits again", |r| r.phase == RolloutPhase::Running && r.waves[0].gate.is_some()).await;
    fixture.say(id, RolloutVerb::Promote).await;
    fixture.completed(id).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_sleeps_while_no_rollout_is_in_progress() {
    let (fixture, _robots) = Fixture::webs().await;
    let mut rollouts = fixture.app.view.subscribe_rollouts();
    rollouts.mark_unchanged();
    let mut all = fixture.app.view.subscribe_leading();
    let pause = muster_wire::data::SetPause { reason: "a moment".into(), seconds: None, force: false };
    let (client, env) = (&fixture.client, &fixture.env);
    client.pause(env, &muster_core::node::pause::PauseScope::Global, &pause, "jo").await.unwrap();
    // Subscribers of pauses are notified before subscribers of rollouts. The next change comes after both.
    all.changed().await.unwrap();
    client.resume(env, &muster_core::node::pause::PauseScope::Global, "jo").await.unwrap();
    assert!(!rollouts.has_changed().unwrap(), "nothing goes on, and a pause is none of its business");
    fixture.begin("v2", careful()).await;
    rollouts.changed().await.unwrap();
    fixture.stop().await;
}
