//! Executor with a model of a driver: effects of decisions, and the time of the next reconciliation.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};

use muster_core::names::{EnvName, NodeName, Role};
use muster_core::node::record::{MachinePhase, MachineRecord, MachineStage};
use muster_provision::driver::{
    Capabilities, Driver, MachineObservation, MachineSpec, MachineState, ObserveError, StepError,
};
use muster_provision::executor::{ReconcileInput, Requeue, reconcile};
use muster_provision::lifecycle::{MachineDecision, MachineStep};

use super::{at, failed, policy, record};

#[derive(Debug)]
struct Model {
    seen: Mutex<MachineState>,
    /// Errors of the next steps; `Ok` when empty.
    answers: Mutex<Vec<StepError>>,
    /// An accepted step changes the observed state.
    works: bool,
}

impl Model {
    fn new(seen: MachineState) -> Self {
        Self { seen: Mutex::new(seen), answers: Mutex::new(Vec::new()), works: true }
    }

    fn refusing(seen: MachineState, error: StepError) -> Self {
        Self { answers: Mutex::new(vec![error]), ..Self::new(seen) }
    }

    fn step(&self, then: MachineState) -> BoxFuture<'_, Result<(), StepError>> {
        let answer = self.answers.lock().unwrap().pop().map_or(Ok(()), Err);
        if answer.is_ok() && self.works {
            *self.seen.lock().unwrap() = then;
        }
        async { answer }.boxed()
    }
}

impl Driver for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { machine: "a value", replaceable: true, reports_changes: false }
    }

    fn observe<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<MachineObservation, ObserveError>> {
        let seen = self.seen.lock().unwrap().clone();
        async move {
            match seen {
                MachineState::Unknown { cause } => {
                    Err(ObserveError { node: spec.node.clone(), source: io::Error::other(cause).into() })
                }
                state => Ok(MachineObservation { state, log: None }),
            }
        }
        .boxed()
    }

    fn allocate<'a>(&'a self, _: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        self.step(MachineState::Allocated)
    }

    fn deploy<'a>(&'a self, _: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        self.step(MachineState::Off)
    }

    fn boot<'a>(&'a self, _: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        self.step(MachineState::Running)
    }

    fn release<'a>(&'a self, _: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        self.step(MachineState::Absent)
    }
}

fn spec() -> MachineSpec {
    MachineSpec {
        env: EnvName::new("prod").unwrap(),
        node: NodeName::new("web1").unwrap(),
        role: Role::new("web").unwrap(),
        position: 0,
        flavor: None,
        labels: BTreeMap::new(),
        interfaces: Vec::new(),
        leaving: false,
    }
}

fn now() -> Timestamp {
    at(70)
}

async fn turn(
    model: &Model,
    record: Option<&MachineRecord>,
    connected: bool,
) -> muster_provision::executor::MachineReconcileResult {
    reconcile(model, &spec(), ReconcileInput { record, agent_connected: connected, leaving: None }, &policy(), &now)
        .await
}

#[tokio::test]
async fn machine_comes_up_step_by_step() {
    let model = Model::new(MachineState::Absent);
    let mut record = None;
    let mut events = Vec::new();
    loop {
        let connected = *model.seen.lock().unwrap() == MachineState::Running;
        let turn = turn(&model, record.as_ref(), connected).await;
        match &turn.decision {
            MachineDecision::Do { step, .. } => events.push(format!("{step:?}")),
            MachineDecision::Goto { phase, .. } => events.push(phase.word().to_owned()),
            other => events.push(format!("{other:?}")),
        }
        record = turn.record.or(record);
        if turn.next != Requeue::Now {
            break;
        }
    }
    assert_eq!(
        events,
        [
            "declared",
            "allocating",
            "Allocate",
            "deploying",
            "Deploy",
            "booting",
            "Boot",
            "bootstrapping",
            "provisioned",
            "Hold { reason: Provisioned, recheck: None }",
        ]
    );
    assert_eq!(record.unwrap(), MachineRecord { since: now(), ..super::record(MachinePhase::Provisioned, 1) });
}

#[tokio::test]
async fn transient_refusal_records_the_next_attempt() {
    let error = StepError::transient(io::Error::other("out of stock"));
    let turn =
        turn(&Model::refusing(MachineState::Absent, error), Some(&record(MachinePhase::Allocating, 2)), false).await;
    let MachineRecord { phase, attempt, .. } = turn.record.unwrap();
    let retry = Some(now() + SignedDuration::from_secs(2));
    let cause = "out of stock".into();
    assert_eq!((phase, attempt), (MachinePhase::Failed { during: MachineStage::Allocating, cause, retry }, 2));
}

#[tokio::test]
async fn permanent_failure_or_last_attempt_has_no_retry() {
    for (error, attempt) in [
        (StepError::permanent(io::Error::other("no")), 1),
        (StepError::transient(io::Error::other("no")), policy().attempts),
    ] {
        let model = Model::refusing(MachineState::Off, error);
        let turn = turn(&model, Some(&record(MachinePhase::Booting, attempt)), false).await;
        assert!(matches!(&turn.record.as_ref().unwrap().phase, MachinePhase::Failed { retry: None, .. }), "{turn:?}");
    }
}

#[tokio::test]
async fn retry_counts_as_the_next_attempt() {
    let due = record(failed(MachineStage::Booting, Some(now())), 2);
    let accepted = turn(&Model::new(MachineState::Off), Some(&due), false).await;
    assert_eq!(accepted.decision, MachineDecision::Retry { step: MachineStep::Boot, attempt: 3 });
    let MachineRecord { phase, attempt, .. } = accepted.record.unwrap();
    assert_eq!((phase, attempt), (MachinePhase::Booting, 3));

    let model = Model::refusing(MachineState::Off, StepError::transient(io::Error::other("no")));
    let refused = turn(&model, Some(&due), false).await.record.unwrap();
    assert!(matches!(refused.phase, MachinePhase::Failed { retry: Some(_), .. }));
    assert_eq!(refused.attempt, 3);
}

#[tokio::test]
async fn step_without_effect_is_retried_after_a_pause() {
    let model = Model { works: false, ..Model::new(MachineState::Off) };
    let turn = turn(&model, Some(&record(MachinePhase::Booting, 1)), false).await;
    assert_eq!((turn.record, turn.next), (None, Requeue::At(now() + SignedDuration::from_secs(1))));
}

#[tokio::test]
async fn unreachable_controller_is_a_noop() {
    let model = Model::new(MachineState::Unknown { cause: "no route".into() });
    let turn = turn(&model, Some(&record(MachinePhase::Provisioned, 1)), false).await;
    assert_eq!((turn.record, turn.next), (None, Requeue::At(now() + SignedDuration::from_secs(1))));
    assert!(format!("{:?}", turn.decision).contains("cannot observe the machine of web1: no route"));
}

#[tokio::test]
async fn long_cause_is_clipped() {
    let error = StepError::permanent("x".repeat(100_000));
    let turn = turn(&Model::refusing(MachineState::Off, error), Some(&record(MachinePhase::Booting, 1)), false).await;
    assert!(serde_json::to_vec(&turn.record.unwrap()).unwrap().len() < 4096);
}
