//! A disk that is described should be used for something.

use crate::finding::{Code, quote};
use crate::rules::view::storage::Storage;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::DiskUnused, Check::Part("storage", check));

fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    let storage = Storage::read(node);
    if storage.divides_the_rest {
        return;
    }
    for disk in storage
        .disks
        .iter()
        .filter(|disk| disk.volume_group.is_none() && disk.partitions.is_empty() && !disk.has_labels)
    {
        let message = format!("disk {} has no partitions and belongs to no volume group", quote(&disk.key.text));
        let help = "nothing will be on it: give it one or the other, or remove it";
        out.add(disk.key.span, Code::DiskUnused.finding(message).help(help));
    }
}
