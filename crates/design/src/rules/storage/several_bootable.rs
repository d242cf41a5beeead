//! A machine starts from one partition of a disk.

use crate::finding::{Code, quote};
use crate::rules::view::storage::Storage;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::SeveralBootable, Check::Part("storage", check));

/// Two disks with one each are common: the machine then starts when one disk is broken.
fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    for disk in Storage::read(node).disks {
        let mut bootable = disk.partitions.iter().filter_map(|partition| Some((partition, partition.bootable?)));
        let Some((_, first)) = bootable.next() else { continue };
        for (partition, at) in bootable {
            let message =
                format!("partition {} is bootable, and so is another one of its disk", quote(partition.name.value));
            let finding = Code::SeveralBootable.finding(message).help("the firmware takes one of them: keep that");
            out.add_with_note(at, finding, "the other one is here", first);
        }
    }
}
