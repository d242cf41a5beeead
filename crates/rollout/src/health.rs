//! How a node stands in a rollout: what it was granted, what it answered, and whether its agent is there.

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Node;
use muster_core::names::{NodeName, Version};
use muster_core::node::liveness::Link;
use muster_core::node::service_state::{ConfigureResult, ServiceState, ValidationResult};
use muster_core::report::Cause;
use muster_core::report::reason::RunReason;
use muster_core::report::record::StatusLeaf;
use muster_core::rollout::record::{DesiredRecord, FailureKind, RolloutRecord};
use muster_core::rollout::strategy::Strategy;
use muster_core::txn::{Generation, Revision};

use crate::sight::Sight;
use crate::unwell::is_still_being_made;

/// How a node stands in a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It was not granted anything yet, or is to be granted once more.
    Waiting,
    /// It was granted, and has not proved itself. Without a deadline: its machine was started again, and it proves itself
    /// once more.
    Moving {
        deadline: Option<Timestamp>,
    },
    /// It waits for others.
    Pending {
        deadline: Timestamp,
    },
    /// It has proved itself, and is watched for a moment.
    Soaking {
        until: Timestamp,
    },
    /// It has proved itself, and its agent is away.
    Away {
        since: Timestamp,
    },
    Healthy {
        since: Timestamp,
    },
    Failed {
        how: FailureKind,
        /// When it was clear that it had.
        since: Timestamp,
    },
    /// An operator has set it aside.
    Skipped,
    /// It has no machine yet and never served: it blocks nobody, uses no budget up, and begins with the target once it is
    /// there. A node that served and died is no such one: it fails when its grant expires, and counts as unavailable until it
    /// is well or an operator releases its slot.
    NotThere,
}

impl Health {
    /// Whether it failed by not answering in time.
    pub(crate) fn is_late(self) -> bool {
        let late = [FailureKind::Expired, FailureKind::Unreachable, FailureKind::PendingTooLong];
        matches!(self, Health::Failed { how, .. } if late.contains(&how))
    }

    /// Whether a wave need not wait for it.
    pub fn is_done(self) -> bool {
        match self {
            Health::Healthy { .. } | Health::Failed { .. } | Health::Skipped | Health::NotThere => true,
            Health::Waiting
            | Health::Moving { .. }
            | Health::Pending { .. }
            | Health::Soaking { .. }
            | Health::Away { .. } => false,
        }
    }
}

/// What the nodes of a rollout are judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure<'a> {
    pub record: &'a RolloutRecord,
    pub strategy: &'a Strategy,
    pub epoch: u64,
    /// When this life of the store began.
    pub epoch_began: Timestamp,
    pub now: Timestamp,
    pub patience: SignedDuration,
}

/// What a rollout has granted to a node, with its revision. Who was set aside keeps what it had: that is no grant.
pub(crate) fn grant_of<'n>(record: &RolloutRecord, node: &'n Node) -> Option<(&'n DesiredRecord, Revision)> {
    let (grant, at) = node.desired.as_ref()?;
    (grant.rollout == record.id && grant.kept.is_none() && grant.version == record.to).then_some((grant, *at))
}

