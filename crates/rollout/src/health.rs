//! Health of a node in a rollout, from its grant, its reports and its connection.

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
use muster_core::txn::Generation;
use muster_core::txn::Revision;

use crate::decision::DecisionInput;
use crate::preflight::is_unprovisioned;

/// Health of a node in a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Not granted yet, or to be granted again.
    Waiting,
    /// Granted, and not validated yet. Without a deadline: its machine rebooted, and it validates again.
    Moving {
        deadline: Option<Timestamp>,
    },
    /// Its run waits for other nodes.
    Pending {
        deadline: Timestamp,
    },
    /// Validated, and in its soak time.
    Soaking {
        until: Timestamp,
    },
    /// Validated, and its agent is disconnected.
    Away {
        since: Timestamp,
    },
    Healthy {
        since: Timestamp,
    },
    Failed {
        how: FailureKind,
        /// The time when the failure was certain.
        since: Timestamp,
    },
    /// An operator has skipped it.
    Skipped,
    /// It has no machine yet and has never served. It blocks nothing, uses no budget, and starts with the target
    /// version. A node that has served and died is not in this state: it fails when its grant expires, and counts as
    /// unavailable until it is healthy or an operator releases its slot.
    Unprovisioned,
}

impl Health {
    /// True if it failed by missing a deadline.
    pub(crate) fn is_late(self) -> bool {
        let late = [FailureKind::Expired, FailureKind::Unreachable, FailureKind::PendingTooLong];
        matches!(self, Health::Failed { how, .. } if late.contains(&how))
    }

    /// True if its wave need not wait for it.
    pub fn is_done(self) -> bool {
        match self {
            Health::Healthy { .. } | Health::Failed { .. } | Health::Skipped | Health::Unprovisioned => true,
            Health::Waiting
            | Health::Moving { .. }
            | Health::Pending { .. }
            | Health::Soaking { .. }
            | Health::Away { .. } => false,
        }
    }
}

/// Rules and times by which the nodes of a rollout are judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HealthRules<'a> {
    pub record: &'a RolloutRecord,
    pub strategy: &'a Strategy,
    pub epoch: u64,
    /// The time when the current store epoch began.
    pub epoch_began: Timestamp,
    pub now: Timestamp,
    pub disconnect_grace: SignedDuration,
}

/// The grant of a rollout to a node, with its revision.
pub(crate) fn grant_of<'n>(record: &RolloutRecord, node: &'n Node) -> Option<(&'n DesiredRecord, Revision)> {
    grant_in(record, node.desired.as_ref())
}

/// A node's record, if it is a grant of the rollout. The kept version of a skipped node is not a grant.
pub(crate) fn grant_in<'n>(
    record: &RolloutRecord,
    desired: Option<&'n (DesiredRecord, Revision)>,
) -> Option<(&'n DesiredRecord, Revision)> {
    let (grant, at) = desired?;
    (grant.rollout == record.id && grant.kept.is_none() && grant.version == record.to).then_some((grant, *at))
}

