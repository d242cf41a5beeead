//! Order of the nodes in a plan, drawn from the plan's seed: the same environment gives the same plan on every machine.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Sort key of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrderKey {
    pub(crate) domain: SpreadGroup,
    /// Drawn from the seed and the node's name: see [`draw`].
    pub(crate) draw: u64,
}

/// A group of nodes that takes turns with the other groups. It is numbered, and names are not compared while sorting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SpreadGroup {
    /// Drawn from the seed and its name.
    draw: u64,
    number: usize,
}

/// Numbers the groups by name.
#[derive(Debug)]
pub(crate) struct SpreadGroups<'a> {
    seed: u64,
    known: HashMap<&'a str, SpreadGroup>,
}

impl<'a> SpreadGroups<'a> {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, known: HashMap::new() }
    }

    pub(crate) fn number(&mut self, name: &'a str) -> SpreadGroup {
        let number = self.known.len();
        *self.known.entry(name).or_insert_with(|| SpreadGroup { draw: draw(self.seed, name), number })
    }
}

/// Draws a number for a name. The function must never change: another build must make the same plan a year later.
/// FNV-1a with the finisher of splitmix64, which spreads names that differ in one digit.
pub fn draw(seed: u64, name: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    let hash = seed.to_le_bytes().into_iter().chain(name.bytes()).fold(BASIS, step);
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// An order of which every prefix is spread over the domains as evenly as possible: one node of each domain, then a
/// second of each, and on. Returns indices.
pub(crate) fn order_evenly(keys: &[OrderKey]) -> Vec<usize> {
    let mut placed: Vec<(usize, u64, usize)> = Vec::with_capacity(keys.len());
    for members in by_domain(keys).chunk_by(|a, b| a.0 == b.0) {
        placed.extend(members.iter().enumerate().map(|(place, (_, draw, index))| (place, *draw, *index)));
    }
    placed.sort_unstable();
    placed.into_iter().map(|(_, _, index)| index).collect()
}

/// An order in which two nodes of the same domain do not follow each other where that is possible: the domain with the
/// most nodes left is next, unless it was the last one. The largest domain takes longest, and starts first. Returns
/// indices.
pub(crate) fn order_interleaved(keys: &[OrderKey]) -> Vec<usize> {
    let sorted = by_domain(keys);
    let domains = sorted.chunk_by(|a, b| a.0 == b.0).filter_map(|members| Some((members.first()?.0, members)));
    let mut heap: BinaryHeap<(usize, Reverse<SpreadGroup>, &[Member])> =
        domains.map(|(domain, members)| (members.len(), Reverse(domain), members)).collect();
    let mut order = Vec::with_capacity(keys.len());
    let mut last = None;
    while let Some((left, domain, members)) = heap.pop().or_else(|| last.take()) {
        let Some(((_, _, index), rest)) = members.split_first() else { continue };
        order.push(*index);
        heap.extend(last.take());
        last = (left > 1).then_some((left - 1, domain, rest));
    }
    order
}

/// A node of a domain: domain, draw, and index.
type Member = (SpreadGroup, u64, usize);

/// The nodes grouped by domain, each group in the order of its draws.
fn by_domain(keys: &[OrderKey]) -> Vec<Member> {
    let member = |(index, order_key): (usize, &OrderKey)| (order_key.domain, order_key.draw, index);
    let mut sorted: Vec<Member> = keys.iter().enumerate().map(member).collect();
    sorted.sort_unstable();
    sorted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(seed: u64, domains: &[&str]) -> Vec<OrderKey> {
        let mut known = SpreadGroups::new(seed);
        let named = domains.iter().enumerate().map(|(index, domain)| (format!("web{index}"), domain));
        named.map(|(name, domain)| OrderKey { domain: known.number(domain), draw: draw(seed, &name) }).collect()
    }

    fn shown(domains: &[&str], order: &[usize]) -> String {
        order.iter().map(|index| domains[*index]).collect()
    }

    #[test]
    fn draw_is_stable() {
        assert_eq!(draw(0, ""), 0x813f_0174_a236_7c13);
        assert_eq!(draw(7, "web1"), 0xd9d1_e665_2802_829c);
    }

    #[test]
    fn prefix_is_spread_over_the_domains() {
        let domains = ["a", "a", "a", "a", "b", "b", "c"];
        let order = shown(&domains, &order_evenly(&keys(1, &domains)));
        let mut first: Vec<char> = order[..3].chars().collect();
        first.sort_unstable();
        assert_eq!((first.as_slice(), &order[5..]), (&['a', 'b', 'c'][..], "aa"), "{order}");
    }

    #[test]
    fn domains_take_turns_and_the_largest_goes_first() {
        let turns = |domains: &[&str]| shown(domains, &order_interleaved(&keys(1, domains)));
        assert_eq!(turns(&["a", "a", "a", "b"]), "abaa");
        let order = turns(&["a", "a", "a", "a", "b", "b", "c", "c"]);
        assert!(order.starts_with('a') && order.chars().step_by(2).all(|domain| domain == 'a'), "{order}");
    }

    proptest! {
        #[test]
        fn order_is_a_permutation_without_needless_neighbours(
            domains in prop::collection::vec("[a-d]", 0..40), seed: u64,
        ) {
            let domains: Vec<&str> = domains.iter().map(String::as_str).collect();
            let keys = keys(seed, &domains);
            for mut order in [order_interleaved(&keys), order_evenly(&keys)] {
                order.sort_unstable();
                prop_assert!(order.into_iter().eq(0..domains.len()));
            }
            let order = order_interleaved(&keys);
            let most = domains.iter().map(|domain| domains.iter().filter(|other| *other == domain).count()).max();
            if most.unwrap_or(0) <= domains.len().div_ceil(2) {
                prop_assert!(order.windows(2).all(|pair| domains[pair[0]] != domains[pair[1]]), "{}", shown(&domains, &order));
            }
        }
    }
}
