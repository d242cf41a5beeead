//! Typed views of documents for the rules.
//!
//! Reading is lenient: a value of the wrong type, or a malformed one, counts as absent. It was reported where it is
//! written.

mod interfaces;
mod networks;
pub(crate) mod storage;
mod topology;

pub(crate) use interfaces::{
    Interface, NodeAddress, addresses, attached, interface_networks, interfaces, is_attached, node_addresses,
};
pub(crate) use networks::{BondMode, Link, Network, Range, RangeKind};
pub(crate) use topology::{NetworkCidr, RangeOverlap, Topology, overlapping, overlaps};

use crate::span::Span;
use crate::types::{Cidr, address, cidr};
use crate::yaml::{Entry, Kind, Node};

/// A value and its span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spanned<T> {
    pub value: T,
    pub span: Span,
}

impl<T> Spanned<T> {
    fn read<'n>(from: &'n Node, key: &str, read: impl FnOnce(&'n Node) -> Option<T>) -> Option<Self> {
        let node = from.get(key)?;
        Some(Spanned { value: read(node)?, span: node.span })
    }
}

impl<'n> Spanned<&'n str> {
    pub(crate) fn text(from: &'n Node, key: &str) -> Option<Self> {
        Spanned::read(from, key, Node::text)
    }

    /// The texts of a list.
    pub(crate) fn texts(from: &'n Node, key: &str) -> Vec<Self> {
        let items = from.get(key).and_then(Node::items).unwrap_or_default();
        items.iter().filter_map(|item| Some(Spanned { value: item.text()?, span: item.span })).collect()
    }
}

impl Spanned<i64> {
    pub(super) fn integer(from: &Node, key: &str) -> Option<Self> {
        Spanned::read(from, key, |node| match node.kind()? {
            Kind::Int(number) => Some(number),
            Kind::Null | Kind::Bool(_) | Kind::Float | Kind::Text => None,
        })
    }
}

impl Spanned<std::net::IpAddr> {
    pub(super) fn address(from: &Node, key: &str) -> Option<Self> {
        Spanned::read(from, key, |node| address(node.text()?))
    }
}

impl Spanned<Cidr> {
    pub(super) fn cidr(from: &Node, key: &str) -> Option<Self> {
        Spanned::read(from, key, |node| cidr(node.text()?))
    }
}

/// The entries of a mapping at a key.
pub(crate) fn entries<'n>(node: &'n Node, key: &str) -> &'n [Entry] {
    node.get(key).and_then(Node::map).map(|map| map.entries()).unwrap_or_default()
}

/// The members of a list at a key.
pub(crate) fn items<'n>(node: &'n Node, key: &str) -> &'n [Node] {
    node.get(key).and_then(Node::items).unwrap_or_default()
}
