//! A network with a VLAN is on a trunk.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::TaggedWithoutTrunk, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for link in site.topology().links.iter().filter(|link| !link.is_trunk) {
        // Several networks without a trunk are a finding of their own.
        let [only] = link.allowed.as_slice() else { continue };
        let Some(vlan) = site.topology().network(only.value).and_then(|network| network.vlan) else { continue };
        let message = format!(
            "network {} has VLAN {}, but its link {} carries no VLANs",
            quote(only.value),
            vlan.value,
            quote(link.name)
        );
        let finding = Code::TaggedWithoutTrunk
            .finding(message)
            .help("add trunking: {mode: 802.1q} to the link, or remove the network's vlan");
        out.add_with_note(vlan.span, finding, "the link carries the network here", only.span);
    }
}
