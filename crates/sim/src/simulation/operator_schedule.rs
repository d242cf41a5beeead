//! Random actions of operators during the run of a seed, and changes of the rollout controller's lock.
//!
//! In a quarter of the seeds operators act more often, and the controller lock changes its holder more often. The number
//! of the seed decides which seeds these are: a draw would change the runs of all others.

use std::time::Duration;

use muster_core::fleet::Node;
use muster_core::names::NodeName;
use muster_core::node::pause::{PauseRecord, PauseScope};
use muster_core::node::policy::{NodePolicy, PolicyRecord};
use muster_core::node::service_state::{ConfigureResult, ServiceState, ValidationResult};
use muster_core::rollout::strategy::{Amount, FailureLimits, Strategy};
use muster_core::txn::{Op, Txn};
use muster_rollout::command::{RetryTarget, RolloutCommand};

use super::event::{Event, SimTime};
use super::faults::Fault;
use super::fleet::version;
use super::operator::OperatorActionKind;
use super::world::World;
use crate::rng::Rng;

/// One kind of action, as often in a table as it is likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActionDraw {
    PauseAndResume,
    Resume,
    Promote,
    PromoteAll,
    Skip,
    RetryFailed,
    /// Retries any node, which is refused if the node has not failed.
    RetryNode,
    RetryFailedNode,
    /// Resumes a rollout, pauses it again and retries its failed nodes within seconds.
    ResumePauseRetry,
    ReleaseSlot,
    Abort,
    RollBack,
    Start,
    PauseNodes,
    AddNode,
    Decommission,
}

const USUAL_ACTIONS: &[ActionDraw] = &[
    ActionDraw::PauseAndResume,
    ActionDraw::PauseAndResume,
    ActionDraw::Resume,
    ActionDraw::Promote,
    ActionDraw::PromoteAll,
    ActionDraw::Skip,
    ActionDraw::RetryFailed,
    ActionDraw::ReleaseSlot,
    ActionDraw::Abort,
    ActionDraw::RollBack,
    ActionDraw::Start,
    ActionDraw::PauseNodes,
    ActionDraw::AddNode,
    ActionDraw::Decommission,
    ActionDraw::Start,
];

/// Mostly commands that let a rollout continue. Few of them end it.
const BUSY_ACTIONS: &[ActionDraw] = &[
    ActionDraw::PauseAndResume,
    ActionDraw::PauseAndResume,
    ActionDraw::PauseAndResume,
    ActionDraw::PauseAndResume,
    ActionDraw::Resume,
    ActionDraw::Resume,
    ActionDraw::Resume,
    ActionDraw::Promote,
    ActionDraw::PromoteAll,
    ActionDraw::Skip,
    ActionDraw::RetryFailed,
    ActionDraw::RetryFailed,
    ActionDraw::RetryFailed,
    ActionDraw::RetryNode,
    ActionDraw::RetryFailedNode,
    ActionDraw::RetryFailedNode,
    ActionDraw::RetryFailedNode,
    ActionDraw::ResumePauseRetry,
    ActionDraw::ResumePauseRetry,
    ActionDraw::ReleaseSlot,
    ActionDraw::ReleaseSlot,
    ActionDraw::PauseNodes,
    ActionDraw::PauseNodes,
    ActionDraw::PauseNodes,
    ActionDraw::Abort,
    ActionDraw::RollBack,
    ActionDraw::Start,
    ActionDraw::AddNode,
    ActionDraw::Decommission,
    ActionDraw::Decommission,
];

/// A range of numbers to draw from.
#[derive(Clone, Copy, Debug)]
pub(super) struct DrawRange {
    least: u64,
    /// Above the largest number.
    end: u64,
}

impl DrawRange {
    pub(super) fn draw(self, rng: &mut Rng) -> u64 {
        self.least + rng.below(self.end - self.least)
    }
}

/// How often operators act, and how often the controller lock changes its holder.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperatorRates {
    actions: DrawRange,
    kinds: &'static [ActionDraw],
    /// Faults that only the holder of the rollout controller has. None: no draw.
    takeovers: Option<DrawRange>,
    /// The longest pauses in milliseconds: of the rollout, and of nodes.
    rollout_pause: u64,
    node_pause: u64,
    /// The probability that an action is sent twice.
    repeat: f64,
    /// True if some strategies tolerate more failures than usual.
    is_tolerant: bool,
    /// Commands to a paused rollout after the last fault.
    pub(super) final_help: DrawRange,
}

const USUAL: OperatorRates = OperatorRates {
    actions: DrawRange { least: 0, end: 7 },
    kinds: USUAL_ACTIONS,
    takeovers: None,
    rollout_pause: 20_000,
    node_pause: 60_000,
    repeat: 0.0,
    is_tolerant: false,
    final_help: DrawRange { least: 0, end: 4 },
};

