//! Drives a rollout in a small environment step by step, as a server does.

use jiff::SignedDuration;
use muster_core::names::NodeName;
use muster_core::report::reason::RunReason;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};
use muster_core::rollout::strategy::{Amount, MaxUnavailable, PerLabel, Promote, Reach, Strategy, Wave};
use muster_core::txn::Revision;

use crate::command::{CommandRefused, RolloutCommand, apply_command};
use crate::plan::{Request, plan};
use crate::start::{StartOptions, StartTxn, start};
use crate::step::{IndexedPlan, KeptSurvey, Step, step};
use crate::testing::{FakeFleet, RunEnd, node, request};

/// The limit of steps without a wait. A rollout that exceeds it would never end.
const MAX_STEPS: usize = 50;

pub(super) struct RolloutHarness {
    pub world: FakeFleet,
    pub plan: IndexedPlan,
    survey: KeptSurvey,
    pub id: RolloutId,
    /// Every grant, in order.
    pub granted: Vec<String>,
}

pub(super) fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

pub(super) fn minutes(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}

/// Waves of these percentages without soak; one node of a role at a time, no ramp, no node soak.
pub(super) fn percents(waves: &[u8]) -> Strategy {
    let wave = |percent: &u8| Wave { reach: Reach::Percent(*percent), soak: Some(seconds(0)), promote: Promote::Auto };
    Strategy { waves: waves.iter().map(wave).collect(), ..Strategy::one_wave(Amount::Nodes(1)) }
}

/// One wave with a budget per role, and per label value.
pub(super) fn budget(of_role: u32, per: Option<(&str, u32)>) -> Strategy {
    let per = per.map(|(label, count)| PerLabel { label: label.into(), count });
    let max_unavailable = MaxUnavailable { default: Amount::Nodes(of_role), per, ..MaxUnavailable::default() };
    Strategy { max_unavailable, ..percents(&[100]) }
}

pub(super) fn failed() -> RunEnd {
    RunEnd::Failed(RunReason::ResourcesFailed { count: 1 })
}

pub(super) fn invalid() -> RunEnd {
    RunEnd::Invalid(RunReason::ChecksFailed { names: vec!["port".into()] })
}

pub(super) fn pending() -> RunEnd {
    RunEnd::Pending(RunReason::Waiting { needs: Vec::new() })
}

impl RolloutHarness {
    pub(super) fn start(world: FakeFleet, strategy: Strategy) -> Self {
        Self::with_request(world, &request("v2", strategy))
    }

    pub(super) fn with_request(mut world: FakeFleet, request: &Request) -> Self {
        let made = world.with_input(|input| plan(input, request)).unwrap();
        let options = StartOptions { request: format!("to {}", request.to), by: "ann".into(), supersede: false };
        let StartTxn { id, txn } = world.with_input(|input| start(input, &made, "sha256:plan", options)).unwrap();
        world.commit(&txn.unwrap()).unwrap();
        Self { world, plan: IndexedPlan::new(made), survey: KeptSurvey::checked(), id, granted: Vec::new() }
    }

    pub(super) fn record(&self) -> RolloutRecord {
        self.stored_record().0
    }

    pub(super) fn stored_record(&self) -> (RolloutRecord, Revision) {
        self.world.fleet.rollouts().get(&self.id).unwrap().clone()
    }

    pub(super) fn phase(&self) -> RolloutPhase {
        self.record().phase
    }

    /// Decides with the kept survey, and with a new one.
    pub(super) fn decide(&mut self) -> Step {
        let record = self.record();
        let Self { world, plan, survey, .. } = self;
        let kept = world.with_input(|input| step(survey, plan, &record, input));
        let new = world.with_input(|input| step(&mut KeptSurvey::default(), plan, &record, input));
        assert_eq!(kept, new, "the kept survey decides otherwise");
        new
    }

    /// Steps until nothing is left to do. Returns the granted nodes.
    pub(super) fn settle(&mut self) -> Vec<String> {
        let before = self.granted.len();
        for _ in 0..MAX_STEPS {
            let step = self.decide();
            let Some(change) = step.change else { return self.granted[before..].to_vec() };
            assert_eq!(change.record.steps.seen, self.world.fleet.revision);
            self.granted.extend(change.grants.iter().map(|grant| grant.node.to_string()));
            let txn = change.txn(&self.world.fleet, self.stored_record().1).unwrap();
            assert!(txn.ops.len() <= 125 && txn.guards.len() <= 124, "the limits of etcd, with the lock and the audit");
            self.world.commit(&txn).expect("there is no concurrent writer");
        }
        panic!("more than {MAX_STEPS} steps: {:?}", self.record());
    }

    /// A granted node reports, and the rollout continues.
    pub(super) fn report(&mut self, name: &str, ended: RunEnd) -> Vec<String> {
        self.world.answers(name, ended);
        self.settle()
    }

    pub(super) fn validate(&mut self, name: &str) -> Vec<String> {
        self.report(name, RunEnd::Validated)
    }

    /// Time passes, and the rollout continues.
    pub(super) fn advance(&mut self, time: SignedDuration) -> Vec<String> {
        self.world.pass(time);
        self.settle()
    }

    /// Every granted node validates until none is left. Time passes as far as the engine requests it.
    pub(super) fn run_to_end(&mut self) -> RolloutPhase {
        self.settle();
        for _ in 0..1000 {
            let granted: Vec<NodeName> = self.late_nodes();
            if granted.is_empty() {
                let step = self.decide();
                match step.recheck {
                    Some(at) if self.phase() == RolloutPhase::Running => self.world.now = at.max(self.world.now),
                    Some(_) | None => return self.phase(),
                }
            }
            granted.iter().for_each(|name| self.world.answers(name.as_str(), RunEnd::Validated));
            self.settle();
        }
        panic!("the rollout does not end: {:?}", self.record());
    }

    /// Nodes that have not reported their desired version.
    pub(super) fn late_nodes(&self) -> Vec<NodeName> {
        self.world.fleet.late().iter().cloned().collect()
    }

    pub(super) fn command(&mut self, command: &RolloutCommand) -> Result<bool, CommandRefused> {
        let (record, at) = self.stored_record();
        let change = self.world.with_input(|input| apply_command(Some(&self.plan), &record, command, "bob", input))?;
        let Some(change) = change else { return Ok(false) };
        self.world.commit(&change.txn(&self.world.fleet, at).unwrap()).unwrap();
        Ok(true)
    }

    pub(super) fn desired_version(&self, name: &str) -> String {
        self.world.fleet.desired_of(&node(name)).unwrap().version.to_string()
    }
}
