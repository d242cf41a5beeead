//! Runs the rules: rules of the site once, rules of nodes in parallel. Their output is findings with spans, and claims on
//! values that must be unique.

use std::net::IpAddr;
use std::sync::Arc;

use crate::FastMap;
use crate::file_text::Span;
use crate::finding::{Finding, FindingCollector};
use crate::yaml::{Value, YamlNode};

use super::view::{DocumentView, InterfaceView, SiteView, interfaces, node_addresses};
use super::{RULES, RuleCheck};

/// Findings that are kept. Bounds the memory for a design with mistakes in many nodes.
const MAX_FINDINGS: usize = 20_000;

/// Findings of the rules for nodes, kept so that one node can be checked again.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeResults {
    /// Findings by subject; subjects without findings are absent.
    findings: FastMap<usize, Arc<[RuleFinding]>>,
    /// Nodes that make a claim, by rule and claim.
    claims: FastMap<(usize, Claim), Vec<Claimant>>,
    /// Claims by subject, for their removal.
    claimed: FastMap<usize, Arc<[(usize, Claim)]>>,
}

#[derive(Clone, Debug)]
struct Claimant {
    subject: usize,
    name: Arc<str>,
    span: Span,
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

/// Checks nodes, given by subject, and replaces their results.
pub(crate) fn check_nodes(site: &SiteView<'_>, hosts: &[usize], results: &mut NodeResults) {
    for part in crate::compile::in_parallel(hosts, |hosts| check_part(site, hosts)) {
        for NodeResult { subject, name, findings, claims } in part {
            results.remove(subject);
            if !findings.is_empty() {
                results.findings.insert(subject, findings.into());
            }
            let mut claimed = Vec::with_capacity(claims.len());
            for (rule, claim, span) in claims {
                let claimant = Claimant { subject, name: name.clone(), span };
                results.claims.entry((rule, claim.clone())).or_default().push(claimant);
                claimed.push((rule, claim));
            }
            if !claimed.is_empty() {
                results.claimed.insert(subject, claimed.into());
            }
        }
    }
}

impl NodeResults {
    /// Removes the results of a node.
    pub(crate) fn remove(&mut self, subject: usize) {
        self.findings.remove(&subject);
        for key in self.claimed.remove(&subject).iter().flat_map(|claimed| claimed.iter()) {
            if let Some(claimants) = self.claims.get_mut(key) {
                claimants.retain(|claimant| claimant.subject != subject);
                if claimants.is_empty() {
                    self.claims.remove(key);
                }
            }
        }
    }

    /// All findings, in no particular order.
    pub(crate) fn findings(&self) -> impl Iterator<Item = RuleFinding> {
        let single = self.findings.values().flat_map(|findings| findings.iter().cloned());
        let shared = self.claims.iter().filter(|(_, claimants)| claimants.len() > 1);
        single.chain(shared.flat_map(|((rule, claim), claimants)| conflicts(*rule, claim, claimants)))
    }
}

/// Findings for a claim of several nodes: one for each node but the first, with a note about the first.
fn conflicts(rule: usize, claim: &Claim, claimants: &[Claimant]) -> Vec<RuleFinding> {
    let mut claimants: Vec<&Claimant> = claimants.iter().collect();
    // By name: file numbers depend on which file was changed last.
    claimants.sort_by_key(|claimant| (&claimant.name, claimant.span.start, claimant.span.end));
    let (Some((first, others)), Some(rule)) = (claimants.split_first(), RULES.get(rule)) else { return Vec::new() };
    let RuleCheck::Unique { conflict, .. } = &rule.check else { return Vec::new() };
    let raw = |other: &&Claimant| {
        let message = conflict(&ClaimConflict { claim, first: &first.name, second: &other.name });
        RuleFinding {
            span: other.span,
            finding: rule.code.finding(message),
            notes: vec![("the first one is here".to_owned(), first.span)],
            node: Some(other.name.clone()),
        }
    };
    others.iter().map(raw).collect()
}

/// Findings and claims of one node.
struct NodeResult {
    subject: usize,
    name: Arc<str>,
    findings: Vec<RuleFinding>,
    claims: Vec<(usize, Claim, Span)>,
}

fn check_part(site: &SiteView<'_>, hosts: &[usize]) -> Vec<NodeResult> {
    let mut parts = PartCache::default();
    let mut claimed = Vec::new();
    let mut all = Vec::with_capacity(hosts.len());
    for &subject in hosts {
        let Some(host) = site.view(subject) else { continue };
        let name: Arc<str> = site.subjects[subject].name.clone();
        let mut out = RuleOutput { node: Some(name.clone()), ..RuleOutput::default() };
        let mut claims = Vec::new();
        for (number, rule) in RULES.iter().enumerate() {
            match &rule.check {
                RuleCheck::Site(_) | RuleCheck::Fleet(_) | RuleCheck::Interfaces(_) | RuleCheck::Address(_) => {}
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
                RuleCheck::Unique { claim, .. } => {
                    claim(site, &host, &mut Claims { claimed: &mut claimed });
                    claims.extend(claimed.drain(..).map(|(claim, span)| (number, claim, span)));
                }
            }
        }
        if let Some(part) = host.get("interfaces") {
            parts.check(INTERFACE_RULES, &[Some(part)], |out| check_interfaces(site, part, out), &mut out);
        }
        check_addresses(site, &host, &mut out);
        all.push(NodeResult { subject, name, findings: out.findings, claims });
    }
    all
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

/// Findings of parts that were checked already. A part is identified by its address in memory: nodes share the value
/// that they inherit from a profile. The site outlives the cache, so no address is reused.
#[derive(Default)]
struct PartCache {
    checked: FastMap<(usize, PartAddresses), Vec<RuleFinding>>,
}

/// Addresses of the parts that a rule reads; null for an absent part.
type PartAddresses = [*const (); MAX_PARTS];
const MAX_PARTS: usize = 4;

impl PartCache {
    fn check(
        &mut self,
        rule: usize,
        parts: &[Option<&YamlNode>],
        check: impl FnOnce(&mut RuleOutput),
        out: &mut RuleOutput,
    ) {
        let mut addresses: PartAddresses = [std::ptr::null(); MAX_PARTS];
        debug_assert!(parts.len() <= MAX_PARTS, "a rule reads more parts than the cache distinguishes");
        for (address, part) in addresses.iter_mut().zip(parts) {
            *address = part.map_or(std::ptr::null(), address_of);
        }
        let findings = self.checked.entry((rule, addresses)).or_insert_with(|| {
            let mut out = RuleOutput::default();
            check(&mut out);
            out.findings
        });
        for raw in findings {
            out.push(RuleFinding { node: out.node.clone(), ..raw.clone() });
        }
    }
}

fn address_of(part: &YamlNode) -> *const () {
    match &part.value {
        Value::Map(map) => Arc::as_ptr(map).cast::<()>(),
        Value::Seq(items) => Arc::as_ptr(items).cast::<()>(),
        Value::Scalar(scalar) => scalar.text().as_ptr().cast::<()>(),
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
