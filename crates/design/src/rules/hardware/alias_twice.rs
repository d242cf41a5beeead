//! Two aliases of one device are most likely one too many.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::finding::{Code, quote};
use crate::kinds::Kind;
use crate::rules::view::{Placed, entries};
use crate::rules::{Check, Out, Rule, Site};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::AliasTwice, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for profile in site.all(Kind::HardwareProfile) {
        let mut seen = HashMap::new();
        for entry in entries(profile.tree, "device_aliases") {
            let Some(address) = Placed::text(&entry.value, "address") else { continue };
            let bus = Placed::text(&entry.value, "bus_type").map(|bus| bus.value);
            match seen.entry((bus, address.value.to_ascii_lowercase())) {
                Entry::Vacant(new) => {
                    new.insert(entry);
                }
                Entry::Occupied(first) => {
                    let (alias, other) = (quote(&entry.key.text), quote(&first.get().key.text));
                    let message =
                        format!("{alias} is the same device as {other}: both are at {}", quote(address.value));
                    let finding = Code::AliasTwice.finding(message);
                    let help = "look at the addresses, or keep one of the aliases";
                    out.add_with_note(address.span, finding.help(help), "the other one is here", first.get().key.span);
                }
            }
        }
    }
}
