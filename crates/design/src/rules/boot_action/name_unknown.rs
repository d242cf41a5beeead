//! A filter that names a node or a rack should name one that is there.

use crate::finding::{Code, quote};
use crate::kinds::Kind;
use crate::rules::view::{Placed, items};
use crate::rules::{Check, Out, Rule, Site};
use crate::spelling;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::FilterNameUnknown, Check::Fleet(check));

/// To look for a near spelling costs the number of nodes; after so many it is not done any more.
const MOST_GUESSES: usize = 20;

fn check(site: &Site<'_>, out: &mut Out) {
    let mut guesses = 0;
    for action in site.all(Kind::BootAction) {
        for filter in action.get("node_filter").map(|filter| items(filter, "filters")).unwrap_or_default() {
            // Of several environments only one is here: the name may be that of a node of another.
            if site.environments.len() <= 1 {
                unknown(site, Kind::Node, Placed::texts(filter, "node_names"), &mut guesses, out);
            }
            unknown(site, Kind::Rack, Placed::texts(filter, "rack_names"), &mut guesses, out);
        }
    }
}

fn unknown(site: &Site<'_>, kind: Kind, names: Vec<Placed<&str>>, guesses: &mut usize, out: &mut Out) {
    for name in names.into_iter().filter(|name| !site.has(kind, name.value)) {
        *guesses += 1;
        let near = || spelling::nearest(name.value, site.all(kind).into_iter().map(|thing| thing.name));
        let near = if *guesses <= MOST_GUESSES { near() } else { None };
        let help = match near {
            Some(near) => format!("did you mean {}?", quote(near)),
            None => "remove it, or look at the spelling".to_owned(),
        };
        let message = format!("the filter names {kind} {}, which is not there", quote(name.value));
        out.add(name.span, Code::FilterNameUnknown.finding(message).help(help));
    }
}
