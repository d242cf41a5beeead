//! Two assets of a boot action cannot go to the same place.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::assets;
use crate::finding::{Code, quote};
use crate::rules::view::storage::same_path;
use crate::rules::{Check, Out, Rule, Site};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::AssetPathTwice, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for (_, assets) in assets(site) {
        let mut seen = HashMap::new();
        for asset in &assets {
            let Some(path) = asset.path() else { continue };
            match seen.entry(same_path(path.value)) {
                Entry::Vacant(new) => {
                    new.insert(path.span);
                }
                Entry::Occupied(first) => {
                    let message = format!(
                        "asset {} goes to {}, where another one goes",
                        quote(asset.name.value),
                        quote(path.value)
                    );
                    let finding = Code::AssetPathTwice.finding(message);
                    let help = "the later one would replace the other: give one of them another path";
                    out.add_with_note(path.span, finding.help(help), "the other one is here", *first.get());
                }
            }
        }
    }
}
