//! A route to a routing domain reaches something.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};
use crate::spelling;

pub(crate) const RULE: Rule = Rule::new(Code::EmptyRoutedomain, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    let networks = &site.topology().networks;
    for network in networks {
        for domain in network.domain_routes.iter().filter_map(|route| route.domain) {
            if site.topology().members(domain.value).all(|member| member.name == network.name) {
                let message = format!("no other network is in routing domain {}", quote(domain.value));
                let known = networks.iter().filter_map(|network| Some(network.routedomain?.value));
                let near = spelling::nearest(domain.value, known.filter(|known| *known != domain.value));
                let help = match near {
                    Some(near) => format!("did you mean {}?", quote(near)),
                    None => "say \"routedomain\" in the networks that belong to it, or remove the route".to_owned(),
                };
                out.add(domain.span, Code::EmptyRoutedomain.finding(message).help(help));
            }
        }
    }
}
