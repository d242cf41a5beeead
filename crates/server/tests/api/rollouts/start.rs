//! Plans, and the start of rollouts.

use muster_core::keys::Keys;
use muster_core::node::record::NodeRecord;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::RolloutPhase;
use muster_core::txn::{Op, Txn};
use muster_wire::operator::TriggerUpdate;
use muster_wire::problem::ProblemCode;
use muster_wire::rollout::{PlanRequest, StartRequest, StartResponse, StartTarget, StrategySource};

use super::{WEBS, careful, now, plan_request, quick, running, start_of};
use crate::fixture::{Fixture, node, version};

fn code(error: &muster_wire::client::ClientError) -> ProblemCode {
    error.problem().expect("a refusal").code
}

#[tokio::test(flavor = "multi_thread")]
async fn started_plan_is_executed_as_shown() {
    let (fixture, _agents) = Fixture::webs().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let before = fixture.state().await;
    let planned = client.plan_rollout(env, &plan_request("v2", quick())).await.unwrap();
    assert_eq!(fixture.state().await, before, "a plan changes nothing");
    assert_eq!(planned.strategy_from, StrategySource::Given);
    let of_plan: Vec<Vec<_>> =
        planned.plan.waves.iter().map(|wave| wave.nodes.iter().map(|node| node.node.clone()).collect()).collect();
    assert_eq!(of_plan.iter().map(Vec::len).collect::<Vec<_>>(), [1, 3]);

    let request = start_of("one", StartTarget::Plan(Box::new(planned.plan)));
    let started = client.start_rollout(env, &request).await.unwrap().started().unwrap();
    assert_eq!((started.id, started.changed), (RolloutId(1), true));
    assert_eq!((started.from, started.to), (Some(version("v1")), version("v2")));
    fixture.completed(started.id).await;
    let status = fixture.rollout(started.id).await;
    let of_status: Vec<Vec<_>> =
        status.waves.iter().map(|wave| wave.nodes.iter().map(|node| node.node.clone()).collect()).collect();
    assert_eq!(of_status, of_plan);
    assert_eq!((status.counts.healthy, status.record.steps.grants), (4, 4));
    assert_eq!(client.current_version(env).await.unwrap().version, Some(version("v2")));
    // The order of the grants is the order of the plan, wave by wave.
    let granted = |name| fixture.app.view.fleets()[env].get(name).unwrap().desired.as_ref().unwrap().1;
    assert!(of_plan[1].iter().all(|name| granted(name) > granted(&of_plan[0][0])));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_plan_is_refused_with_its_differences() {
    let (fixture, _agents) = Fixture::webs().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let plan = client.plan_rollout(env, &plan_request("v2", quick())).await.unwrap().plan;
    let fifth: NodeRecord = fixture.app.view.fleets()[env].get(&node("web4")).unwrap().record.clone().unwrap();
    let put = Op::put_json(Keys::new(env).node(&node("web5")), &fifth).unwrap();
    fixture.store.commit(Txn::new().op(put)).await.unwrap();
    let request = start_of("one", StartTarget::Plan(Box::new(plan)));
    let refused = client.start_rollout(env, &request).await.unwrap_err();
    assert_eq!(code(&refused), ProblemCode::PlanOutdated);
    let text = refused.problem().unwrap().detail.clone();
    assert!(text.contains("web5 has joined"), "{text}");
    assert_eq!(client.rollouts(env).await.unwrap().items, []);

    let mut other = client.plan_rollout(env, &plan_request("v2", quick())).await.unwrap().plan;
    other.env = muster_core::names::EnvName::new("other").unwrap();
    let refused = client.start_rollout(env, &start_of("two", StartTarget::Plan(Box::new(other)))).await.unwrap_err();
    assert_eq!(code(&refused), ProblemCode::InvalidRequest);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_request_id_returns_the_same_rollout() {
    let (fixture, _agents) = Fixture::webs().await;
    fixture.add_release("v3", 3).await;
    let (client, env) = (&fixture.client, &fixture.env);
    let first = client.start_rollout(env, &start_of("one", now("v2", careful()))).await.unwrap().started().unwrap();
    let again = client.start_rollout(env, &start_of("one", now("v2", careful()))).await.unwrap().started().unwrap();
    assert_eq!((again.id, again.changed), (first.id, false));
    let second = client.start_rollout(env, &start_of("two", now("v3", quick()))).await.unwrap_err();
    assert_eq!(code(&second), ProblemCode::RolloutUnderWay);
    assert!(second.problem().unwrap().detail.contains("--supersede"));
    // Refused with the same code for an older version: the rollout in progress is reported first.
    let older = client.start_rollout(env, &start_of("old", now("v1", quick()))).await.unwrap_err();
    assert_eq!(code(&older), ProblemCode::RolloutUnderWay);
    let trigger = client.trigger_update(env, version("v3")).await.unwrap_err();
    assert_eq!(code(&trigger), ProblemCode::RolloutUnderWay);
    // The requested version is already being rolled out: a no-op.
    let same = client.trigger_update(env, version("v2")).await.unwrap();
    assert_eq!((same.changed, same.rollout), (false, Some(first.id)));

    fixture.record(first.id, "the first wave has its verdict", |r| r.waves[0].gate.is_some()).await;
    let instead = StartRequest { supersede: true, ..start_of("two", now("v3", quick())) };
    let instead = client.start_rollout(env, &instead).await.unwrap().started().unwrap();
    assert_eq!((instead.id, instead.superseded), (RolloutId(2), Some(first.id)));
    fixture.completed(instead.id).await;
    let record = fixture.rollout(instead.id).await.record;
    assert_eq!(record.from, Some(version("v1")), "most nodes were there still");
    assert_eq!(running(&fixture.app.view.fleets()[env], "v3"), WEBS.len());
    let old = fixture.rollout(first.id).await.record;
    assert_eq!(old.phase, RolloutPhase::Superseded { by: instead.id });
    let ids: Vec<RolloutId> = client.rollouts(env).await.unwrap().items.iter().map(|row| row.id).collect();
    assert_eq!(ids, [RolloutId(2), RolloutId(1)]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn start_to_the_running_version_is_a_no_op() {
    let (fixture, _agents) = Fixture::webs().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let before = fixture.state().await;
    let answer = client.start_rollout(env, &start_of("one", now("v1", quick()))).await.unwrap();
    let StartResponse::AlreadyThere(there) = answer else { panic!("{answer:?}") };
    assert_eq!((there.to, there.changed, there.nodes), (version("v1"), false, 4));
    assert_eq!(fixture.state().await, before);
    assert_eq!(client.rollouts(env).await.unwrap().items, []);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_once_supersedes_the_rollout_in_progress() {
    let (fixture, _agents) = Fixture::webs().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let staged = fixture.begin("v2", careful()).await;
    fixture.record(staged, "the first wave has its verdict", |r| r.waves[0].gate.is_some()).await;
    let at_once = client.trigger_at_once(env, version("v2")).await.unwrap();
    assert_eq!((at_once.changed, at_once.rollout), (true, Some(RolloutId(2))));
    fixture.completed(RolloutId(2)).await;
    assert_eq!(fixture.rollout(staged).await.record.phase, RolloutPhase::Superseded { by: RolloutId(2) });
    assert_eq!(running(&fixture.app.view.fleets()[env], "v2"), WEBS.len());
    let again = client.trigger_at_once(env, version("v2")).await.unwrap();
    assert!(!again.changed);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trigger_update_uses_the_strategy_of_the_environment() {
    let (fixture, _agents) = Fixture::webs().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let update = TriggerUpdate { by: "ada".into(), ..TriggerUpdate::to(version("v2")) };
    let triggered = client.trigger(env, &update).await.unwrap();
    assert_eq!((triggered.from, triggered.rollout), (Some(version("v1")), Some(RolloutId(1))));
    let status = fixture.rollout(RolloutId(1)).await;
    assert_eq!((status.record.by.as_str(), status.record.at_once), ("ada", false));
    assert_eq!(status.waves.len(), 3, "the default strategy: one, half, all");
    fixture.record(RolloutId(1), "the first node is granted", |record| record.steps.grants == 1).await;
    let shown = client.status(env).await.unwrap().rollout.unwrap();
    assert_eq!((shown.id, shown.nodes, shown.waves), (RolloutId(1), 4, 3));
    assert!(matches!(shown.phase, RolloutPhase::Running));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_plan_is_refused_with_the_reason() {
    let (fixture, _agents) = Fixture::webs().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let refused = |request: PlanRequest| async move { client.plan_rollout(env, &request).await.unwrap_err() };
    let unknown = refused(PlanRequest::to(version("v9"))).await;
    assert_eq!(code(&unknown), ProblemCode::UnknownVersion);
    let mut strange = quick();
    strange
        .max_unavailable
        .roles
        .insert(muster_core::names::Role::new("wbe").unwrap(), strange.max_unavailable.default);
    let strange = refused(plan_request("v2", strange)).await;
    assert_eq!(code(&strange), ProblemCode::InvalidRequest);
    assert!(strange.problem().unwrap().detail.contains("did you mean web?"), "{strange:?}");
    let id = fixture.begin("v2", quick()).await;
    fixture.completed(id).await;
    assert_eq!(code(&refused(PlanRequest::to(version("v1"))).await), ProblemCode::OlderRelease);
    let nameless = client.start_rollout(env, &start_of("", now("v1", quick()))).await.unwrap_err();
    assert_eq!(code(&nameless), ProblemCode::InvalidRequest);
    let none = client.rollout(env, RolloutId(9).into(), Default::default()).await.unwrap_err();
    assert_eq!(code(&none), ProblemCode::UnknownRollout);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_without_rollouts_says_so() {
    let fixture = Fixture::start(&WEBS).await;
    let which = muster_wire::client::RolloutRef::Active;
    let none = fixture.client.rollout(&fixture.env, which, Default::default()).await.unwrap_err();
    assert_eq!(code(&none), ProblemCode::UnknownRollout);
    assert!(none.problem().unwrap().hint.as_ref().unwrap().contains("muster rollout start"));
    assert_eq!(fixture.client.status(&fixture.env).await.unwrap().rollout, None);
    assert_eq!(fixture.client.slots(&fixture.env).await.unwrap().items, []);
    fixture.stop().await;
}
