//! Ranges, and networks, that have addresses in common.

use super::{Network, Placed, Range, RangeKind};
use crate::types::Cidr;

/// A network, and its addresses where they matter.
pub(crate) type Addressed<'n, 'd> = (&'n Network<'d>, Placed<Cidr>);

/// Of each group of networks that overlap, the widest with each of the others.
pub(crate) fn overlapping<'n, 'd>(mut networks: Vec<Addressed<'n, 'd>>) -> Vec<(Addressed<'n, 'd>, Addressed<'n, 'd>)> {
    // Two networks are apart, or one is inside the other. A wider one comes before what is in it, so it is enough to look
    // at the last one that is not inside another.
    networks.sort_by_key(|(network, cidr)| (cidr.value.network(), cidr.value.prefix, network.name));
    let mut found = Vec::new();
    let mut widest: Option<Addressed<'n, 'd>> = None;
    for network in networks {
        match widest {
            Some(wider) if wider.1.value.overlaps(network.1.value) => found.push((wider, network)),
            Some(_) | None => widest = Some(network),
        }
    }
    found
}

/// A range, and an earlier one that it overlaps with.
#[derive(Debug)]
pub(crate) struct Overlap<'n, 'd> {
    pub range: &'n Range<'d>,
    pub with: &'n Range<'d>,
}

/// For each range, one overlap with each type of range at most: that is enough to mend them, and ten thousand ranges cost
/// no square.
pub(crate) fn overlaps<'n, 'd>(network: &'n Network<'d>) -> impl Iterator<Item = Overlap<'n, 'd>> {
    let mut ranges: Vec<_> =
        network.ranges.iter().filter_map(|range| Some((range.bounds()?, range.kind?, range))).collect();
    // Stable: of two that start together, the one that is written first comes first.
    ranges.sort_by_key(|(bounds, ..)| bounds.0);
    let mut furthest: [Option<(std::net::IpAddr, &Range<'d>)>; RangeKind::ALL.len()] = Default::default();
    let mut found = Vec::new();
    for ((start, end), kind, range) in ranges {
        for (upto, with) in furthest.iter().flatten() {
            if upto.is_ipv4() == start.is_ipv4() && *upto >= start {
                found.push(Overlap { range, with });
            }
        }
        let slot = &mut furthest[kind as usize];
        if slot.is_none_or(|(upto, _)| upto.is_ipv4() != end.is_ipv4() || upto < end) {
            *slot = Some((end, range));
        }
    }
    found.into_iter()
}
