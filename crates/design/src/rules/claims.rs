//! What only one node may have.

use std::net::IpAddr;
use std::sync::Arc;

use crate::span::Span;

/// Something that a node has, and no other may have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Claim {
    /// Within one routing domain, or one network that belongs to none: networks that never meet may have the same.
    Address {
        scope: u64,
        address: IpAddr,
    },
    Mac([u8; 6]),
    Name(Arc<str>),
}

/// Collects what a node claims for one rule.
#[derive(Debug)]
pub(crate) struct Claims<'c> {
    pub(super) claimed: &'c mut Vec<(Claim, Span)>,
}

impl Claims<'_> {
    pub(crate) fn add(&mut self, claim: Claim, at: Span) {
        self.claimed.push((claim, at));
    }
}

/// A claim that two nodes make.
#[derive(Debug)]
pub(crate) struct Taken<'t> {
    pub claim: &'t Claim,
    /// The node that has it already, and the one that wants it too; they may be the same.
    pub first: &'t str,
    pub second: &'t str,
}
