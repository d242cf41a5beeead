//! Divides the nodes of a stage into waves.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use jiff::SignedDuration;
use muster_core::names::{NodeName, Role};
use muster_core::rollout::plan::{PlannedNode, PlannedWave};
use muster_core::rollout::strategy::{Promote, Reach, Strategy, Wave};

use crate::plan::number;
use crate::plan::order::{OrderKey, order_evenly, order_interleaved};

/// A node that the plan moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedMove<'a> {
    pub(crate) name: &'a NodeName,
    pub(crate) role: &'a Role,
    pub(crate) placement: WavePlacement,
    /// Its group takes turns with the others: the values of the strategy's label, or the failure domains.
    pub(crate) order_key: OrderKey,
    /// Its value of that label.
    pub(crate) domain: Option<&'a str>,
}

/// The placement of a node within its stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WavePlacement {
    /// Unhealthy, and repaired at the start of the first wave.
    First,
    /// Not validated yet, though no run failed: the node, or the whole fleet, is coming up. Repaired as [`Self::First`] if
    /// it is the only one of its role, and drawn otherwise.
    ComingUp,
    /// Drawn by the strategy and the seed.
    Seeded,
    /// Unreachable now, and moved at the end of the last wave.
    Last,
}

/// The waves of a stage. Waves without nodes are left out.
///
/// Percentages of the strategy count the healthy, reachable nodes: they are what a wave puts at risk. Nodes that are
/// repaired come on top of the first wave. Otherwise a canary could consist of nodes that were broken before, and its
/// failure would prove nothing.
pub(crate) fn waves(stage: u32, nodes_to_move: &[PlannedMove<'_>], strategy: &Strategy) -> Vec<PlannedWave> {
    // A role of which no node is reachable is probably not broken: its nodes keep their drawn places, and are moved in
    // waves when they are back.
    let count_in = |role: &Role, is: fn(WavePlacement) -> bool| {
        nodes_to_move.iter().filter(|node| node.role == role && is(node.placement)).count()
    };
    let roles: BTreeSet<&Role> = nodes_to_move.iter().map(|node| node.role).collect();
    let with = |is: fn(WavePlacement) -> bool, least: usize| -> BTreeSet<&Role> {
        roles.iter().copied().filter(|role| count_in(role, is) >= least).collect()
    };
    let reachable = with(|placement| placement != WavePlacement::Last, 1);
    // A role that is coming up keeps a canary: repairs would all be in the first wave, and their failures would not count.
    let coming_up = with(|placement| placement == WavePlacement::ComingUp, 2);
    let placement_of = |node: &PlannedMove<'_>| match node.placement {
        _ if !reachable.contains(node.role) => WavePlacement::Seeded,
        WavePlacement::ComingUp if coming_up.contains(node.role) => WavePlacement::Seeded,
        WavePlacement::ComingUp => WavePlacement::First,
        placement @ (WavePlacement::First | WavePlacement::Seeded | WavePlacement::Last) => placement,
    };
    let nodes_to_move: Vec<PlannedMove<'_>> =
        nodes_to_move.iter().map(|node| PlannedMove { placement: placement_of(node), ..*node }).collect();
    let placed =
        |placement| nodes_to_move.iter().filter(|node| node.placement == placement).copied().collect::<Vec<_>>();
    let mut drawn = DrawPool::new(&placed(WavePlacement::Seeded));
    let mut waves: Vec<PlannedWave> = Vec::new();
    for (index, wave) in strategy.waves.iter().enumerate() {
        let (is_first, is_last) = (index == 0, index + 1 == strategy.waves.len());
        let mut nodes = Vec::new();
        if is_first {
            nodes.extend(in_turns(placed(WavePlacement::First)));
        }
        // The last wave takes all remaining nodes.
        nodes.extend(in_turns(drawn.draw_until(if is_last { Reach::Percent(100) } else { wave.reach })));
        if is_last {
            nodes.extend(in_turns(placed(WavePlacement::Last)));
        }
        match waves.last_mut() {
            Some(before) if nodes.is_empty() => absorb_empty_wave(before, wave),
            None if nodes.is_empty() => {}
            Some(_) | None => waves.push(PlannedWave {
                stage,
                wave: number(index + 1),
                canary: waves.is_empty(),
                nodes,
                soak: strategy.soak_of(wave, waves.is_empty(), false),
                promote: wave.promote,
            }),
        }
    }
    waves
}

