//! An interface is in networks that its link carries.

use crate::finding::{Code, quote};
use crate::kinds::Kind;
use crate::rules::{Check, Interface, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::NetworkNotAllowed, Check::Interfaces(check));

fn check(site: &Site<'_>, interfaces: &[Interface<'_>], out: &mut Out) {
    for interface in interfaces {
        let Some(link) = interface.link.and_then(|link| site.topology().link(link.value)) else { continue };
        // A network that is not there at all has been reported.
        let networks = interface.networks.iter().filter(|network| site.has(Kind::Network, network.value));
        for network in networks.filter(|network| !link.allows(network.value)) {
            let message = format!("link {} does not carry network {}", quote(link.name), quote(network.value));
            let help = match site.topology().carrier(network.value) {
                Some(other) => format!(
                    "the network is on link {}: move it to an interface there, or to the allowed_networks of {}",
                    quote(other.name),
                    quote(link.name)
                ),
                None => format!("add it to the allowed_networks of {}", quote(link.name)),
            };
            let finding = Code::NetworkNotAllowed.finding(message).help(help);
            out.add_with_note(network.span, finding, "the link is here", link.at);
        }
    }
}
