//! In which order nodes are taken. Decided by a seed that stands in the plan, so that the same plan comes out of the same
//! world everywhere and for ever.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// A node that is to be put in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket<'a> {
    pub(crate) domain: &'a str,
    /// Of the seed and the node's name: see [`draw`].
    pub(crate) draw: u64,
}

/// Draws a number for a name. Written out here since it must never change: a plan that is made again in a year, by another
/// build, has to come out the same. FNV-1a, and then the finish of splitmix64, which spreads names that differ in one digit.
pub(crate) fn draw(seed: u64, name: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    let hash = seed.to_le_bytes().into_iter().chain(name.bytes()).fold(BASIS, step);
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Puts nodes in an order of which every beginning is spread over the domains as evenly as it can be: first one of each
/// domain, then a second of each, …. Gives back indices.
pub(crate) fn spread(tickets: &[Ticket<'_>]) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..tickets.len()).collect();
    let key = |index: &usize| (tickets[*index].domain, tickets[*index].draw);
    indices.sort_by(|a, b| key(a).cmp(&key(b)).then(a.cmp(b)));
    let mut placed: Vec<(usize, u64, usize)> = Vec::with_capacity(indices.len());
    let mut place = 0;
    for (position, index) in indices.iter().enumerate() {
        let follows = position > 0 && tickets[indices[position - 1]].domain == tickets[*index].domain;
        place = if follows { place + 1 } else { 0 };
        placed.push((place, tickets[*index].draw, *index));
    }
    placed.sort_unstable();
    placed.into_iter().map(|(_, _, index)| index).collect()
}

/// Puts nodes in an order in which two of the same domain never follow each other, if that can be: the domain with most left
/// is always next, unless it was the last. So the nodes of a domain that can only be taken one by one are begun with, and the
/// largest domain, which needs longest, never waits for the others. Gives back indices.
pub(crate) fn turns(seed: u64, tickets: &[Ticket<'_>]) -> Vec<usize> {
    let mut domains: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, ticket) in tickets.iter().enumerate() {
        domains.entry(ticket.domain).or_default().push(index);
    }
    let mut heap: BinaryHeap<(usize, Reverse<u64>, Reverse<&str>)> = BinaryHeap::with_capacity(domains.len());
    let mut queues: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
    for (domain, mut members) in domains {
        members.sort_by_key(|index| (tickets[*index].draw, *index));
        heap.push((members.len(), Reverse(draw(seed, domain)), Reverse(domain)));
        queues.insert(domain, members.into());
    }
    let mut order = Vec::with_capacity(tickets.len());
    let mut last = None;
    while let Some((left, drawn, Reverse(domain))) = heap.pop().or_else(|| last.take()) {
        order.extend(queues.get_mut(domain).and_then(VecDeque::pop_front));
        heap.extend(last.take());
        last = (left > 1).then_some((left - 1, drawn, Reverse(domain)));
    }
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tickets<'a>(domains: &'a [&'a str]) -> Vec<Ticket<'a>> {
        let ticket = |(index, domain): (usize, &&'a str)| Ticket { domain, draw: draw(1, &format!("web{index}")) };
        domains.iter().enumerate().map(ticket).collect()
    }

    fn shown(domains: &[&str], order: &[usize]) -> String {
        order.iter().map(|index| domains[*index]).collect()
    }

    #[test]
    fn a_draw_is_the_same_for_ever() {
        assert_eq!(draw(0, ""), 0x813f_0174_a236_7c13);
        assert_eq!(draw(7, "web1"), 0xd9d1_e665_2802_829c);
    }

    #[test]
    fn a_beginning_is_spread_over_the_domains() {
        let domains = ["a", "a", "a", "a", "b", "b", "c"];
        let order = shown(&domains, &spread(&tickets(&domains)));
        let mut first: Vec<char> = order[..3].chars().collect();
        first.sort_unstable();
        assert_eq!((first.as_slice(), &order[5..]), (&['a', 'b', 'c'][..], "aa"), "{order}");
    }

    #[test]
    fn domains_take_turns_and_the_largest_never_waits_for_the_others() {
        let turns = |domains: &[&str]| shown(domains, &turns(1, &tickets(domains)));
        assert_eq!(turns(&["a", "a", "a", "b"]), "abaa");
        let order = turns(&["a", "a", "a", "a", "b", "b", "c", "c"]);
        assert!(order.starts_with('a') && order.chars().step_by(2).all(|domain| domain == 'a'), "{order}");
    }

    proptest! {
        #[test]
        fn every_node_once_and_neighbours_only_where_they_cannot_be_avoided(
            domains in prop::collection::vec("[a-d]", 0..40), seed: u64,
        ) {
            let domains: Vec<&str> = domains.iter().map(String::as_str).collect();
            let tickets = tickets(&domains);
            for mut order in [turns(seed, &tickets), spread(&tickets)] {
                order.sort_unstable();
                prop_assert!(order.into_iter().eq(0..domains.len()));
            }
            let order = turns(seed, &tickets);
            let most = domains.iter().map(|domain| domains.iter().filter(|other| *other == domain).count()).max();
            if most.unwrap_or(0) <= domains.len().div_ceil(2) {
                prop_assert!(order.windows(2).all(|pair| domains[pair[0]] != domains[pair[1]]), "{}", shown(&domains, &order));
            }
        }
    }
}
