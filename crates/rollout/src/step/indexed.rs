//! A plan, made ready to be looked into by name.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::names::{NodeName, Role};
use muster_core::rollout::plan::RolloutPlan;

/// Made once when a plan is read, and kept: a step then goes through the fleet and the plan side by side.
#[derive(Clone, Debug)]
pub struct Indexed {
    plan: RolloutPlan,
    /// Sorted by name, as the fleet is.
    places: Vec<(NodeName, Place)>,
    roles: BTreeMap<Role, PlannedRole>,
    /// Where the nodes of each wave begin in the order of the whole plan.
    offsets: Vec<usize>,
}

/// Where a node stands in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    InWave {
        wave: usize,
        /// Its place in the order of the whole plan.
        order: usize,
        /// It was not well when the plan was made, and that was not because everybody was told to go elsewhere.
        excused: bool,
    },
    /// It runs the target already.
    Already,
}

/// What a plan says of a role as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedRole {
    /// The last wave that has nodes of it.
    pub last_wave: usize,
    /// The last wave of its stage: who joins late belongs there.
    pub stage_end: usize,
    /// So many waves must have passed before any node of it is granted: those of the roles that it comes after.
    pub opens: usize,
}

impl Indexed {
    pub fn new(plan: RolloutPlan) -> Self {
        let mut places = Vec::with_capacity(plan.node_count() + plan.already.len());
        let mut offsets = Vec::with_capacity(plan.waves.len());
        let mut roles: BTreeMap<Role, PlannedRole> = BTreeMap::new();
        let out_of_reach = plan.unwell.iter().filter(|unwell| !unwell.repaired).map(|unwell| &unwell.node);
        let out_of_reach: BTreeSet<&NodeName> = out_of_reach.collect();
        let mut order = 0;
        for (wave, planned) in plan.waves.iter().enumerate() {
            offsets.push(order);
            let same_stage = plan.waves.iter().rposition(|other| other.stage == planned.stage);
            for node in &planned.nodes {
                let excused = node.repair || out_of_reach.contains(&node.node);
                places.push((node.node.clone(), Place::InWave { wave, order, excused }));
                order += 1;
                let known = PlannedRole { last_wave: wave, stage_end: same_stage.unwrap_or(wave), opens: 0 };
                match roles.get_mut(&node.role) {
                    Some(role) => *role = known,
                    None => drop(roles.insert(node.role.clone(), known)),
                }
            }
        }
        places.extend(plan.already.iter().map(|node| (node.clone(), Place::Already)));
        places.sort_by(|(a, _), (b, _)| a.cmp(b));
        let ends: BTreeMap<Role, usize> = roles.iter().map(|(role, known)| (role.clone(), known.last_wave)).collect();
        for (role, known) in &mut roles {
            let parents = plan.after.get(role).into_iter().flatten();
            known.opens = parents.filter_map(|parent| ends.get(parent)).map(|last| last + 1).max().unwrap_or(0);
        }
        Self { plan, places, roles, offsets }
    }

    pub fn plan(&self) -> &RolloutPlan {
        &self.plan
    }

    pub(crate) fn places(&self) -> &[(NodeName, Place)] {
        &self.places
    }

    pub(crate) fn place(&self, name: &NodeName) -> Option<Place> {
        let found = self.places.binary_search_by(|(planned, _)| planned.cmp(name)).ok()?;
        self.places.get(found).map(|(_, place)| *place)
    }

    pub(crate) fn role(&self, role: &Role) -> Option<PlannedRole> {
        self.roles.get(role).copied()
    }

    /// Where the nodes of a wave stand in the order of the whole plan.
    pub(crate) fn orders_in(&self, wave: usize) -> std::ops::Range<usize> {
        let from = self.offsets.get(wave).copied().unwrap_or(0);
        let nodes = self.plan.waves.get(wave).map_or(0, |wave| wave.nodes.len());
        from..from + nodes
    }

    /// The wave that a node belongs to which is not in the plan: the last of its role's stage, and the last of all once
    /// that is over.
    pub(crate) fn wave_of_late(&self, role: &Role, waves_passed: usize) -> usize {
        let last = self.plan.waves.len().saturating_sub(1);
        self.role(role).map(|role| role.stage_end).filter(|end| *end >= waves_passed).unwrap_or(last)
    }
}
