//! The interface that machines are installed through should be one that they have.

use super::system_name::is_of_interface;
use crate::finding::{Code, quote};
use crate::resolve::kernel_params::hardware_profile;
use crate::rules::view::{Placed, entries};
use crate::rules::{Check, Out, Rule, Site, Thing};
use crate::spelling;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::PxeInterface, Check::Parts(&["hardware_profile"], check));

/// Only profiles that a node has: one that others extend may leave the aliases to them.
fn check(site: &Site<'_>, host: &Thing<'_>, out: &mut Out) {
    let Some(profile) = hardware_profile(site, host) else { return };
    let Some(name) = Placed::text(profile.tree, "pxe_interface") else { return };
    let aliases = entries(profile.tree, "device_aliases");
    let names = || aliases.iter().map(|entry| &*entry.key.text);
    if aliases.is_empty() || names().any(|alias| alias == name.value) || is_of_interface(name.value) {
        return;
    }
    let message = format!("the interface {} is none of the hardware profile's devices", quote(name.value));
    let help = match spelling::nearest(name.value, names()) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => "add it to \"device_aliases\"; else it is looked for by this name".to_owned(),
    };
    out.add(name.span, Code::PxeInterface.finding(message).help(help));
}
