//! A plan with indexes for lookups by node and role.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::names::{NodeName, Role};
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::record::FailureKind;

/// Made once when a plan is read. A step then merges the sorted nodes of the fleet and the plan.
#[derive(Clone, Debug)]
pub struct IndexedPlan {
    plan: RolloutPlan,
    /// Sorted by name, as the fleet is.
    positions: Vec<(NodeName, PlanPosition)>,
    roles: BTreeMap<Role, PlannedRole>,
    /// The position where each wave starts in the order of the whole plan.
    offsets: Vec<usize>,
}

/// State of a node when the plan was made, for which it may fail without counting against the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PriorCondition {
    /// It was reachable and unhealthy, and not only because all nodes were being moved at once.
    Unhealthy,
    /// It could not be reached. If it comes back and fails at the new version, that counts.
    Unreachable,
}

impl PriorCondition {
    /// True if a failure of this kind says nothing about the new version.
    pub(crate) fn covers(self, how: FailureKind) -> bool {
        match self {
            PriorCondition::Unhealthy => true,
            PriorCondition::Unreachable => how == FailureKind::Unreachable,
        }
    }
}

/// Position of a node in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanPosition {
    InWave {
        wave: usize,
        /// Its index in the order of the whole plan.
        order: usize,
        prior_condition: Option<PriorCondition>,
    },
    /// It runs the target already.
    Already,
}

/// A role's part of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedRole {
    /// The last wave with nodes of the role.
    pub last_wave: usize,
    /// The last wave of its stage. Nodes that join late belong there.
    pub stage_end: usize,
    /// Waves that must have passed before a node of the role is granted: those of the roles that it comes after.
    pub waves_before: usize,
}

impl IndexedPlan {
    pub fn new(plan: RolloutPlan) -> Self {
        let mut positions = Vec::with_capacity(plan.node_count() + plan.already.len());
        let mut offsets = Vec::with_capacity(plan.waves.len());
        let mut roles: BTreeMap<Role, PlannedRole> = BTreeMap::new();
        let unreachable =
            plan.unhealthy.iter().filter(|unhealthy| !unhealthy.repaired).map(|unhealthy| &unhealthy.node);
        let unreachable: BTreeSet<&NodeName> = unreachable.collect();
        let mut order = 0;
        for (wave, planned) in plan.waves.iter().enumerate() {
            offsets.push(order);
            let same_stage = plan.waves.iter().rposition(|other| other.stage == planned.stage);
            for node in &planned.nodes {
                let prior_condition = match node.repair {
                    true => Some(PriorCondition::Unhealthy),
                    false => unreachable.contains(&node.node).then_some(PriorCondition::Unreachable),
                };
                positions.push((node.node.clone(), PlanPosition::InWave { wave, order, prior_condition }));
                order += 1;
                let known = PlannedRole { last_wave: wave, stage_end: same_stage.unwrap_or(wave), waves_before: 0 };
                match roles.get_mut(&node.role) {
                    Some(role) => *role = known,
                    None => drop(roles.insert(node.role.clone(), known)),
                }
            }
        }
        positions.extend(plan.already.iter().map(|node| (node.clone(), PlanPosition::Already)));
        positions.sort_by(|(a, _), (b, _)| a.cmp(b));
        let ends: BTreeMap<Role, usize> = roles.iter().map(|(role, known)| (role.clone(), known.last_wave)).collect();
        for (role, known) in &mut roles {
            let parents = plan.after.get(role).into_iter().flatten();
            known.waves_before = parents.filter_map(|parent| ends.get(parent)).map(|last| last + 1).max().unwrap_or(0);
        }
        Self { plan, positions, roles, offsets }
    }

    pub fn plan(&self) -> &RolloutPlan {
        &self.plan
    }

    pub(crate) fn positions(&self) -> &[(NodeName, PlanPosition)] {
        &self.positions
    }

    pub(crate) fn position(&self, name: &NodeName) -> Option<PlanPosition> {
        let found = self.positions.binary_search_by(|(planned, _)| planned.cmp(name)).ok()?;
        self.positions.get(found).map(|(_, position)| *position)
    }

    pub(crate) fn role(&self, role: &Role) -> Option<PlannedRole> {
        self.roles.get(role).copied()
    }

    /// The indexes of a wave's nodes in the order of the whole plan.
    pub(crate) fn orders_in(&self, wave: usize) -> std::ops::Range<usize> {
        let from = self.offsets.get(wave).copied().unwrap_or(0);
        let nodes = self.plan.waves.get(wave).map_or(0, |wave| wave.nodes.len());
        from..from + nodes
    }

    /// The wave of a node that is not in the plan: the last wave of its role's stage, or of the plan once that stage is
    /// over.
    pub(crate) fn wave_of_late(&self, role: &Role, waves_passed: usize) -> usize {
        let last = self.plan.waves.len().saturating_sub(1);
        self.role(role).map(|role| role.stage_end).filter(|end| *end >= waves_passed).unwrap_or(last)
    }
}
