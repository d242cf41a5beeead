//! A value that knows where it stands.

use crate::span::Span;
use crate::types::{Cidr, address, cidr};
use crate::yaml::{Kind, Node};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<T> {
    pub value: T,
    pub span: Span,
}

impl<T> Placed<T> {
    fn read<'n>(from: &'n Node, key: &str, read: impl FnOnce(&'n Node) -> Option<T>) -> Option<Self> {
        let node = from.get(key)?;
        Some(Placed { value: read(node)?, span: node.span })
    }
}

impl<'n> Placed<&'n str> {
    pub(crate) fn text(from: &'n Node, key: &str) -> Option<Self> {
        Placed::read(from, key, Node::text)
    }

    /// The texts of a list.
    pub(crate) fn texts(from: &'n Node, key: &str) -> Vec<Self> {
        let items = from.get(key).and_then(Node::items).unwrap_or_default();
        items.iter().filter_map(|item| Some(Placed { value: item.text()?, span: item.span })).collect()
    }
}

impl Placed<i64> {
    pub(super) fn integer(from: &Node, key: &str) -> Option<Self> {
        Placed::read(from, key, |node| match node.kind()? {
            Kind::Int(number) => Some(number),
            Kind::Null | Kind::Bool(_) | Kind::Float | Kind::Text => None,
        })
    }
}

impl Placed<std::net::IpAddr> {
    pub(super) fn address(from: &Node, key: &str) -> Option<Self> {
        Placed::read(from, key, |node| address(node.text()?))
    }
}

impl Placed<Cidr> {
    pub(super) fn cidr(from: &Node, key: &str) -> Option<Self> {
        Placed::read(from, key, |node| cidr(node.text()?))
    }
}
