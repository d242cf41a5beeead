//! Rollouts through the API, with the real controller and simulated agents.

mod commands;
mod gates;
mod outcomes;
mod start;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use muster_core::keys::Keys;
use muster_core::names::{RunId, Version};
use muster_core::report::{Outcome, Report, ResourceError, RunResult};
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};
use muster_core::rollout::strategy::{Amount, FailureLimits, MaxUnavailable, Promote, Reach, Strategy, Wave};
use muster_core::txn::{Generation, Op, Txn};
use muster_wire::client::{RolloutRef, RolloutVerb, StatusQuery};
use muster_wire::rollout::{OperateRequest, OperateResponse, PlanRequest, RolloutStatus, StartRequest, StartTarget};
use muster_wire::sync::{SyncEvent, SyncOpen};
use tokio::task::JoinSet;

use crate::fixture::{CHANGED, Fixture, PASSED, release_record, version};

const WEBS: [(&str, &str); 4] = [("web1", "web"), ("web2", "web"), ("web3", "web"), ("web4", "web")];

/// One node, then all remaining nodes at once. No soak times and no failures allowed.
fn quick() -> Strategy {
    let wave = |reach| Wave { reach, soak: Some(SignedDuration::ZERO), promote: Promote::Auto };
    Strategy {
        waves: vec![wave(Reach::Nodes(1)), wave(Reach::Percent(100))],
        max_unavailable: MaxUnavailable { default: Amount::Percent(100), ..MaxUnavailable::default() },
        ramp: false,
        soak: SignedDuration::ZERO,
        failures: FailureLimits { canary: Amount::Nodes(0), wave: Amount::Nodes(0), total: Amount::Nodes(0) },
        ..Strategy::default()
    }
}

/// The same, with a manual promotion before the second wave.
fn careful() -> Strategy {
    let mut strategy = quick();
    strategy.waves[0].promote = Promote::Manual;
    strategy
}

fn plan_request(to: &str, strategy: Strategy) -> PlanRequest {
    PlanRequest { strategy: Some(strategy), seed: Some(7), ..PlanRequest::to(version(to)) }
}

fn start_of(request: &str, what: StartTarget) -> StartRequest {
    StartRequest { what, request: request.into(), supersede: false, by: "ada".into() }
}

fn now(to: &str, strategy: Strategy) -> StartTarget {
    StartTarget::Now(plan_request(to, strategy))
}

impl Fixture {
    /// Four nodes at v1, with agents.
    async fn webs() -> (Self, SimulatedAgents) {
        let fixture = Self::start(&WEBS).await;
        let agents = SimulatedAgents::start(&fixture, &WEBS).await;
        fixture.wait_for("all run v1", |fleet| running(fleet, "v1") == WEBS.len()).await;
        (fixture, agents)
    }

    async fn add_release(&self, name: &str, serial: u64) {
        self.app.blobs.put(name.as_bytes()).unwrap();
        let put = Op::put_json(Keys::new(&self.env).release(&version(name)), &release_record(name, serial)).unwrap();
        self.store.commit(Txn::new().op(put)).await.unwrap();
        self.wait_for("the release", |fleet| fleet.releases().contains_key(&version(name))).await;
    }

    async fn begin(&self, to: &str, strategy: Strategy) -> RolloutId {
        let request = start_of(&format!("to {to}"), now(to, strategy));
        self.client.start_rollout(&self.env, &request).await.unwrap().started().unwrap().id
    }

    async fn command(&self, id: RolloutId, verb: RolloutVerb) -> OperateResponse {
        self.try_command(id, verb, &[]).await.unwrap()
    }

    async fn try_command(
        &self,
        id: RolloutId,
        verb: RolloutVerb,
        nodes: &[&str],
    ) -> Result<OperateResponse, muster_wire::client::ClientError> {
        let nodes = nodes.iter().map(|name| (*name).to_owned()).collect();
        let operate = OperateRequest { nodes, by: "ada".into(), ..OperateRequest::default() };
        self.client.operate_rollout(&self.env, id.into(), verb, &operate).await
    }

