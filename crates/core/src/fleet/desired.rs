//! Versions that an environment and its nodes should run.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use crate::names::{NodeName, Version};
use crate::release::ReleaseRecord;
use crate::release::manifest::SignedTrust;
use crate::rollout::RolloutId;
use crate::rollout::record::{ActiveRollout, DesiredRecord, FromVersion, RolloutRecord};
use crate::txn::{Generation, Revision};

use super::{Fleet, Node};

/// Version that a node should run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredVersion {
    pub version: Version,
    pub generation: Generation,
    /// True if nodes may move to it from a release with a higher serial.
    pub allow_older: bool,
    /// Time after applying within which the server must take a report. After that the node rolls back by itself.
    pub confirm_within: Option<SignedDuration>,
}

/// Grant of a node, if it is valid.
enum Grant<'a> {
    /// The grant, or `rollouts/active`, cannot be read.
    Unreadable,
    None,
    Valid(&'a DesiredRecord, Revision),
}

impl Fleet {
    /// Version that the environment should run after the current rollout. None before a version was chosen.
    pub fn desired(&self) -> Option<DesiredVersion> {
        let (version, at) = self.versions.current.as_ref()?;
        // Both are written in one transaction: the permission is for this choice of a version only.
        let allow_older =
            self.versions.allow_older.as_ref().is_some_and(|(older, then)| older.version == *version && then == at);
        let generation = Generation { epoch: self.epoch(), number: at.0 };
        Some(DesiredVersion { version: version.clone(), generation, allow_older, confirm_within: None })
    }

    /// Version that a node should run now: its grant, else the version that its cordon keeps, else the version of nodes
    /// without a grant ([`Fleet::base`]). None if the record that decides cannot be read; the node then keeps what it has.
    pub fn desired_of(&self, name: &NodeName) -> Option<DesiredVersion> {
        match self.nodes.get(name) {
            Some(node) => self.desired_by(node),
            None => self.base(),
        }
    }

    /// As [`Fleet::desired_of`], for a caller that has the node already.
    pub fn desired_by(&self, node: &Node) -> Option<DesiredVersion> {
        match self.grant_of(node) {
            Grant::Unreadable => None,
            Grant::None => self.kept(node).or_else(|| self.base()),
            Grant::Valid(record, at) => Some(DesiredVersion {
                version: record.version.clone(),
                generation: self.generation_of(record, at),
                allow_older: record.allow_older,
                confirm_within: record.confirm_within,
            }),
        }
    }

    /// Version that a cordoned node without a grant keeps, whatever version is given to all nodes at once.
    pub fn kept(&self, node: &Node) -> Option<DesiredVersion> {
        let FromVersion { version, generation, allow_older } = node.cordon()?.keeps.clone()?;
        let generation = if generation.epoch == self.epoch() { generation } else { self.first_generation() };
        Some(DesiredVersion { version, generation, allow_older, confirm_within: None })
    }

    /// A generation of another epoch may be higher than any of this one. The first generation of this epoch replaces it.
    fn first_generation(&self) -> Generation {
        Generation { epoch: self.epoch(), number: self.epoch_at().unwrap_or_default().0 }
    }

    /// A generation that was kept from another epoch of the store is not valid: the node is sent its version again.
    fn generation_of(&self, record: &DesiredRecord, at: Revision) -> Generation {
        let generation = Generation { epoch: self.epoch(), number: at.0 };
        record.kept.filter(|kept| kept.epoch == self.epoch()).unwrap_or(generation)
    }

    /// Grant of a node. Grants from before a rollout that moved the whole fleet at once are not valid.
    pub fn granted(&self, name: &NodeName) -> Option<(&DesiredRecord, Revision)> {
        self.valid_grant(self.nodes.get(name)?)
    }

