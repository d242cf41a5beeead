//! A boot action should be for somebody.

use crate::finding::{Code, quote};
use crate::kinds::Kind;
use crate::resolve::boot_actions::Selector;
use crate::rules::{Check, Out, Rule, Site};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::SelectsNothing, Check::Fleet(check));

fn check(site: &Site<'_>, out: &mut Out) {
    let all = site.all(Kind::BootAction).into_iter().map(|action| (Selector::of(&action), action));
    let filtered: Vec<_> = all.filter(|(selector, _)| !selector.is_for_all()).collect();
    // Of several environments only one is here: it may be for the nodes of another.
    if filtered.is_empty() || site.environments.len() > 1 {
        return;
    }
    let nodes = site.nodes();
    if nodes.is_empty() {
        return;
    }
    for (selector, action) in filtered {
        if !nodes.iter().any(|node| selector.selects(site, node)) {
            let message = format!("boot action {} is for no node: its filter fits none", quote(action.name));
            let at = action.tree.map().and_then(|map| map.get("node_filter")).map_or(action.at, |it| it.key.span);
            let help = "look at the names, tags and labels in it, and whether one of them must hold or all";
            out.add(at, Code::SelectsNothing.finding(message).help(help));
        }
    }
}
