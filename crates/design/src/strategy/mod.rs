//! Reads rollout strategies: the section `rollout` of an environment file, or a file of its own.
//!
//! ```yaml
//! waves: [{nodes: 1, soak: 5m, promote: manual}, {percent: 10}, {percent: 50}, {percent: 100}]
//! max_unavailable: {default: 1, web: 20%, per: {label: rack, count: 1}}
//! ramp: true
//! soak: 10s
//! gate: {validated: true, inconclusive: fail, checks: [{http: "http://127.0.0.1/health"}, {command: [/usr/bin/true]}]}
//! failures: {canary: 0, wave: 1, total: 5%}
//! on_failure: pause
//! deadlines: {node: 15m, pending: 30m, progress: 1h}
//! windows: [{days: mon-thu, from: "22:00", to: "04:00", tz: UTC}]
//! confirm_within: 5m
//! ```
//!
//! All keys are optional. Checks across several keys ensure that each wave can complete.

mod limits;
mod values;
mod waves;
mod windows;

use std::path::Path;

use jiff::SignedDuration;
use muster_core::names::Role;
use muster_core::rollout::strategy::{Deadlines, Gate, OnFailure, Strategy};
use muster_core::rollout::strategy_check::MAX_DURATION;

use crate::environment::expect::{self, MapFields};
use crate::file_text::{FileText, Span};
use crate::finding::{Code, FindingCollector, Findings, WithWarnings};
use crate::yaml::{self, Limits, YamlNode};

const KEYS: &[&str] = &[
    "waves",
    "max_unavailable",
    "ramp",
    "soak",
    "gate",
    "failures",
    "on_failure",
    "deadlines",
    "windows",
    "confirm_within",
];

const ON_FAILURE: &[(&str, OnFailure)] = &[("pause", OnFailure::Pause), ("rollback", OnFailure::Rollback)];

/// Reads a strategy file, for an environment with these roles.
pub fn read(path: &Path, roles: &[Role]) -> Result<WithWarnings<Strategy>, Findings> {
    parse(&FileText::read(path, Limits::HANDWRITTEN.file_bytes)?, roles)
}

/// Parses and checks a strategy file.
pub fn parse(source: &FileText, roles: &[Role]) -> Result<WithWarnings<Strategy>, Findings> {
    let mut report = FindingCollector::new(source);
    let documents = yaml::parse_into(source, &mut report, &Limits::HANDWRITTEN);
    let roles: Vec<&str> = roles.iter().map(Role::as_str).collect();
    let section = the_document(&documents, &mut report).and_then(|node| section(node, Some(&roles), &mut report));
    let findings = report.finish();
    match section {
        Some(section) if !findings.has_errors() => Ok(WithWarnings { value: section.strategy, warnings: findings }),
        _ => Err(findings),
    }
}

/// The single document of the file. A file that cannot be parsed was reported, and is not reported as empty.
fn the_document<'d>(documents: &'d [YamlNode], report: &mut FindingCollector<'_>) -> Option<&'d YamlNode> {
    if let Some(second) = documents.get(1) {
        let message = "a strategy file must have one document; this is a second one";
        let finding = Code::SeveralDocuments.finding(message).help("remove the line ---, or the second document");
        report.add(second.span, finding);
    }
    match documents.first() {
        Some(document) if !document.is_null() => Some(document),
        _ if report.has_errors() => None,
        _ => {
            let finding = Code::EmptyFile.finding("the strategy file is empty");
            report.add_to_file(finding.help("write at least: waves: [{percent: 100}]"));
            None
        }
    }
}

/// A strategy, and the span that a later rule needs.
#[derive(Debug)]
pub(crate) struct StrategySection {
    pub(crate) strategy: Strategy,
    /// Span of the label of the budget.
    pub(crate) label: Option<Span>,
}

