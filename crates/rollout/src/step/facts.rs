//! Types for the state of each node that a step decides on, and counts by role, failure domain and wave.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Fleet;
use muster_core::names::{NodeName, Role};
use muster_core::node::pause::PauseScope;
use muster_core::rollout::record::{FailureCutoff, FailureKind};
use muster_core::txn::Revision;

use crate::health::Health;

use super::indexed_plan::PriorCondition;

/// Facts of one node of the design. They hold until a key of the node or its connection changes, and until `recheck`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    /// Its index in the survey, and in the order of the names.
    pub index: usize,
    /// Revision of its record in the design.
    pub record_at: Option<Revision>,
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
    pub health: Health,
    /// It is still being provisioned, and no rollout has granted it anything.
    pub is_new: bool,
    /// It is down, and uses the budget.
    pub is_unavailable: bool,
    /// It is down and counted as such: granting it uses no further budget. A node whose slot was released is not
    /// counted, and needs a slot.
    pub already_counted: bool,
    pub is_cordoned: bool,
    /// It was granted, is paused and has missed its deadline.
    pub is_paused_past_deadline: bool,
    /// The revision of this rollout's grant.
    pub grant_at: Option<Revision>,
    /// The revision since which it is healthy.
    pub healthy_at: Option<Revision>,
    /// The time that it may need until its agent, which cron starts, calls.
    pub call_allowance: SignedDuration,
    /// It failed because its agent is disconnected, and an operator has retried it. It is granted again when the agent
    /// is back.
    pub is_retried: bool,
    /// It soaks only because this replica has not observed it for long enough. The end is by another clock than the time of
    /// decisions, which may be set: it is evaluated in each step.
    pub is_observed: bool,
    /// The next time at which its health changes by itself.
    pub recheck: Option<Timestamp>,
}

/// Nodes of a role or label value that has a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub nodes: usize,
    pub unavailable: usize,
}

/// Nodes of a failure domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// The last revision since which one of them is healthy.
    pub healthy_at: Option<Revision>,
    /// The time when this replica observed that, if the times in the store are not trusted.
    pub last_observed: Option<Timestamp>,
    /// Failures that count against the limits.
    pub failures: usize,
}

impl NodeFacts {
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pauses(Vec<(PauseScope, Option<Timestamp>)>);

impl Pauses {
    pub(crate) fn in_effect(fleet: &Fleet, now: Timestamp) -> Self {
        let lasting = fleet.pauses().iter().filter(|(_, (pause, _))| !pause.is_over(now));
        Self(lasting.map(|(scope, (pause, _))| (scope.clone(), pause.until)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn concern(&self, node: &NodeName, role: &Role) -> bool {
        self.0.iter().any(|(scope, _)| scope.concerns(node, role))
    }

    /// The time when the first of them expires.
    pub(crate) fn first_end(&self) -> Option<Timestamp> {
        self.0.iter().filter_map(|(_, until)| *until).min()
    }
}

/// Numbers the names of roles and domains: few names, shared by many nodes.
#[derive(Clone, Debug)]
pub(crate) struct NameIndex<K, T> {
    numbers: HashMap<K, usize, BuildHasherDefault<Fnv>>,
    pub all: Vec<(K, T)>,
    /// Nodes are visited by name, and most have the same role as the previous one.
    last: usize,
}

impl<K: Clone + Eq + Hash + Borrow<str>, T: Default> NameIndex<K, T> {
    pub(crate) fn new() -> Self {
        Self { numbers: HashMap::default(), all: Vec::new(), last: 0 }
    }

    pub(crate) fn number(&mut self, name: &str, make: impl FnOnce() -> K) -> usize {
        if self.all.get(self.last).is_some_and(|(known, _)| known.borrow() == name) {
            return self.last;
        }
        self.last = match self.numbers.get(name) {
            Some(known) => *known,
            None => {
                let (next, name) = (self.all.len(), make());
                self.numbers.insert(name.clone(), next);
                self.all.push((name, T::default()));
                next
            }
        };
        self.last
    }

    pub(crate) fn at(&mut self, number: usize) -> Option<&mut T> {
        self.all.get_mut(number).map(|(_, tally)| tally)
    }

    /// Sets all tallies to zero.
    pub(crate) fn clear_tallies(&mut self) {
        self.all.iter_mut().for_each(|(_, tally)| *tally = T::default());
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
        let mut index: NameIndex<String, usize> = NameIndex::new();
        let numbers = ["a", "b", "a", "", "b", "b"].map(|name| index.number(name, || name.to_owned()));
        assert_eq!(numbers, [0, 1, 0, 2, 1, 1]);
        for number in numbers {
            *index.at(number).unwrap() += 1;
        }
        assert_eq!(index.all, [("a", 2), ("b", 3), ("", 1)].map(|(name, count)| (name.to_owned(), count)));
    }
}
