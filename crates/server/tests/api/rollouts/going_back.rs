//! Rollbacks, by themselves and by hand.

use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{Halt, Phase};
use muster_core::rollout::strategy::OnFailure;
use muster_wire::client::WhichRollout;
use muster_wire::problem::Code;
use muster_wire::rollout::{Operate, PlanRequest};

use super::{WEBS, asked, careful, quick, running};
use crate::fixture::{Fixture, version};

fn back(request: &str) -> Operate {
    Operate { request: request.into(), reason: "slow".into(), by: "ada".into(), ..Operate::default() }
}

/// At v2, which a whole rollout has validated, with a release v3.
async fn at_v2() -> (Fixture, super::Robots) {
    let (fixture, robots) = Fixture::webs().await;
    fixture.add_release("v3", 3).await;
    let first = fixture.client.trigger_at_once(&fixture.env, version("v2")).await.unwrap();
    fixture.completed(first.rollout.unwrap()).await;
    (fixture, robots)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_that_fails_sends_everybody_back_when_the_strategy_says_so() {
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
        matches!(&failed.record.phase, Phase::RolledBack { by: other, why: Halt::Failures { .. } } if *other == by)
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
async fn a_person_goes_back_once_however_often_it_is_asked_for() {
    let (fixture, _robots) = at_v2().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let id = fixture.begin("v3", careful()).await;
    fixture.record(id, "it waits to be promoted", |record| record.waves[0].gate.is_some()).await;
    let first = client.roll_back(env, WhichRollout::Active, &back("one")).await.unwrap();
    assert_eq!((first.to.clone(), first.changed), (version("v2"), true));
    let again = client.roll_back(env, id.into(), &back("one")).await.unwrap();
    assert_eq!((again.id, again.changed), (first.id, false));
    let other = client.roll_back(env, id.into(), &back("two")).await.unwrap_err();
    assert_eq!(other.problem().unwrap().code, Code::RolloutRefused);
    fixture.completed(first.id).await;
    assert_eq!(running(&fixture.app.view.fleets()[env], "v2"), WEBS.len());
    let why = fixture.rollout(id).await.record.phase;
    let by_hand = Halt::by_operator("ada", "slow");
    assert_eq!(why, Phase::RolledBack { by: first.id, why: by_hand });
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_is_known_to_be_good_there_is_no_way_back() {
    let (fixture, robots) = Fixture::webs().await;
    let (client, env) = (&fixture.client, &fixture.env);
    WEBS.iter().for_each(|(name, _)| robots.break_at(name, "v2"));
    let strategy = muster_core::rollout::strategy::Strategy { on_failure: OnFailure::Rollback, ..quick() };
    let id = fixture.begin("v2", strategy).await;
    fixture.record(id, "it stops", |record| matches!(record.phase, Phase::Paused { .. })).await;
    let record = fixture.rollout(id).await.record;
    let nothing = |phase: &Phase| matches!(phase, Phase::Paused { why: Halt::NothingToGoBackTo { .. } });
    assert!(nothing(&record.phase), "{record:?}");
    let refused = client.roll_back(env, id.into(), &back("one")).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, Code::RolloutRefused);
    // But somebody may say where to go.
    let v1 = PlanRequest { allow_older: true, ..asked("v1", quick()) };
    let mut request = super::start_of("home", muster_wire::rollout::Start::Now(v1));
    request.supersede = true;
    let home = client.start_rollout(env, &request).await.unwrap();
    fixture.completed(home.id).await;
    assert_eq!(running(&fixture.app.view.fleets()[env], "v1"), WEBS.len());
    fixture.stop().await;
}
