//! The boot drive must be one of the disks, where these are described.

use crate::finding::{Code, quote};
use crate::rules::view::storage::Storage;
use crate::rules::{Check, Out, Rule, Site};
use crate::spelling;
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::BootDriveUnknown, Check::Part("storage", check));

fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    let storage = Storage::read(node);
    let Some(drive) = storage.boot_drive else { return };
    let names = || storage.disks.iter().map(|disk| &*disk.key.text);
    // With no disks, or a layout for the others, the boot drive is one about which nothing is said.
    if storage.disks.is_empty() || storage.divides_the_rest || names().any(|name| name == drive.value) {
        return;
    }
    let message = format!("the boot drive {} is not one of the disks", quote(drive.value));
    let help = match spelling::nearest(drive.value, names()) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => "describe it under \"disks\", or say \"layout: flat\" or \"layout: lvm\" to have it divided".to_owned(),
    };
    out.add(drive.span, Code::BootDriveUnknown.finding(message).help(help));
}
