//! Continues the work of an earlier agent. A run continues as if nothing had happened: its applier is awaited, or its checks
//! are made again. Other work is ended; its causes are still there, and it is made again.

use std::time::Duration;

use muster_supervisor::files::PackagePolicy;
use muster_supervisor::packages::lock_holder;
use tokio::time::Instant;

use crate::applier::{self, AdoptedApplier};
use crate::clock;
use crate::process::supervised::{self, SupervisedEnd};
use crate::process::{self, ProcessMark};
use crate::queue::io::Input;
use crate::redact::Redactor;
use crate::release::UnpackedRelease;
use crate::run::directory::RunDirectory;
use crate::run::{WorkOrder, WorkSlot, after_applier, environment, log, not_applied, report_builder, secrets_of_run};
use crate::state::ledger::{RunPhase, RunningRun, Work};

/// Interval at which the locks of package managers are read.
const LOCK_POLL: Duration = Duration::from_millis(200);

/// Continues or ends the work of an order. `None` if the agent shuts down.
pub(super) async fn adopt(slot: &WorkSlot, order: &WorkOrder) -> Option<Input> {
    match (order.run.work, order.run.phase) {
        (Work::Run, RunPhase::Applying) => adopt_run(slot, order).await,
        (Work::Run, RunPhase::Validating) => {
            end_processes(&order.run).await;
            adopt_run(slot, order).await
        }
        (Work::Hooks, RunPhase::Applying) => {
            // A hook may install packages too: it is not cut off, and runs again.
            let directory = RunDirectory::existing(&slot.node.layout.runs(), &order.run.run);
            for number in 0..order.run.hooks.len() {
                supervised::wait(&directory.hook(number), &slot.cancel).await?;
            }
            Some(Input::NotContinued)
        }
        (Work::Hooks, RunPhase::Validating) | (Work::Preview | Work::Validation, _) => {
            end_processes(&order.run).await;
            Some(Input::NotContinued)
        }
    }
}

async fn adopt_run(slot: &WorkSlot, order: &WorkOrder) -> Option<Input> {
    let WorkSlot { node, live, cancel, .. } = slot;
    let directory = RunDirectory::existing(&node.layout.runs(), &order.run.run);
    let secrets = secrets_of_run(node, order).await;
    let release = match slot.releases.reopen(&order.desired).await {
        Ok(release) => release,
        Err(reason) => {
            // Without the release the result cannot be read, but the applier must have ended before the next run.
            return match supervised::wait(&directory.applier(), cancel).await? {
                SupervisedEnd::Ended(_) => Some(not_applied(node, order, reason)),
                SupervisedEnd::Lost => lost(slot, order, &directory, None, &secrets).await,
                SupervisedEnd::NotStarted { .. } => not_started(slot, order, &directory, None, &secrets).await,
            };
        }
    };
    let live = live.begin(order.source(&directory, &release, &secrets));
    let job = order.job(node, &directory, &release, &secrets);
    match applier::adopt(&job, cancel).await? {
        AdoptedApplier::Ended(applied) => after_applier(slot, order, &job, &live, applied).await,
        AdoptedApplier::Lost => lost(slot, order, &directory, Some(&release), &secrets).await,
        AdoptedApplier::NotStarted => not_started(slot, order, &directory, Some(&release), &secrets).await,
    }
}

/// The applier has no supervisor. If there is output of it, an older agent has started it, and it was lost.
async fn not_started(
    slot: &WorkSlot,
    order: &WorkOrder,
    directory: &RunDirectory,
    release: Option<&UnpackedRelease>,
    secrets: &Redactor,
) -> Option<Input> {
    if directory.output().exists() {
        return lost(slot, order, directory, release, secrets).await;
    }
    Some(Input::NotContinued)
}

/// Ends what is left of a lost run, and reports it. `None` if the agent shuts down.
pub(super) async fn lost(
    slot: &WorkSlot,
    order: &WorkOrder,
    directory: &RunDirectory,
    release: Option<&UnpackedRelease>,
    secrets: &Redactor,
) -> Option<Input> {
    let run = order.run.run.as_str();
    let extension = release.map(|release| release.spec.deadline_extension).unwrap_or_default();
    let policy = PackagePolicy::of_host(Duration::try_from(extension).unwrap_or_default(), false);
    // Without its supervisor, a package manager of the run still completes its work.
    let until = Instant::now() + policy.limit;
    while Instant::now() < until && holds_lock(&policy, run) {
        tokio::select! {
            () = slot.cancel.cancelled() => return None,
            () = tokio::time::sleep(LOCK_POLL) => {}
        }
    }
    process::end_all(&ProcessMark::new(environment::RUN_ID, run), process::GRACE).await;
    let mut text = log::applier_log(directory, release.map_or(directory.path(), |release| &release.directory), secrets);
    text.line("the run was lost: the machine was rebooted, or the run was killed with its supervisor");
    let refreshes = applier::due_refreshes(directory, secrets);
    Some(report_builder::lost(&slot.node, order, refreshes, text.finish(), clock::now()))
}

/// True if a process of the run holds the lock of a package manager.
fn holds_lock(policy: &PackagePolicy, run: &str) -> bool {
    let marked = || muster_marked::find(environment::RUN_ID, run).unwrap_or_default();
    lock_holder(policy).is_some_and(|holder| marked().iter().any(|process| process.pid().cast_signed() == holder))
}

/// Ends the processes of work that has no result. After the applier has ended these are only the checks: services that the
/// applier started are kept.
async fn end_processes(run: &RunningRun) {
    let variable = match run.phase {
        RunPhase::Applying => environment::RUN_ID,
        RunPhase::Validating => environment::CHECK_RUN,
    };
    process::end_all(&ProcessMark::new(variable, run.run.as_str()), process::SHORT_GRACE).await;
}
