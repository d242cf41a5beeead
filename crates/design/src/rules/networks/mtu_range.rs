//! An MTU is one that IP can live with, and that the kernel takes.

use std::ops::RangeInclusive;

use crate::finding::Code;
use crate::rules::view::Placed;
use crate::rules::{Check, Interface, Out, Rule, Site};

/// Networks and links.
pub(crate) const RULE: Rule = Rule::new(Code::MtuRange, Check::Site(check));
/// The interfaces of nodes.
pub(crate) const OF_INTERFACES: Rule = Rule::new(Code::MtuRange, Check::Interfaces(check_interfaces));

/// IPv6 needs 1280 bytes.
const LEGAL: RangeInclusive<i64> = 1280..=65_536;

fn check(site: &Site<'_>, out: &mut Out) {
    let topology = site.topology();
    topology.networks.iter().for_each(|network| check_one(network.mtu, out));
    topology.links.iter().for_each(|link| check_one(link.mtu, out));
}

fn check_interfaces(_: &Site<'_>, interfaces: &[Interface<'_>], out: &mut Out) {
    interfaces.iter().for_each(|interface| check_one(interface.mtu, out));
}

fn check_one(mtu: Option<Placed<i64>>, out: &mut Out) {
    if let Some(mtu) = mtu.filter(|mtu| !LEGAL.contains(&mtu.value)) {
        let finding = Code::MtuRange.finding(format!("an MTU cannot be {}", mtu.value));
        out.add(mtu.span, finding.expected(format!("expected {} to {}", LEGAL.start(), LEGAL.end())));
    }
}
