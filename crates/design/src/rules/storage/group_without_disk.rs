//! A volume group must consist of something.

use std::collections::HashSet;

use crate::finding::{Code, quote};
use crate::rules::view::storage::Storage;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::GroupWithoutDisk, Check::Part("storage", check));

fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    let storage = Storage::read(node);
    let given: HashSet<&str> = storage.physical_volumes().map(|group| group.value).collect();
    for group in storage.groups.iter().filter(|group| !given.contains(&*group.key.text)) {
        let message = format!("no disk and no partition belongs to volume group {}", quote(&group.key.text));
        let help = format!("give it one: volume_group: {}, at a disk or at a partition", group.key.text);
        out.add(group.key.span, Code::GroupWithoutDisk.finding(message).help(crate::finding::one_line(&help)));
    }
}
