//! Types for the state of each node that a step decides on, and counts by role, failure domain and wave.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use jiff::Timestamp;
use muster_core::fleet::{Fleet, Node};
use muster_core::names::{NodeName, Role};
use muster_core::node::agent::CallInterval;
use muster_core::node::pause::{PauseRecord, PauseScope};
use muster_core::node::record::NodeRecord;
use muster_core::rollout::record::{FailureCutoff, FailureKind};
use muster_core::txn::Revision;

use crate::health::Health;

use super::indexed_plan::PriorCondition;

/// Facts of one node of the design.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeFacts<'a> {
    pub name: &'a NodeName,
    pub node: &'a Node,
    pub record: &'a NodeRecord,
    /// The wave that moves it. None: the target is its desired version already, without a grant of this rollout.
    pub wave: Option<usize>,
    /// Its state before the rollout, for which some of its failures do not count.
    pub prior_condition: Option<PriorCondition>,
    pub role: usize,
    /// Its value of the label that has a budget.
    pub budget_label: Option<usize>,
    /// Its failure domain.
    pub failure_domain: usize,
    pub silent: Option<Timestamp>,
    /// Its agent is started by cron, and is not connected: its interval, and the time of its next call.
    pub between_calls: Option<(CallInterval, Timestamp)>,
    pub health: Health,
    /// It is still being provisioned, and no rollout has granted it anything.
    pub is_new: bool,
    /// It is down, and uses the budget.
    pub is_unavailable: bool,
    /// It is down and counted as such: granting it uses no further budget. A node whose slot was released is not
    /// counted, and needs a slot.
    pub already_counted: bool,
    /// The revision of this rollout's grant.
    pub grant_at: Option<Revision>,
    /// It failed because its agent is disconnected, and an operator has retried it. It is granted again when the agent
    /// is back.
    pub is_retried: bool,
}

/// Nodes of a role or label value that has a budget.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub nodes: usize,
    pub unavailable: usize,
}

/// Nodes of a failure domain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FailureDomainTally {
    pub nodes: usize,
    pub silent: usize,
}

impl FailureDomainTally {
    /// More than half of the domain, and at least two nodes, are disconnected. This is no fault of the nodes, and
    /// nothing more is granted there.
    pub(crate) fn is_braked(self) -> bool {
        self.silent >= 2 && self.silent * 2 > self.nodes
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaveTally {
    /// Nodes that the wave waits for.
    pub undone: usize,
    /// Those of them with a connected agent, or with a deadline of their own.
    pub undone_present: usize,
    /// Granted, and neither healthy nor failed.
    pub moving: usize,
    pub healthy: usize,
    /// The time when the last of them became healthy.
    pub last_healthy: Option<Timestamp>,
    /// The time when this replica observed that, if the times in the store are not trusted.
    pub last_observed: Option<Timestamp>,
    /// Failures that count against the limits.
    pub failures: usize,
}

impl NodeFacts<'_> {
    pub(crate) fn failed_how(&self) -> Option<FailureKind> {
        match self.health {
            Health::Failed { how, .. } => Some(how),
            Health::Waiting
            | Health::Moving { .. }
            | Health::Pending { .. }
            | Health::Soaking { .. }
            | Health::Away { .. }
            | Health::Healthy { .. }
            | Health::Skipped
            | Health::Unprovisioned => None,
        }
    }

    /// Excused and reviewed failures do not count.
    pub(crate) fn counts_as_failed(&self, reviewed: Option<FailureCutoff>) -> bool {
        let is_excused =
            || self.prior_condition.zip(self.failed_how()).is_some_and(|(condition, how)| condition.covers(how));
        self.is_unreviewed_failure(reviewed) && !is_excused()
    }

    /// It has failed, and no operator has resumed the rollout since.
    pub(crate) fn is_unreviewed_failure(&self, reviewed: Option<FailureCutoff>) -> bool {
        let Health::Failed { since, .. } = self.health else { return false };
        let granted = self.grant_at.unwrap_or_default();
        // Failures of an earlier store epoch are left out by the survey.
        let is_reviewed = reviewed.is_some_and(|cutoff| cutoff.covers(cutoff.before.epoch, granted, since));
        !is_reviewed && !self.is_retried
    }
}

/// The pauses in effect. Usually there are none, and nothing is compared.
#[derive(Clone, Debug)]
pub(crate) struct Pauses<'a>(Vec<(&'a PauseScope, &'a PauseRecord)>);

impl<'a> Pauses<'a> {
    pub(crate) fn in_effect(fleet: &'a Fleet, now: Timestamp) -> Self {
        let lasting = fleet.pauses().iter().filter(|(_, (pause, _))| !pause.is_over(now));
        Self(lasting.map(|(scope, (pause, _))| (scope, pause)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn concern(&self, node: &NodeName, role: &Role) -> bool {
        self.0.iter().any(|(scope, _)| scope.concerns(node, role))
    }

    /// The time when the first of them expires.
    pub(crate) fn first_end(&self) -> Option<Timestamp> {
        self.0.iter().filter_map(|(_, pause)| pause.until).min()
    }
}

/// Numbers the names of roles and domains: few names, shared by many nodes.
#[derive(Debug)]
pub(crate) struct NameIndex<'a, T> {
    numbers: HashMap<&'a str, usize, BuildHasherDefault<Fnv>>,
    pub all: Vec<(&'a str, T)>,
    /// Nodes are visited by name, and most have the same role as the previous one.
    last: usize,
}

impl<'a, T: Default> NameIndex<'a, T> {
    pub(crate) fn new() -> Self {
        Self { numbers: HashMap::default(), all: Vec::new(), last: 0 }
    }

    pub(crate) fn number(&mut self, name: &'a str) -> usize {
        if self.all.get(self.last).is_some_and(|(known, _)| *known == name) {
            return self.last;
        }
        let next = self.all.len();
        self.last = *self.numbers.entry(name).or_insert(next);
        if self.last == next {
            self.all.push((name, T::default()));
        }
        self.last
    }

    pub(crate) fn at(&mut self, number: usize) -> Option<&mut T> {
        self.all.get_mut(number).map(|(_, tally)| tally)
    }
}

/// FNV-1a. Every step looks up two short names of every node, and the hash of the standard library, which resists
/// chosen collisions, would take half of a step. The names are from the design.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_name_has_the_same_number() {
        let mut index: NameIndex<'_, usize> = NameIndex::new();
        let numbers = ["a", "b", "a", "", "b", "b"].map(|name| index.number(name));
        assert_eq!(numbers, [0, 1, 0, 2, 1, 1]);
        for number in numbers {
            *index.at(number).unwrap() += 1;
        }
        assert_eq!(index.all, [("a", 2), ("b", 3), ("", 1)]);
    }
}
