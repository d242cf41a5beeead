//! How long a rollout takes if nothing goes wrong: it is played through, with the rules of the engine and a clock that leaps.

use std::collections::{BTreeSet, HashMap, VecDeque};

use jiff::SignedDuration;
use muster_core::fleet::{Fleet, Node};
use muster_core::names::{NodeName, Role};
use muster_core::report::{Cause, Outcome, Verdict};
use muster_core::rollout::plan::{PlannedNode, PlannedWave, Prediction, RolloutPlan};

use crate::unwell::is_still_being_made;

/// What a node is taken to need as long as none has shown it. Package managers and service restarts take about that long.
pub const GUESS: SignedDuration = SignedDuration::from_secs(60);
/// So many nodes are asked how long they took, evenly from all of the fleet: what they remember is text, and reading that of
/// all would take longer than the rest of the planning. The median of so many is a good one.
const ASKED: usize = 64;

pub(crate) fn predict(fleet: &Fleet, plan: &RolloutPlan) -> Prediction {
    let measured = median(sample(fleet));
    let node = measured.unwrap_or(GUESS);
    // They are all among those that are listed: nobody else is looked up.
    let listed = plan.unwell.iter().map(|unwell| &unwell.node);
    let unmade: BTreeSet<&NodeName> = listed.filter(|name| fleet.get(name).is_some_and(is_still_being_made)).collect();
    let total = length(plan, node, &|planned| !unmade.contains(&planned.node));
    Prediction { node, measured: measured.is_some(), total }
}

fn sample(fleet: &Fleet) -> Vec<SignedDuration> {
    let step = fleet.designed().count().div_ceil(ASKED).max(1);
    fleet.designed().step_by(step).filter_map(|(_, node, _)| took(node)).collect()
}

fn median(mut times: Vec<SignedDuration>) -> Option<SignedDuration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// How long the node's last whole run took, from its start until it was validated.
fn took(node: &Node) -> Option<SignedDuration> {
    let is_whole = |outcome: Outcome, causes: &[Cause]| {
        outcome == Outcome::Validated(Verdict::Passed) && causes.iter().any(|cause| *cause != Cause::Schedule)
    };
    let last = node.observed.as_ref().and_then(|(observed, _)| observed.last.as_ref());
    if let Some(last) = last.filter(|last| is_whole(last.outcome, &last.causes)) {
        return Some(last.ended.duration_since(last.started).max(SignedDuration::ZERO));
    }
    let past = node.history().0.into_iter().find(|past| is_whole(past.outcome, &past.causes))?;
    Some(past.ended.duration_since(past.started).max(SignedDuration::ZERO))
}

/// How long a plan takes if each node is validated this long after its grant, and nothing is waited for but what the plan
/// itself says: no window, no promotion, no check, no server. Whatever the budgets and the ramp have room for is granted at
/// once, in the plan's order. An engine that keeps the plan cannot be faster.
///
/// Costs as much as sorting the nodes, as long as a domain has nodes of few roles.
pub fn minimum(plan: &RolloutPlan, node_time: SignedDuration) -> SignedDuration {
    length(plan, node_time, &|_| true)
}

/// The same with some nodes only: whose machine is still being made is not waited for.
fn length(plan: &RolloutPlan, node_time: SignedDuration, is_moved: &dyn Fn(&PlannedNode) -> bool) -> SignedDuration {
    if plan.at_once {
        return if plan.nodes().any(is_moved) { node_time } else { SignedDuration::ZERO };
    }
    let slot = node_time.saturating_add(plan.strategy.soak);
    let mut now = SignedDuration::ZERO;
    for wave in &plan.waves {
        now = Wave::new(plan, wave, is_moved).end(now, slot).saturating_add(wave.soak);
    }
    now
}

/// A wave as it is played through. Nodes are numbered by their place in it, roles and domains by when they first appear.
struct Wave {
    roles: Vec<Pool>,
    domains: Vec<Pool>,
    /// For each role, the first waiting node of each of its lines that the domain has room for.
    next_of_role: Vec<BTreeSet<(usize, usize)>>,
    /// Those of the roles that have room: the first of these is granted next.
    next: BTreeSet<(usize, usize)>,
    lines: Vec<Line>,
    /// Which lines a domain holds up.
    lines_of_domain: Vec<Vec<usize>>,
    /// Those that are not well already. They cost nothing, and come first.
    repairs: VecDeque<Slots>,
    ramp: bool,
}

/// What a node uses up.
#[derive(Clone, Copy)]
struct Slots {
    role: usize,
    domain: usize,
}

/// The nodes of one role in one domain. All but the first wait for the first.
struct Line {
    slots: Slots,
    nodes: VecDeque<usize>,
}