    fn valid_grant<'a>(&self, node: &'a Node) -> Option<(&'a DesiredRecord, Revision)> {
        let (record, at) = node.desired.as_ref()?;
        let floor = self.rollouts.active.as_ref().map(|(active, _)| active.floor).unwrap_or_default();
        (record.rollout >= floor).then_some((record, *at))
    }

    fn grant_of<'a>(&self, node: &'a Node) -> Grant<'a> {
        // Without `rollouts/active` it is not known which grants are valid.
        if self.rollouts.active_unreadable || node.desired_unreadable {
            return Grant::Unreadable;
        }
        match self.valid_grant(node) {
            Some((record, at)) => Grant::Valid(record, at),
            None => Grant::None,
        }
    }

    /// Version that nodes without a grant should run: the version before the rollout while it is in progress, else the
    /// environment's version.
    ///
    /// Nodes that were sent the environment's version before the rollout began keep their generation. When a rollback returns
    /// to the version that most of the fleet still has, its end makes no node run again.
    pub fn base(&self) -> Option<DesiredVersion> {
        if self.rollouts.active_unreadable {
            return None;
        }
        let staged = self.rollouts.active.as_ref().filter(|(active, _)| !active.at_once);
        let Some((active, _)) = staged else { return self.desired() };
        let is_at_target = || active.from.as_ref().is_some_and(|from| from.version == active.to);
        let still_chosen = || self.versions.current.as_ref().is_some_and(|(version, _)| *version == active.to);
        if active.completed && !(is_at_target() && still_chosen()) {
            return self.desired();
        }
        let from = active.from.as_ref()?;
        let is_current = from.generation.epoch == self.epoch();
        let generation = if is_current { from.generation } else { self.first_generation() };
        let (version, allow_older) = (from.version.clone(), from.allow_older);
        Some(DesiredVersion { version, generation, allow_older, confirm_within: None })
    }

    /// Nodes of the design whose last run is older than the version that was chosen for them.
    ///
    /// Such a node may have validated the right version and still be on its way elsewhere: the fleet was sent to another
    /// version and called back. Each choice makes each node run, so all of them report again.
    pub fn late(&self) -> &BTreeSet<NodeName> {
        &self.index.late
    }

    pub(super) fn is_late(&self, node: &Node, base: Option<&DesiredVersion>) -> bool {
        let chosen = match self.grant_of(node) {
            Grant::Unreadable => None,
            Grant::None => self.kept(node).map(|kept| kept.generation).or(base.map(|base| base.generation)),
            Grant::Valid(record, at) => Some(self.generation_of(record, at)),
        };
        node.is_designed() && chosen.is_some_and(|chosen| !node.has_answered(chosen))
    }

    /// `rollouts/active` with its revision: the pointer to the rollout that decides the version of nodes without a grant.
    pub fn active_rollout_pointer(&self) -> Option<(&ActiveRollout, Revision)> {
        self.rollouts.active.as_ref().map(|(active, at)| (active, *at))
    }

    /// Returns whether `rollouts/active` cannot be read. No node is sent a version until it can be, and no rollout may start.
    pub fn rollouts_unreadable(&self) -> bool {
        self.rollouts.active_unreadable
    }

    /// All rollouts that are kept, with the revisions of their keys.
    pub fn rollouts(&self) -> &BTreeMap<RolloutId, (RolloutRecord, Revision)> {
        &self.rollouts.records
    }

    /// `rollouts/<id>` of the active rollout, with its revision.
    pub fn active_rollout_record(&self) -> Option<(&RolloutRecord, Revision)> {
        let (active, _) = self.rollouts.active.as_ref()?;
        self.rollouts.records.get(&active.id).map(|(record, at)| (record, *at))
    }

    pub fn current_version(&self) -> Option<(&Version, Revision)> {
        self.versions.current.as_ref().map(|(version, at)| (version, *at))
    }

    pub fn releases(&self) -> &BTreeMap<Version, ReleaseRecord> {
        &self.versions.releases
    }

    pub fn trust(&self) -> Option<&(SignedTrust, Revision)> {
        self.versions.trust.as_ref()
    }
}
