//! Values that no two nodes may have: addresses, MAC addresses and names.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::view::{DocumentView, SiteView};
use super::{RULES, RuleCheck, RuleFinding};
use crate::file_text::Span;
use crate::{FastMap, FastSet};

/// A value of a node that no other node may have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Claim {
    /// Unique within one routing domain, or within a network that has none.
    Address {
        scope: u64,
        address: IpAddr,
    },
    Mac([u8; 6]),
    Name(Arc<str>),
}

/// Collects the claims of a node for one rule.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    claimed: Vec<(Claim, Span)>,
}

impl Claims {
    pub(crate) fn add(&mut self, claim: Claim, at: Span) {
        self.claimed.push((claim, at));
    }
}

/// A claim that two nodes make.
#[derive(Debug)]
pub(crate) struct ClaimConflict<'t> {
    pub claim: &'t Claim,
    /// The two nodes; they may be the same.
    pub first: &'t str,
    pub second: &'t str,
}

/// Nodes by the hashes of their claims. The claims are not kept: a node has eight, and nearly all are unique. Only nodes
/// with equal hashes are read again to compare the claims.
#[derive(Clone, Debug, Default)]
pub(super) struct ClaimTable {
    hasher: RandomState,
    /// A node with this hash, by subject.
    first: FastMap<u64, usize>,
    /// Further nodes with this hash. A node that makes a claim twice is in both.
    further: FastMap<u64, Vec<usize>>,
}

/// Hash of a claim and its rule, and the node.
pub(super) type HashedClaim = (u64, usize);

struct Claimant<'d> {
    name: &'d str,
    span: Span,
}

impl ClaimTable {
    fn hash(&self, rule: usize, claim: &Claim) -> u64 {
        self.hasher.hash_one((rule, claim))
    }

    /// Hashes the claims of a node.
    pub(super) fn read(
        &self,
        site: &SiteView<'_>,
        host: &DocumentView<'_>,
        subject: usize,
        out: &mut Vec<HashedClaim>,
    ) {
        each_claim(site, host, |rule, claim, _| out.push((self.hash(rule, &claim), subject)));
    }

    pub(super) fn extend(&mut self, claims: Vec<HashedClaim>) {
        self.first.reserve(claims.len());
        for (hash, subject) in claims {
            let mut is_new = false;
            self.first.entry(hash).or_insert_with(|| {
                is_new = true;
                subject
            });
            if !is_new {
                self.further.entry(hash).or_default().push(subject);
            }
        }
    }

    /// Removes the claims of nodes. Reads the whole table once.
    pub(super) fn remove(&mut self, subjects: &FastSet<usize>) {
        let ClaimTable { first, further, .. } = self;
        further.values_mut().for_each(|nodes| nodes.retain(|node| !subjects.contains(node)));
        first.retain(|hash, node| {
            let mut next = || further.get_mut(hash)?.pop();
            !subjects.contains(node) || next().map(|next| *node = next).is_some()
        });
        further.retain(|_, nodes| !nodes.is_empty());
    }

    /// Findings for the claims that several nodes make, in no particular order.
    pub(super) fn conflicts(&self, site: &SiteView<'_>) -> Vec<RuleFinding> {
        let nodes_of = |(hash, further): (&u64, &Vec<usize>)| -> Vec<usize> {
            further.iter().chain(self.first.get(hash)).copied().collect()
        };
        let subjects: BTreeSet<usize> = self.further.iter().flat_map(nodes_of).collect();
        let mut shared: FastMap<(usize, Claim), Vec<Claimant<'_>>> = FastMap::default();
        for host in subjects.into_iter().filter_map(|subject| site.view(subject)) {
            each_claim(site, &host, |rule, claim, span| {
                if self.further.contains_key(&self.hash(rule, &claim)) {
                    shared.entry((rule, claim)).or_default().push(Claimant { name: host.name, span });
                }
            });
        }
        shared.into_iter().flat_map(|((rule, claim), claimants)| conflicts(rule, &claim, claimants)).collect()
    }
}

fn each_claim(site: &SiteView<'_>, host: &DocumentView<'_>, mut visit: impl FnMut(usize, Claim, Span)) {
    let mut claims = Claims::default();
    for (number, rule) in RULES.iter().enumerate() {
        if let RuleCheck::Unique { claim, .. } = &rule.check {
            claim(site, host, &mut claims);
            claims.claimed.drain(..).for_each(|(claim, span)| visit(number, claim, span));
        }
    }
}

/// Findings for a claim of several nodes: one for each node but the first, with a note about the first.
fn conflicts(rule: usize, claim: &Claim, mut claimants: Vec<Claimant<'_>>) -> Vec<RuleFinding> {
    // By name: file numbers depend on which file was changed last.
    claimants.sort_by_key(|claimant| (claimant.name, claimant.span.start, claimant.span.end));
    let (Some((first, others)), Some(rule)) = (claimants.split_first(), RULES.get(rule)) else { return Vec::new() };
    let RuleCheck::Unique { conflict, .. } = &rule.check else { return Vec::new() };
    let raw = |other: &Claimant<'_>| {
        let message = conflict(&ClaimConflict { claim, first: first.name, second: other.name });
        RuleFinding {
            span: other.span,
            finding: rule.code.finding(message),
            notes: vec![("the first one is here".to_owned(), first.span)],
            node: Some(other.name.into()),
        }
    };
    others.iter().map(raw).collect()
}
