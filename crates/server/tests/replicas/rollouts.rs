//! Failover of the rollout controller: no grant is lost, and none is made twice.

use std::sync::atomic::Ordering;

use jiff::{SignedDuration, Timestamp};
use muster_core::names::RunId;
use muster_core::replica::ControllerName;
use muster_core::report::{Outcome, Report, RunResult};
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::RolloutPhase;
use muster_core::rollout::strategy::{Amount, Promote, Reach, Strategy, Wave};
use muster_core::txn::{Op, Txn};
use muster_wire::client::{RolloutVerb, StatusQuery};
use muster_wire::rollout::{OperateRequest, PlanRequest, StartRequest, StartTarget};
use muster_wire::sync::{SyncEvent, SyncOpen};
use tokio::task::JoinSet;

use crate::cluster::{Cluster, Replica, env, keys, node, until, version};
use crate::consistency::passed;

const WEBS: [(&str, &str); 6] =
    [("web1", "web"), ("web2", "web"), ("web3", "web"), ("web4", "web"), ("web5", "web"), ("web6", "web")];
const ROLLOUT: ControllerName = ControllerName::Rollout;

/// Half of the nodes, a manual promotion, then the rest. One node at a time.
fn halves() -> Strategy {
    let wave = |percent, promote| Wave { reach: Reach::Percent(percent), soak: Some(SignedDuration::ZERO), promote };
    Strategy {
        waves: vec![wave(50, Promote::Manual), wave(100, Promote::Auto)],
        ramp: false,
        ..Strategy::one_wave(Amount::Nodes(1))
    }
}

/// Agents of a replica that run each desired version at once.
async fn agents(at: &Replica) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (name, _) in WEBS {
        let mut stream = at.client.sync(&env(), &node(name), &SyncOpen::default()).await.unwrap();
        let (client, template) = (at.client.clone(), passed(at, name, 1));
        tasks.spawn(async move {
            let (mut incarnation, mut seq) = (0, 0);
            while let Ok(Some(event)) = stream.next().await {
                match event {
                    SyncEvent::Hello { incarnation: given, .. } => incarnation = given,
                    SyncEvent::Desired(desired) => {
                        for outcome in [Outcome::Configured(RunResult::Changed), template.outcome] {
                            seq += 1;
                            let (run, now) = (RunId::new(format!("r{seq}")).unwrap(), Timestamp::now());
                            let report = Report {
                                incarnation,
                                seq,
                                run,
                                outcome,
                                version: desired.version.clone(),
                                generation: desired.generation,
                                started: now,
                                ended: now,
                                ..template.clone()
                            };
                            client.report(&env(), &report).await.unwrap();
                        }
                    }
                    _ => {}
                }
            }
        });
    }
    at.sees("all at v1", |fleet| fleet.running().get(&version("v1")).is_some_and(|nodes| nodes.len() == WEBS.len()))
        .await;
    tasks
}

async fn start(at: &Replica) -> RolloutId {
    let asked = PlanRequest { strategy: Some(halves()), ..PlanRequest::to(version("v2")) };
    let request =
        StartRequest { what: StartTarget::Now(asked), request: "one".into(), supersede: false, by: "ada".into() };
    at.client.start_rollout(&env(), &request).await.unwrap().started().unwrap().id
}

async fn sees_wave_done(at: &Replica, id: RolloutId) {
    at.sees("the first half is done", |fleet| {
        fleet
            .rollouts()
            .get(&id)
            .is_some_and(|(record, _)| record.waves.first().is_some_and(|wave| wave.gate.is_some()))
    })
    .await;
}

async fn promote(at: &Replica, id: RolloutId) {
    let operate = OperateRequest { by: "ada".into(), ..OperateRequest::default() };
    at.client.operate_rollout(&env(), id.into(), RolloutVerb::Promote, &operate).await.unwrap();
}

async fn ends_whole(at: &Replica, id: RolloutId) {
    at.sees("completed", |fleet| fleet.rollouts().get(&id).is_some_and(|(r, _)| r.phase == RolloutPhase::Completed))
        .await;
    let status = at.client.rollout(&env(), id.into(), StatusQuery::default()).await.unwrap();
    assert_eq!((status.record.steps.grants, status.counts.healthy), (6, 6), "each node once");
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_continues_at_another_replica_after_a_crash() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&WEBS).await;
    until("a holds it", || a.app.replica.controller_locks.held(&env(), ROLLOUT).is_some()).await;
    let _agents = agents(&b).await;
    let id = start(&b).await;
    sees_wave_done(&b, id).await;
    // A promotion while no replica holds the controller is not lost.
    a.kill().await;
    promote(&b, id).await;
    ends_whole(&b, id).await;
    assert!(b.app.replica.controller_locks.held(&env(), ROLLOUT).is_some());
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unaware_deposed_controller_grants_nothing() {
    let cluster = Cluster::patient().await;
    let (a, b) = cluster.pair(&WEBS).await;
    until("a holds it", || a.app.replica.controller_locks.held(&env(), ROLLOUT).is_some()).await;
    let _agents = agents(&b).await;
    let id = start(&b).await;
    sees_wave_done(&b, id).await;
    sees_wave_done(&a, id).await;
    // The lease of a ends. Neither the watch nor the keep-alives report it to a.
    a.way.lag(true);
    a.way.lies.store(true, Ordering::SeqCst);
    let lease = a.app.replica.controller_locks.held(&env(), ROLLOUT).unwrap().lease;
    cluster.store.revoke(lease).await.unwrap();
    until("b holds it", || b.app.replica.controller_locks.held(&env(), ROLLOUT).is_some()).await;
    promote(&b, id).await;
    ends_whole(&b, id).await;
    // a receives the missed changes and finds the rollout completed.
    a.way.lag(false);
    a.way.lies.store(false, Ordering::SeqCst);
    ends_whole(&a, id).await;
    a.stop().await;
    b.stop().await;
}

/// Presence records still name the replica: nothing else is written when it returns.
#[tokio::test(flavor = "multi_thread")]
async fn rollout_continues_when_a_replica_returns() {
    let cluster = Cluster::patient().await;
    let (a, b) = cluster.pair(&WEBS).await;
    until("a holds it", || a.app.replica.controller_locks.held(&env(), ROLLOUT).is_some()).await;
    let _agents = agents(&b).await;
    let id = start(&b).await;
    sees_wave_done(&a, id).await;
    // As if the lease of b had ended while b was stopped: all nodes are silent.
    b.way.cut(true);
    cluster.store.commit(Txn::new().op(Op::delete(keys().replica(b.id())))).await.unwrap();
    a.sees("no b", |fleet| fleet.replicas().len() == 1).await;
    promote(&a, id).await;
    a.sees("the second wave", |fleet| fleet.rollouts()[&id].0.waves.len() == 2).await;
    let begun = a.app.view.revision();
    until("a has decided", || *a.app.replica.rollouts_checked_at.borrow() >= begun).await;
    assert_eq!(a.fleet().rollouts()[&id].0.steps.grants, 3, "the nodes of the second wave are silent");

    b.way.cut(false);
    ends_whole(&a, id).await;
    a.stop().await;
    b.stop().await;
}
