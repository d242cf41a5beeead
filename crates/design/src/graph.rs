//! Topological order with detection of cycles.

use crate::file_text::Span;
use crate::finding::one_line;

/// A dependency and its span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphEdge {
    pub to: usize,
    pub span: Span,
}

/// Topological order and the cycles. The closing edge of a cycle is ignored in the order.
#[derive(Debug)]
pub(crate) struct TopologicalOrder {
    /// Every index after its dependencies, otherwise in the original order.
    pub order: Vec<usize>,
    pub cycles: Vec<GraphCycle>,
}

/// A cycle: its members in order, and the edge back to the first.
#[derive(Debug)]
pub(crate) struct GraphCycle {
    pub members: Vec<usize>,
    pub closing: GraphEdge,
}

#[derive(Clone, Copy, PartialEq)]
enum VisitMark {
    Unvisited,
    /// On the current path.
    Open,
    Done,
}

/// Orders all indices.
pub(crate) fn order(edges: &[Vec<GraphEdge>]) -> TopologicalOrder {
    order_from(edges, 0..edges.len())
}

/// Depth-first search from each start in turn; finds each cycle once. The path is a vector, not the call stack: chains may
/// be thousands of nodes long.
pub(crate) fn order_from(edges: &[Vec<GraphEdge>], starts: impl IntoIterator<Item = usize>) -> TopologicalOrder {
    let mut mark = vec![VisitMark::Unvisited; edges.len()];
    let mut found = TopologicalOrder { order: Vec::with_capacity(edges.len()), cycles: Vec::new() };
    // Index, and number of its edges that were followed.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for start in starts {
        if mark[start] != VisitMark::Unvisited {
            continue;
        }
        mark[start] = VisitMark::Open;
        path.push((start, 0));
        while let Some((at, followed)) = path.last_mut() {
            let Some(edge) = edges[*at].get(*followed).copied() else {
                mark[*at] = VisitMark::Done;
                found.order.push(*at);
                path.pop();
                continue;
            };
            *followed += 1;
            match mark[edge.to] {
                VisitMark::Done => {}
                VisitMark::Unvisited => {
                    mark[edge.to] = VisitMark::Open;
                    path.push((edge.to, 0));
                }
                VisitMark::Open => {
                    let members = path.iter().map(|(at, _)| *at).skip_while(|at| *at != edge.to).collect();
                    found.cycles.push(GraphCycle { members, closing: edge });
                }
            }
        }
    }
    found
}

impl GraphCycle {
    /// `web → db → web`; a long cycle keeps its ends.
    pub(crate) fn format(&self, name: impl Fn(usize) -> String) -> String {
        const SHOWN: usize = 8;
        let around = self.members.iter().copied().chain([self.closing.to]);
        let names: Vec<String> = around.map(|member| one_line(&name(member))).collect();
        if names.len() <= SHOWN {
            return names.join(" → ");
        }
        let (head, tail) = (&names[..SHOWN / 2], &names[names.len() - SHOWN / 2..]);
        format!("{} → … → {}", head.join(" → "), tail.join(" → "))
    }
}
