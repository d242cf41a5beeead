//! A node has an interface in each network that it has an address in.

use crate::finding::{Code, quote};
use crate::rules::view::{addresses, interface_networks};
use crate::rules::{Check, Out, Rule, Site, Thing};

pub(crate) const RULE: Rule = Rule::new(Code::AddressWithoutInterface, Check::Node(check));

fn check(_: &Site<'_>, node: &Thing<'_>, out: &mut Out) {
    let Some(part) = node.get("interfaces") else { return };
    let mut networks: Vec<&str> = interface_networks(part).map(|network| network.value).collect();
    // Who describes no networks of interfaces leaves them to somebody else.
    if networks.is_empty() {
        return;
    }
    networks.sort_unstable();
    let out_of_band = node.get("oob").and_then(|oob| oob.get("network")?.text());
    for network in addresses(node).map(|given| given.network) {
        if networks.binary_search(&network.value).is_err() && Some(network.value) != out_of_band {
            let message = format!("no interface of the node is in network {}", quote(network.value));
            let help = "add the network to an interface, or remove the address";
            out.add(network.span, Code::AddressWithoutInterface.finding(message).help(help));
        }
    }
}