const BUSY: OperatorRates = OperatorRates {
    actions: DrawRange { least: 6, end: 25 },
    kinds: BUSY_ACTIONS,
    takeovers: Some(DrawRange { least: 2, end: 9 }),
    rollout_pause: 60_000,
    node_pause: 240_000,
    repeat: 0.15,
    is_tolerant: true,
    final_help: DrawRange { least: 2, end: 9 },
};

/// When an operator requests the end of a cordon again, after the last fault has begun. The longest fault takes 30 s.
const LAST_REQUESTS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(45)];

/// True if operators act more often in the run of this seed: its last three digits are 500 to 749.
pub(crate) fn has_busy_operators(seed: u64) -> bool {
    (500..750).contains(&(seed % 1_000))
}

impl OperatorRates {
    pub(super) fn of_seed(seed: u64) -> Self {
        if has_busy_operators(seed) { BUSY } else { USUAL }
    }

    /// Lets some strategies tolerate failures: half of them up to a total, the others always.
    pub(super) fn adapt(&self, strategy: &mut Strategy, rng: &mut Rng) {
        if self.is_tolerant {
            let all = Amount::Percent(100);
            match rng.below(8) {
                0 | 1 => {
                    let total = Amount::Nodes(u32::try_from(rng.below(2)).unwrap_or(0));
                    strategy.failures = FailureLimits { canary: all, wave: all, total };
                }
                2 | 3 => strategy.failures = FailureLimits { canary: all, wave: all, total: all },
                _ => {}
            }
        }
    }

    /// Schedules the actions and takeovers of a run.
    pub(super) fn schedule(&self, world: &mut World, strategy: &Strategy, begin: SimTime, calm: SimTime) {
        let span = u64::try_from((calm - begin).as_millis()).unwrap_or(60_000);
        let moment = |world: &mut World| begin + Duration::from_millis(2_000 + world.rng.below(span));
        world.operators.repeat = self.repeat;
        let actions = self.actions.draw(&mut world.rng);
        for _ in 0..actions {
            let at = moment(world);
            let node = {
                let machine = world.any_machine();
                world.machines[machine].name.clone()
            };
            let back = at + Duration::from_millis(1_000 + world.rng.below(self.rollout_pause));
            let kind = self.kinds[world.rng.below(self.kinds.len() as u64) as usize];
            self.schedule_action(world, kind, (at, back), node, strategy);
        }
        let takeovers = self.takeovers.map_or(0, |takeovers| takeovers.draw(&mut world.rng));
        for _ in 0..takeovers {
            let at = moment(world);
            world.queue.schedule(at, Event::LockHolderFails);
        }
    }

    fn schedule_action(
        &self,
        world: &mut World,
        kind: ActionDraw,
        (at, back): (SimTime, SimTime),
        node: NodeName,
        strategy: &Strategy,
    ) {
        let pause = || RolloutCommand::Pause { reason: "a look".into() };
        let command = match kind {
            ActionDraw::PauseAndResume => {
                world.submit_later(at, OperatorActionKind::Operate(pause()));
                world.submit_later(back, OperatorActionKind::Operate(RolloutCommand::Resume));
                return;
            }
            ActionDraw::ResumePauseRetry => {
                let commands = [RolloutCommand::Resume, pause(), RolloutCommand::Retry(RetryTarget::AllFailed)];
                for command in commands {
                    let at = at + world.random_between(0, 5_000);
                    world.submit_later(at, OperatorActionKind::Operate(command));
                }
                world.submit_later(back, OperatorActionKind::Operate(RolloutCommand::Resume));
                return;
            }
            ActionDraw::RollBack => return world.submit_later(at, OperatorActionKind::RollBack),
            ActionDraw::Start => return world.schedule_start(at, strategy),
            ActionDraw::PauseNodes => return world.schedule_node_pause(at, node, self.node_pause),
            ActionDraw::RetryFailedNode => return world.queue.schedule(at, Event::RetryFailedNode),
            ActionDraw::AddNode => return world.queue.schedule(at, Event::AddNode),
            ActionDraw::Decommission => return world.queue.schedule(at, Event::Decommission { node }),
            ActionDraw::Resume => RolloutCommand::Resume,
            ActionDraw::Promote => RolloutCommand::Promote { full: false },
            ActionDraw::PromoteAll => RolloutCommand::Promote { full: true },
            ActionDraw::Skip => RolloutCommand::Skip { node },
            ActionDraw::RetryFailed => RolloutCommand::Retry(RetryTarget::AllFailed),
            ActionDraw::RetryNode => RolloutCommand::Retry(RetryTarget::Nodes(vec![node])),
            ActionDraw::ReleaseSlot => RolloutCommand::Release { node },
            ActionDraw::Abort => RolloutCommand::Abort { reason: "enough".into() },
        };
        world.submit_later(at, OperatorActionKind::Operate(command));
    }
}

