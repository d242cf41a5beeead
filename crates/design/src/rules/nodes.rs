//! Rules for the names and MAC addresses of nodes.

use muster_core::names::NodeName;

use crate::finding::{Code, quote};
use crate::resolve::{domain, host_name};
use crate::rules::{Claim, ClaimConflict, Claims, DocumentView, RuleOutput, Site};
use crate::types::mac;

/// Claims the boot MAC of a node.
pub(super) fn claim_mac(_: &Site<'_>, node: &DocumentView<'_>, claims: &mut Claims<'_>) {
    if let Some(given) = node.get("boot_mac")
        && let Some(mac) = given.text().and_then(mac)
    {
        claims.add(Claim::Mac(mac), given.span);
    }
}

pub(super) fn mac_conflict(taken: &ClaimConflict<'_>) -> String {
    format!("the hardware address is that of node {} already", quote(taken.first))
}

/// Claims the host name of a node without its domain: agents are identified by it.
pub(super) fn claim_host_name(_: &Site<'_>, node: &DocumentView<'_>, claims: &mut Claims<'_>) {
    let at = node.get("host_name").map_or(node.at, |given| given.span);
    claims.add(Claim::Name(host_name(node).into()), at);
}

pub(super) fn host_name_conflict(taken: &ClaimConflict<'_>) -> String {
    match taken.claim {
        Claim::Name(name) => format!("{} is the host name of node {} already", quote(name), quote(taken.first)),
        Claim::Address { .. } | Claim::Mac(_) => {
            format!("the host name is that of node {} already", quote(taken.first))
        }
    }
}

/// Length of a DNS label.
const MAX_LABEL_LENGTH: usize = 63;

/// Reports a host name derived from the node's name that is longer than a DNS label.
pub(super) fn host_name_too_long(_: &Site<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
    // A written host name, and an invalid name of a node, are reported where they are read.
    if node.get("host_name").is_none() && node.name.len() > MAX_LABEL_LENGTH && NodeName::new(node.name).is_ok() {
        let message = format!("the host name {} is {} characters long", quote(&host_name(node)), node.name.len());
        let finding = Code::HostNameOfNode.finding(message).expected(format!("expected at most {MAX_LABEL_LENGTH}"));
        out.add(node.at, finding.help("give the node a shorter name, or a host_name of its own"));
    }
}

/// Length of a DNS name.
const MAX_NAME_LENGTH: usize = 253;

/// Reports a host name that is too long for DNS together with its domain.
pub(super) fn fqdn_too_long(site: &Site<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
    // Computes the length without building the name: nearly all names are short.
    let length = host_name(node).len() + 1 + domain(site, node).len();
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
pub(super) fn mac_of_no_device(_: &Site<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
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
