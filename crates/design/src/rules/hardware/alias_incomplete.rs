//! An alias that is used must say where its device is.

use crate::finding::{Code, quote};
use crate::resolve::kernel_params::hardware_profile;
use crate::rules::view::entries;
use crate::rules::{Check, Out, Rule, Site, Thing};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::AliasIncomplete, Check::Parts(&["hardware_profile"], check));

/// Only profiles that a node has: one that others extend may leave the addresses to them.
fn check(site: &Site<'_>, host: &Thing<'_>, out: &mut Out) {
    let Some(profile) = hardware_profile(site, host) else { return };
    for entry in entries(profile.tree, "device_aliases") {
        let missing: Vec<&str> =
            ["address", "bus_type"].into_iter().filter(|key| entry.value.get(key).is_none()).collect();
        // A disk may be known by its name, and be listed for its size alone.
        if missing.is_empty() || (missing.len() == 2 && entry.value.get("size").is_some()) {
            continue;
        }
        let message =
            format!("the device alias {} has no \"{}\"", quote(&entry.key.text), missing.join("\" and no \""));
        let help = "say where the device is plugged in, such as {bus_type: pci, address: \"0000:00:03.0\"}";
        out.add(entry.key.span, Code::AliasIncomplete.finding(message).help(help));
    }
}
