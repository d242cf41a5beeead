//! Rules for hardware profiles and the platform: devices, huge pages, kernel parameters and images.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use crate::file_text::Span;
use crate::finding::{Code, quote};
use crate::kinds::Kind;
use crate::resolve::kernel_params::{ProfileReference, hardware_profile, lookup, reference};
use crate::rules::view::{Spanned, entries, interfaces};
use crate::rules::{DocumentView, RuleOutput, SiteView};
use crate::yaml::{Scalar, YamlNode};
use muster_core::spelling;

/// Reports whether a name may be an interface name of an operating system: `eth0`, `eno1`, `ens3f0np0`, `enp94s0f1`, `p1p2`.
fn is_interface_name(word: &str) -> bool {
    let has_number = word.bytes().any(|byte| byte.is_ascii_digit());
    let prefixes = ["eth", "eno", "ens", "enp", "enP", "enx", "ib", "wl", "ww", "em", "usb"];
    let is_slot = word.strip_prefix('p').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    // A profile may name an interface by its number.
    let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    is_number || has_number && (is_slot || prefixes.iter().any(|prefix| word.starts_with(prefix)))
}

/// Reports whether a name may be a disk name of an operating system: `sda`, `nvme0n1`, `/dev/vdb`.
fn is_disk_name(word: &str) -> bool {
    if word.starts_with("/dev/") {
        return true;
    }
    let letters = |prefix: &str| {
        let rest = word.strip_prefix(prefix);
        rest.is_some_and(|rest| (1..=3).contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_lowercase()))
    };
    let numbered =
        |prefix: &str| word.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    ["sd", "hd", "vd", "xvd"].into_iter().any(letters)
        || ["nvme", "mmcblk", "md", "dm-", "pmem"].into_iter().any(numbered)
}

/// Reports a device address that does not have the form of its bus.
pub(super) fn address_malformed(site: &SiteView<'_>, out: &mut RuleOutput) {
    for profile in site.all(Kind::HardwareProfile) {
        for entry in entries(profile.tree, "device_aliases") {
            let text = |key: &str| Spanned::text(&entry.value, key);
            let (Some(bus), Some(address)) = (text("bus_type"), text("address")) else { continue };
            if is_expression(address.value) {
                continue;
            }
            let (fits, expected) = match bus.value {
                "pci" => (is_pci(address.value), "expected such as 0000:00:03.0: domain, bus, device, function"),
                "scsi" => (is_scsi(address.value), "expected such as 2:0.0.0: host, channel, target, unit"),
                _ => continue,
            };
            if !fits {
                let message = format!("{} is no address on a {} bus", quote(address.value), quote(bus.value));
                let finding = Code::AddressMalformed.finding(message).expected(expected);
                out.add(address.span, finding.help("lspci -D and lsscsi show the addresses of a machine's devices"));
            }
        }
    }
}

/// `regexp:0000:(19|01):00\.[0-9]`: the device whose address matches, where machines of one type differ. Drydock's own
/// examples write `regex:`.
fn is_expression(text: &str) -> bool {
    ["regexp:", "regex:"].iter().any(|prefix| text.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()))
}

/// `0000:3b:00.0`; the domain may be left out.
fn is_pci(text: &str) -> bool {
    let hex =
        |text: &str, most: usize| (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some((path, function)) = text.rsplit_once('.') else { return false };
    let parts: Vec<&str> = path.split(':').take(4).collect();
    let (domain, bus, device) = match parts.as_slice() {
        [bus, device] => ("0000", *bus, *device),
        [domain, bus, device] => (*domain, *bus, *device),
        _ => return false,
    };
    let is_octal = matches!(function.as_bytes(), [b'0'..=b'7']);
    let is_device = u8::from_str_radix(device, 16).is_ok_and(|device| device < 32);
    hex(domain, 8) && hex(bus, 2) && hex(device, 2) && is_device && is_octal
}

/// `2:0.0.0` as lshw writes it, or `2:0:0:0` as other tools do.
fn is_scsi(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '.']).take(5).collect();
    let is_number = |part: &&str| (1..=20).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.len() == 4 && parts.iter().all(is_number) && text.contains(':')
}

/// Reports a device alias without an address or a bus, in profiles that a node uses. A base profile may omit them.
pub(super) fn alias_incomplete(site: &SiteView<'_>, host: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(profile) = hardware_profile(site, host) else { return };
    for entry in entries(profile.tree, "device_aliases") {
        let missing: Vec<&str> =
            ["address", "bus_type"].into_iter().filter(|key| entry.value.get(key).is_none()).collect();
        // A disk may be known by its name and be listed for its size alone.
        if missing.is_empty() || (missing.len() == 2 && entry.value.get("size").is_some()) {
            continue;
        }
        let message =
            format!("the device alias {} has no \"{}\"", quote(&entry.key.text), missing.join("\" and no \""));
        let help = "set the bus and the address of the device, such as {bus_type: pci, address: \"0000:00:03.0\"}";
        out.add(entry.key.span, Code::AliasIncomplete.finding(message).help(help));
    }
}