/// A small role may already be covered by the previous wave. The soak and the promotion of the empty wave then apply to
/// that one.
fn absorb_empty_wave(before: &mut PlannedWave, left_out: &Wave) {
    before.soak = before.soak.max(left_out.soak.unwrap_or(SignedDuration::ZERO));
    if left_out.promote == Promote::Manual {
        before.promote = Promote::Manual;
    }
}

fn in_turns(nodes_to_move: Vec<PlannedMove<'_>>) -> impl Iterator<Item = PlannedNode> {
    let keys: Vec<OrderKey> = nodes_to_move.iter().map(|node| node.order_key).collect();
    order_interleaved(&keys).into_iter().map(move |index| {
        let PlannedMove { name, role, placement, domain, .. } = nodes_to_move[index];
        PlannedNode {
            node: name.clone(),
            role: role.clone(),
            domain: domain.map(str::to_owned),
            repair: placement == WavePlacement::First,
        }
    })
}

/// The nodes of a stage by role, with the number of nodes taken from each.
struct DrawPool<'a> {
    roles: Vec<(Vec<PlannedMove<'a>>, usize)>,
}

impl<'a> DrawPool<'a> {
    fn new(nodes_to_move: &[PlannedMove<'a>]) -> Self {
        let mut roles: BTreeMap<&Role, Vec<PlannedMove<'a>>> = BTreeMap::new();
        for node in nodes_to_move {
            roles.entry(node.role).or_default().push(*node);
        }
        let in_order = |members: Vec<PlannedMove<'a>>| {
            let keys: Vec<OrderKey> = members.iter().map(|node| node.order_key).collect();
            (order_evenly(&keys).into_iter().map(|index| members[index]).collect(), 0)
        };
        Self { roles: roles.into_values().map(in_order).collect() }
    }

    /// Takes nodes until this many are reached.
    fn draw_until(&mut self, reach: Reach) -> Vec<PlannedMove<'a>> {
        match reach {
            Reach::Percent(percent) => self.draw_percent(percent),
            Reach::Nodes(nodes) => self.draw_nodes(usize::try_from(nodes).unwrap_or(usize::MAX)),
        }
    }

    fn draw_percent(&mut self, percent: u8) -> Vec<PlannedMove<'a>> {
        let mut taken = Vec::new();
        for (members, count) in &mut self.roles {
            let until = members.len().saturating_mul(usize::from(percent)).div_ceil(100).min(members.len());
            taken.extend(members.get(*count..until).into_iter().flatten());
            *count = until.max(*count);
        }
        taken
    }

    /// Always takes from the role of which the fewest were taken.
    fn draw_nodes(&mut self, nodes: usize) -> Vec<PlannedMove<'a>> {
        let mut taken = Vec::new();
        let mut total: usize = self.roles.iter().map(|(_, count)| count).sum();
        let counts = self.roles.iter().enumerate().map(|(role, (_, count))| Reverse((*count, role)));
        let mut fewest: BinaryHeap<Reverse<(usize, usize)>> = counts.collect();
        while total < nodes
            && let Some(Reverse((count, role))) = fewest.pop()
        {
            let (members, taken_from_role) = &mut self.roles[role];
            if let Some(node) = members.get(count) {
                taken.push(*node);
                *taken_from_role = count + 1;
                total += 1;
                fewest.push(Reverse((count + 1, role)));
            }
        }
        taken
    }
}
