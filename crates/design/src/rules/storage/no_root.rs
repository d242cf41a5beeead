//! Something must be mounted at `/`.

use crate::finding::Code;
use crate::rules::view::storage::Storage;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::NoRoot, Check::Part("storage", check));

fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    let storage = Storage::read(node);
    // The boot drive may be one of the disks about which nothing is said.
    if storage.disks.is_empty() || storage.divides_the_rest {
        return;
    }
    if !storage.volumes().any(|volume| volume.is_mounted_at("/")) {
        let at = node.map().and_then(|map| map.get("disks")).map_or(node.span, |entry| entry.key.span);
        let finding = Code::NoRoot.finding("disks are described, and no file system is mounted at /");
        let help = "give a partition or a logical volume \"filesystem: {mountpoint: /}\", or say \"layout: flat\" or \
                    \"layout: lvm\" to have the boot drive divided";
        out.add(at, finding.help(help));
    }
}