#[derive(Clone, Copy)]
struct Pool {
    used: usize,
    most: usize,
}

impl Pool {
    fn has_room(self) -> bool {
        self.used < self.most
    }
}

impl Wave {
    fn new(plan: &RolloutPlan, wave: &PlannedWave, is_moved: &dyn Fn(&PlannedNode) -> bool) -> Self {
        let mut numbers = Numbers::default();
        let mut this = Wave {
            roles: Vec::new(),
            domains: Vec::new(),
            next_of_role: Vec::new(),
            next: BTreeSet::new(),
            lines: Vec::new(),
            lines_of_domain: Vec::new(),
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
            let line = *numbers.lines.entry((slots.role, slots.domain)).or_insert_with(|| {
                this.lines_of_domain[slots.domain].push(this.lines.len());
                this.lines.push(Line { slots, nodes: VecDeque::new() });
                this.lines.len() - 1
            });
            this.lines[line].nodes.push_back(place);
        }
        for domain in 0..this.domains.len() {
            this.open(domain);
        }
        this
    }

    fn slots<'p>(&mut self, plan: &'p RolloutPlan, numbers: &mut Numbers<'p>, node: &'p PlannedNode) -> Slots {
        let role = *numbers.roles.entry(&node.role).or_insert_with(|| {
            let most = plan.budgets.roles.get(&node.role).map_or(1, |budget| budget.max_unavailable.max(1));
            self.roles.push(Pool { used: 0, most: usize::try_from(most).unwrap_or(usize::MAX) });
            self.next_of_role.push(BTreeSet::new());
            self.roles.len() - 1
        });
        let domain = *numbers.domains.entry(node.domain.as_deref()).or_insert_with(|| {
            let most = node.domain.as_ref().and_then(|domain| plan.budgets.domains.get(domain));
            let most = most.map_or(usize::MAX, |most| usize::try_from((*most).max(1)).unwrap_or(usize::MAX));
            self.domains.push(Pool { used: 0, most });
            self.lines_of_domain.push(Vec::new());
            self.domains.len() - 1
        });
        Slots { role, domain }
    }

    /// Plays it through: when its last node is healthy.
    fn end(mut self, start: SignedDuration, slot: SignedDuration) -> SignedDuration {
        let mut now = start;
        // All take equally long, so who was granted first is healthy first: a line does what a heap would.
        let mut in_flight: VecDeque<(SignedDuration, Slots)> = VecDeque::new();
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
    fn grant(&mut self) -> Option<Slots> {
        if let Some(slots) = self.repairs.pop_front() {
            return Some(slots);
        }
        let (place, line) = self.next.pop_first()?;
        let slots = self.lines[line].slots;
        self.next_of_role[slots.role].remove(&(place, line));
        self.lines[line].nodes.pop_front();
        self.roles[slots.role].used += 1;
        self.domains[slots.domain].used += 1;
        if self.domains[slots.domain].has_room() {
            if let Some(place) = self.lines[line].nodes.front() {
                self.next_of_role[slots.role].insert((*place, line));
            }
        } else {
            self.close(slots.domain);
        }
        self.put_forward(slots.role);
        Some(slots)
    }

    fn free(&mut self, slots: Slots) {
        let domain = &mut self.domains[slots.domain];
        let had_room = domain.has_room();
        domain.used -= 1;
        if !had_room && domain.has_room() {
            self.open(slots.domain);
        }
        self.take_back(slots.role);
        self.roles[slots.role].used -= 1;
        self.put_forward(slots.role);
    }

    /// A domain has room again.
    fn open(&mut self, domain: usize) {
        if !self.domains[domain].has_room() {
            return;
        }
        for index in 0..self.lines_of_domain[domain].len() {
            let line = self.lines_of_domain[domain][index];
            let role = self.lines[line].slots.role;
            if let Some(place) = self.lines[line].nodes.front().copied() {
                self.take_back(role);
                self.next_of_role[role].insert((place, line));
                self.put_forward(role);
            }
        }
    }

    /// A domain is full.
    fn close(&mut self, domain: usize) {
        for index in 0..self.lines_of_domain[domain].len() {
            let line = self.lines_of_domain[domain][index];
            let role = self.lines[line].slots.role;
            if let Some(place) = self.lines[line].nodes.front().copied() {
                self.take_back(role);
                self.next_of_role[role].remove(&(place, line));
                self.put_forward(role);
            }
        }
    }

    /// Takes a role's first one out of those that can be granted, while that may become another.
    fn take_back(&mut self, role: usize) {
        if let Some(first) = self.next_of_role[role].first() {
            self.next.remove(first);
        }
    }

    fn put_forward(&mut self, role: usize) {
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
    lines: HashMap<(usize, usize), usize>,
}

#[cfg(test)]
mod tests;
