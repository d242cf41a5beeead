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
use crate::step::{IndexedPlan, MAX_GRANTS, Step, step};
use crate::testing::{FakeFleet, RunEnd, node, request};

/// More steps than this without waiting would never end.
const RESTLESS: usize = 50;

pub(super) struct Ride {
    pub world: FakeFleet,
    pub plan: IndexedPlan,
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

impl Ride {
    pub(super) fn begin(world: FakeFleet, strategy: Strategy) -> Self {
        Self::of(world, &request("v2", strategy))
    }

    pub(super) fn of(mut world: FakeFleet, request: &Request) -> Self {
        let made = world.with_input(|input| plan(input, request)).unwrap();
        let starting = StartOptions { request: format!("to {}", request.to), by: "ann".into(), supersede: false };
        let StartTxn { id, txn } = world.with_input(|input| start(input, &made, "sha256:plan", starting)).unwrap();
        world.commit(&txn.unwrap()).unwrap();
        Self { world, plan: IndexedPlan::new(made), id, granted: Vec::new() }
    }

    pub(super) fn record(&self) -> RolloutRecord {
        self.held().0
    }

    pub(super) fn held(&self) -> (RolloutRecord, Revision) {
        self.world.fleet.rollouts().get(&self.id).unwrap().clone()
    }

    pub(super) fn phase(&self) -> RolloutPhase {
        self.record().phase
    }

    pub(super) fn look(&self) -> Step {
        let record = self.record();
        let first = self.world.with_input(|input| step(&self.plan, &record, input));
        assert_eq!(
            first,
            self.world.with_input(|input| step(&self.plan, &record, input)),
            "twice the same is the same"
        );
        first
    }

    /// Steps until nothing is left to do. Returns the granted nodes.
    pub(super) fn go(&mut self) -> Vec<String> {
        let before = self.granted.len();
        for _ in 0..RESTLESS {
            let step = self.look();
            let Some(change) = step.change else { return self.granted[before..].to_vec() };
            assert!(change.grants.len() <= MAX_GRANTS);
            assert_eq!(change.record.steps.seen, self.world.fleet.revision);
            self.granted.extend(change.grants.iter().map(|grant| grant.node.to_string()));
            let txn = change.txn(&self.world.fleet, self.held().1).unwrap();
            assert!(txn.ops.len() <= 128 && txn.guards.len() <= 127, "etcd takes no more");
            self.world.commit(&txn).expect("nobody else decides here");
        }
        panic!("it never rests: {:?}", self.record());
    }

    /// A granted node reports, and the rollout continues.
    pub(super) fn answers(&mut self, name: &str, ended: RunEnd) -> Vec<String> {
        self.world.answers(name, ended);
        self.go()
    }

    pub(super) fn well(&mut self, name: &str) -> Vec<String> {
        self.answers(name, RunEnd::Validated)
    }

    /// Time passes, and the rollout continues.
    pub(super) fn after(&mut self, time: SignedDuration) -> Vec<String> {
        self.world.pass(time);
        self.go()
    }

    /// Every granted node validates until none is left. Time passes as far as the engine requests it.
    pub(super) fn ride_on(&mut self) -> RolloutPhase {
        self.go();
        for _ in 0..1000 {
            let told: Vec<NodeName> = self.on_the_way();
            if told.is_empty() {
                let step = self.look();
                match step.recheck {
                    Some(at) if self.phase() == RolloutPhase::Running => self.world.now = at.max(self.world.now),
                    Some(_) | None => return self.phase(),
                }
            }
            told.iter().for_each(|name| self.world.answers(name.as_str(), RunEnd::Validated));
            self.go();
        }
        panic!("it never ends: {:?}", self.record());
    }

    /// Nodes that have not reported their desired version.
    pub(super) fn on_the_way(&self) -> Vec<NodeName> {
        self.world.fleet.late().iter().cloned().collect()
    }

    pub(super) fn say(&mut self, command: &RolloutCommand) -> Result<bool, CommandRefused> {
        let (record, at) = self.held();
        let operated =
            self.world.with_input(|input| apply_command(Some(&self.plan), &record, command, "bob", input))?;
        let Some(operated) = operated else { return Ok(false) };
        self.world.commit(&operated.txn(&self.world.fleet, at).unwrap()).unwrap();
        Ok(true)
    }

    pub(super) fn version_of(&self, name: &str) -> String {
        self.world.fleet.desired_of(&node(name)).unwrap().version.to_string()
    }
}
