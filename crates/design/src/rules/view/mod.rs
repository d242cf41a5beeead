//! What rules read, in types of its own.
//!
//! Reading is lenient: a value of the wrong type, or a malformed one, is as good as absent. It has been reported where it
//! is written.

mod address;
mod interface;
mod link;
mod network;
mod overlap;
mod placed;
pub(crate) mod storage;
mod topology;

pub(crate) use address::{Placement, addresses, placements};
pub(crate) use interface::{Interface, attached, interface_networks, interfaces, is_attached};
pub(crate) use link::{BondMode, Link};
pub(crate) use network::{Network, Range, RangeKind};
pub(crate) use overlap::{Addressed, Overlap, overlapping, overlaps};
pub(crate) use placed::Placed;
pub(crate) use topology::Topology;

use crate::yaml::{Entry, Node};

/// The entries of a mapping at a key.
pub(crate) fn entries<'n>(node: &'n Node, key: &str) -> &'n [Entry] {
    node.get(key).and_then(Node::map).map(|map| map.entries()).unwrap_or_default()
}

/// The members of a list at a key.
pub(crate) fn items<'n>(node: &'n Node, key: &str) -> &'n [Node] {
    node.get(key).and_then(Node::items).unwrap_or_default()
}