impl HealthRules<'_> {
    /// The health of a node with this grant. `is_settled`: all nodes of its wave were done before, and a short disconnection does
    /// not undo that.
    pub(crate) fn health(
        &self,
        input: &DecisionInput<'_>,
        (name, node): (&NodeName, &Node),
        grant: Option<(&DesiredRecord, Revision)>,
        link: Link,
        is_settled: bool,
    ) -> Health {
        if self.record.operator.skipped.contains(name) {
            return Health::Skipped;
        }
        if has_no_machine(node, link) {
            return Health::Unprovisioned;
        }
        let Some((grant, at)) = grant else { return Health::Waiting };
        let mut health = self.health_of(grant, at, node, link, is_settled);
        // In a settled wave the soak of the wave counts instead.
        if let (Health::Healthy { since }, false) = (health, is_settled) {
            health = self.after_observed_soak(input, node, at, since);
        }
        let failed_before =
            |since| self.record.operator.retry_before.is_some_and(|before| before.covers(self.epoch, at, since));
        let again = match health {
            Health::Failed { since, .. } => failed_before(since) || self.record.operator.retry.contains(name),
            Health::Waiting | Health::Moving { .. } | Health::Pending { .. } | Health::Away { .. } => {
                self.record.operator.retry.contains(name)
            }
            // It has validated meanwhile.
            Health::Soaking { .. } | Health::Healthy { .. } | Health::Skipped | Health::Unprovisioned => false,
        };
        if again { Health::Waiting } else { health }
    }

    fn health_of(&self, grant: &DesiredRecord, at: Revision, node: &Node, link: Link, is_settled: bool) -> Health {
        let deadlines = &self.strategy.deadlines;
        // An agent of cron acts at its next call.
        let to_validate = deadlines.node.saturating_add(node.call_allowance());
        let to_stop_waiting = deadlines.pending.saturating_add(node.call_allowance());
        let expires = grant.expires.unwrap_or_else(|| later(grant.granted, to_validate));
        // In a new store epoch every node is asked again, and has its full time.
        let expires = expires.max(later(self.epoch_began, to_validate));
        let silent = link.silent_since();
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
            // Periodic validations report the version that the node ran before. They do not answer the grant.
            let rolled_itself_back = rolled_itself_back(node, &self.record.to);
            return rolled_itself_back.map_or_else(|| moving(expires), |at| failed(FailureKind::RolledBack, at));
        }
        // A node that is granted again may report the same state as before, and has its full time for that.
        let since = leaf.since.max(grant.granted);
        match state {
            // The run was lost with its machine or its agent, and is made again. This says nothing about the version.
            ServiceState::Configured { result: ConfigureResult::Failure, .. } if was_interrupted(node) => {
                moving(expires)
            }
            ServiceState::Configured { result: ConfigureResult::Failure, .. } => {
                failed(FailureKind::NotConfigured, since)
            }
            ServiceState::Configured { result: ConfigureResult::Pending, .. } => {
                let deadline = later(since, to_stop_waiting);
                let is_late = self.now >= deadline;
                if is_late { failed(FailureKind::PendingTooLong, deadline) } else { Health::Pending { deadline } }
            }
            ServiceState::Validated { result: ValidationResult::Failure, .. } if self.strategy.gate.validated => {
                failed(FailureKind::NotValidated, since)
            }
            // Time that it waited for other nodes does not count.
            ServiceState::Configured { result: ConfigureResult::Success, .. } if self.strategy.gate.validated => {
                moving(expires.max(later(since, to_validate)))
            }
            ServiceState::Configured { result: ConfigureResult::Success, .. } | ServiceState::Validated { .. } => {
                self.validated(node, since, silent, is_settled)
            }
        }
    }

    fn validated(&self, node: &Node, validated: Timestamp, silent: Option<Timestamp>, is_settled: bool) -> Health {
        if is_rebooted(node) {
            return Health::Moving { deadline: None };
        }
        if let Some(since) = silent {
            let is_hiccup = is_settled && self.now.duration_since(since) < self.disconnect_grace;
            if !is_hiccup {
                return Health::Away { since };
            }
        }
        let until = later(validated, self.strategy.soak);
        if self.now < until { Health::Soaking { until } } else { Health::Healthy { since: until } }
    }

    /// Healthy by the times in the store. These are from other clocks, and this replica must also have observed the
    /// state for the whole soak time.
    fn after_observed_soak(
        &self,
        input: &DecisionInput<'_>,
        node: &Node,
        granted: Revision,
        since: Timestamp,
    ) -> Health {
        match input.not_before(validated_at(node, granted), self.strategy.soak) {
            Some(until) if self.now < until => Health::Soaking { until },
            Some(_) | None => Health::Healthy { since },
        }
    }

    /// True if a node that this rollout does not move is available: it has validated its desired version.
    pub(crate) fn is_serving(&self, node: &Node, desired: Option<(&Version, Generation)>) -> bool {
        let Some((version, generation)) = desired else { return false };
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

/// True if a node's last run was cut off before it had a result.
fn was_interrupted(node: &Node) -> bool {
    let last = node.observed.as_ref().and_then(|(observed, _)| observed.last.as_ref());
    last.is_some_and(|last| matches!(last.reason, Some(RunReason::Interrupted { .. } | RunReason::Lost { .. })))
}

/// True if a node that has validated a version was moved together with all nodes at once, and has not reported yet. It
/// may run at any moment and is not available, but it is not broken either: moving it takes it out of service.
///
/// A node with a grant of another rollout does not count here: there are few of them, and they hold their slots
/// already. In a new store epoch every node is asked again, granted or not.
pub(crate) fn is_moving_at_once(node: &Node, desired: Option<(&Version, Generation)>, was_granted: bool) -> bool {
    let Some((observed, _)) = &node.observed else { return false };
    let Some((_, desired)) = desired else { return false };
    let is_new_epoch = observed.last.as_ref().is_some_and(|last| last.generation.epoch != desired.epoch);
    let serves = observed.passed.is_some() && !observed.rebooted;
    serves && !node.has_answered(desired) && (!was_granted || is_new_epoch)
}

/// The node's state, if it reports the result of this generation.
fn answer(node: &Node, desired: Generation) -> Option<(&ServiceState, &StatusLeaf)> {
    node.state().filter(|_| node.has_answered(desired))
}

/// The revision of the node's validation: that of its state, or of the grant if that is later.
pub(crate) fn validated_at(node: &Node, granted: Revision) -> Revision {
    node.state_at.map_or(granted, |state| state.max(granted))
}

/// The time when a node rolled itself back from a version, if its last run did that.
fn rolled_itself_back(node: &Node, from: &Version) -> Option<Timestamp> {
    let last = node.observed.as_ref()?.0.last.as_ref()?;
    let is_it = |cause: &Cause| matches!(cause, Cause::AutoRollback { version, .. } if version == from);
    last.causes.iter().any(is_it).then_some(last.ended)
}

fn is_rebooted(node: &Node) -> bool {
    node.observed.as_ref().is_some_and(|(observed, _)| observed.rebooted)
}

/// True if a node has no machine yet and has never served.
fn has_no_machine(node: &Node, link: Link) -> bool {
    matches!(link, Link::Silent { .. }) && is_unprovisioned(node)
}

/// True if a node is available, by its own records: it has validated its desired version and its agent is connected. A
/// node that has never served counts as available.
pub(crate) fn is_available(input: &DecisionInput<'_>, record: &RolloutRecord, name: &NodeName, node: &Node) -> bool {
    if grant_of(record, node).is_none() && is_unprovisioned(node) {
        return true;
    }
    let Some(desired) = input.fleet.desired_of(name) else { return false };
    let proved = answer(node, desired.generation)
        .is_some_and(|(state, _)| state.is_validated() && *state.version() == desired.version);
    proved && input.is_connected(name) && !is_rebooted(node)
}

pub(crate) fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}
