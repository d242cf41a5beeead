//! Executes one piece of work at a time: runs, previews, hooks and periodic validations.
//!
//! A run is: release, snapshot, applier, report, validation, report. A preview ends after the applier, which changes
//! nothing. [Hooks](hooks) and periodic validations use the release that was applied last.
//!
//! Appliers and hooks outlive the agent. [Adoption](adopt) continues the work of an earlier agent.

mod adopt;
pub(crate) mod content_files;
pub mod directory;
pub mod environment;
mod hooks;
pub mod log;
pub mod report_builder;

use std::sync::Arc;

use muster_core::lookup::Lookups;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::Role;
use muster_core::report::reason::RunReason;
use muster_core::report::{Cause, Outcome, RunResult, Verdict};
use muster_wire::sync::DesiredState;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::applier::{AppliedRun, ApplierResult, Job, Mode, apply};
use crate::clock;
use crate::config::{AgentNode, RunNames};
use crate::live_log::{LiveLog, LogSource, RunLogHandle, check_line};
use crate::process::children::Children;
use crate::process::supervised::Launcher;
use crate::queue::hooks::for_role;
use crate::queue::io::Input;
use crate::queue::task::QueueMessage;
use crate::redact::Redactor;
use crate::release::{NodeReleases, NotReady, UnpackedRelease, blocking};
use crate::report::unsent::UnsentReport;
use crate::run::directory::RunDirectory;
use crate::run::log::BoundedLog;
use crate::state::durable::StateWriteError;
use crate::state::ledger::{AppliedRelease, RunPhase, RunningRun, Work};
use crate::sync::handshake::SyncState;
use crate::validation::{CheckRun, validate};

/// Work that the queue has given the slot to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkOrder {
    pub run: RunningRun,
    /// The release to work with.
    pub desired: DesiredState,
    pub role: Role,
    pub names: RunNames,
    /// The state of the fleet for the whole run.
    pub snapshot: Arc<Snapshot>,
    /// Keys that the previous run looked up.
    pub watched: Vec<String>,
    /// Digest of the bundle that the node may roll back to.
    pub fallback: Option<String>,
    /// An earlier agent has started the work.
    pub adopted: bool,
}

impl WorkOrder {
    fn job<'a>(
        &'a self,
        node: &'a AgentNode,
        directory: &'a RunDirectory,
        release: &'a UnpackedRelease,
        secrets: &'a Redactor,
    ) -> Job<'a> {
        let (role, version, run) = (&self.role, &self.run.version, &self.run.run);
        let options = Cause::options(&self.run.causes);
        Job { node, names: &self.names, role, version, run, directory, release, mode: Mode::Apply, options, secrets }
    }

    /// Source of the live log.
    fn source(&self, directory: &RunDirectory, release: &UnpackedRelease, secrets: &Redactor) -> LogSource {
        let requests = self.run.causes.iter().filter_map(Cause::request).map(|(id, _)| id.to_owned());
        LogSource::new(self.run.run.clone(), requests.collect(), directory, &release.directory, secrets.clone())
    }
}

/// Shared parts of all work in the slot.
#[derive(Debug)]
pub struct WorkSlot {
    pub node: Arc<AgentNode>,
    pub releases: Arc<NodeReleases>,
    pub children: Children,
    pub launcher: Launcher,
    pub queue: mpsc::Sender<QueueMessage>,
    pub live: LiveLog,
    /// Has the generation of the newest desired state.
    pub sync_state: watch::Receiver<SyncState>,
    pub cancel: CancellationToken,
}

/// Executes orders, one at a time, for ever.
pub async fn run(slot: WorkSlot, mut orders: mpsc::Receiver<WorkOrder>) {
    loop {
        let order = tokio::select! {
            () = slot.cancel.cancelled() => return,
            order = orders.recv() => order,
        };
        let Some(order) = order else { return };
        let result = execute(&slot, &order).await;
        if result.is_some() {
            slot.releases.remove_old(&order.desired);
            if Cause::options(&order.run.causes).version.is_some() {
                slot.releases.discard(&order.desired);
            }
        }
        let result = result.unwrap_or(Input::Interrupted);
        // The queue is gone only when the agent shuts down.
        if slot.queue.send(result.into()).await.is_err() {
            return;
        }
    }
}

/// Executes one order. `None` if the agent shuts down: checks were ended, and everything else is left to the next agent.
async fn execute(slot: &WorkSlot, order: &WorkOrder) -> Option<Input> {
    let run = &order.run;
    if order.adopted {
        return adopt::adopt(slot, order).await;
    }
    let causes: Vec<_> = run.causes.iter().map(ToString::to_string).collect();
    let causes = causes.join("; ");
    match run.work {
        Work::Run => {
            tracing::info!(run = %run.run, version = %run.version, causes, "run");
            full_run(slot, order).await
        }
        Work::Preview => {
            tracing::info!(run = %run.run, version = %run.version, causes, "preview");
            preview(slot, order).await
        }
        Work::Hooks => {
            tracing::info!(run = %run.run, version = %run.version, causes, "hooks");
            hooks::run(slot, order).await
        }
        Work::Validation => {
            tracing::debug!(run = %run.run, version = %run.version, "validation");
            validate_periodically(slot, order).await
        }
    }
}

