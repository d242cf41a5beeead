//! Rules for nodes: names, MAC addresses, out-of-band access, and the labels that a rollout counts by.

use std::collections::BTreeSet;

use muster_core::names::NodeName;
use muster_core::spelling;

use crate::environment::FAILURE_DOMAIN;
use crate::finding::{Code, quote};
use crate::resolve::{domain, host_name};
use crate::rules::view::{Spanned, addresses};
use crate::rules::{Claim, ClaimConflict, Claims, DocumentView, RuleOutput, SiteView};
use crate::types::mac;
use crate::yaml::YamlNode;

/// Claims the boot MAC of a node.
pub(super) fn claim_mac(_: &SiteView<'_>, node: &DocumentView<'_>, claims: &mut Claims) {
    if let Some(given) = node.get("boot_mac")
        && let Some(mac) = given.text().and_then(mac)
    {
        claims.add(Claim::Mac(mac), given.span);
    }
}

pub(super) fn mac_conflict(taken: &ClaimConflict<'_>) -> String {
    format!("the hardware address is that of node {} already", quote(taken.first))
}

/// Claims the host name of a node without its domain: agents are identified by it. A node with a host name of its own also claims
/// its name: commands accept both.
pub(super) fn claim_host_name(_: &SiteView<'_>, node: &DocumentView<'_>, claims: &mut Claims) {
    let given = node.get("host_name");
    let host_name = host_name(node);
    if given.is_some() && host_name != node.name {
        claims.add(Claim::Name(node.name.into()), node.at);
    }
    claims.add(Claim::Name(host_name.into()), given.map_or(node.at, |given| given.span));
}

pub(super) fn host_name_conflict(taken: &ClaimConflict<'_>) -> String {
    match taken.claim {
        Claim::Name(name) => {
            let what = if **name == *taken.first { "name" } else { "host name" };
            format!("{} is the {what} of node {} already", quote(name), quote(taken.first))
        }
        Claim::Address { .. } | Claim::Mac(_) => {
            format!("the host name is that of node {} already", quote(taken.first))
        }
    }
}

/// Length of a DNS label.
const MAX_LABEL_LENGTH: usize = 63;

/// Reports a host name derived from the node's name that is longer than a DNS label.
pub(super) fn host_name_too_long(_: &SiteView<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
    // A written host name, and an invalid name of a node, are reported where they are read.
    if node.get("host_name").is_none() && node.name.len() > MAX_LABEL_LENGTH && NodeName::new(node.name).is_ok() {
        let message = format!("the host name {} is {} characters long", quote(&host_name(node)), node.name.len());
        let finding =
            Code::NodeHostNameTooLong.finding(message).expected(format!("expected at most {MAX_LABEL_LENGTH}"));
        out.add(node.at, finding.help("give the node a shorter name, or set its host_name"));
    }
}

/// Length of a DNS name.
const MAX_NAME_LENGTH: usize = 253;

/// Reports a host name that is too long for DNS together with its domain.
pub(super) fn fqdn_too_long(site: &SiteView<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
    let host_name = host_name(node);
    // A name with dots has its domain, and its length was checked where it is written.
    if host_name.contains('.') {
        return;
    }
    // Computes the length without building the name: nearly all names are short.
    let length = host_name.len() + 1 + domain(site, node).len();
    if length > MAX_NAME_LENGTH {
        let message = format!("the host name with its domain is {length} characters long");
        let finding = Code::FqdnTooLong.finding(message).expected(format!("expected at most {MAX_NAME_LENGTH}"));
        let help = "shorten the host name, or the domain of the node's primary network";
        let primary = node.get("primary_network").map_or(node.at, |primary| primary.span);
        out.add_with_note(node.at, finding.help(help), "the primary network gives the domain", primary);
    }
}

/// Multicast bit of the first byte.
const MULTICAST_BIT: u8 = 1;

