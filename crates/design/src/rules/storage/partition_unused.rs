//! A partition should be used for something.

use crate::finding::{Code, quote};
use crate::rules::view::storage::Storage;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::PartitionUnused, Check::Part("storage", check));

fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    for partition in Storage::read(node).disks.iter().flat_map(|disk| &disk.partitions) {
        let is_used = partition.filesystem.is_some() || partition.volume_group.is_some();
        // Boot loaders and programs that store things by themselves take a partition as it is; a label says so.
        if is_used || partition.bootable.is_some() || partition.has_labels {
            continue;
        }
        let message =
            format!("partition {} has no file system and belongs to no volume group", quote(partition.name.value));
        let help =
            "give it one or the other; if it is meant to stay raw, say what for in its labels: labels: {use: journal}";
        out.add(partition.name.span, Code::PartitionUnused.finding(message).help(help));
    }
}