/// Reads the section of an environment with these roles, if they are known. Returns none only after reporting
/// a finding; the result is valid only without findings.
pub(crate) fn section(
    node: &YamlNode,
    roles: Option<&[&str]>,
    report: &mut FindingCollector<'_>,
) -> Option<StrategySection> {
    let of = "the rollout strategy";
    let map = expect::mapping(node, of, "a mapping such as {max_unavailable: 1}", report)?;
    let fields = MapFields::check(map, of, node.span, KEYS, report);
    let default = Strategy::default();
    let waves = fields.optional("waves").and_then(|node| waves::read(node, report));
    let budget = fields.optional("max_unavailable").and_then(|node| limits::read_budget(node, roles, report));
    let budget = budget.unwrap_or_default();
    let gate = fields.optional("gate").and_then(|node| waves::read_gate(node, report)).unwrap_or_default();
    // A refused part must not be checked with its default value.
    let deadlines = match fields.optional("deadlines") {
        Some(node) => limits::read_deadlines(node, report),
        None => Some(default.deadlines),
    };
    let soak = match fields.optional("soak") {
        Some(node) => values::read_duration(node, "\"soak\"", values::MinDuration::Zero, report),
        None => Some(default.soak),
    };
    if let Some(deadlines) = deadlines {
        check(deadlines, soak, &gate, node, report);
    }
    let strategy = Strategy {
        waves: waves.unwrap_or(default.waves),
        max_unavailable: budget.budget,
        ramp: fields
            .optional("ramp")
            .and_then(|node| expect::boolean(node, "\"ramp\"", report))
            .unwrap_or(default.ramp),
        soak: soak.unwrap_or(default.soak),
        gate,
        failures: fields.optional("failures").and_then(|node| limits::read_failures(node, report)).unwrap_or_default(),
        on_failure: fields
            .optional("on_failure")
            .and_then(|node| values::read_word(node, "\"on_failure\"", ON_FAILURE, report))
            .unwrap_or_default(),
        deadlines: deadlines.unwrap_or_default(),
        windows: fields.optional("windows").and_then(|node| windows::read(node, report)).unwrap_or_default(),
        confirm_within: fields
            .optional("confirm_within")
            .and_then(|node| values::read_duration(node, "\"confirm_within\"", values::MinDuration::Positive, report)),
    };
    Some(StrategySection { strategy, label: budget.label })
}

/// Checks written values and defaults. The defaults are consistent, so at least one value of each conflict is written and
/// has a span.
fn check(
    deadlines: Deadlines,
    soak: Option<SignedDuration>,
    gate: &Gate,
    section: &YamlNode,
    report: &mut FindingCollector<'_>,
) {
    check_deadlines(deadlines, section, report);
    if let Some(soak) = soak {
        check_soak(soak, deadlines.node, section, report);
    }
    check_gate(gate, section, report);
}

/// The progress deadline must be the longest: otherwise the rollout would stop before a node can fail.
fn check_deadlines(deadlines: Deadlines, section: &YamlNode, report: &mut FindingCollector<'_>) {
    let parts = [("node", deadlines.node), ("pending", deadlines.pending)];
    for (part, longest) in parts.into_iter().filter(|(_, duration)| deadlines.progress <= *duration) {
        let message = format!(
            "the deadline for progress, {}, is not longer than that of \"{part}\", {}",
            show(deadlines.progress),
            show(longest)
        );
        let finding =
            Code::DeadlineOrder.finding(message).help("a node must be able to fail before the deadline for progress");
        report.add(place(section, &[&["deadlines", "progress"], &["deadlines", part]]), finding);
    }
}

/// A node is healthy after its soak and failed at its deadline, so the soak must be shorter.
fn check_soak(soak: SignedDuration, deadline: SignedDuration, section: &YamlNode, report: &mut FindingCollector<'_>) {
    if soak >= deadline {
        let message = format!(
            "no node could become healthy: it must be healthy for {}, but fails after {}",
            show(soak),
            show(deadline)
        );
        let finding = Code::WaveNeverEnds.finding(message).help(
            "make \"soak\" shorter than \"deadlines.node\"; to watch a wave for longer, give the wave its own soak",
        );
        report.add(place(section, &[&["soak"], &["deadlines", "node"]]), finding);
    }
}

/// No deadline applies to a gate. A gate that may take months is a typing error.
fn check_gate(gate: &Gate, section: &YamlNode, report: &mut FindingCollector<'_>) {
    let written = section.get("gate").and_then(|gate| gate.get("checks")).and_then(YamlNode::items).unwrap_or_default();
    // An invalid check was reported and is missing here.
    if written.len() != gate.checks.len() {
        return;
    }
    for (check, node) in gate.checks.iter().zip(written) {
        let longest = check.longest();
        if longest > MAX_DURATION {
            let message = format!("the gate may not finish: this check may take {}", show(longest));
            let finding = Code::WaveNeverEnds.finding(message);
            report.add(node.span, finding.help("make \"timeout\", \"retries\" or \"every\" smaller"));
        }
    }
}

/// First of these that is written.
fn place(section: &YamlNode, paths: &[&[&str]]) -> Span {
    let find = |path: &&[&str]| path.iter().try_fold(section, |node, key| node.get(key));
    paths.iter().find_map(find).unwrap_or(section).span
}

/// Formats a duration.
fn show(duration: SignedDuration) -> String {
    format!("{duration:#}")
}
