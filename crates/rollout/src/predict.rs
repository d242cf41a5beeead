//! Predicts the duration of a rollout by simulating its plan with the engine's rules and no failures.

use std::collections::{BTreeSet, HashMap, VecDeque};

use jiff::SignedDuration;
use muster_core::fleet::{Fleet, Node};
use muster_core::names::{NodeName, Role};
use muster_core::report::record::{LastRun, PastRun};
use muster_core::rollout::plan::{PlannedNode, PlannedWave, Prediction, RolloutPlan};

use crate::preflight::is_unprovisioned;

/// The assumed run time while no node has reported one: a typical time of package managers and service restarts.
pub const DEFAULT_NODE_TIME: SignedDuration = SignedDuration::from_secs(60);
/// Nodes that are sampled for their last run time, evenly over the fleet. Decoding the history of all nodes would take
/// longer than the planning, and the median of 64 samples is accurate enough.
const SAMPLES: usize = 64;

pub(crate) fn predict(fleet: &Fleet, plan: &RolloutPlan) -> Prediction {
    let measured = median(sample(fleet));
    let node = measured.unwrap_or(DEFAULT_NODE_TIME);
    // Nodes without a machine are always among the unhealthy ones: no other node is looked up.
    let listed = plan.unhealthy.iter().map(|unhealthy| &unhealthy.node);
    let unprovisioned: BTreeSet<&NodeName> =
        listed.filter(|name| fleet.get(name).is_some_and(is_unprovisioned)).collect();
    let total = duration(plan, node, &|planned| !unprovisioned.contains(&planned.node));
    Prediction { node, measured: measured.is_some(), total }
}

fn sample(fleet: &Fleet) -> Vec<SignedDuration> {
    let step = fleet.designed().count().div_ceil(SAMPLES).max(1);
    fleet.designed().step_by(step).filter_map(|(_, node, _)| last_run_time(node)).collect()
}

fn median(mut times: Vec<SignedDuration>) -> Option<SignedDuration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// The duration of the node's last complete run, from its start to its validation.
fn last_run_time(node: &Node) -> Option<SignedDuration> {
    let observed = node.observed.as_ref().map(|(observed, _)| observed)?;
    let earlier = || observed.run_millis.and_then(|time| i64::try_from(time).ok()).map(SignedDuration::from_millis);
    // Earlier versions have written it to the history alone.
    let listed = || node.history.listed().0.iter().find_map(PastRun::run_time);
    observed.last.as_ref().and_then(LastRun::run_time).or_else(earlier).or_else(listed)
}

/// The duration of a plan if each node validates this long after its grant, and nothing else takes time: no window, no
/// promotion, no check, no server. Every node for which the budgets and the ramp have room is granted at once, in the
/// order of the plan. No engine that follows the plan is faster.
///
/// Costs as much as sorting the nodes, as long as each domain has nodes of few roles.
pub fn minimum_duration(plan: &RolloutPlan, node_time: SignedDuration) -> SignedDuration {
    duration(plan, node_time, &|_| true)
}

/// The same for some of the nodes. Nodes that are still being provisioned are not waited for.
fn duration(plan: &RolloutPlan, node_time: SignedDuration, is_moved: &dyn Fn(&PlannedNode) -> bool) -> SignedDuration {
    if plan.at_once {
        return if plan.nodes().any(is_moved) { node_time } else { SignedDuration::ZERO };
    }
    let slot = node_time.saturating_add(plan.strategy.soak);
    let mut now = SignedDuration::ZERO;
    for wave in &plan.waves {
        now = WaveSimulation::new(plan, wave, is_moved).end(now, slot).saturating_add(wave.soak);
    }
    now
}

/// The simulation of one wave. Nodes are numbered by their place in it, roles and domains by their first appearance.
struct WaveSimulation {
    roles: Vec<Pool>,
    domains: Vec<Pool>,
    /// For each role, the first waiting node of each of its queues whose domain has room.
    next_of_role: Vec<BTreeSet<(usize, usize)>>,
    /// The first node of each role that has room. The first of these is granted next.
    next: BTreeSet<(usize, usize)>,
    queues: Vec<NodeQueue>,
    /// The queues that wait for a domain.
    queues_of_domain: Vec<Vec<usize>>,
    /// Nodes that are unavailable already. They use no further budget, and go first.
    repairs: VecDeque<SlotIndex>,
    ramp: bool,
}

/// The budgets that a node uses.
#[derive(Clone, Copy)]
struct SlotIndex {
    role: usize,
    domain: usize,
}

/// The nodes of one role in one domain. All of them wait for the first one.
struct NodeQueue {
    slots: SlotIndex,
    nodes: VecDeque<usize>,
}

#[derive(Clone, Copy)]
struct Pool {
    used: usize,
    limit: usize,
}

impl Pool {
    fn has_room(self) -> bool {
        self.used < self.limit
    }
}

