//! Checks across several keys of a strategy: each wave must be able to complete.

use jiff::SignedDuration;
use muster_core::rollout::strategy::{Deadlines, Gate};
use muster_core::rollout::strategy_check::MAX_DURATION;

use crate::finding::{Code, Report};
use crate::span::Span;
use crate::yaml::Node;

/// Checks written values and defaults. The defaults are consistent, so at least one value of each conflict is written and
/// has a span.
pub(super) fn check(
    deadlines: Deadlines,
    soak: Option<SignedDuration>,
    gate: &Gate,
    section: &Node,
    report: &mut Report<'_>,
) {
    check_deadlines(deadlines, section, report);
    if let Some(soak) = soak {
        check_soak(soak, deadlines.node, section, report);
    }
    check_gate(gate, section, report);
}

/// The progress deadline must be the longest: otherwise the rollout would stop before a node can fail.
fn check_deadlines(deadlines: Deadlines, section: &Node, report: &mut Report<'_>) {
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
fn check_soak(soak: SignedDuration, deadline: SignedDuration, section: &Node, report: &mut Report<'_>) {
    if soak >= deadline {
        let message = format!(
            "no node could become healthy: it must be healthy for {}, but fails after {}",
            show(soak),
            show(deadline)
        );
        let finding = Code::WaveNeverEnds.finding(message).help(
            "make \"soak\" shorter than \"deadlines.node\"; to watch a wave for longer, give the wave a soak of its own",
        );
        report.add(place(section, &[&["soak"], &["deadlines", "node"]]), finding);
    }
}

/// No deadline applies to a gate. A gate that may take months is a typing error.
fn check_gate(gate: &Gate, section: &Node, report: &mut Report<'_>) {
    let written = section.get("gate").and_then(|gate| gate.get("checks")).and_then(Node::items).unwrap_or_default();
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
fn place(section: &Node, paths: &[&[&str]]) -> Span {
    let find = |path: &&[&str]| path.iter().try_fold(section, |node, key| node.get(key));
    paths.iter().find_map(find).unwrap_or(section).span
}

/// Formats a duration.
fn show(duration: SignedDuration) -> String {
    format!("{duration:#}")
}
