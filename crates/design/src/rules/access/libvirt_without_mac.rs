//! A virtual machine is recognised by the hardware address that it is installed through.

use super::{is_libvirt, says};
use crate::finding::Code;
use crate::rules::{Check, Out, Rule, Site, Thing};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::LibvirtWithoutMac, Check::Node(check));

fn check(_: &Site<'_>, node: &Thing<'_>, out: &mut Out) {
    let Some(oob) = node.get("oob").filter(|oob| is_libvirt(oob)) else { return };
    if !says(node.tree, "boot_mac") {
        let finding = Code::LibvirtWithoutMac.finding("the node is a virtual machine, and has no \"boot_mac\"");
        let help = "its host finds it by that: add boot_mac: \"52:54:00:12:34:56\" to the node";
        out.add_with_note(node.at, finding.help(help), "the out-of-band access is here", oob.span);
    }
}
