//! The names of a node.

use std::borrow::Cow;

use super::dns::domain;
use crate::rules::{Site, Thing};

/// The node's own label: what its document says, or the node's name with `_`, which no host name may hold, turned into
/// `-`.
pub(crate) fn host_name<'d>(node: &Thing<'d>) -> Cow<'d, str> {
    match node.text("host_name") {
        Some(given) => given.into(),
        None if node.name.contains('_') => node.name.replace('_', "-").into(),
        None => node.name.into(),
    }
}

/// The host name with the domain of the primary network.
pub(crate) fn fqdn(site: &Site<'_>, node: &Thing<'_>) -> String {
    format!("{}.{}", host_name(node), domain(site, node))
}