/// Reports two aliases of the same device.
pub(super) fn alias_twice(site: &SiteView<'_>, out: &mut RuleOutput) {
    for profile in site.all(Kind::HardwareProfile) {
        let mut seen = HashMap::new();
        for entry in entries(profile.tree, "device_aliases") {
            let Some(address) = Spanned::text(&entry.value, "address") else { continue };
            let bus = Spanned::text(&entry.value, "bus_type").map(|bus| bus.value);
            match seen.entry((bus, address.value.to_ascii_lowercase())) {
                Entry::Vacant(new) => {
                    new.insert(entry);
                }
                Entry::Occupied(first) => {
                    let (alias, other) = (quote(&entry.key.text), quote(&first.get().key.text));
                    let message =
                        format!("{alias} is the same device as {other}: both are at {}", quote(address.value));
                    let finding = Code::AliasTwice.finding(message);
                    let help = "look at the addresses, or keep one of the aliases";
                    out.add_with_note(address.span, finding.help(help), "the other one is here", first.get().key.span);
                }
            }
        }
    }
}

/// Reports a device that is neither an alias of the hardware profile nor a name that an operating system uses.
pub(super) fn device_unknown(site: &SiteView<'_>, host: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(profile) = hardware_profile(site, host) else { return };
    let aliases: HashSet<&str> = entries(profile.tree, "device_aliases").iter().map(|entry| &*entry.key.text).collect();
    if aliases.is_empty() {
        return;
    }
    let mut check = |name: &str, span: Span, is_system_name: fn(&str) -> bool| {
        if !aliases.contains(name) && !is_system_name(name) {
            let message = format!("hardware profile {} has no device {}", quote(profile.name), quote(name));
            let help = match spelling::nearest(name, aliases.iter().copied()) {
                Some(near) => format!("did you mean {}?", quote(near)),
                None => "add it to the profile's \"device_aliases\"; else it is looked for by this name".to_owned(),
            };
            out.add(span, Code::DeviceUnknown.finding(message).help(help));
        }
    };
    for device in host.get("interfaces").into_iter().flat_map(interfaces).flat_map(|interface| interface.devices) {
        check(device.value, device.span, is_interface_name);
    }
    for disk in host.get("storage").map(|storage| entries(storage, "disks")).unwrap_or_default() {
        check(&disk.key.text, disk.key.span, is_disk_name);
    }
}

const HUGEPAGES: &str = "hugepages";
const HUGEPAGE_SIZE: &str = "hugepagesz";

/// Reports a number of huge pages without their size, or a size without a number.
pub(super) fn hugepages_alone(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    let Some(params) = node.get("kernel_params").and_then(YamlNode::map) else { return };
    let (there, missing) = match (params.get(HUGEPAGES), params.get(HUGEPAGE_SIZE)) {
        (Some(there), None) => (there, HUGEPAGE_SIZE),
        (None, Some(there)) => (there, HUGEPAGES),
        (None, None) | (Some(_), Some(_)) => return,
    };
    let message = format!("the kernel parameter \"{}\" is set without \"{missing}\"", there.key.text);
    let help = "set the number and the size of the huge pages, or neither";
    out.add(there.key.span, Code::HugepagesAlone.finding(message).help(help));
}

/// Reports an image that the map file of the cloud does not list.
pub(super) fn image_unknown(site: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    let Some(cloud) = site.environment.and_then(|environment| environment.cloud.as_ref()) else { return };
    let Some(image) = Spanned::text(node, "image") else { return };
    let Some(map) = site.get(Kind::Cloud, &cloud.name) else { return };
    let images = entries(map.tree, "image");
    let names = || images.iter().map(|entry| &*entry.key.text);
    if images.is_empty() || names().any(|name| name == image.value) {
        return;
    }
    let message =
        format!("the map file of cloud {} does not know the image {}", quote(&cloud.name), quote(image.value));
    let help = match spelling::nearest(image.value, names()) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => format!("add it to environments/{}.map.yaml", cloud.name),
    };
    out.add(image.span, Code::ImageUnknown.finding(message).help(help));
}

/// Reports a kernel parameter that cannot be on the kernel's command line.
pub(super) fn kernel_param_text(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    for entry in entries(node, "kernel_params") {
        let value = entry.value.scalar().map(Scalar::text).unwrap_or_default();
        let breaks = |text: &str| text.contains(char::is_control);
        let quotes = value.matches('"').count();
        let (span, what) = if breaks(&entry.key.text) {
            (entry.key.span, "the name of a kernel parameter has a line break or another control character")
        } else if breaks(value) {
            (entry.value.span, "the value of a kernel parameter has a line break or another control character")
        } else if quotes % 2 == 1 {
            (entry.value.span, "the value of a kernel parameter has a double quote that is not closed")
        } else {
            continue;
        };
        let finding = Code::KernelParamText.finding(format!("{what}: {}", quote(&entry.key.text)));
        let help = "all parameters share one line: write the value on one line, without \"|\" or \">\" before it";
        out.add(span, finding.help(help));
    }
}