/// Finds out which changes a run would make.
async fn preview(slot: &WorkSlot, order: &WorkOrder) -> Option<Input> {
    let WorkSlot { node, launcher, live, cancel, .. } = slot;
    let report = match prepare(slot, order).await? {
        Err(NotReady::Superseded) => return Some(Input::Superseded),
        Err(NotReady::Failed(reason)) => {
            configured(node, order, ApplierResult::failed(reason), Lookups::new(), BoundedLog::default())
        }
        Ok((directory, release)) => {
            let secrets = secrets_of_run(node, order).await;
            let _live = live.begin(order.source(&directory, &release, &secrets));
            let job = Job { mode: Mode::Preview, ..order.job(node, &directory, &release, &secrets) };
            let applied = apply(&job, launcher, cancel).await?;
            let log = log::applier_log(&directory, &release.directory, &secrets);
            configured(node, order, applied.result, Lookups::new(), log)
        }
    };
    Some(Input::Previewed { report: Box::new(report_builder::previewed(report)) })
}

/// Makes one run: the applier, then the checks.
async fn full_run(slot: &WorkSlot, order: &WorkOrder) -> Option<Input> {
    let WorkSlot { node, launcher, live, cancel, .. } = slot;
    let prepared = prepare(slot, order).await?;
    let recorded = |ready| {
        let recorded = slot.releases.record_current(&order.desired, order.fallback.as_deref());
        recorded.map(|()| ready).map_err(NotReady::Failed)
    };
    let (directory, release) = match prepared.and_then(recorded) {
        Ok(prepared) => prepared,
        Err(NotReady::Superseded) => return Some(Input::Superseded),
        Err(NotReady::Failed(reason)) => return Some(not_applied(node, order, reason)),
    };
    let secrets = secrets_of_run(node, order).await;
    let live = live.begin(order.source(&directory, &release, &secrets));
    let job = order.job(node, &directory, &release, &secrets);
    let applied = apply(&job, launcher, cancel).await?;
    if matches!(applied.result.reason, Some(RunReason::Lost { .. })) {
        return adopt::lost(slot, order, &directory, Some(&release), &secrets).await;
    }
    after_applier(slot, order, &job, &live, applied).await
}

/// The end of a run whose applier could not start. It has looked up nothing. The node is still in the state of the previous
/// run, and the same keys wake it.
fn not_applied(node: &AgentNode, order: &WorkOrder, reason: RunReason) -> Input {
    let lookups = report_builder::previous_lookups(order);
    let report = configured(node, order, ApplierResult::failed(reason), lookups, BoundedLog::default());
    report_builder::finished(order, report)
}

/// Continues a run whose applier has ended: the report, and after a success the checks.
async fn after_applier(
    slot: &WorkSlot,
    order: &WorkOrder,
    job: &Job<'_>,
    live: &RunLogHandle,
    applied: AppliedRun,
) -> Option<Input> {
    let WorkSlot { node, children, queue, cancel, .. } = slot;
    let (directory, release) = (job.directory, job.release);
    let reason = applied.result.reason.as_ref();
    let lookups = content_files::read_lookups(&directory.lookups(), &order.snapshot, reason);
    let log = log::applier_log(directory, &release.directory, job.secrets);
    let report = report_builder::configured(node, order, applied.result, lookups, log.finish(), applied.ended);
    match report.outcome {
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) => {}
        Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Validated(_) | Outcome::Previewed(_) => {
            return Some(report_builder::finished(order, report));
        }
    }
    match order.run.phase {
        // The checks start when the first report is on disk.
        RunPhase::Applying => {
            let applied = AppliedRelease {
                desired: order.desired.clone(),
                validate_every: release.spec.validate_every,
                run_every: release.spec.run_every.duration(),
                drift: release.spec.drift,
                hooks: for_role(&release.spec, &order.role),
            };
            let configured = Input::Configured { report: Box::new(report.clone()), applied: Box::new(applied) };
            let (message, acknowledged) = QueueMessage::with_ack(configured);
            queue.send(message).await.ok()?;
            acknowledged.await.ok()?;
        }
        // An earlier agent has stored it.
        RunPhase::Validating => {}
    }
    let checks = validate(job, children, cancel, |check| live.checked(check)).await?;
    let report = UnsentReport { seq: order.run.seq + 1, ..validated(order, job, report, checks) };
    record_validated(slot, order, &report);
    Some(report_builder::finished(order, report))
}

