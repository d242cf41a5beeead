//! What a network sends fits through the link that carries it.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::MtuAboveLink, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for link in &site.topology().links {
        let Some(most) = link.mtu else { continue };
        for network in link.allowed.iter().filter_map(|name| site.topology().network(name.value)) {
            if let Some(mtu) = network.mtu.filter(|mtu| mtu.value > most.value) {
                let message = format!(
                    "the MTU {} of network {} is more than the {} of its link {}",
                    mtu.value,
                    quote(network.name),
                    most.value,
                    quote(link.name)
                );
                let finding = Code::MtuAboveLink.finding(message).expected(format!("expected at most {}", most.value));
                out.add_with_note(mtu.span, finding, "the link's MTU is here", most.span);
            }
        }
    }
}