/// Reports a kernel parameter that refers to a value that the hardware profile does not have.
pub(super) fn kernel_reference(site: &SiteView<'_>, host: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(platform) = host.get("platform") else { return };
    let profile = hardware_profile(site, host);
    for entry in entries(platform, "kernel_params") {
        let Some(text) = entry.value.text() else { continue };
        let Some(reference) = reference(text) else { continue };
        let (message, help) = match (&reference, &profile) {
            (ProfileReference::Malformed, _) => (
                format!("{} refers to nothing that a hardware profile has", quote(text)),
                "a reference is hardwareprofile:cpuset.NAME, or hardwareprofile:hugepages.NAME.size or .count"
                    .to_owned(),
            ),
            (_, None) => (
                format!("{} refers to a hardware profile, and the node has none", quote(text)),
                "add \"hardware_profile: NAME\", or write the value itself".to_owned(),
            ),
            (reference, Some(profile)) if lookup(reference, profile.tree).is_none() => {
                let (what, name, section) = match reference {
                    ProfileReference::CpuSet(name) => ("no set of processors".to_owned(), *name, "cpu_sets"),
                    ProfileReference::Hugepages { name, .. } if has(profile, "hugepages", name) => {
                        let missing = text.rsplit('.').next().unwrap_or_default();
                        (format!("no {} of the huge pages", quote(missing)), *name, "hugepages")
                    }
                    ProfileReference::Hugepages { name, .. } => {
                        ("no sort of huge pages".to_owned(), *name, "hugepages")
                    }
                    ProfileReference::Malformed => continue,
                };
                let known = entries(profile.tree, section).iter().map(|entry| &*entry.key.text);
                let help = match spelling::nearest(name, known.filter(|known| *known != name)) {
                    Some(near) if !has(profile, section, name) => format!("did you mean {}?", quote(near)),
                    Some(_) | None => format!("add it to \"{section}\" of the hardware profile"),
                };
                (format!("hardware profile {} has {what} {}", quote(profile.name), quote(name)), help)
            }
            (_, Some(_)) => continue,
        };
        out.add(entry.value.span, Code::KernelReference.finding(message).help(help));
    }
}

fn has(profile: &DocumentView<'_>, section: &str, name: &str) -> bool {
    profile.get(section).is_some_and(|section| section.get(name).is_some())
}

/// Reports a PXE interface that is not a device of the hardware profile, in profiles that a node uses.
pub(super) fn pxe_interface(site: &SiteView<'_>, host: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(profile) = hardware_profile(site, host) else { return };
    let Some(name) = Spanned::text(profile.tree, "pxe_interface") else { return };
    let aliases = entries(profile.tree, "device_aliases");
    let names = || aliases.iter().map(|entry| &*entry.key.text);
    if aliases.is_empty() || names().any(|alias| alias == name.value) || is_interface_name(name.value) {
        return;
    }
    let message = format!("the interface {} is not a device of the hardware profile", quote(name.value));
    let help = match spelling::nearest(name.value, names()) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => "add it to \"device_aliases\"; else it is looked for by this name".to_owned(),
    };
    out.add(name.span, Code::PxeInterface.finding(message).help(help));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_names_differ_from_aliases() {
        for name in ["eth0", "eno1", "ens3f0np0", "enp94s0f1", "p1p2", "ib0", "0"] {
            assert!(is_interface_name(name), "{name}");
        }
        for alias in ["nic1", "prim_nic01", "lom1", "pxe", "", "eth"] {
            assert!(!is_interface_name(alias), "{alias}");
        }
        for name in ["sda", "sdaa", "vdb", "nvme0n1", "/dev/disk/by-id/x"] {
            assert!(is_disk_name(name), "{name}");
        }
        for alias in ["system", "disk1", "sd", "data", "nvme", "sda1x9"] {
            assert!(!is_disk_name(alias), "{alias}");
        }
    }

    #[test]
    fn addresses_of_both_buses_are_parsed() {
        for good in ["0000:00:03.0", "00:1f.2", "10000:e1:00.0", "0000:AF:00.1"] {
            assert!(is_pci(good), "{good}");
        }
        for bad in [
            "",
            "0000:00:03",
            "0000:00:20.0",
            "0000:00:03.8",
            "0:0:0:0.0",
            "2:0.0.0.0",
            "0000:g0:03.0",
            ":00.0",
            "é:00.0",
        ] {
            assert!(!is_pci(bad), "{bad}");
        }
        for good in ["2:0.0.0", "2:0:0:0", "12:0.10.0"] {
            assert!(is_scsi(good), "{good}");
        }
        for bad in ["", "2", "2:0.0", "0000:00:03.0.1", "2.0.0.0", "a:0.0.0", "2:0.0."] {
            assert!(!is_scsi(bad), "{bad}");
        }
    }
}
