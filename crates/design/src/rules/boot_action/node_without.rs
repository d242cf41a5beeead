//! Where there are boot actions, a node that gets none is worth a word.

use crate::finding::Code;
use crate::kinds::Kind;
use crate::resolve::boot_actions::Selector;
use crate::rules::{Check, Out, Rule, Site};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::NodeWithoutBootAction, Check::Fleet(check));

/// The finding stands at the first boot action: it is said once, and the nodes are counted.
fn check(site: &Site<'_>, out: &mut Out) {
    let actions = site.all(Kind::BootAction);
    let Some(at) = actions.iter().map(|action| action.at).min() else { return };
    let selectors: Vec<Selector<'_>> = actions.iter().map(Selector::of).collect();
    if selectors.iter().any(Selector::is_for_all) {
        return;
    }
    for node in site.nodes() {
        if !selectors.iter().any(|selector| selector.selects(site, &node)) {
            let finding = Code::NodeWithoutBootAction.finding("there are boot actions, and none is for these nodes");
            let help = "if that is meant, leave it; else look at the filters: one without filters is for all nodes";
            out.add_for(node.name, at, finding.help(help));
        }
    }
}