    async fn rollout(&self, id: RolloutId) -> RolloutStatus {
        self.client.rollout(&self.env, RolloutRef::Id(id), StatusQuery::default()).await.unwrap()
    }

    /// Waits until the record of a rollout meets a condition.
    async fn record(&self, id: RolloutId, what: &str, shows: impl Fn(&RolloutRecord) -> bool) {
        let there =
            |fleet: &muster_core::fleet::Fleet| fleet.rollouts().get(&id).is_some_and(|(record, _)| shows(record));
        self.wait_for(&format!("rollout {id}: {what}"), there).await;
    }

    async fn completed(&self, id: RolloutId) {
        self.record(id, "completed", |record| record.phase == RolloutPhase::Completed).await;
    }
}

/// Number of nodes that have validated a version.
fn running(fleet: &muster_core::fleet::Fleet, name: &str) -> usize {
    fleet.running().get(&version(name)).map_or(0, |nodes| nodes.len())
}

type Broken = Arc<Mutex<BTreeSet<(String, Version)>>>;

pub(super) struct SimulatedAgents {
    broken: Broken,
    _tasks: JoinSet<()>,
}

impl SimulatedAgents {
    /// Connects an agent for each node.
    pub(super) async fn start(fixture: &Fixture, nodes: &[(&str, &str)]) -> Self {
        let (broken, mut tasks) = (Broken::default(), JoinSet::new());
        for (name, _) in nodes {
            let mut stream = fixture.open(name, &SyncOpen::default()).await;
            let (client, env) = (fixture.client.clone(), fixture.env.clone());
            let (template, name, broken) = (fixture.report(name, 1, 1, PASSED), (*name).to_owned(), broken.clone());
            tasks.spawn(async move {
                let mut next = ReportNumbers { incarnation: 0, seq: 0 };
                while let Ok(Some(event)) = stream.next().await {
                    match event {
                        SyncEvent::Hello { incarnation, .. } => next.incarnation = incarnation,
                        SyncEvent::Desired(desired) => {
                            let fails = broken.lock().unwrap().contains(&(name.clone(), desired.version.clone()));
                            for report in next.answers(&template, &desired.version, desired.generation, fails) {
                                client.report(&env, &report).await.unwrap();
                            }
                        }
                        _ => {}
                    }
                }
            });
        }
        Self { broken, _tasks: tasks }
    }

    /// Makes a node fail at a version.
    pub(super) fn break_at(&self, name: &str, at: &str) {
        self.broken.lock().unwrap().insert((name.to_owned(), version(at)));
    }

    pub(super) fn repair(&self, name: &str, at: &str) {
        self.broken.lock().unwrap().remove(&(name.to_owned(), version(at)));
    }
}

struct ReportNumbers {
    incarnation: u64,
    seq: u64,
}

impl ReportNumbers {
    fn answers(&mut self, template: &Report, to: &Version, generation: Generation, fails: bool) -> Vec<Report> {
        let outcomes: &[Outcome] = if fails { &[Outcome::Configured(RunResult::Failed)] } else { &[CHANGED, PASSED] };
        let run = RunId::new(format!("r{}", self.seq)).unwrap();
        let error = ResourceError {
            resource: Some("Package[nova]".into()),
            file: Some("manifests/site.pp".into()),
            line: Some(12),
            message: "no such version".into(),
        };
        outcomes
            .iter()
            .map(|outcome| {
                self.seq += 1;
                let now = Timestamp::now();
                Report {
                    incarnation: self.incarnation,
                    seq: self.seq,
                    run: run.clone(),
                    outcome: *outcome,
                    version: to.clone(),
                    generation,
                    started: now,
                    ended: now,
                    errors: if fails { vec![error.clone()] } else { Vec::new() },
                    ..template.clone()
                }
            })
            .collect()
    }
}
