//! A rollout in a small world: planned, started, and carried out step by step as a server does it.

use jiff::SignedDuration;
use muster_core::names::NodeName;
use muster_core::report::reason::RunReason;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};
use muster_core::rollout::strategy::{Amount, MaxUnavailable, PerLabel, Promote, Reach, Strategy, Wave};
use muster_core::txn::Revision;

use crate::operate::{Command, OperateRefused, operate};
use crate::plan::{Request, plan};
use crate::start::{Started, Starting, start};
use crate::step::{Indexed, MOST_GRANTS, Step, step};
use crate::testing::{Ended, World, node, request};

/// More steps than this without waiting for anything would be one that never rests.
const RESTLESS: usize = 50;

pub(super) struct Ride {
    pub world: World,
    pub plan: Indexed,
    pub id: RolloutId,
    /// Every grant, in the order in which they were made.
    pub granted: Vec<String>,
}

pub(super) fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

pub(super) fn minutes(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}

/// Waves that reach so many percent each, without soak; one node of a role at a time, no ramp, no soak of nodes.
pub(super) fn percents(waves: &[u8]) -> Strategy {
    let wave = |percent: &u8| Wave { reach: Reach::Percent(*percent), soak: Some(seconds(0)), promote: Promote::Auto };
    Strategy { waves: waves.iter().map(wave).collect(), ..Strategy::one_wave(Amount::Nodes(1)) }
}

/// One wave, so many of each role at a time, and so many of each value of a label.
pub(super) fn budget(of_role: u32, per: Option<(&str, u32)>) -> Strategy {
    let per = per.map(|(label, count)| PerLabel { label: label.into(), count });
    let max_unavailable = MaxUnavailable { default: Amount::Nodes(of_role), per, ..MaxUnavailable::default() };
    Strategy { max_unavailable, ..percents(&[100]) }
}

pub(super) fn failed() -> Ended {
    Ended::Failed(RunReason::ResourcesFailed { count: 1 })
}

pub(super) fn invalid() -> Ended {
    Ended::Invalid(RunReason::ChecksFailed { names: vec!["port".into()] })
}

pub(super) fn pending() -> Ended {
    Ended::Pending(RunReason::Waiting { needs: Vec::new() })
}

impl Ride {
    pub(super) fn begin(world: World, strategy: Strategy) -> Self {
        Self::of(world, &request("v2", strategy))
    }

    pub(super) fn of(mut world: World, request: &Request) -> Self {
        let made = world.see(|sight| plan(sight, request)).unwrap();
        let starting = Starting { request: format!("to {}", request.to), by: "ann".into(), supersede: false };
        let Started { id, txn } = world.see(|sight| start(sight, &made, "sha256:plan", starting)).unwrap();
        world.commit(&txn.unwrap()).unwrap();
        Self { world, plan: Indexed::new(made), id, granted: Vec::new() }
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
        let first = self.world.see(|sight| step(&self.plan, &record, sight));
        assert_eq!(first, self.world.see(|sight| step(&self.plan, &record, sight)), "twice the same is the same");
        first
    }

    /// Steps until nothing is to be done, and says who was granted.
    pub(super) fn go(&mut self) -> Vec<String> {
        let before = self.granted.len();
        for _ in 0..RESTLESS {
            let step = self.look();
            let Some(change) = step.change else { return self.granted[before..].to_vec() };
            assert!(change.grants.len() <= MOST_GRANTS);
            assert_eq!(change.record.seen, self.world.fleet.revision);
            self.granted.extend(change.grants.iter().map(|grant| grant.node.to_string()));
            let txn = change.txn(&self.world.fleet, self.held().1).unwrap();
            assert!(txn.ops.len() <= 128 && txn.guards.len() <= 127, "etcd takes no more");
            self.world.commit(&txn).expect("nobody else decides here");
        }
        panic!("it never rests: {:?}", self.record());
    }

    /// A node that was granted answers, and the rollout goes on.
    pub(super) fn answers(&mut self, name: &str, ended: Ended) -> Vec<String> {
        self.world.answers(name, ended);
        self.go()
    }

    pub(super) fn well(&mut self, name: &str) -> Vec<String> {
        self.answers(name, Ended::Validated)
    }

    /// Time passes, and the rollout goes on.
    pub(super) fn after(&mut self, time: SignedDuration) -> Vec<String> {
        self.world.pass(time);
        self.go()
    }

    /// Everybody who is granted answers well, until nobody is left. Time passes as far as the engine asks for.
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
            told.iter().for_each(|name| self.world.answers(name.as_str(), Ended::Validated));
            self.go();
        }
        panic!("it never ends: {:?}", self.record());
    }

    /// Nodes that have not answered what they were told.
    pub(super) fn on_the_way(&self) -> Vec<NodeName> {
        self.world.fleet.late().iter().cloned().collect()
    }

    pub(super) fn say(&mut self, command: &Command) -> Result<bool, OperateRefused> {
        let (record, at) = self.held();
        let operated = self.world.see(|sight| operate(Some(&self.plan), &record, command, "bob", sight))?;
        let Some(operated) = operated else { return Ok(false) };
        self.world.commit(&operated.txn(&self.world.fleet, at).unwrap()).unwrap();
        Ok(true)
    }

    pub(super) fn version_of(&self, name: &str) -> String {
        self.world.fleet.desired_of(&node(name)).unwrap().version.to_string()
    }
}
