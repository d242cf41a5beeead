//! What must hold between the parts of a strategy: that each wave can come to an end.

use jiff::SignedDuration;
use muster_core::rollout::strategy::{Deadlines, Gate};
use muster_core::rollout::strategy_check::MAX_DURATION;

use crate::finding::{Code, Report};
use crate::span::Span;
use crate::yaml::Node;

/// Looks at what is written and at the defaults of what is not. A finding needs a place: since the defaults fit each
/// other, at least one side of what does not fit is written.
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

/// Nobody would see a node fail, or wait too long, if the rollout as a whole gave up before.
fn check_deadlines(deadlines: Deadlines, section: &Node, report: &mut Report<'_>) {
    let parts = [("node", deadlines.node), ("pending", deadlines.pending)];
    for (part, longest) in parts.into_iter().filter(|(_, duration)| deadlines.progress <= *duration) {
        let message = format!(
            "the deadline for progress, {}, is not longer than that of \"{part}\", {}",
            show(deadlines.progress),
            show(longest)
        );
        let finding = Code::DeadlineOrder
            .finding(message)
            .help("a node must be able to fail before nothing at all has moved for too long");
        report.add(place(section, &[&["deadlines", "progress"], &["deadlines", part]]), finding);
    }
}

/// A node counts as healthy after its soak, and as failed at its deadline: the soak must be over by then.
fn check_soak(soak: SignedDuration, deadline: SignedDuration, section: &Node, report: &mut Report<'_>) {
    if soak >= deadline {
        let message = format!(
            "no node could become healthy: it would have to be well for {}, but fails after {}",
            show(soak),
            show(deadline)
        );
        let finding = Code::WaveNeverEnds.finding(message).help(
            "make \"soak\" shorter than \"deadlines.node\"; to watch a wave for longer, give the wave a soak of its own",
        );
        report.add(place(section, &[&["soak"], &["deadlines", "node"]]), finding);
    }
}

/// No deadline runs while a gate is asked. One that may be asked for months is a typing error all the same.
fn check_gate(gate: &Gate, section: &Node, report: &mut Report<'_>) {
    let written = section.get("gate").and_then(|gate| gate.get("checks")).and_then(Node::items).unwrap_or_default();
    // With a check that is not legal, they are not the same checks; that has been reported.
    if written.len() != gate.checks.len() {
        return;
    }
    for (check, node) in gate.checks.iter().zip(written) {
        let longest = check.longest();
        if longest > MAX_DURATION {
            let message = format!("the gate might never come to an answer: this check may take {}", show(longest));
            let finding = Code::WaveNeverEnds.finding(message);
            report.add(node.span, finding.help("make \"timeout\", \"retries\" or \"every\" smaller"));
        }
    }
}

/// The first of these that is written.
fn place(section: &Node, paths: &[&[&str]]) -> Span {
    let find = |path: &&[&str]| path.iter().try_fold(section, |node, key| node.get(key));
    paths.iter().find_map(find).unwrap_or(section).span
}

/// A duration as it is written.
fn show(duration: SignedDuration) -> String {
    format!("{duration:#}")
}
