//! Hands in memory: they bring at once what is needed, and a test does in between whatever it likes.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::report::reason::RunReason;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};
use muster_core::rollout::strategy::{Amount, FailureLimits, OnFailure, Strategy};
use muster_core::txn::Txn;

use crate::executor::{Errand, Executor, Got, Looked, Need, Next, Way, Wish, Write, Written, Wrote};
use crate::operate::{Command, operate};
use crate::plan::plan;
use crate::start::{Starting, start};
use crate::step::Indexed;
use crate::testing::{Ended, World, request};

/// Where plans and outcomes are kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Hands {
    pub(super) blobs: BTreeMap<String, Arc<Indexed>>,
    pub(super) outcomes: usize,
    /// There is no room for another outcome.
    pub(super) is_full: bool,
    pub(super) way: Way,
    /// What was needed, in its order.
    pub(super) asked: Vec<&'static str>,
}

impl Hands {
    pub(super) fn bring(&mut self, world: &World, need: Need) -> Got {
        self.asked.push(word(&need));
        match need {
            Need::Newest => Got::Newest(world.fleet.revision),
            Need::View(revision) => {
                assert!(world.fleet.revision >= revision, "nothing is waited for that never comes");
                Got::Viewed
            }
            Need::Plan(name) => Got::Plan(self.blobs.get(&name).cloned().ok_or_else(|| format!("{name} is missing"))),
            Need::Way { .. } => Got::Way(Box::new(self.way.clone())),
            Need::Keep(plan) => {
                let name = format!("plan-{}", self.blobs.len());
                self.blobs.insert(name.clone(), Arc::new(Indexed::new((*plan).clone())));
                Got::Kept(name)
            }
            Need::KeepOutcome(_) if self.is_full => Got::OutcomeKept(None),
            Need::KeepOutcome(_) => {
                self.outcomes += 1;
                Got::OutcomeKept(Some(format!("outcome-{}", self.outcomes)))
            }
        }
    }

    /// Goes on until something is to be committed, or the look is over.
    pub(super) fn look(&mut self, world: &World, executor: &mut Executor, got: Got) -> Next<Box<Write>, Looked> {
        let mut next = world.see(|sight| executor.next(sight, got));
        while let Next::Needs(need) = next {
            let got = self.bring(world, need);
            next = world.see(|sight| executor.next(sight, got));
        }
        next
    }

    /// Carries out all that is to be done, and says what the look came to.
    pub(super) fn finish(&mut self, world: &mut World, executor: &mut Executor, got: Got) -> Looked {
        let mut got = got;
        loop {
            match self.look(world, executor, got) {
                Next::Commit(write) => got = Got::Wrote(commit(world, &write.txn)),
                Next::Done(looked) => return looked,
                Next::Needs(need) => unreachable!("{need:?} was brought"),
            }
        }
    }

    /// A whole look.
    pub(super) fn look_once(&mut self, world: &mut World, executor: &mut Executor) -> Looked {
        self.finish(world, executor, Got::Nothing)
    }

    /// Runs an errand up to its first write.
    pub(super) fn until_written<W: Wish>(&mut self, world: &World, wish: W) -> Result<(Errand<W>, Txn), W::Refused> {
        let (mut errand, first) = Errand::new(wish);
        let mut got = self.bring(world, first);
        loop {
            match world.see(|sight| errand.next(sight, got))? {
                Next::Needs(need) => got = self.bring(world, need),
                Next::Commit(txn) => return Ok((errand, txn)),
                Next::Done(_) => unreachable!("nothing was written"),
            }
        }
    }

    /// Goes on with an errand to its end.
    pub(super) fn run_on<W: Wish>(
        &mut self,
        world: &mut World,
        errand: &mut Errand<W>,
        got: Got,
    ) -> Result<W::Done, W::Refused> {
        let mut got = got;
        loop {
            got = match world.see(|sight| errand.next(sight, got))? {
                Next::Needs(need) => self.bring(world, need),
                Next::Commit(txn) => Got::Wrote(commit(world, &txn)),
                Next::Done(done) => return Ok(done),
            };
        }
    }

