//! Observations of a scenario, for its assertions.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::names::{NodeName, Version};
use muster_core::rollout::RolloutId;
use muster_core::txn::Revision;

use crate::simulation::World;
use crate::simulation::machine::Machine;

#[derive(Clone, Debug, Default)]
pub(super) struct Observations {
    ran: BTreeSet<(NodeName, Version)>,
    /// In order.
    grants: Vec<(NodeName, Version, RolloutId)>,
    granted_at: BTreeMap<NodeName, Revision>,
    /// The sets of nodes that were running at the same time.
    running: BTreeSet<Vec<NodeName>>,
    answers: BTreeMap<String, String>,
    fenced: bool,
}

/// The version that a machine is being moved to.
pub(super) fn being_moved(machine: &Machine) -> Option<&Version> {
    let version = machine.applier.as_ref()?.version();
    (machine.runs.as_ref() != Some(version)).then_some(version)
}

impl Observations {
    /// Records the current state.
    pub(super) fn look(&mut self, world: &World) {
        let mut running = Vec::new();
        for machine in &world.machines {
            if let Some(version) = being_moved(machine) {
                running.push(machine.name.clone());
                self.ran.insert((machine.name.clone(), version.clone()));
            }
        }
        self.running.insert(running);
        let fleet = world.checker.fleet();
        let mut news: Vec<(Revision, NodeName, Version, RolloutId)> = Vec::new();
        for (name, _) in fleet.nodes() {
            let Some((grant, at)) = fleet.granted(name).filter(|(grant, _)| grant.kept.is_none()) else { continue };
            if self.granted_at.insert(name.clone(), at) != Some(at) {
                news.push((at, name.clone(), grant.version.clone(), grant.rollout));
            }
        }
        news.sort();
        self.grants.extend(news.into_iter().map(|(_, name, version, rollout)| (name, version, rollout)));
    }

    pub(super) fn record_answer(&mut self, who: &str, answer: &str) {
        self.answers.insert(who.to_owned(), answer.to_owned());
    }

    pub(super) fn record_fencing(&mut self) {
        self.fenced = true;
    }

    pub(super) fn fenced(&self) -> bool {
        self.fenced
    }

    pub(super) fn answer_to(&self, who: &str) -> Option<&str> {
        self.answers.get(who).map(String::as_str)
    }

    pub(super) fn ran(&self, node: &NodeName, version: &Version) -> bool {
        self.ran.contains(&(node.clone(), version.clone()))
    }

    pub(super) fn grants(&self) -> &[(NodeName, Version, RolloutId)] {
        &self.grants
    }

    pub(super) fn was_granted(&self, node: &NodeName, version: &Version) -> bool {
        self.grants.iter().any(|(granted, to, _)| granted == node && to == version)
    }

    /// A node that the same rollout granted twice.
    pub(super) fn granted_twice(&self) -> Option<&NodeName> {
        let mut seen = BTreeSet::new();
        self.grants.iter().find(|(node, _, rollout)| !seen.insert((node, rollout))).map(|(node, _, _)| node)
    }

    pub(super) fn max_running(&self, nodes: &[NodeName]) -> usize {
        let of = |running: &Vec<NodeName>| running.iter().filter(|node| nodes.contains(node)).count();
        self.running.iter().map(of).max().unwrap_or(0)
    }
}
