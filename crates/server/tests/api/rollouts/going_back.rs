//! Rollbacks, automatic and by an operator.

use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{PauseReason, RolloutPhase};
use muster_core::rollout::strategy::OnFailure;
use muster_wire::client::{RolloutRef, RolloutVerb};
use muster_wire::problem::ProblemCode;
use muster_wire::rollout::{OperateRequest, UnmovedNode};

use super::{WEBS, asked, careful, quick, running};
use crate::fixture::{Fixture, version};

fn back(request: &str) -> OperateRequest {
    OperateRequest { request: request.into(), reason: "slow".into(), by: "ada".into(), ..OperateRequest::default() }
}

/// A fleet at v2 after a completed rollout, with a release v3.
async fn at_v2() -> (Fixture, super::Robots) {
    let (fixture, robots) = Fixture::webs().await;
    fixture.add_release("v3", 3).await;
    let first = fixture.client.trigger_at_once(&fixture.env, version("v2")).await.unwrap();
    fixture.completed(first.rollout.unwrap()).await;
    (fixture, robots)
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_canary_rolls_back_automatically() {
    let (fixture, robots) = at_v2().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let strategy = muster_core::rollout::strategy::Strategy { on_failure: OnFailure::Rollback, ..quick() };
    let plan = client.plan_rollout(env, &asked("v3", strategy.clone())).await.unwrap().plan;
    let canary = plan.waves[0].nodes[0].node.to_string();
    robots.break_at(&canary, "v3");
    let id = fixture.begin("v3", strategy).await;
    let by = RolloutId(id.0 + 1);
    fixture.completed(by).await;
    let failed = fixture.rollout(id).await;
    assert!(
        matches!(&failed.record.phase, RolloutPhase::RolledBack { by: other, why: PauseReason::Failures { .. } } if *other == by)
    );
    assert_eq!((failed.rolled_back_by, failed.record.grants), (Some(by), 1), "it stopped after one node");
    let returned = fixture.rollout(by).await.record;
    assert_eq!((returned.rolls_back, returned.to, returned.grants), (Some(id), version("v2"), 1));
    assert_eq!(returned.by, "muster");
    assert_eq!(running(&fixture.app.view.fleets()[env], "v2"), WEBS.len());
    assert_eq!(client.current_version(env).await.unwrap().version, Some(version("v2")));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_rollback_request_rolls_back_once() {
    let (fixture, _robots) = at_v2().await;
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
    assert_eq!(fixture.rollout(first.id).await.stable, None, "nobody is told to type it");
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
    let (fixture, robots) = Fixture::webs().await;
    let env = &fixture.env;
    WEBS.iter().for_each(|(name, _)| robots.break_at(name, "v2"));
    let strategy = muster_core::rollout::strategy::Strategy { on_failure: OnFailure::Rollback, ..quick() };
    let id = fixture.begin("v2", strategy).await;
    fixture.record(id, "it goes back", |record| matches!(record.phase, RolloutPhase::RolledBack { .. })).await;
    let RolloutPhase::RolledBack { by, .. } = fixture.rollout(id).await.record.phase else {
        panic!("it was rolled back")
    };
    fixture.completed(by).await;
    assert_eq!(running(&fixture.app.view.fleets()[env], "v1"), WEBS.len());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_way_back_names_whom_it_leaves_alone() {
    let (fixture, _robots) = at_v2().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let id = fixture.begin("v3", careful()).await;
    fixture.record(id, "it waits to be promoted", |record| record.waves[0].gate.is_some()).await;
    let canary = fixture.rollout(id).await.waves[0].nodes[0].node.clone();
    fixture.try_say(id, RolloutVerb::Skip, &[canary.as_str()]).await.unwrap();
    let begun = client.roll_back(env, id.into(), &back("one")).await.unwrap();
    let status = fixture.rollout(begun.id).await;
    assert_eq!((status.counts.nodes, status.already, status.left_alone_count), (0, 4, 1));
    let stays = UnmovedNode { node: canary, version: version("v3"), told_by: None };
    assert_eq!(status.left_alone, [stays]);
    fixture.stop().await;
}