impl Measure<'_> {
    /// How a node stands. `is_settled`: its wave was whole, and a short interruption does not undo that.
    pub(crate) fn health(
        &self,
        sight: &Sight<'_>,
        name: &NodeName,
        node: &Node,
        link: Link,
        is_settled: bool,
    ) -> Health {
        if self.record.skipped.contains(name) {
            return Health::Skipped;
        }
        if is_not_there(node, link) {
            return Health::NotThere;
        }
        let Some((grant, at)) = grant_of(self.record, node) else { return Health::Waiting };
        let mut health = self.health_of(grant, at, node, link, is_settled);
        // A wave that is whole stays so: it is the wave then that is watched for long enough.
        if let (Health::Healthy { since }, false) = (health, is_settled) {
            health = self.if_known_for_long(sight, node, at, since);
        }
        let failed_before = |since| self.record.retry_before.is_some_and(|before| before.covers(self.epoch, at, since));
        let again = match health {
            Health::Failed { since, .. } => failed_before(since) || self.record.retry.contains(name),
            Health::Waiting | Health::Moving { .. } | Health::Pending { .. } | Health::Away { .. } => {
                self.record.retry.contains(name)
            }
            // It has proved itself meanwhile.
            Health::Soaking { .. } | Health::Healthy { .. } | Health::Skipped | Health::NotThere => false,
        };
        if again { Health::Waiting } else { health }
    }

    fn health_of(&self, grant: &DesiredRecord, at: Revision, node: &Node, link: Link, is_settled: bool) -> Health {
        let deadlines = &self.strategy.deadlines;
        let expires = grant.expires.unwrap_or_else(|| later(grant.granted, deadlines.node));
        // In a new life of the store everybody is asked anew, and has the whole time for it.
        let expires = expires.max(later(self.epoch_began, deadlines.node));
        let silent = match link {
            Link::Connected { .. } => None,
            Link::Silent { since } => Some(since),
        };
        let moving = |deadline: Timestamp| match silent {
            _ if self.now < deadline => Health::Moving { deadline: Some(deadline) },
            Some(_) => Health::Failed { how: FailureKind::Unreachable, since: deadline },
            None => Health::Failed { how: FailureKind::Expired, since: deadline },
        };
        let failed = |how, since| Health::Failed { how, since };
        let Some((state, leaf)) = answer(node, Generation { epoch: self.epoch, number: at.0 }) else {
            return moving(expires);
        };
        if *state.version() != self.record.to {
            // Checks between runs speak of what the node ran before: they are no answer.
            let went_back = went_back(node, &self.record.to);
            return went_back.map_or_else(|| moving(expires), |at| failed(FailureKind::RolledBack, at));
        }
        // One that is granted once more may give the same answer as before, and has its whole time for that again.
        let since = leaf.since.max(grant.granted);
        match state {
            // Its agent was ended in the middle of the run, and makes it again by itself: that says nothing of the version.
            ServiceState::Configured { result: ConfigureResult::Failure, .. } if was_interrupted(node) => {
                moving(expires)
            }
            ServiceState::Configured { result: ConfigureResult::Failure, .. } => {
                failed(FailureKind::NotConfigured, since)
            }
            ServiceState::Configured { result: ConfigureResult::Pending, .. } => {
                let deadline = later(since, deadlines.pending);
                let is_late = self.now >= deadline;
                if is_late { failed(FailureKind::PendingTooLong, deadline) } else { Health::Pending { deadline } }
            }
            ServiceState::Validated { result: ValidationResult::Failure, .. } if self.strategy.gate.validated => {
                failed(FailureKind::NotValidated, since)
            }
            // It may have waited for others until then, and that does not count.
            ServiceState::Configured { result: ConfigureResult::Success, .. } if self.strategy.gate.validated => {
                moving(expires.max(later(since, deadlines.node)))
            }
            ServiceState::Configured { result: ConfigureResult::Success, .. } | ServiceState::Validated { .. } => {
                self.proved(node, since, silent, is_settled)
            }
        }
    }

    fn proved(&self, node: &Node, proved: Timestamp, silent: Option<Timestamp>, is_settled: bool) -> Health {
        if is_rebooted(node) {
            return Health::Moving { deadline: None };
        }
        if let Some(since) = silent {
            let is_hiccup = is_settled && self.now.duration_since(since) < self.patience;
            if !is_hiccup {
                return Health::Away { since };
            }
        }
        let until = later(proved, self.strategy.soak);
        if self.now < until { Health::Soaking { until } } else { Health::Healthy { since: until } }
    }

    /// Healthy by the times that stand in the store; but those are of other clocks, and whoever decides has to have seen it for
    /// as long.
    fn if_known_for_long(&self, sight: &Sight<'_>, node: &Node, granted: Revision, since: Timestamp) -> Health {
        match sight.not_before(proved_at(node, granted), self.strategy.soak) {
            Some(until) if self.now < until => Health::Soaking { until },
            Some(_) | None => Health::Healthy { since },
        }
    }

    /// Whether others can count on a node now that no rollout moves: it has proved that it runs what it was told.
    pub(crate) fn is_serving(&self, node: &Node, told: Option<(&Version, Generation)>) -> bool {
        let Some((version, generation)) = told else { return false };
        let Some((state, _)) = answer(node, generation) else { return false };
        let proved = match state {
            ServiceState::Configured { result: ConfigureResult::Success, .. }
            | ServiceState::Validated { result: ValidationResult::Failure, .. } => !self.strategy.gate.validated,
            ServiceState::Validated { result: ValidationResult::Success, .. } => true,
            ServiceState::Configured { result: ConfigureResult::Failure | ConfigureResult::Pending, .. } => false,
        };
        proved && state.version() == version && !is_rebooted(node)
    }
}

