//! A bond has at least two members.

use crate::finding::{Code, quote};
use crate::rules::view::BondMode;
use crate::rules::{Check, Interface, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::BondOfOne, Check::Interfaces(check));

fn check(site: &Site<'_>, interfaces: &[Interface<'_>], out: &mut Out) {
    for interface in interfaces.iter().filter(|interface| interface.devices.len() < 2) {
        let Some(link) = interface.link.and_then(|link| site.topology().link(link.value)) else { continue };
        let mode = match link.bond_mode() {
            Some(mode @ (BondMode::Lacp | BondMode::ActiveBackup | BondMode::BalanceRr)) => mode,
            Some(BondMode::Disabled) | None => continue,
        };
        let count = if interface.devices.is_empty() { "no device" } else { "one device" };
        let message = format!(
            "interface {} has {count}, but its link {} has a bond of mode {}",
            quote(interface.name),
            quote(link.name),
            quote(mode.word())
        );
        let finding = Code::BondOfOne.finding(message).help("name the devices that make the bond");
        let at = interface.devices.first().map_or(interface.at, |device| device.span);
        out.add_with_note(at, finding, "the link is here", link.at);
    }
}
