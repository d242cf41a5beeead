//! Runs the rules: rules of the site once, rules of nodes in parallel. Their output is findings with spans, and claims on
//! values that must be unique.

use std::sync::Arc;

use crate::FastMap;
use crate::file_text::Span;
use crate::finding::{Finding, FindingCollector};
use crate::yaml::{Value, YamlNode};

use super::claims::{ClaimTable, HashedClaim};
use super::view::{DocumentView, InterfaceView, SiteView, interfaces, node_addresses};
use super::{RULES, RuleCheck};

/// Findings that are kept. Bounds the memory for a design with mistakes in many nodes.
const MAX_FINDINGS: usize = 20_000;

/// Results of the rules for nodes, kept so that one node can be checked again.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeResults {
    /// Findings by subject; subjects without findings are absent.
    findings: FastMap<usize, Arc<[RuleFinding]>>,
    claims: ClaimTable,
    /// Findings about the claims of several nodes.
    conflicts: Arc<[RuleFinding]>,
}

/// Runs the rules that do not read nodes. They need not run again after a change of nodes alone.
pub(crate) fn check_site(site: &SiteView<'_>) -> Vec<RuleFinding> {
    run_once(site, |check| if let RuleCheck::Site(check) = check { Some(*check) } else { None })
}

/// Runs the rules that read all nodes together.
pub(crate) fn check_fleet(site: &SiteView<'_>) -> Vec<RuleFinding> {
    run_once(site, |check| if let RuleCheck::Fleet(check) = check { Some(*check) } else { None })
}

fn run_once(
    site: &SiteView<'_>,
    select: impl Fn(&RuleCheck) -> Option<fn(&SiteView<'_>, &mut RuleOutput)>,
) -> Vec<RuleFinding> {
    let mut out = RuleOutput::default();
    for check in RULES.iter().filter_map(|rule| select(&rule.check)) {
        check(site, &mut out);
    }
    out.findings
}

/// Checks nodes, given by subject, that have no results yet.
pub(crate) fn check_nodes(site: &SiteView<'_>, hosts: &[usize], results: &mut NodeResults) {
    for (findings, claims) in crate::compile::in_parallel(hosts, |hosts| check_part(site, hosts, &results.claims)) {
        results.findings.extend(findings);
        results.claims.extend(claims);
    }
    results.conflicts = results.claims.conflicts(site).into();
}

impl NodeResults {
    /// Removes the results of nodes; the next [`check_nodes`] completes that.
    pub(crate) fn remove(&mut self, subjects: &[usize]) {
        for subject in subjects {
            self.findings.remove(subject);
        }
        self.claims.remove(&subjects.iter().copied().collect());
    }

    /// All findings, in no particular order.
    pub(crate) fn findings(&self) -> impl Iterator<Item = &RuleFinding> {
        self.findings.values().flat_map(|findings| findings.iter()).chain(&*self.conflicts)
    }
}

/// Findings of nodes, by subject.
type NodeFindings = Vec<(usize, Arc<[RuleFinding]>)>;

fn check_part(site: &SiteView<'_>, hosts: &[usize], table: &ClaimTable) -> (NodeFindings, Vec<HashedClaim>) {
    let mut parts = PartCache::default();
    let (mut findings, mut claims) = (Vec::new(), Vec::new());
    for &subject in hosts {
        let Some(host) = site.view(subject) else { continue };
        let mut out = RuleOutput::for_node(site.subjects[subject].name.clone());
        for (number, rule) in RULES.iter().enumerate() {
            match &rule.check {
                RuleCheck::Site(_)
                | RuleCheck::Fleet(_)
                | RuleCheck::Interfaces(_)
                | RuleCheck::Address(_)
                | RuleCheck::Unique { .. } => {}
                RuleCheck::Node(check) => check(site, &host, &mut out),
                RuleCheck::Part(key, check) => {
                    if let Some(part) = host.get(key) {
                        parts.check(number, &[Some(part)], |out| check(site, part, out), &mut out);
                    }
                }
                RuleCheck::Parts(keys, check) => {
                    let values: Vec<Option<&YamlNode>> = keys.iter().map(|key| host.get(key)).collect();
                    parts.check(number, &values, |out| check(site, &host, out), &mut out);
                }
            }
        }
        if let Some(part) = host.get("interfaces") {
            parts.check(INTERFACE_RULES, &[Some(part)], |out| check_interfaces(site, part, out), &mut out);
        }
        check_addresses(site, &host, &mut out);
        table.read(site, &host, subject, &mut claims);
        if !out.findings.is_empty() {
            findings.push((subject, out.findings.into()));
        }
    }
    (findings, claims)
}

/// Number of the group of all [`RuleCheck::Interfaces`] rules in the cache.
const INTERFACE_RULES: usize = usize::MAX;

fn check_interfaces(site: &SiteView<'_>, part: &YamlNode, out: &mut RuleOutput) {
    let interfaces: Vec<InterfaceView<'_>> = interfaces(part).collect();
    for rule in RULES {
        if let RuleCheck::Interfaces(check) = &rule.check {
            check(site, &interfaces, out);
        }
    }
}

fn check_addresses(site: &SiteView<'_>, host: &DocumentView<'_>, out: &mut RuleOutput) {
    for address in node_addresses(site, host) {
        for rule in RULES {
            if let RuleCheck::Address(check) = &rule.check {
                check(&address, out);
            }
        }
    }
}

/// Findings of parts that were checked already. Nodes share the value that they inherit from a profile.
#[derive(Default)]
struct PartCache {
    checked: FastMap<(usize, [PartId; MAX_PARTS]), Vec<RuleFinding>>,
}

/// Most parts that a rule reads.
const MAX_PARTS: usize = 3;

impl PartCache {
    fn check(
        &mut self,
        rule: usize,
        parts: &[Option<&YamlNode>],
        check: impl FnOnce(&mut RuleOutput),
        out: &mut RuleOutput,
    ) {
        let mut ids = [PartId::Absent; MAX_PARTS];
        debug_assert!(parts.len() <= MAX_PARTS, "a rule reads more parts than the cache distinguishes");
        for (id, part) in ids.iter_mut().zip(parts) {
            *id = part.map_or(PartId::Absent, PartId::new);
        }
        let findings = self.checked.entry((rule, ids)).or_insert_with(|| {
            let mut out = RuleOutput::default();
            check(&mut out);
            out.findings
        });
        for raw in findings {
            out.push(RuleFinding { node: out.node.clone(), ..raw.clone() });
        }
    }
}

/// Identity of a part by its address in memory. The site outlives the cache, so no address is reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum PartId {
    Absent,
    Collection(*const ()),
    /// Equal scalars of one file may share their text: only the span tells them apart.
    Scalar(*const (), Span),
}

impl PartId {
    fn new(part: &YamlNode) -> Self {
        match &part.value {
            Value::Map(map) => PartId::Collection(map.entries().as_ptr().cast()),
            Value::Seq(items) => PartId::Collection(items.as_ptr().cast()),
            Value::Scalar(scalar) => PartId::Scalar(scalar.text().as_ptr().cast(), part.span),
        }
    }
}

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
    pub(crate) fn add_to(&self, report: &mut FindingCollector<'_>) {
        let notes = self.notes.iter();
        let finding = notes
            .fold(self.finding.clone(), |finding, (note, span)| finding.note(note.clone(), report.location(*span)));
        match &self.node {
            Some(node) => report.add_for(node, self.span, finding),
            None => report.add(self.span, finding),
        }
    }
}