/// Runs the checks of the applied release between runs. `None` if the agent shuts down.
async fn validate_periodically(slot: &WorkSlot, order: &WorkOrder) -> Option<Input> {
    let WorkSlot { node, children, cancel, .. } = slot;
    let run = &order.run;
    let (directory, release) = match prepare(slot, order).await? {
        Ok(prepared) => prepared,
        Err(NotReady::Superseded) => return Some(Input::Superseded),
        Err(NotReady::Failed(reason)) => {
            // Checks that could not run prove nothing against the node.
            tracing::warn!(run = %run.run, %reason, "cannot run the checks; they run again at the next interval");
            return Some(Input::Validated { report: None });
        }
    };
    let secrets = secrets_of_run(node, order).await;
    let job = order.job(node, &directory, &release, &secrets);
    let checks = validate(&job, children, cancel, |_| ()).await?;
    let mut report = validated(order, &job, without_applier(node, order), checks);
    report.first_failure = report_builder::first_failure(run, &report);
    record_validated(slot, order, &report);
    Some(Input::Validated { report: Some(Box::new(report)) })
}

/// Prepares the release and the run directory. `None` if the agent shuts down.
async fn prepare(slot: &WorkSlot, order: &WorkOrder) -> Option<Result<(RunDirectory, UnpackedRelease), NotReady>> {
    let current = match order.run.work {
        Work::Run | Work::Preview => Some(order.run.generation),
        // The applied release may be older than the desired one.
        Work::Hooks | Work::Validation => slot.sync_state.borrow().generation,
    };
    let mut sync_state = slot.sync_state.clone();
    let superseded = async move {
        if sync_state.wait_for(|state| state.generation > current).await.is_err() {
            // The queue has ended: the agent shuts down.
            std::future::pending::<()>().await;
        }
    };
    let release = match slot.releases.prepare(&order.desired, superseded, &slot.cancel).await? {
        Ok(release) => release,
        Err(not_ready) => return Some(Err(not_ready)),
    };
    // Removes the directories of old runs, which may be large.
    let (node, order) = (Arc::clone(&slot.node), order.clone());
    let directory = blocking(move || make_directory(&node, &order)).await;
    Some(directory.map(|directory| (directory, release)).map_err(NotReady::Failed))
}

/// The secrets of a run. Reading them from the snapshots of earlier runs takes a while in a large fleet.
async fn secrets_of_run(node: &Arc<AgentNode>, order: &WorkOrder) -> Redactor {
    let (runs, snapshot) = (node.layout.runs(), Arc::clone(&order.snapshot));
    let read = tokio::task::spawn_blocking(move || Redactor::for_run(&snapshot, &runs));
    match read.await {
        Ok(secrets) => secrets,
        Err(_) => Redactor::for_snapshot(&order.snapshot),
    }
}

fn make_directory(node: &AgentNode, order: &WorkOrder) -> Result<RunDirectory, RunReason> {
    let machine = |error: StateWriteError| RunReason::Machine { problem: error.in_one_line() };
    std::fs::create_dir_all(&node.root).map_err(|error| RunReason::Machine {
        problem: format!("cannot create the node's root {}: {error}", node.root.display()),
    })?;
    let directories = match order.run.work {
        Work::Run | Work::Preview | Work::Hooks => node.layout.runs(),
        Work::Validation => node.layout.validations(),
    };
    let directory = RunDirectory::create(&directories, &order.run.run).map_err(machine)?;
    directory.write_snapshot(node, &order.names, &order.role, &order.run.version, &order.snapshot).map_err(machine)?;
    Ok(directory)
}

/// The report of the checks, with their results and output in its log.
fn validated(order: &WorkOrder, job: &Job<'_>, configured: UnsentReport, checks: Vec<CheckRun>) -> UnsentReport {
    let mut log = BoundedLog::redacting(job.secrets);
    if checks.is_empty() {
        let (version, role) = (&order.run.version, &order.role);
        log.line(&format!("version {version} has no checks for role {role}: there is nothing to validate"));
    }
    for CheckRun { number, result } in &checks {
        log.line(&check_line(result));
        let output = job.directory.check_output(*number);
        // The message of a check already contains its last output, which is mostly all of it.
        if std::fs::metadata(&output).is_ok_and(|output| output.len() > result.message.len() as u64 + 1) {
            log.add_file(&output, "  | ");
        }
    }
    let checks = checks.into_iter().map(|check| check.result).collect();
    let report = report_builder::validated(order, configured, checks, log.finish(), clock::now());
    match report.outcome {
        Outcome::Validated(Verdict::Passed) => {
            let services = job.release.spec.offered_services(job.role, &job.node.interfaces.addresses());
            UnsentReport { services, ..report }
        }
        Outcome::Validated(Verdict::Failed) | Outcome::Configured(_) | Outcome::Previewed(_) => report,
    }
}

fn configured(
    node: &AgentNode,
    order: &WorkOrder,
    applied: ApplierResult,
    lookups: Lookups,
    log: BoundedLog,
) -> UnsentReport {
    report_builder::configured(node, order, applied, lookups, log.finish(), clock::now())
}

/// Records the release as validated if the checks passed.
fn record_validated(slot: &WorkSlot, order: &WorkOrder, report: &UnsentReport) {
    if report.outcome == Outcome::Validated(Verdict::Passed) {
        slot.releases.record_validated(&order.desired);
    }
}

/// The first part of a report for work without an applier.
fn without_applier(node: &AgentNode, order: &WorkOrder) -> UnsentReport {
    configured(node, order, ApplierResult::none(), Lookups::new(), BoundedLog::default())
}
