//! An interface whose networks are on a link says that it is on that link.

use crate::finding::{Code, quote};
use crate::rules::{Check, Interface, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::InterfaceWithoutLink, Check::Interfaces(check));

fn check(site: &Site<'_>, interfaces: &[Interface<'_>], out: &mut Out) {
    for interface in interfaces.iter().filter(|interface| interface.link.is_none()) {
        let carriers = interface.networks.iter();
        let mut carriers = carriers.filter_map(|network| Some((network, site.topology().carrier(network.value)?)));
        if let Some((network, link)) = carriers.next() {
            let message =
                format!("interface {} is in network {}, but on no link", quote(interface.name), quote(network.value));
            let help = format!("the network is on link {0}: add device_link: {0}", quote(link.name));
            out.add(interface.at, Code::InterfaceWithoutLink.finding(message).help(help));
        }
    }
}
