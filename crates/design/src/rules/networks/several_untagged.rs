//! Of the networks on a trunk, one has no VLAN.

use crate::finding::{Code, quote};
use crate::rules::view::Network;
use crate::rules::{Check, Out, Rule, Site};
use crate::span::Span;

pub(crate) const RULE: Rule = Rule::new(Code::SeveralUntagged, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for link in site.topology().links.iter().filter(|link| link.is_trunk) {
        let default = link.default_network.filter(|default| link.allows(default.value));
        let is_default = |name: &str| default.is_some_and(|default| default.value == name);
        let others = link.allowed.iter().copied().filter(|allowed| !is_default(allowed.value));
        let others = others.filter(|other| site.topology().network(other.value).is_some_and(|it| it.vlan.is_none()));
        // The default network is untagged, whatever its number is elsewhere.
        let mut untagged: Vec<(Span, &Network<'_>)> = Vec::new();
        for place in default.into_iter().chain(others) {
            let Some(network) = site.topology().network(place.value) else { continue };
            // One of IPv4 and one of IPv6 can share the wire.
            let clash = untagged.iter().find(|(_, other)| !network.is_other_family(other));
            match clash {
                Some((at, other)) => {
                    let message = format!(
                        "networks {} and {} are both untagged on link {}",
                        quote(other.name),
                        quote(network.name),
                        quote(link.name)
                    );
                    let finding =
                        Code::SeveralUntagged.finding(message).help("give one of them a vlan, or take it off the link");
                    out.add_with_note(place.span, finding, "the first one is here", *at);
                }
                // So there are at most two to compare with.
                None => untagged.push((place.span, network)),
            }
        }
    }
}
