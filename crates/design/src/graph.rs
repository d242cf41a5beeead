//! Orders things behind those that they need, and finds the circles that allow no order.

use crate::finding::one_line;
use crate::span::Span;

/// That one thing needs another, and where it says so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub to: usize,
    pub span: Span,
}

/// What was found: an order, and the circles. An edge that closes a circle is left out of the order.
#[derive(Debug)]
pub(crate) struct Order {
    /// Every index, each behind all that it needs; else as they were.
    pub order: Vec<usize>,
    pub circles: Vec<Circle>,
}

/// Things that need each other: from the first on, and back to it by the closing edge.
#[derive(Debug)]
pub(crate) struct Circle {
    pub members: Vec<usize>,
    pub closing: Edge,
}

#[derive(Clone, Copy, PartialEq)]
enum Mark {
    Unseen,
    /// On the path that is being walked.
    Open,
    Done,
}

/// Orders things as they come.
pub(crate) fn order(edges: &[Vec<Edge>]) -> Order {
    order_from(edges, 0..edges.len())
}

/// A walk in depth, which finds each circle once, from each of these in turn: where there are circles, it matters where it
/// begins. The path is a vector: a thousand things, each needing the next, must not need a thousand stack frames.
pub(crate) fn order_from(edges: &[Vec<Edge>], starts: impl IntoIterator<Item = usize>) -> Order {
    let mut mark = vec![Mark::Unseen; edges.len()];
    let mut found = Order { order: Vec::with_capacity(edges.len()), circles: Vec::new() };
    // A thing, and how many of its edges have been taken.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for start in starts {
        if mark[start] != Mark::Unseen {
            continue;
        }
        mark[start] = Mark::Open;
        path.push((start, 0));
        while let Some((at, taken)) = path.last_mut() {
            let Some(edge) = edges[*at].get(*taken).copied() else {
                mark[*at] = Mark::Done;
                found.order.push(*at);
                path.pop();
                continue;
            };
            *taken += 1;
            match mark[edge.to] {
                Mark::Done => {}
                Mark::Unseen => {
                    mark[edge.to] = Mark::Open;
                    path.push((edge.to, 0));
                }
                Mark::Open => {
                    let members = path.iter().map(|(at, _)| *at).skip_while(|at| *at != edge.to).collect();
                    found.circles.push(Circle { members, closing: edge });
                }
            }
        }
    }
    found
}

impl Circle {
    /// `web → db → web`; a long circle keeps its ends.
    pub(crate) fn show(&self, name: impl Fn(usize) -> String) -> String {
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
