//! A UUID is there to tell things apart.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::finding::{Code, quote};
use crate::rules::view::storage::Storage;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::UuidTwice, Check::Part("storage", check));

/// Within one machine: the same layout on many machines has the same UUIDs, and disturbs nobody.
fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    let storage = Storage::read(node);
    let of_volumes = storage.volumes().flat_map(|volume| volume.uuids).flatten();
    let of_groups = storage.groups.iter().filter_map(|group| group.uuid);
    let mut seen = HashMap::new();
    for uuid in of_volumes.chain(of_groups) {
        match seen.entry(uuid.value.to_ascii_lowercase()) {
            Entry::Vacant(new) => {
                new.insert(uuid.span);
            }
            Entry::Occupied(first) => {
                let message = format!("the UUID {} is there twice on one machine", quote(uuid.value));
                let finding = Code::UuidTwice.finding(message).help("give one of them another");
                out.add_with_note(uuid.span, finding, "the first one is here", *first.get());
            }
        }
    }
}
