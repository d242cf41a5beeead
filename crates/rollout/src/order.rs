//! In which order nodes are taken. Decided by a seed that stands in the plan, so that the same plan comes out of the same
//! world everywhere and for ever.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// A node that is to be put in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) domain: Domain,
    /// Of the seed and the node's name: see [`draw`].
    pub(crate) draw: u64,
}

/// Nodes that take turns with those of other domains. A number: names are compared once, and not at each step of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Domain {
    /// Of the seed and its name.
    draw: u64,
    number: usize,
}

/// Gives domains their numbers.
#[derive(Debug)]
pub(crate) struct Domains<'a> {
    seed: u64,
    known: HashMap<&'a str, Domain>,
}

impl<'a> Domains<'a> {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, known: HashMap::new() }
    }

    pub(crate) fn of(&mut self, name: &'a str) -> Domain {
        let number = self.known.len();
        *self.known.entry(name).or_insert_with(|| Domain { draw: draw(self.seed, name), number })
    }
}

/// Draws a number for a name. Written out here since it must never change: a plan that is made again in a year, by another
/// build, has to come out the same. FNV-1a, and then the finish of splitmix64, which spreads names that differ in one digit.
pub fn draw(seed: u64, name: &str) -> u64 {
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
pub(crate) fn spread(tickets: &[Ticket]) -> Vec<usize> {
    let mut placed: Vec<(usize, u64, usize)> = Vec::with_capacity(tickets.len());
    for members in by_domain(tickets).chunk_by(|a, b| a.0 == b.0) {
        placed.extend(members.iter().enumerate().map(|(place, (_, draw, index))| (place, *draw, *index)));
    }
    placed.sort_unstable();
    placed.into_iter().map(|(_, _, index)| index).collect()
}

/// Puts nodes in an order in which two of the same domain never follow each other, if that can be: the domain with most left
/// is always next, unless it was the last. So the nodes of a domain that can only be taken one by one are begun with, and the
/// largest domain, which needs longest, never waits for the others. Gives back indices.
pub(crate) fn turns(tickets: &[Ticket]) -> Vec<usize> {
    let sorted = by_domain(tickets);
    let domains = sorted.chunk_by(|a, b| a.0 == b.0).filter_map(|members| Some((members.first()?.0, members)));
    let mut heap: BinaryHeap<(usize, Reverse<Domain>, &[Member])> =
        domains.map(|(domain, members)| (members.len(), Reverse(domain), members)).collect();
    let mut order = Vec::with_capacity(tickets.len());
    let mut last = None;
    while let Some((left, domain, members)) = heap.pop().or_else(|| last.take()) {
        let Some(((_, _, index), rest)) = members.split_first() else { continue };
        order.push(*index);
        heap.extend(last.take());
        last = (left > 1).then_some((left - 1, domain, rest));
    }
    order
}

/// A node of a domain: its draw, and its index.
type Member = (Domain, u64, usize);

/// The nodes of each domain together, in the order of their draws.
fn by_domain(tickets: &[Ticket]) -> Vec<Member> {
    let member = |(index, ticket): (usize, &Ticket)| (ticket.domain, ticket.draw, index);
    let mut sorted: Vec<Member> = tickets.iter().enumerate().map(member).collect();
    sorted.sort_unstable();
    sorted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tickets(seed: u64, domains: &[&str]) -> Vec<Ticket> {
        let mut known = Domains::new(seed);
        let named = domains.iter().enumerate().map(|(index, domain)| (format!("web{index}"), domain));
        named.map(|(name, domain)| Ticket { domain: known.of(domain), draw: draw(seed, &name) }).collect()
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
        let order = shown(&domains, &spread(&tickets(1, &domains)));
        let mut first: Vec<char> = order[..3].chars().collect();
        first.sort_unstable();
        assert_eq!((first.as_slice(), &order[5..]), (&['a', 'b', 'c'][..], "aa"), "{order}");
    }

    #[test]
    fn domains_take_turns_and_the_largest_never_waits_for_the_others() {
        let turns = |domains: &[&str]| shown(domains, &turns(&tickets(1, domains)));
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
            let tickets = tickets(seed, &domains);
            for mut order in [turns(&tickets), spread(&tickets)] {
                order.sort_unstable();
                prop_assert!(order.into_iter().eq(0..domains.len()));
            }
            let order = turns(&tickets);
            let most = domains.iter().map(|domain| domains.iter().filter(|other| *other == domain).count()).max();
            if most.unwrap_or(0) <= domains.len().div_ceil(2) {
                prop_assert!(order.windows(2).all(|pair| domains[pair[0]] != domains[pair[1]]), "{}", shown(&domains, &order));
            }
        }
    }
}
