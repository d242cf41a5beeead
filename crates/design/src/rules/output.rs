//! Output of rules: findings with spans, and claims on values that must be unique.

use std::net::IpAddr;
use std::sync::Arc;

use crate::finding::{Finding, Report};
use crate::span::Span;

/// A finding with spans, before lines are looked up.
#[derive(Clone, Debug)]
pub(crate) struct RuleFinding {
    pub span: Span,
    pub finding: Finding,
    /// Related spans with a remark each.
    pub notes: Vec<(String, Span)>,
    /// Node that was checked, if any.
    pub node: Option<Arc<str>>,
}

/// Collects the findings of rules.
#[derive(Debug, Default)]
pub(crate) struct RuleOutput {
    pub(super) node: Option<Arc<str>>,
    pub(super) findings: Vec<RuleFinding>,
}

/// Findings that are kept. Bounds the memory for a design with mistakes in many nodes.
const MAX_FINDINGS: usize = 20_000;

impl RuleOutput {
    /// Output for the rules of one node.
    pub(crate) fn for_node(name: Arc<str>) -> Self {
        RuleOutput { node: Some(name), findings: Vec::new() }
    }

    pub(crate) fn into_findings(self) -> Vec<RuleFinding> {
        self.findings
    }

    pub(crate) fn add(&mut self, span: Span, finding: Finding) {
        self.push(RuleFinding { span, finding, notes: Vec::new(), node: self.node.clone() });
    }

    /// Adds a finding with a note about a related span.
    pub(crate) fn add_with_note(&mut self, span: Span, finding: Finding, note: impl Into<String>, noted: Span) {
        self.push(RuleFinding { span, finding, notes: vec![(note.into(), noted)], node: self.node.clone() });
    }

    /// Adds a finding about one node, for a rule that reads all nodes.
    pub(crate) fn add_for(&mut self, node: &str, span: Span, finding: Finding) {
        self.push(RuleFinding { span, finding, notes: Vec::new(), node: Some(node.into()) });
    }

    pub(super) fn push(&mut self, raw: RuleFinding) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(raw);
        }
    }
}

impl RuleFinding {
    /// Adds the finding to a report, with its lines.
    pub(crate) fn add_to(&self, report: &mut Report<'_>) {
        let notes = self.notes.iter();
        let finding = notes
            .fold(self.finding.clone(), |finding, (note, span)| finding.note(note.clone(), report.location(*span)));
        match &self.node {
            Some(node) => report.add_for(node, self.span, finding),
            None => report.add(self.span, finding),
        }
    }
}

/// A value of a node that no other node may have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Claim {
    /// Unique within one routing domain, or within a network that has none.
    Address {
        scope: u64,
        address: IpAddr,
    },
    Mac([u8; 6]),
    Name(Arc<str>),
}

/// Collects the claims of a node for one rule.
#[derive(Debug)]
pub(crate) struct Claims<'c> {
    pub(super) claimed: &'c mut Vec<(Claim, Span)>,
}

impl Claims<'_> {
    pub(crate) fn add(&mut self, claim: Claim, at: Span) {
        self.claimed.push((claim, at));
    }
}

/// A claim that two nodes make.
#[derive(Debug)]
pub(crate) struct ClaimConflict<'t> {
    pub claim: &'t Claim,
    /// The two nodes; they may be the same.
    pub first: &'t str,
    pub second: &'t str,
}
