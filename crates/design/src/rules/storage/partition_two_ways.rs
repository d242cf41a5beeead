//! A partition holds a file system, or belongs to a volume group.

use crate::finding::{Code, quote};
use crate::rules::view::storage::Storage;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::PartitionTwoWays, Check::Part("storage", check));

fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    for partition in Storage::read(node).disks.iter().flat_map(|disk| &disk.partitions) {
        let (Some(group), Some(filesystem)) = (partition.volume_group, partition.filesystem) else { continue };
        let message = format!(
            "partition {} belongs to volume group {}, and has a file system of its own too",
            quote(partition.name.value),
            quote(group.value)
        );
        let finding = Code::PartitionTwoWays.finding(message);
        let help = "keep one: a file system in a volume group is that of a logical volume";
        out.add_with_note(group.span, finding.help(help), "the file system is here", filesystem.span);
    }
}
