//! A device should be an alias of the hardware profile, or be called as systems call such things.

use std::collections::HashSet;

use super::system_name::{is_of_disk, is_of_interface};
use crate::finding::{Code, quote};
use crate::resolve::kernel_params::hardware_profile;
use crate::rules::view::{entries, interfaces};
use crate::rules::{Check, Out, Rule, Site, Thing};
use crate::span::Span;
use crate::spelling;

pub(in crate::rules) const RULE: Rule =
    Rule::new(Code::DeviceUnknown, Check::Parts(&["interfaces", "storage", "hardware_profile"], check));

fn check(site: &Site<'_>, host: &Thing<'_>, out: &mut Out) {
    let Some(profile) = hardware_profile(site, host) else { return };
    let aliases: HashSet<&str> = entries(profile.tree, "device_aliases").iter().map(|entry| &*entry.key.text).collect();
    if aliases.is_empty() {
        return;
    }
    let mut check = |name: &str, span: Span, is_of_system: fn(&str) -> bool| {
        if !aliases.contains(name) && !is_of_system(name) {
            let message = format!("hardware profile {} has no device {}", quote(profile.name), quote(name));
            let help = match spelling::nearest(name, aliases.iter().copied()) {
                Some(near) => format!("did you mean {}?", quote(near)),
                None => "add it to the profile's \"device_aliases\"; else it is looked for by this name".to_owned(),
            };
            out.add(span, Code::DeviceUnknown.finding(message).help(help));
        }
    };
    for device in host.get("interfaces").into_iter().flat_map(interfaces).flat_map(|interface| interface.devices) {
        check(device.value, device.span, is_of_interface);
    }
    for disk in host.get("storage").map(|storage| entries(storage, "disks")).unwrap_or_default() {
        check(&disk.key.text, disk.key.span, is_of_disk);
    }
}
