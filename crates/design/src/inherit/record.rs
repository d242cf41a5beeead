//! What the merge tells of its doings.

use crate::span::Span;
use crate::yaml::Node;

/// Told by the merge what it does, at the place that was last entered and not left. Everything is nothing by default, and
/// then the compiler leaves the telling out.
pub(crate) trait Record {
    /// The merge goes down to a key, or to a member of a list by its primary key.
    fn enter(&mut self, _step: &str) {}
    /// … and up again.
    fn leave(&mut self) {}
    /// What follows is part of one value that will be told as a whole: only removals that remove nothing are told …
    fn hush(&mut self) {}
    /// … up to here.
    fn speak(&mut self) {}
    /// The layer's value stands here now, with all that is in it; what was here before counts no more.
    fn set(&mut self, _value: &Node) {}
    /// What was here is gone: unset, or removed.
    fn removed(&mut self, _at: Span) {}
    /// The layer has changed the members of a list of single values.
    fn members(&mut self, _layer: &Node, _result: &Node) {}
    /// A removal has found nothing to remove.
    fn removes_nothing(&mut self, _what: &str, _at: Span) {}
}

/// Nobody asks.
#[derive(Debug)]
pub(crate) struct Unrecorded;

impl Record for Unrecorded {}

/// Collects the removals that remove nothing.
#[derive(Debug, Default)]
pub(crate) struct IdleRemovals(pub Vec<(String, Span)>);

impl Record for IdleRemovals {
    fn removes_nothing(&mut self, what: &str, at: Span) {
        self.0.push((what.to_owned(), at));
    }
}