/// Whether a node's last run did not come to its own end.
fn was_interrupted(node: &Node) -> bool {
    let last = node.observed.as_ref().and_then(|(observed, _)| observed.last.as_ref());
    last.is_some_and(|last| matches!(last.reason, Some(RunReason::Interrupted { .. })))
}

/// Whether a node that serves was told together with everybody else to go elsewhere, and has not answered. It may run at any
/// moment, so nobody can count on it; but it is not broken, and to move it takes something away.
///
/// Who was granted something by another rollout is no such node: those are few, and hold their slots already. But in a new
/// life of the store everybody is asked anew, granted or not.
pub(crate) fn is_on_its_way(node: &Node, told: Option<(&Version, Generation)>, was_granted: bool) -> bool {
    let Some((observed, _)) = &node.observed else { return false };
    let Some((_, told)) = told else { return false };
    let is_asked_anew = observed.last.as_ref().is_some_and(|last| last.generation.epoch != told.epoch);
    let serves = observed.passed.is_some() && !observed.rebooted;
    serves && !node.has_answered(told) && (!was_granted || is_asked_anew)
}

/// The state that a node is in, if that is its answer to what it was told under a generation.
fn answer(node: &Node, told: Generation) -> Option<(&ServiceState, &StatusLeaf)> {
    node.state().filter(|_| node.has_answered(told))
}

/// When what proves a node was written: its state, or the grant that this answers if that came later.
pub(crate) fn proved_at(node: &Node, granted: Revision) -> Revision {
    node.state_at.map_or(granted, |state| state.max(granted))
}

/// When a node went back by itself from a version, if its last run was for that.
fn went_back(node: &Node, from: &Version) -> Option<Timestamp> {
    let last = node.observed.as_ref()?.0.last.as_ref()?;
    let is_it = |cause: &Cause| matches!(cause, Cause::AutoRollback { version, .. } if version == from);
    last.causes.iter().any(is_it).then_some(last.ended)
}

fn is_rebooted(node: &Node) -> bool {
    node.observed.as_ref().is_some_and(|(observed, _)| observed.rebooted)
}

/// Whether there is nobody to be told: the node has no machine yet, and never served.
fn is_not_there(node: &Node, link: Link) -> bool {
    matches!(link, Link::Silent { .. }) && is_still_being_made(node)
}

/// Whether others can count on a node, as far as its own records say: it has proved that it runs what it was told, and its
/// agent is there. A node that never served takes nothing from anybody either.
pub(crate) fn is_well(sight: &Sight<'_>, record: &RolloutRecord, name: &NodeName, node: &Node) -> bool {
    if grant_of(record, node).is_none() && is_still_being_made(node) {
        return true;
    }
    let Some(told) = sight.fleet.desired_of(name) else { return false };
    let proved = answer(node, told.generation)
        .is_some_and(|(state, _)| state.is_validated() && *state.version() == told.version);
    proved && sight.is_connected(name) && !is_rebooted(node)
}

pub(crate) fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}