impl World {
    /// Starts a rollout of any version. Older versions are refused. Sometimes it moves all nodes at once, or does not
    /// supersede the open rollout.
    fn schedule_start(&mut self, at: SimTime, strategy: &Strategy) {
        let to = version(1 + self.rng.below(4));
        let strategy = Box::new(strategy.clone());
        let (at_once, supersede) = (self.rng.chance(0.2), self.rng.chance(0.8));
        // Two operators may start rollouts at the same time.
        if self.rng.chance(0.3) {
            let (to, strategy) = (version(3 + self.rng.below(2)), strategy.clone());
            self.submit_later(at, OperatorActionKind::Start { to, strategy, at_once: false, supersede: true });
        }
        self.submit_later(at, OperatorActionKind::Start { to, strategy, at_once, supersede });
    }

    /// Pauses a node, a role or the fleet for some time, or cordons a node.
    fn schedule_node_pause(&mut self, at: SimTime, node: NodeName, most: u64) {
        let place = self.rng.below(self.design.roles.len() as u64) as usize;
        let scope = match self.rng.below(4) {
            0 => Some(PauseScope::Global),
            1 => Some(PauseScope::Role { role: self.design.roles[place].0.clone() }),
            2 => Some(PauseScope::Host { node: node.clone() }),
            _ => None,
        };
        let back = at + Duration::from_millis(5_000 + self.rng.below(most));
        let (by, reason, since) = ("ann".to_owned(), "a look".to_owned(), self.timestamp(at));
        let is_cordon = scope.is_none();
        let (key, op) = match scope {
            Some(scope) => {
                let key = self.keys.pause(&scope);
                let record = PauseRecord { by, reason, since, until: Some(self.timestamp(back)) };
                (key.clone(), Op::put_json(key, &record))
            }
            None => {
                let key = self.keys.policy(&node);
                let record = PolicyRecord { policy: NodePolicy::Cordoned, by, reason, since, keeps: None };
                (key.clone(), Op::put_json(key, &record))
            }
        };
        if let Ok(op) = op {
            self.submit_later(at, OperatorActionKind::Write(Txn::new().op(op)));
            let end = || OperatorActionKind::Write(Txn::new().op(Op::delete(key.clone())));
            // The leaders controller deletes an expired pause.
            self.submit_later(back, end());
            // A cordon has no end: the operator requests it again, until no fault that began before can prevent it.
            if is_cordon {
                let calm = back.max(self.faults.calm_from);
                LAST_REQUESTS.into_iter().for_each(|later| self.submit_later(calm + later, end()));
            }
        }
    }

    pub(super) fn retry_failed_node(&mut self) {
        let has_failed = |node: &Node| match node.state() {
            Some((ServiceState::Configured { result, .. }, _)) => *result == ConfigureResult::Failure,
            Some((ServiceState::Validated { result, .. }, _)) => *result == ValidationResult::Failure,
            None => false,
        };
        let designed = self.checker.fleet().designed();
        let failed: Vec<NodeName> =
            designed.filter(|(_, node, _)| has_failed(node)).map(|(name, _, _)| name.clone()).collect();
        if failed.is_empty() {
            return;
        }
        let node = failed[self.rng.below(failed.len() as u64) as usize].clone();
        self.submit(OperatorActionKind::Operate(RolloutCommand::Retry(RetryTarget::Nodes(vec![node]))));
    }

    /// The server that holds the rollout controller crashes, freezes, loses its lease or is cut off from the store.
    pub(super) fn fail_lock_holder(&mut self) {
        let Some(replica) = self.acting().filter(|_| self.now < self.faults.calm_from) else { return };
        match self.rng.below(4) {
            0 => {
                let others_up = self.replicas.iter().filter(|server| server.up).count();
                if others_up > 1 {
                    let back = self.random_between(1_000, 20_000);
                    self.crash_replica(replica, back);
                }
            }
            1 if !self.replicas[replica].is_frozen(self.now) => {
                self.count_fault(Fault::ReplicaFrozen);
                let pause = self.random_between(5_000, 30_000);
                self.freeze(replica, pause);
            }
            2 => {
                let length = self.random_between(5_000, 15_000);
                self.cut_off_replica(replica, length);
            }
            _ => {
                if let Some(current) = self.replicas[replica].current(self.now) {
                    self.count_fault(Fault::LeaseLost);
                    self.end_lease(current.lease);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_seeds_has_busy_operators() {
        let busy: Vec<u64> = (0..40_000).filter(|seed| has_busy_operators(*seed)).collect();
        assert_eq!(busy.len(), 10_000);
        assert_eq!(busy.iter().filter(|seed| *seed % 2 == 0).count(), 5_000, "both fleets");
        assert_eq!(busy.iter().filter(|seed| *seed % 5 == 4).count(), 2_000, "all clock errors");
    }
}
