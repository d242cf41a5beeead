//! What a rollout knows of one node, and of those that share something with it.

use jiff::Timestamp;
use muster_core::fleet::Node;
use muster_core::names::NodeName;
use muster_core::node::record::NodeRecord;
use muster_core::rollout::record::{FailureCutoff, FailureKind};
use muster_core::txn::Revision;

use crate::health::Health;

/// What a rollout knows of one node of the design.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fact<'a> {
    pub name: &'a NodeName,
    pub node: &'a Node,
    pub record: &'a NodeRecord,
    /// The wave that it is moved in. None: it is told the target already, by no grant of this rollout.
    pub wave: Option<usize>,
    /// It was not well before the rollout began: if it is not afterwards, that proves nothing.
    pub excused: bool,
    pub role: usize,
    pub domain: Option<usize>,
    /// Those that are likely to fail together.
    pub rack: usize,
    pub silent: Option<Timestamp>,
    pub health: Health,
    /// It serves nobody yet: its machine is being made, and no rollout has told it anything.
    pub is_new: bool,
    /// Nobody can count on it now, and that uses the budget up.
    pub is_unavailable: bool,
    /// To move it takes nothing from anybody: it is down already, and counted as such. One whose slot an operator has released
    /// is not counted, and needs a slot to be moved.
    pub is_free: bool,
    /// When this rollout granted it something.
    pub grant_at: Option<Revision>,
    /// It has failed because its agent is away, and somebody who has seen that wants it to be tried once more. It is, as soon
    /// as there is somebody to be told.
    pub is_asked_again: bool,
}

/// Nodes of a role, or of a domain, that has a budget.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub nodes: usize,
    pub unavailable: usize,
}

/// Nodes that are likely to fail together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RackTally {
    pub nodes: usize,
    pub silent: usize,
}

impl RackTally {
    /// More than half of it is silent, and not one alone: that is not the nodes' fault, and nothing more is done there.
    pub(crate) fn is_braked(self) -> bool {
        self.silent >= 2 && self.silent * 2 > self.nodes
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaveTally {
    /// Those that the wave waits for.
    pub undone: usize,
    /// Of these, those whose agent is there, or that have a deadline of their own.
    pub undone_present: usize,
    /// On their way: granted, not answered for good or ill.
    pub moving: usize,
    pub healthy: usize,
    /// When the last of them became so.
    pub last_healthy: Option<Timestamp>,
    /// When that was in the eyes of whoever decides, if the times in the store are not to be believed.
    pub last_seen: Option<Timestamp>,
    /// Those that count against the limits.
    pub failures: usize,
}

impl Fact<'_> {
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
            | Health::NotThere => None,
        }
    }

    /// A node that was broken before proves nothing by staying so; nor does one whose failure was seen.
    pub(crate) fn counts_as_failed(&self, forgiven: Option<FailureCutoff>) -> bool {
        !self.excused && self.is_unseen_failure(forgiven)
    }

    /// It has failed, and nobody has said since that the rollout goes on.
    pub(crate) fn is_unseen_failure(&self, forgiven: Option<FailureCutoff>) -> bool {
        let Health::Failed { since, .. } = self.health else { return false };
        let granted = self.grant_at.unwrap_or_default();
        // One of another life of the store is not here: the survey leaves it out.
        let was_seen = forgiven.is_some_and(|forgiven| forgiven.covers(forgiven.before.epoch, granted, since));
        !was_seen && !self.is_asked_again
    }
}
