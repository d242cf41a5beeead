//! Cuts the nodes of a stage into waves.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use jiff::SignedDuration;
use muster_core::names::{NodeName, Role};
use muster_core::rollout::plan::{PlannedNode, PlannedWave};
use muster_core::rollout::strategy::{Promote, Reach, Strategy, Wave};

use crate::budget::number;
use crate::order::{Ticket, spread, turns};

/// A node that is to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mover<'a> {
    pub(crate) name: &'a NodeName,
    pub(crate) role: &'a Role,
    pub(crate) place: Place,
    /// Whose nodes take turns: where the strategy names a label, its values; else the failure domains.
    pub(crate) ticket: Ticket,
    /// Its value of that label.
    pub(crate) domain: Option<&'a str>,
}

/// Where in its stage a node belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is not well, and may be repaired: in the first wave, before the others.
    First,
    /// Where the strategy and the seed put it.
    Drawn,
    /// It cannot be told anything now: in the last wave, after the others.
    Last,
}

/// The waves of a stage. Those without nodes are left out.
///
/// The shares of the strategy are of the nodes that are well and there: they are what a wave puts at risk. Those that are to
/// be repaired come on top of the first wave. If they counted, a canary could consist of a node that was broken before, whose
/// failing again says nothing.
pub(crate) fn waves(stage: u32, movers: &[Mover<'_>], strategy: &Strategy) -> Vec<PlannedWave> {
    // Where nobody of a role can be told anything, that is hardly their fault: they keep their places, so that they are moved
    // in waves when they are back, and not all in the last one.
    let reachable: BTreeSet<&Role> =
        movers.iter().filter(|mover| mover.place != Place::Last).map(|mover| mover.role).collect();
    let place_of = |mover: &Mover<'_>| if reachable.contains(mover.role) { mover.place } else { Place::Drawn };
    let placed = |place| movers.iter().filter(|mover| place_of(mover) == place).copied().collect::<Vec<_>>();
    let mut drawn = Drawn::new(&placed(Place::Drawn));
    let mut waves: Vec<PlannedWave> = Vec::new();
    for (index, wave) in strategy.waves.iter().enumerate() {
        let (is_first, is_last) = (index == 0, index + 1 == strategy.waves.len());
        let mut nodes = Vec::new();
        if is_first {
            nodes.extend(in_turns(placed(Place::First)));
        }
        // Nobody is forgotten, whatever the last wave says.
        nodes.extend(in_turns(drawn.take(if is_last { Reach::Percent(100) } else { wave.reach })));
        if is_last {
            nodes.extend(in_turns(placed(Place::Last)));
        }
        match waves.last_mut() {
            Some(before) if nodes.is_empty() => stands_for(before, wave),
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

/// A small role may have come as far as a wave goes with the one before it. What was to be waited for there is waited for
/// here: a person who wants to be asked after a tenth is asked, also if that is the canary.
fn stands_for(before: &mut PlannedWave, left_out: &Wave) {
    before.soak = before.soak.max(left_out.soak.unwrap_or(SignedDuration::ZERO));
    if left_out.promote == Promote::Manual {
        before.promote = Promote::Manual;
    }
}

fn in_turns(movers: Vec<Mover<'_>>) -> impl Iterator<Item = PlannedNode> {
    let tickets: Vec<Ticket> = movers.iter().map(|mover| mover.ticket).collect();
    turns(&tickets).into_iter().map(move |index| {
        let Mover { name, role, place, domain, .. } = movers[index];
        PlannedNode {
            node: name.clone(),
            role: role.clone(),
            domain: domain.map(str::to_owned),
            repair: place == Place::First,
        }
    })
}

/// The nodes of a stage by their roles, and how many of each have been taken.
struct Drawn<'a> {
    roles: Vec<(Vec<Mover<'a>>, usize)>,
}

impl<'a> Drawn<'a> {
    fn new(movers: &[Mover<'a>]) -> Self {
        let mut roles: BTreeMap<&Role, Vec<Mover<'a>>> = BTreeMap::new();
        for mover in movers {
            roles.entry(mover.role).or_default().push(*mover);
        }
        let in_order = |members: Vec<Mover<'a>>| {
            let tickets: Vec<Ticket> = members.iter().map(|mover| mover.ticket).collect();
            (spread(&tickets).into_iter().map(|index| members[index]).collect(), 0)
        };
        Self { roles: roles.into_values().map(in_order).collect() }
    }

    /// Goes on until so far.
    fn take(&mut self, reach: Reach) -> Vec<Mover<'a>> {
        match reach {
            Reach::Percent(percent) => self.take_of_each(percent),
            Reach::Nodes(nodes) => self.take_in_turns(usize::try_from(nodes).unwrap_or(usize::MAX)),
        }
    }

    fn take_of_each(&mut self, percent: u8) -> Vec<Mover<'a>> {
        let mut taken = Vec::new();
        for (members, count) in &mut self.roles {
            let until = members.len().saturating_mul(usize::from(percent)).div_ceil(100).min(members.len());
            taken.extend(members.get(*count..until).into_iter().flatten());
            *count = until.max(*count);
        }
        taken
    }

    /// Always one of the role of which fewest were taken.
    fn take_in_turns(&mut self, nodes: usize) -> Vec<Mover<'a>> {
        let mut taken = Vec::new();
        let mut total: usize = self.roles.iter().map(|(_, count)| count).sum();
        let counts = self.roles.iter().enumerate().map(|(role, (_, count))| Reverse((*count, role)));
        let mut fewest: BinaryHeap<Reverse<(usize, usize)>> = counts.collect();
        while total < nodes
            && let Some(Reverse((count, role))) = fewest.pop()
        {
            let (members, taken_of_it) = &mut self.roles[role];
            if let Some(mover) = members.get(count) {
                taken.push(*mover);
                *taken_of_it = count + 1;
                total += 1;
                fewest.push(Reverse((count + 1, role)));
            }
        }
        taken
    }
}
