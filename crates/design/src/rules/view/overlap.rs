//! Ranges of a network that have addresses in common.

use super::{Network, Range, RangeKind};

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
