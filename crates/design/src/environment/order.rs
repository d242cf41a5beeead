//! The order of roles: who comes after whom.

use std::collections::HashMap;

use crate::finding::{Code, Report, quote};
use crate::graph::{self, Circle, Edge};
use crate::span::Span;
use crate::spelling;

/// A name in a role's `after`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'n> {
    pub(super) name: &'n str,
    pub(super) span: Span,
}

/// Puts roles, by index, behind those that they come after, and else leaves them in the order of the file. `None` if
/// there is no such order.
pub(super) fn start_order(names: &[&str], wishes: &[Vec<Wish<'_>>], report: &mut Report<'_>) -> Option<Vec<usize>> {
    let index: HashMap<&str, usize> = names.iter().enumerate().map(|(index, name)| (*name, index)).collect();
    let edges: Vec<Vec<Edge>> = wishes.iter().map(|wishes| edges(wishes, &index, names, report)).collect();
    let found = graph::order(&edges);
    for circle in &found.circles {
        report_circle(circle, names, report);
    }
    found.circles.is_empty().then_some(found.order)
}

fn edges(wishes: &[Wish<'_>], index: &HashMap<&str, usize>, names: &[&str], report: &mut Report<'_>) -> Vec<Edge> {
    let mut edges: Vec<Edge> = Vec::new();
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for wish in wishes {
        if let Some(&first) = seen.get(wish.name) {
            let finding = Code::AfterTwice
                .finding(format!("role {} is listed twice", quote(wish.name)))
                .help("remove one of the two");
            report.add_with_note(wish.span, finding, "the first one is here", first);
            continue;
        }
        seen.insert(wish.name, wish.span);
        match index.get(wish.name) {
            Some(&to) => edges.push(Edge { to, span: wish.span }),
            None => {
                let help = match spelling::nearest(wish.name, names.iter().copied()) {
                    Some(meant) => format!("did you mean \"{meant}\"?"),
                    None => "\"after\" names roles of the same file".to_owned(),
                };
                let finding = Code::AfterUnknown.finding(format!("there is no role {}", quote(wish.name)));
                report.add(wish.span, finding.help(help));
            }
        }
    }
    edges
}

fn report_circle(circle: &Circle, names: &[&str], report: &mut Report<'_>) {
    let (message, help) = match circle.members.as_slice() {
        [role] => (format!("role {} comes after itself", quote(names[*role])), "remove it"),
        _ => (
            format!("roles come after each other in a circle: {}", circle.show(|role| names[role].to_owned())),
            "remove one of them, so that there is an order to bring the roles up in",
        ),
    };
    report.add(circle.closing.span, Code::AfterCycle.finding(message).help(help));
}
