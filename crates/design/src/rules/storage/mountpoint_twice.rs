//! Only one thing can be mounted at a place.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::finding::{Code, quote};
use crate::rules::view::storage::{Storage, same_path};
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::MountpointTwice, Check::Part("storage", check));

/// Where swap is mounted.
const NOWHERE: &str = "none";

fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    let storage = Storage::read(node);
    let mut seen = HashMap::new();
    for (volume, at) in storage.volumes().filter_map(|volume| Some((volume, volume.mountpoint?))) {
        if at.value == NOWHERE {
            continue;
        }
        match seen.entry(same_path(at.value)) {
            Entry::Vacant(new) => {
                new.insert(at.span);
            }
            Entry::Occupied(first) => {
                let message =
                    format!("{} is mounted at {}, where another one is", quote(volume.name.value), quote(at.value));
                let finding = Code::MountpointTwice.finding(message).help("mount one of them somewhere else");
                out.add_with_note(at.span, finding, "the other one is here", *first.get());
            }
        }
    }
}
