//! The default network of a link is one that it carries.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::DefaultNotAllowed, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for link in &site.topology().links {
        if let Some(default) = link.default_network.filter(|default| !link.allows(default.value)) {
            let message = format!(
                "the default network {} is not among the allowed networks of link {}",
                quote(default.value),
                quote(link.name)
            );
            let help = "add it to allowed_networks; until then no interface on this link may be in it";
            out.add(default.span, Code::DefaultNotAllowed.finding(message).help(help));
        }
    }
}
