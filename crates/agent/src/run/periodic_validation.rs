//! Runs the checks of the applied release between runs.

use muster_core::lookup::Lookups;
use muster_core::report::{Outcome, Verdict};

use crate::applier::ApplierResult;
use crate::node::Node;
use crate::queue::io::Input;
use crate::redact::Redactor;
use crate::report::unsent::UnsentReport;
use crate::run::log::BoundedLog;
use crate::run::{Slot, WorkOrder, configured, prepare, report_builder, validated};
use crate::validation::validate;

/// Runs the checks. `None` if the agent shuts down.
pub(super) async fn run(slot: &Slot, order: &WorkOrder) -> Option<Input> {
    let Slot { node, children, cancel, .. } = slot;
    let run = &order.run;
    let (directory, release) = match prepare(slot, order).await? {
        Ok(prepared) => prepared,
        Err(reason) => {
            // Checks that could not run prove nothing against the node.
            tracing::warn!(run = %run.run, %reason, "cannot run the checks; they run again at the next interval");
            return Some(Input::Validated { report: None });
        }
    };
    let secrets = Redactor::for_run(&order.snapshot, &node.layout.runs());
    let job = order.job(node, &directory, &release, &secrets);
    let checks = validate(&job, children, cancel, |_| ()).await?;
    let mut report = validated(order, &job, without_applier(node, order), checks);
    report.first_failure = report_builder::first_failure(run, &report);
    record_validated(slot, order, &report);
    Some(Input::Validated { report: Some(Box::new(report)) })
}

/// Records the release as validated if the checks passed.
pub(super) fn record_validated(slot: &Slot, order: &WorkOrder, report: &UnsentReport) {
    if report.outcome == Outcome::Validated(Verdict::Passed) {
        slot.releases.record_validated(&order.desired);
    }
}

/// The first part of a report for work without an applier.
pub(super) fn without_applier(node: &Node, order: &WorkOrder) -> UnsentReport {
    configured(node, order, ApplierResult::none(), Lookups::new(), BoundedLog::default())
}
