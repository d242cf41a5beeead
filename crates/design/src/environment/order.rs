//! The order of roles: who comes after whom.

use std::collections::HashMap;

use crate::finding::{Code, Finding, Report, quote};
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
    let mut walk =
        Walk { names, edges: &edges, mark: vec![Mark::Unseen; names.len()], done: Vec::new(), cyclic: false };
    for start in 0..names.len() {
        walk.from(start, report);
    }
    (!walk.cyclic).then_some(walk.done)
}

#[derive(Clone, Copy)]
struct Edge {
    to: usize,
    span: Span,
}

fn edges(wishes: &[Wish<'_>], index: &HashMap<&str, usize>, names: &[&str], report: &mut Report<'_>) -> Vec<Edge> {
    let mut edges: Vec<Edge> = Vec::new();
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for wish in wishes {
        if let Some(&first) = seen.get(wish.name) {
            let finding = Finding::new(Code::AfterTwice, format!("role {} is listed twice", quote(wish.name)))
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
                let finding = Finding::new(Code::AfterUnknown, format!("there is no role {}", quote(wish.name)));
                report.add(wish.span, finding.help(help));
            }
        }
    }
    edges
}

#[derive(Clone, Copy, PartialEq)]
enum Mark {
    Unseen,
    /// On the path that is being walked.
    Open,
    Done,
}

/// A walk in depth, which finds each circle once. The path is a vector: a file of a thousand roles, each after the
/// next, must not need a thousand stack frames.
struct Walk<'w> {
    names: &'w [&'w str],
    edges: &'w [Vec<Edge>],
    mark: Vec<Mark>,
    done: Vec<usize>,
    cyclic: bool,
}

impl Walk<'_> {
    fn from(&mut self, start: usize, report: &mut Report<'_>) {
        if self.mark[start] != Mark::Unseen {
            return;
        }
        self.mark[start] = Mark::Open;
        // A role, and how many of its edges have been taken.
        let mut path = vec![(start, 0)];
        while let Some((role, taken)) = path.last_mut() {
            let Some(edge) = self.edges[*role].get(*taken).copied() else {
                self.mark[*role] = Mark::Done;
                self.done.push(*role);
                path.pop();
                continue;
            };
            *taken += 1;
            match self.mark[edge.to] {
                Mark::Done => {}
                Mark::Unseen => {
                    self.mark[edge.to] = Mark::Open;
                    path.push((edge.to, 0));
                }
                Mark::Open => self.report_circle(&path, edge, report),
            }
        }
    }

    fn report_circle(&mut self, path: &[(usize, usize)], closing: Edge, report: &mut Report<'_>) {
        self.cyclic = true;
        let circle = path.iter().skip_while(|(role, _)| *role != closing.to).map(|(role, _)| self.names[*role]);
        let circle: Vec<&str> = circle.chain([self.names[closing.to]]).collect();
        let (message, help) = match circle.as_slice() {
            [role, _] => (format!("role {} comes after itself", quote(role)), "remove it"),
            _ => (
                format!("roles come after each other in a circle: {}", shorten(&circle)),
                "remove one of them, so that there is an order to bring the roles up in",
            ),
        };
        report.add(closing.span, Finding::new(Code::AfterCycle, message).help(help));
    }
}

/// `web → db → web`; a long circle keeps its ends.
fn shorten(circle: &[&str]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<String> = circle.iter().map(|name| crate::finding::one_line(name)).collect();
    if names.len() <= SHOWN {
        return names.join(" → ");
    }
    let (head, tail) = (&names[..SHOWN / 2], &names[names.len() - SHOWN / 2..]);
    format!("{} → … → {}", head.join(" → "), tail.join(" → "))
}
