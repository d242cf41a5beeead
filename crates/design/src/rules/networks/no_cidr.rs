//! A network whose addresses are spoken of says which ones they are.

use crate::finding::{Code, quote};
use crate::kinds::Kind;
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::NoCidr, Check::Site(check));

/// What means nothing in a network without addresses.
const ABOUT_ADDRESSES: &[&str] = &["ranges", "routes", "domain_routes", "dhcp_relay"];

fn check(site: &Site<'_>, out: &mut Out) {
    for network in site.all(Kind::Network).iter().filter(|network| network.get("cidr").is_none()) {
        if let Some(key) = ABOUT_ADDRESSES.iter().find(|key| network.get(key).is_some()) {
            let message = format!("network {} has {}, but no \"cidr\"", quote(network.name), quote(key));
            let help = "say which addresses it has, for instance: cidr: 10.1.0.0/24";
            out.add(network.at, Code::NoCidr.finding(message).help(help));
        }
    }
}
