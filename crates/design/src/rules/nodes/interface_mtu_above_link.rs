//! What an interface sends fits through its link.

use crate::finding::{Code, quote};
use crate::rules::{Check, Interface, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::InterfaceMtuAboveLink, Check::Interfaces(check));

fn check(site: &Site<'_>, interfaces: &[Interface<'_>], out: &mut Out) {
    for interface in interfaces {
        let Some(link) = interface.link.and_then(|link| site.topology().link(link.value)) else { continue };
        let (Some(mtu), Some(most)) = (interface.mtu, link.mtu) else { continue };
        if mtu.value > most.value {
            let message = format!(
                "the MTU {} of interface {} is more than the {} of its link {}",
                mtu.value,
                quote(interface.name),
                most.value,
                quote(link.name)
            );
            let finding =
                Code::InterfaceMtuAboveLink.finding(message).expected(format!("expected at most {}", most.value));
            out.add_with_note(mtu.span, finding, "the link's MTU is here", most.span);
        }
    }
}
