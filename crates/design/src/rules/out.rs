//! What rules say, before it is made into findings with lines and carets.

use std::sync::Arc;

use crate::finding::{Finding, Report};
use crate::span::Span;

/// A finding about a place.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub span: Span,
    pub finding: Finding,
    /// Other places that matter.
    pub notes: Vec<(String, Span)>,
    /// The node that it was found on, if a node was looked at.
    pub node: Option<Arc<str>>,
}

/// Collects what rules say.
#[derive(Debug, Default)]
pub(crate) struct Out {
    pub(super) node: Option<Arc<str>>,
    pub(super) raws: Vec<Raw>,
}

/// Nobody reads more; memory stays bounded, whatever is wrong with how many nodes.
const MOST: usize = 20_000;

impl Out {
    /// For what is said about one node.
    pub(crate) fn of_node(name: Arc<str>) -> Self {
        Out { node: Some(name), raws: Vec::new() }
    }

    pub(crate) fn into_raws(self) -> Vec<Raw> {
        self.raws
    }

    pub(crate) fn add(&mut self, span: Span, finding: Finding) {
        self.push(Raw { span, finding, notes: Vec::new(), node: self.node.clone() });
    }

    /// Adds a finding that has to do with another place as well.
    pub(crate) fn add_with_note(&mut self, span: Span, finding: Finding, note: impl Into<String>, noted: Span) {
        self.push(Raw { span, finding, notes: vec![(note.into(), noted)], node: self.node.clone() });
    }

    /// Adds a finding about a node, for a rule that looks at all of them together.
    pub(crate) fn add_for(&mut self, node: &str, span: Span, finding: Finding) {
        self.push(Raw { span, finding, notes: Vec::new(), node: Some(node.into()) });
    }

    pub(super) fn push(&mut self, raw: Raw) {
        if self.raws.len() < MOST {
            self.raws.push(raw);
        }
    }
}

impl Raw {
    /// Makes it a finding with its lines.
    pub(crate) fn tell(&self, report: &mut Report<'_>) {
        let notes = self.notes.iter();
        let finding =
            notes.fold(self.finding.clone(), |finding, (note, span)| finding.note(note.clone(), report.place(*span)));
        match &self.node {
            Some(node) => report.add_for(node, self.span, finding),
            None => report.add(self.span, finding),
        }
    }
}
