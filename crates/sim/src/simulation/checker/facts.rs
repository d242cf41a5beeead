//! State of each node at each revision: a decision is checked on the state that it was based on.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::names::{NodeName, ReplicaId, Role, Version};
use muster_core::node::pause::{PauseRecord, PauseScope};
use muster_core::node::service_state::{ConfigureResult, ServiceState, ValidationResult};
use muster_core::report::Cause;
use muster_core::report::reason::RunReason;
use muster_core::rollout::RolloutId;
use muster_core::txn::{Generation, Revision};

use crate::simulation::event::SimTime;
use crate::simulation::world::START;

/// The last reported state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportedState {
    Nothing,
    Configured,
    Validated,
    Failed,
    Invalid,
    Pending,
}

#[derive(Clone, Debug)]
pub(super) struct NodeFacts {
    pub(super) role: Role,
    pub(super) domain: String,
    pub(super) labels: BTreeMap<String, String>,
    /// It is in the design and not leaving.
    pub(super) designed: bool,
    /// It has never served, and has no machine yet.
    pub(super) new: bool,
    pub(super) shows: ReportedState,
    pub(super) version: Option<Version>,
    /// Since when, by the clock of the writer.
    pub(super) since: SimTime,
    /// Since when it is in the store, by real time.
    pub(super) there_since: SimTime,
    pub(super) answered: Generation,
    pub(super) rebooted: bool,
    /// By the store, no server has its agent.
    pub(super) gone: bool,
    /// The server that has its agent, by the store.
    pub(super) server: Option<ReplicaId>,
    pub(super) went_back: bool,
    /// Its last run was interrupted and is repeated, which says nothing about the version.
    pub(super) interrupted: bool,
    pub(super) grant: Option<GrantFact>,
}

#[derive(Clone, Debug)]
pub(super) struct GrantFact {
    pub(super) rollout: RolloutId,
    pub(super) version: Version,
    pub(super) revision: Revision,
    /// By the clock of the granting server.
    pub(super) at: SimTime,
    /// The real time at which it was in the store.
    pub(super) there_at: SimTime,
    pub(super) kept: Option<Generation>,
}

/// The version of nodes without a desired version of their own.
#[derive(Clone, Debug, Default)]
pub(super) struct Base {
    pub(super) desired: Option<(Version, Generation)>,
    pub(super) floor: RolloutId,
    pub(super) epoch: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct NodeHistory {
    nodes: BTreeMap<NodeName, Vec<(Revision, NodeFacts)>>,
    bases: Vec<(Revision, Base)>,
    pauses: Vec<(Revision, Vec<(PauseScope, PauseRecord)>)>,
    servers: Vec<(Revision, BTreeSet<ReplicaId>)>,
}

/// The time of a decision, by its clock. It may have been committed later.
pub(super) fn decided(at: Timestamp, committed: SimTime) -> SimTime {
    SimTime::try_from(at.duration_since(START)).unwrap_or_default().min(committed)
}

/// The last entry up to a revision.
fn at<T>(entries: &[(Revision, T)], revision: Revision) -> Option<&T> {
    let after = entries.partition_point(|(at, _)| *at <= revision);
    after.checked_sub(1).and_then(|place| entries.get(place)).map(|(_, entry)| entry)
}

impl NodeHistory {
    pub(super) fn note(&mut self, name: &NodeName, fleet: &Fleet, revision: Revision, now: SimTime) {
        let entries = self.nodes.entry(name.clone()).or_default();
        let before = entries.last().map(|(_, standing)| standing);
        let Some(node) = fleet.get(name) else {
            if let Some(before) = before {
                let gone = NodeFacts { designed: false, grant: None, ..before.clone() };
                entries.push((revision, gone));
            }
            return;
        };
        let Some(record) = node.record.as_ref().or(None) else {
            if let Some(before) = before {
                let gone = NodeFacts { designed: false, ..before.clone() };
                entries.push((revision, gone));
            }
            return;
        };
        let observed = node.observed.as_ref().map(|(observed, _)| observed);
        let last = observed.and_then(|observed| observed.last.as_ref());
        let (shows, version) = match node.state().map(|(state, _)| state) {
            None => (ReportedState::Nothing, None),
            Some(ServiceState::Configured { result, version }) => (
                match result {
                    ConfigureResult::Success => ReportedState::Configured,
                    ConfigureResult::Failure => ReportedState::Failed,
                    ConfigureResult::Pending => ReportedState::Pending,
                },
                Some(version.clone()),
            ),
            Some(ServiceState::Validated { result, version }) => (
                match result {
                    ValidationResult::Success => ReportedState::Validated,
                    ValidationResult::Failure => ReportedState::Invalid,
                },
                Some(version.clone()),
            ),
        };
        let same = before.is_some_and(|before| before.shows == shows && before.version == version);
        let leaf = node.state().map_or(now, |(_, leaf)| decided(leaf.since, now));
        let (since, there_since) =
            before.filter(|_| same).map_or((leaf, now), |before| (before.since, before.there_since));
        let known = |revision: Revision| {
            let grant = before.and_then(|before| before.grant.as_ref());
            grant.filter(|grant| grant.revision == revision).map(|grant| grant.there_at)
        };
        let grant = node.desired.as_ref().map(|(desired, revision)| GrantFact {
            rollout: desired.rollout,
            version: desired.version.clone(),
            revision: *revision,
            at: decided(desired.granted, now),
            there_at: known(*revision).unwrap_or(now),
            kept: desired.kept,
        });
        let standing = NodeFacts {
            role: record.role.clone(),
            domain: record.failure_domain.clone(),
            labels: record.labels.clone(),
            designed: record.leaving.is_none(),
            new: last.is_none() && node.provisioned != Some(true),
            shows,
            version,
            since,
            there_since,
            answered: last.map(|last| last.generation).unwrap_or_default(),
            rebooted: observed.is_some_and(|observed| observed.rebooted),
            gone: node.presence.as_ref().is_some_and(|(presence, _)| presence.replica.is_none()),
            server: node.presence.as_ref().and_then(|(presence, _)| presence.replica.clone()),
            interrupted: last.is_some_and(|last| {
                matches!(last.reason, Some(RunReason::Interrupted { .. } | RunReason::Lost { .. }))
            }),
            went_back: last
                .is_some_and(|last| last.causes.iter().any(|cause| matches!(cause, Cause::AutoRollback { .. }))),
            grant,
        };
        entries.push((revision, standing));
    }