impl WaveSimulation {
    fn new(plan: &RolloutPlan, wave: &PlannedWave, is_moved: &dyn Fn(&PlannedNode) -> bool) -> Self {
        let mut numbers = Numbers::default();
        let mut this = WaveSimulation {
            roles: Vec::new(),
            domains: Vec::new(),
            next_of_role: Vec::new(),
            next: BTreeSet::new(),
            queues: Vec::new(),
            queues_of_domain: Vec::new(),
            repairs: VecDeque::new(),
            ramp: plan.strategy.ramp,
        };
        for (place, node) in wave.nodes.iter().enumerate().filter(|(_, node)| is_moved(node)) {
            let slots = this.slots(plan, &mut numbers, node);
            if node.repair {
                this.roles[slots.role].used += 1;
                this.domains[slots.domain].used += 1;
                this.repairs.push_back(slots);
                continue;
            }
            let queue = *numbers.queues.entry((slots.role, slots.domain)).or_insert_with(|| {
                this.queues_of_domain[slots.domain].push(this.queues.len());
                this.queues.push(NodeQueue { slots, nodes: VecDeque::new() });
                this.queues.len() - 1
            });
            this.queues[queue].nodes.push_back(place);
        }
        for domain in 0..this.domains.len() {
            this.domain_freed(domain);
        }
        this
    }

    fn slots<'p>(&mut self, plan: &'p RolloutPlan, numbers: &mut Numbers<'p>, node: &'p PlannedNode) -> SlotIndex {
        let role = *numbers.roles.entry(&node.role).or_insert_with(|| {
            let limit = plan.budgets.roles.get(&node.role).map_or(1, |budget| budget.max_unavailable.max(1));
            self.roles.push(Pool { used: 0, limit: usize::try_from(limit).unwrap_or(usize::MAX) });
            self.next_of_role.push(BTreeSet::new());
            self.roles.len() - 1
        });
        let domain = *numbers.domains.entry(node.domain.as_deref()).or_insert_with(|| {
            let limit = node.domain.as_ref().and_then(|domain| plan.budgets.domains.get(domain));
            let limit = limit.map_or(usize::MAX, |limit| usize::try_from((*limit).max(1)).unwrap_or(usize::MAX));
            self.domains.push(Pool { used: 0, limit });
            self.queues_of_domain.push(Vec::new());
            self.domains.len() - 1
        });
        SlotIndex { role, domain }
    }

    /// Simulates the wave. Returns when its last node is healthy.
    fn end(mut self, start: SignedDuration, slot: SignedDuration) -> SignedDuration {
        let mut now = start;
        // All runs take equally long and end in the order of their grants: a queue is enough.
        let mut in_flight: VecDeque<(SignedDuration, SlotIndex)> = VecDeque::new();
        let mut healthy = 0;
        loop {
            while !self.ramp || in_flight.len() <= healthy {
                let Some(slots) = self.grant() else { break };
                in_flight.push_back((now.saturating_add(slot), slots));
            }
            let Some((then, _)) = in_flight.front() else { return now };
            now = *then;
            while let Some((then, slots)) = in_flight.front().copied()
                && then == now
            {
                in_flight.pop_front();
                healthy += 1;
                self.free(slots);
            }
        }
    }

    /// The next node that the budgets have room for.
    fn grant(&mut self) -> Option<SlotIndex> {
        if let Some(slots) = self.repairs.pop_front() {
            return Some(slots);
        }
        let (place, queue) = self.next.pop_first()?;
        let slots = self.queues[queue].slots;
        self.next_of_role[slots.role].remove(&(place, queue));
        self.queues[queue].nodes.pop_front();
        self.roles[slots.role].used += 1;
        self.domains[slots.domain].used += 1;
        if self.domains[slots.domain].has_room() {
            if let Some(place) = self.queues[queue].nodes.front() {
                self.next_of_role[slots.role].insert((*place, queue));
            }
        } else {
            self.domain_full(slots.domain);
        }
        self.insert_candidate(slots.role);
        Some(slots)
    }

    fn free(&mut self, slots: SlotIndex) {
        let domain = &mut self.domains[slots.domain];
        let had_room = domain.has_room();
        domain.used -= 1;
        if !had_room && domain.has_room() {
            self.domain_freed(slots.domain);
        }
        self.remove_candidate(slots.role);
        self.roles[slots.role].used -= 1;
        self.insert_candidate(slots.role);
    }

    /// A domain has room again.
    fn domain_freed(&mut self, domain: usize) {
        if !self.domains[domain].has_room() {
            return;
        }
        for index in 0..self.queues_of_domain[domain].len() {
            let queue = self.queues_of_domain[domain][index];
            let role = self.queues[queue].slots.role;
            if let Some(place) = self.queues[queue].nodes.front().copied() {
                self.remove_candidate(role);
                self.next_of_role[role].insert((place, queue));
                self.insert_candidate(role);
            }
        }
    }

    /// A domain is full.
    fn domain_full(&mut self, domain: usize) {
        for index in 0..self.queues_of_domain[domain].len() {
            let queue = self.queues_of_domain[domain][index];
            let role = self.queues[queue].slots.role;
            if let Some(place) = self.queues[queue].nodes.front().copied() {
                self.remove_candidate(role);
                self.next_of_role[role].remove(&(place, queue));
                self.insert_candidate(role);
            }
        }
    }

    /// Removes a role's first node from the candidates, while it may change.
    fn remove_candidate(&mut self, role: usize) {
        if let Some(first) = self.next_of_role[role].first() {
            self.next.remove(first);
        }
    }

    fn insert_candidate(&mut self, role: usize) {
        if self.roles[role].has_room()
            && let Some(first) = self.next_of_role[role].first()
        {
            self.next.insert(*first);
        }
    }
}

#[derive(Default)]
struct Numbers<'p> {
    roles: HashMap<&'p Role, usize>,
    domains: HashMap<Option<&'p str>, usize>,
    queues: HashMap<(usize, usize), usize>,
}

#[cfg(test)]
mod tests;
