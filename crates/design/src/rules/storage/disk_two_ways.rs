//! A disk is divided into partitions, or belongs to a volume group as a whole.

use crate::finding::{Code, quote};
use crate::rules::view::storage::Storage;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::DiskTwoWays, Check::Part("storage", check));

fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    for disk in Storage::read(node).disks {
        let (Some(group), Some(first)) = (disk.volume_group, disk.partitions.first()) else { continue };
        let message = format!(
            "disk {} belongs to volume group {} as a whole, and has partitions too",
            quote(&disk.key.text),
            quote(group.value)
        );
        let finding = Code::DiskTwoWays.finding(message);
        let help = "keep one; a profile below can remove what it inherits: \"volume_group: null\" or \"partitions: ['!NAME']\"";
        out.add_with_note(group.span, finding.help(help), "the first partition is here", first.name.span);
    }
}