    pub(super) fn record_base(&mut self, fleet: &Fleet, revision: Revision) {
        let active = fleet.active_rollout_pointer().map(|(active, _)| active);
        let current = || {
            let (version, at) = fleet.current_version()?;
            Some((version.clone(), Generation { epoch: fleet.epoch(), number: at.0 }))
        };
        let desired = match active {
            Some(active) if !active.at_once && !active.completed => {
                active.from.as_ref().map(|from| (from.version.clone(), from.generation))
            }
            Some(_) | None => current(),
        };
        let floor = active.map(|active| active.floor).unwrap_or_default();
        self.bases.push((revision, Base { desired, floor, epoch: fleet.epoch() }));
    }

    pub(super) fn record_pauses(&mut self, fleet: &Fleet, revision: Revision) {
        let now: Vec<_> = fleet.pauses().iter().map(|(scope, (pause, _))| (scope.clone(), pause.clone())).collect();
        if self.pauses.last().map_or(!now.is_empty(), |(_, before)| *before != now) {
            self.pauses.push((revision, now));
        }
    }

    /// The pauses at a revision.
    pub(super) fn pauses(&self, revision: Revision) -> &[(PauseScope, PauseRecord)] {
        at(&self.pauses, revision).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn record_servers(&mut self, fleet: &Fleet, revision: Revision) {
        self.servers.push((revision, fleet.replicas().keys().cloned().collect()));
    }

    /// True if by the store no live server has the agent of a node. A dead server has no agents, and cannot record that.
    pub(super) fn is_disconnected(&self, facts: &NodeFacts, revision: Revision) -> bool {
        let live = at(&self.servers, revision);
        facts.server.as_ref().is_none_or(|server| live.is_none_or(|live| !live.contains(server)))
    }

    pub(super) fn base(&self, revision: Revision) -> Base {
        at(&self.bases, revision).cloned().unwrap_or_default()
    }

    pub(super) fn state_at(&self, name: &NodeName, revision: Revision) -> Option<&NodeFacts> {
        at(self.nodes.get(name)?, revision)
    }

    /// All nodes of the design at a revision.
    pub(super) fn designed(&self, revision: Revision) -> impl Iterator<Item = (&NodeName, &NodeFacts)> {
        let all = self.nodes.iter().filter_map(move |(name, entries)| Some((name, at(entries, revision)?)));
        all.filter(|(_, standing)| standing.designed)
    }
}

impl NodeFacts {
    /// The grant of a rollout, if there is one.
    pub(super) fn granted_by(&self, rollout: RolloutId, to: &Version) -> Option<&GrantFact> {
        self.grant.as_ref().filter(|grant| grant.rollout == rollout && grant.kept.is_none() && grant.version == *to)
    }

    /// Its desired version, with the generation.
    pub(super) fn desired(&self, base: &Base) -> Option<(Version, Generation)> {
        match self.grant.as_ref().filter(|grant| grant.rollout >= base.floor) {
            Some(grant) => {
                let own = Generation { epoch: base.epoch, number: grant.revision.0 };
                Some((grant.version.clone(), grant.kept.unwrap_or(own)))
            }
            None => base.desired.clone(),
        }
    }

    /// True if it has validated its desired version.
    pub(super) fn is_up(&self, base: &Base) -> bool {
        let Some((version, generation)) = self.desired(base) else { return false };
        let proved = self.shows == ReportedState::Validated && self.version.as_ref() == Some(&version);
        proved && self.answered >= generation && !self.rebooted
    }

    /// True if it has reported a failure for a grant.
    pub(super) fn has_failed(&self, grant: &GrantFact, epoch: u64) -> bool {
        let answered = self.answered >= Generation { epoch, number: grant.revision.0 };
        let at_target = self.version.as_ref() == Some(&grant.version);
        let bad = match self.shows {
            ReportedState::Failed => at_target && !self.interrupted,
            ReportedState::Invalid => at_target,
            ReportedState::Nothing | ReportedState::Configured | ReportedState::Validated | ReportedState::Pending => {
                false
            }
        };
        // A run of the target may follow a rollback directly, and name it as a cause besides the new grant.
        answered && (bad || (self.went_back && !at_target))
    }
}