/// Reports a MAC address that is all zero or a multicast address.
pub(super) fn mac_of_no_device(_: &SiteView<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(given) = node.get("boot_mac") else { return };
    let Some(mac) = given.text().and_then(mac) else { return };
    let what = if mac == [0; 6] {
        "all zero"
    } else if mac[0] & MULTICAST_BIT != 0 {
        "a multicast address"
    } else {
        return;
    };
    let message = format!("the MAC address {} is {what}", quote(given.text().unwrap_or_default()));
    let help = "read it off the machine: the first byte of a device's address is even, and not all bytes are 0";
    out.add(given.span, Code::MacOfNoDevice.finding(message).help(help));
}

/// Built-in types of out-of-band access.
const TYPES: &[&str] = &["ipmi", "redfish", "libvirt", "manual"];

/// Type of an access over a network with a password.
fn remote_type(oob: &YamlNode) -> Option<Spanned<&str>> {
    Spanned::text(oob, "type").filter(|access| matches!(access.value, "ipmi" | "redfish"))
}

fn is_libvirt(oob: &YamlNode) -> bool {
    Spanned::text(oob, "type").is_some_and(|access| access.value == "libvirt")
}

fn has(node: &YamlNode, key: &str) -> bool {
    node.get(key).is_some_and(|value| !value.is_null())
}

/// Reports driver parameters without the name of a driver.
pub(super) fn driver_without_name(_: &SiteView<'_>, driver: &YamlNode, out: &mut RuleOutput) {
    let Some(parameters) = driver.map().and_then(|map| map.get("parameters")).filter(|entry| !entry.value.is_null())
    else {
        return;
    };
    if !has(driver, "name") {
        let finding = Code::DriverWithoutName.finding("the driver has parameters, and no name");
        out.add(parameters.key.span, finding.help("add the name of the driver: driver: {name: NAME, parameters: …}"));
    }
}

/// Drivers of this version. All machines are made by one of these.
const DRIVERS: &[&str] = &["local"];

/// Reports a driver that this version does not have: machines would be made by the local one.
pub(super) fn driver_unavailable(_: &SiteView<'_>, driver: &YamlNode, out: &mut RuleOutput) {
    let Some(name) = Spanned::text(driver, "name").filter(|name| !DRIVERS.contains(&name.value)) else { return };
    let finding = Code::DriverUnavailable.finding(format!("the driver {} is not available", quote(name.value)));
    let help = match spelling::nearest(name.value, DRIVERS.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("available: {}; without \"driver\" a node is a local process", DRIVERS.join(", ")),
    };
    out.add(name.span, finding.help(help));
}

/// URI schemes of libvirt's QEMU driver.
const LIBVIRT_SCHEMES: &[&str] =
    &["qemu", "qemu+ssh", "qemu+libssh", "qemu+libssh2", "qemu+tls", "qemu+tcp", "qemu+unix"];

/// Reports a virtual machine without a valid libvirt URI.
pub(super) fn libvirt_uri(_: &SiteView<'_>, oob: &YamlNode, out: &mut RuleOutput) {
    if !is_libvirt(oob) {
        return;
    }
    let help = "for instance: libvirt_uri: qemu+ssh://muster@host/system";
    match oob.get("libvirt_uri") {
        None => {
            let at = Spanned::text(oob, "type").map_or(oob.span, |access| access.span);
            let message = "the out-of-band access of type \"libvirt\" has no \"libvirt_uri\"";
            out.add(at, Code::LibvirtUri.finding(message).help(help));
        }
        Some(uri) => {
            let scheme = uri.text().and_then(|uri| uri.split_once("://")).map(|(scheme, _)| scheme);
            if !scheme.is_some_and(|scheme| LIBVIRT_SCHEMES.contains(&scheme)) {
                let shown = uri.scalar().map(|scalar| quote(scalar.text())).unwrap_or_else(|| "this".to_owned());
                let finding = Code::LibvirtUri.finding(format!("{shown} does not lead to libvirt's QEMU"));
                out.add(uri.span, finding.expected("expected a URI that begins with qemu+ssh:// or alike").help(help));
            }
        }
    }
}

/// Reports a virtual machine without a MAC address. Its host identifies it by the boot MAC.
pub(super) fn libvirt_without_mac(_: &SiteView<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(oob) = node.get("oob").filter(|oob| is_libvirt(oob)) else { return };
    if !has(node.tree, "boot_mac") {
        let finding = Code::LibvirtWithoutMac.finding("the node is a virtual machine, and has no \"boot_mac\"");
        let help = "its host finds it by that: add boot_mac: \"52:54:00:12:34:56\" to the node";
        out.add_with_note(node.at, finding.help(help), "the out-of-band access is here", oob.span);
    }
}