    pub(super) fn run<W: Wish>(&mut self, world: &mut World, wish: W) -> Result<W::Done, W::Refused> {
        let (mut errand, first) = Errand::new(wish);
        let got = self.bring(world, first);
        self.run_on(world, &mut errand, got)
    }
}

fn word(need: &Need) -> &'static str {
    match need {
        Need::Newest => "newest",
        Need::View(_) => "view",
        Need::Plan(_) => "plan",
        Need::Way { .. } => "way",
        Need::Keep(_) => "keep",
        Need::KeepOutcome(_) => "keep outcome",
    }
}

pub(super) fn commit(world: &mut World, txn: &Txn) -> Wrote {
    match world.commit(txn) {
        Ok(revision) => Wrote::Committed(revision),
        Err(_) => Wrote::Refused(world.fleet.revision),
    }
}

/// Three nodes, one at a time; one that fails sends all of them back.
pub(super) fn strategy() -> Strategy {
    let none = Amount::Nodes(0);
    let failures = FailureLimits { canary: none, wave: none, total: none };
    Strategy { failures, on_failure: OnFailure::Rollback, ..Strategy::one_wave(Amount::Nodes(1)) }
}

/// A rollout that has begun, and granted nothing.
pub(super) fn begun() -> (World, Hands) {
    begun_with(strategy())
}

pub(super) fn begun_with(strategy: Strategy) -> (World, Hands) {
    let mut world = World::of(&[("web", 3, "a b")]);
    let request = request("v2", strategy);
    let plan = world.see(|sight| plan(sight, &request)).unwrap();
    let who = Starting { request: "one".into(), by: "ada".into(), supersede: false };
    let started = world.see(|sight| start(sight, &plan, "plan-0", who)).unwrap();
    world.commit(&started.txn.unwrap()).unwrap();
    let mut hands = Hands::default();
    hands.blobs.insert("plan-0".into(), Arc::new(Indexed::new(plan)));
    (world, hands)
}

/// One whose first node has failed: it is to go back.
pub(super) fn failed() -> (World, Hands, Executor) {
    let (mut world, mut hands) = begun();
    let mut executor = Executor::default();
    hands.look_once(&mut world, &mut executor);
    let node = granted(&world).pop().unwrap();
    world.answers(&node, Ended::Failed(RunReason::NotCompiled));
    hands.asked.clear();
    (world, hands, executor)
}

pub(super) fn record(world: &World, id: u64) -> RolloutRecord {
    world.fleet.rollouts().get(&RolloutId(id)).unwrap().0.clone()
}

pub(super) fn phase(world: &World) -> RolloutPhase {
    world.fleet.deciding_rollout().unwrap().0.phase.clone()
}

/// Who was granted something by the rollout that decides.
pub(super) fn granted(world: &World) -> Vec<String> {
    let (record, _) = world.fleet.deciding_rollout().unwrap();
    let nodes = world
        .fleet
        .nodes()
        .filter(|(name, _)| world.fleet.granted(name).is_some_and(|(grant, _)| grant.rollout == record.id));
    nodes.map(|(name, _)| name.to_string()).collect()
}

pub(super) fn say(world: &mut World, command: &Command) {
    let (record, at) = world.fleet.deciding_rollout().unwrap();
    let operated = world.see(|sight| operate(None, record, command, "ada", sight)).unwrap().unwrap();
    let txn = operated.txn(&world.fleet, at).unwrap();
    world.commit(&txn).unwrap();
}

/// Who is granted something by a write.
pub(super) fn grants(write: &Write) -> Vec<String> {
    match &write.what {
        Written::Step { change, .. } => change.grants.iter().map(|grant| grant.node.to_string()).collect(),
        Written::Back { .. } | Written::Outcome { .. } => Vec::new(),
    }
}

pub(super) fn to_commit(next: Next<Box<Write>, Looked>) -> Box<Write> {
    match next {
        Next::Commit(write) => write,
        Next::Done(looked) => panic!("nothing is to be written: {looked:?}"),
        Next::Needs(need) => panic!("{need:?} is needed"),
    }
}
