//! Several devices make one interface only where the link says how.

use crate::finding::{Code, quote};
use crate::rules::view::BondMode;
use crate::rules::{Check, Interface, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::DevicesWithoutBond, Check::Interfaces(check));

fn check(site: &Site<'_>, interfaces: &[Interface<'_>], out: &mut Out) {
    for interface in interfaces {
        let Some(link) = interface.link.and_then(|link| site.topology().link(link.value)) else { continue };
        if let [_, second, ..] = interface.devices.as_slice()
            && link.bond_mode() == Some(BondMode::Disabled)
        {
            let message = format!(
                "interface {} has {} devices, but its link {} has no bond",
                quote(interface.name),
                interface.devices.len(),
                quote(link.name)
            );
            let finding = Code::DevicesWithoutBond
                .finding(message)
                .help("give the link a bonding mode, such as bonding: {mode: active-backup}, or leave one device");
            out.add_with_note(second.span, finding, "the link is here", link.at);
        }
    }
}
