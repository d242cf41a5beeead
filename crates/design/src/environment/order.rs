//! Start order of roles, from their `after` lists.

use std::collections::HashMap;

use crate::finding::{Code, Report, quote};
use crate::graph::{self, Cycle, Edge};
use crate::span::Span;
use muster_core::spelling;

/// A name in a role's `after`.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartDependency<'n> {
    pub(super) name: &'n str,
    pub(super) span: Span,
}

/// Sorts roles, by index, after their dependencies, otherwise in the order of the file. `None` if there is a cycle.
pub(super) fn start_order(
    names: &[&str],
    dependencies: &[Vec<StartDependency<'_>>],
    report: &mut Report<'_>,
) -> Option<Vec<usize>> {
    let index: HashMap<&str, usize> = names.iter().enumerate().map(|(index, name)| (*name, index)).collect();
    let edges: Vec<Vec<Edge>> =
        dependencies.iter().map(|dependencies| edges(dependencies, &index, names, report)).collect();
    let found = graph::order(&edges);
    for cycle in &found.cycles {
        report_cycle(cycle, names, report);
    }
    found.cycles.is_empty().then_some(found.order)
}

fn edges(
    dependencies: &[StartDependency<'_>],
    index: &HashMap<&str, usize>,
    names: &[&str],
    report: &mut Report<'_>,
) -> Vec<Edge> {
    let mut edges: Vec<Edge> = Vec::new();
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for dependency in dependencies {
        if let Some(&first) = seen.get(dependency.name) {
            let finding = Code::AfterTwice
                .finding(format!("role {} is listed twice", quote(dependency.name)))
                .help("remove one of the two");
            report.add_with_note(dependency.span, finding, "the first one is here", first);
            continue;
        }
        seen.insert(dependency.name, dependency.span);
        match index.get(dependency.name) {
            Some(&to) => edges.push(Edge { to, span: dependency.span }),
            None => {
                let help = match spelling::nearest(dependency.name, names.iter().copied()) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => "\"after\" names roles of the same file".to_owned(),
                };
                let finding = Code::AfterUnknown.finding(format!("there is no role {}", quote(dependency.name)));
                report.add(dependency.span, finding.help(help));
            }
        }
    }
    edges
}

fn report_cycle(cycle: &Cycle, names: &[&str], report: &mut Report<'_>) {
    let (message, help) = match cycle.members.as_slice() {
        [role] => (format!("role {} comes after itself", quote(names[*role])), "remove it"),
        _ => (
            format!("roles come after each other in a cycle: {}", cycle.format(|role| names[role].to_owned())),
            "remove one of these entries, so that the roles have a start order",
        ),
    };
    report.add(cycle.closing.span, Code::AfterCycle.finding(message).help(help));
}