/// Reports an out-of-band access without a type.
pub(super) fn no_oob_type(_: &SiteView<'_>, oob: &YamlNode, out: &mut RuleOutput) {
    if oob.map().is_some_and(|map| !map.entries().is_empty()) && !has(oob, "type") {
        let finding = Code::NoOobType.finding("the out-of-band access has no type");
        out.add(oob.span, finding.help(format!("add \"type\", one of {}, or a driver's own word", TYPES.join(", "))));
    }
}

/// Reports an out-of-band access without a network, an account or a credential.
pub(super) fn oob_incomplete(_: &SiteView<'_>, oob: &YamlNode, out: &mut RuleOutput) {
    let Some(access) = remote_type(oob) else { return };
    let missing: Vec<&str> = ["network", "account", "credential"].into_iter().filter(|key| !has(oob, key)).collect();
    if missing.is_empty() {
        return;
    }
    let message =
        format!("the out-of-band access of type \"{}\" has no \"{}\"", access.value, missing.join("\" and no \""));
    let help = "it needs a network, an account and a credential, which names a secret: credential: {secret: NAME}";
    out.add(access.span, Code::OobIncomplete.finding(message).help(help));
}

/// Reports a node without an address in the network of its out-of-band access.
pub(super) fn oob_without_address(_: &SiteView<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(oob) = node.get("oob") else { return };
    let (Some(_), Some(network)) = (remote_type(oob), Spanned::text(oob, "network")) else { return };
    if !addresses(node).any(|address| address.network.value == network.value) {
        let message =
            format!("the node has no address in {}, the network of its out-of-band access", quote(network.value));
        let finding = Code::OobWithoutAddress.finding(message);
        let help = "add the address of the machine's controller to the node's \"addresses\"";
        out.add_with_note(node.at, finding.help(help), "the network is named here", network.span);
    }
}

/// Reports an out-of-band type that is neither built in nor handled by a custom driver.
pub(super) fn oob_type_unknown(_: &SiteView<'_>, host: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(access) = host.get("oob").and_then(|oob| Spanned::text(oob, "type")) else { return };
    // A custom driver has types of its own.
    let has_driver = host.get("driver").is_some_and(|driver| has(driver, "name"));
    if TYPES.contains(&access.value) || has_driver {
        return;
    }
    let message = format!("{} is not a supported type of out-of-band access", quote(access.value));
    let help = match spelling::nearest(access.value, TYPES.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("known: {}; for another one, name its driver: driver: {{name: NAME}}", TYPES.join(", ")),
    };
    out.add(access.span, Code::OobTypeUnknown.finding(message).help(help));
}

/// Reports a budget that is counted by a label that no node has.
pub(super) fn budget_label_unknown(site: &SiteView<'_>, out: &mut RuleOutput) {
    let Some(environment) = site.environment else { return };
    let per = environment.rollout.as_ref().and_then(|strategy| strategy.max_unavailable.per.as_ref());
    // Every node has a failure domain, if only the default one.
    let Some((per, at)) = per.zip(environment.label).filter(|(per, _)| per.label != FAILURE_DOMAIN) else { return };
    let nodes = site.nodes();
    let maps = nodes.iter().filter_map(|node| node.get("labels")?.map());
    let labels: BTreeSet<&str> = maps.flat_map(|map| map.entries()).map(|entry| &*entry.key.text).collect();
    if nodes.is_empty() || labels.contains(per.label.as_str()) {
        return;
    }
    let message = format!(
        "no node has a label {}: all of them together may have {} unavailable",
        quote(&per.label),
        match per.count {
            1 => "one".to_owned(),
            count => count.to_string(),
        }
    );
    let help = match spelling::nearest(&per.label, labels.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => "give it to the roles or nodes, or write failure_domain, which every node has".to_owned(),
    };
    out.add(at, Code::BudgetLabelUnused.finding(message).help(help));
}
