//! What a network sends fits through the interface that is in it.

use crate::finding::{Code, quote};
use crate::rules::{Check, Interface, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::NetworkMtuAboveInterface, Check::Interfaces(check));

fn check(site: &Site<'_>, interfaces: &[Interface<'_>], out: &mut Out) {
    for interface in interfaces {
        let Some(most) = interface.mtu else { continue };
        for network in interface.networks.iter().filter_map(|network| site.topology().network(network.value)) {
            if let Some(mtu) = network.mtu.filter(|mtu| mtu.value > most.value) {
                let message = format!(
                    "the MTU {} of interface {} is less than the {} of its network {}",
                    most.value,
                    quote(interface.name),
                    mtu.value,
                    quote(network.name)
                );
                let finding = Code::NetworkMtuAboveInterface
                    .finding(message)
                    .expected(format!("expected at least {}", mtu.value));
                out.add_with_note(most.span, finding, "the network's MTU is here", mtu.span);
            }
        }
    }
}
