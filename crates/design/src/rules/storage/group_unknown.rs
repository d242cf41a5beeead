//! What belongs to a volume group must belong to one that is there.

use std::collections::HashSet;

use crate::finding::{Code, quote};
use crate::rules::view::storage::Storage;
use crate::rules::{Check, Out, Rule, Site};
use crate::spelling;
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::GroupUnknown, Check::Part("storage", check));

fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    let storage = Storage::read(node);
    let groups: HashSet<&str> = storage.groups.iter().map(|group| &*group.key.text).collect();
    for group in storage.physical_volumes().filter(|group| !groups.contains(group.value)) {
        let message = format!("there is no volume group {}", quote(group.value));
        let help = match spelling::nearest(group.value, groups.iter().copied()) {
            Some(near) => format!("did you mean {}?", quote(near)),
            None => "describe it under \"volume_groups\", with its logical volumes".to_owned(),
        };
        out.add(group.span, Code::GroupUnknown.finding(message).help(help));
    }
}
