//! What has the slot. A run: release → snapshot → applier → report → validation → report. A preview ends after the applier,
//! which changed nothing. Hooks and validations [between] runs are about the release that was applied last.

pub mod account;
mod between;
pub mod directory;
pub mod environment;
pub mod failure;
mod hooks;
pub mod log;
mod lookups;
pub(crate) mod repetition;

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use muster_core::lookup::Lookups;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::Role;
use muster_core::report::reason::RunReason;
use muster_core::report::{Cause, Outcome, Report, RunResult, Verdict};
use muster_wire::sync::DesiredState;

use crate::applier::{Applied, Job, Mode, apply};
use crate::clock;
use crate::ledger::{AppliedRelease, RunningRun, Work};
use crate::live_log::{LiveLog, Source, check_in_words};
use crate::node::Node;
use crate::process::children::Children;
use crate::queue::hooks::of_role;
use crate::queue::input::Input;
use crate::queue::task::Message;
use crate::redact::Redactor;
use crate::release::{Release, Releases};
use crate::run::directory::RunDirectory;
use crate::run::log::BoundedLog;
use crate::validation::{Checked, validate};

/// What the queue asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub run: RunningRun,
    /// What it is about.
    pub desired: DesiredState,
    pub role: Role,
    /// The one state of the fleet that the run sees.
    pub snapshot: Arc<Snapshot>,
    /// What the run before it has looked up.
    pub watched: Vec<String>,
    /// The digest of the bundle that the node may have to go back to.
    pub fallback: Option<String>,
}

impl Order {
    /// What its programs are about.
    fn job<'a>(
        &'a self,
        node: &'a Node,
        directory: &'a RunDirectory,
        release: &'a Release,
        secrets: &'a Redactor,
    ) -> Job<'a> {
        let (role, version, run) = (&self.role, &self.run.version, &self.run.run);
        Job { node, role, version, run, directory, release, mode: Mode::Apply, secrets }
    }

    /// Where what it says is found while it goes on.
    fn source(&self, directory: &RunDirectory, release: &Release, secrets: &Redactor) -> Source {
        let asked = self.run.causes.iter().filter_map(|cause| match cause {
            Cause::Operator { id, .. } => Some(id.clone()),
            Cause::AgentStarted
            | Cause::Version { .. }
            | Cause::LookedUp { .. }
            | Cause::Retry { .. }
            | Cause::Interrupted { .. }
            | Cause::Schedule
            | Cause::WentBack { .. } => None,
        });
        Source::new(self.run.run.clone(), asked.collect(), directory, &release.directory, secrets.clone())
    }
}

/// What the one slot works with.
#[derive(Debug)]
pub struct Slot {
    pub node: Arc<Node>,
    pub releases: Arc<Releases>,
    pub children: Children,
    pub queue: mpsc::Sender<Message>,
    pub live: LiveLog,
    pub cancel: CancellationToken,
}

/// Carries out orders, one at a time, for ever.
pub async fn run(slot: Slot, mut orders: mpsc::Receiver<Order>) {
    loop {
        let order = tokio::select! {
            () = slot.cancel.cancelled() => return,
            order = orders.recv() => order,
        };
        let Some(order) = order else { return };
        let said = execute(&slot, &order).await;
        let said = said.unwrap_or(Input::Interrupted);
        // The queue is gone only when the agent ends.
        if slot.queue.send(said.into()).await.is_err() {
            return;
        }
    }
}

/// Carries out one order. None if the agent is to end: it was cut off, and nothing of it is left.
async fn execute(slot: &Slot, order: &Order) -> Option<Input> {
    let run = &order.run;
    let causes: Vec<_> = run.causes.iter().map(ToString::to_string).collect();
    let causes = causes.join("; ");
    match run.work {
        Work::Run => {
            tracing::info!(run = %run.run, version = %run.version, causes, "run");
            whole(slot, order).await
        }
        Work::Preview => {
            tracing::info!(run = %run.run, version = %run.version, causes, "preview");
            preview(slot, order).await
        }
        Work::Hooks => {
            tracing::info!(run = %run.run, version = %run.version, causes, "hooks");
            between::hooks(slot, order).await
        }
        Work::Validation => {
            tracing::debug!(run = %run.run, version = %run.version, "validation");
            between::validation(slot, order).await
        }
    }
}

/// Finds out what a run would do.
async fn preview(slot: &Slot, order: &Order) -> Option<Input> {
    let Slot { node, children, live, cancel, .. } = slot;
    let report = match prepare(slot, order).await? {
        Err(reason) => configured(node, order, Applied::failed(reason), Lookups::new(), BoundedLog::default()),
        Ok((directory, release)) => {
            let secrets = Redactor::for_run(&order.snapshot, &node.layout.runs());
            let _live = live.begin(order.source(&directory, &release, &secrets));
            let job = Job { mode: Mode::Preview, ..order.job(node, &directory, &release, &secrets) };
            let applied = apply(&job, children, cancel).await?;
            let log = log::of_applier(&directory, &release.directory, &secrets);
            configured(node, order, applied, Lookups::new(), log)
        }
    };
    Some(Input::Previewed { report: Box::new(account::previewed(report)) })
}

/// Makes one run.
async fn whole(slot: &Slot, order: &Order) -> Option<Input> {
    let Slot { node, children, queue, live, cancel, .. } = slot;
    let run = &order.run;
    let prepared = prepare(slot, order).await?;
    let (directory, release) = match prepared.and_then(|ready| going_to(slot, order).map(|()| ready)) {
        Ok(prepared) => prepared,
        Err(reason) => {
            // It has looked up nothing; but the node is still what the run before made of it, and is woken for the same.
            let lookups = order.watched.iter().map(|key| (key.clone(), order.snapshot.tag(key))).collect();
            let report = configured(node, order, Applied::failed(reason), lookups, BoundedLog::default());
            return Some(account::finished(order, report));
        }
    };
    let secrets = Redactor::for_run(&order.snapshot, &node.layout.runs());
    let live = live.begin(order.source(&directory, &release, &secrets));
    let job = order.job(node, &directory, &release, &secrets);
    let applied = apply(&job, children, cancel).await?;
    let lookups = lookups::read(&directory.lookups(), &order.snapshot, applied.reason.as_ref());
    let log = log::of_applier(&directory, &release.directory, &secrets);
    let report = configured(node, order, applied, lookups, log);
    match report.outcome {
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) => {}
        Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Validated(_) | Outcome::Previewed(_) => {
            return Some(account::finished(order, report));
        }
    }

    // Nothing more happens before the first report is on disk.
    let applied = AppliedRelease {
        desired: order.desired.clone(),
        validate_every: release.spec.validate_every,
        hooks: of_role(&release.spec, &order.role),
    };
    let configured = Input::Configured { report: Box::new(report.clone()), applied: Box::new(applied) };
    let (message, ack) = Message::awaited(configured);
    queue.send(message).await.ok()?;
    ack.await.ok()?;
    let checks = validate(&job, children, cancel, |check| live.checked(check)).await?;
    let report = Report { seq: run.seq + 1, ..validated(order, &job, report, checks) };
    if report.outcome == Outcome::Validated(Verdict::Passed) {
        slot.releases.proved(&order.desired);
    }
    Some(account::finished(order, report))
}

fn going_to(slot: &Slot, order: &Order) -> Result<(), RunReason> {
    slot.releases.going_to(&order.desired, order.fallback.as_deref())
}

/// Everything that must be there before a program starts. None if the agent is to end.
async fn prepare(slot: &Slot, order: &Order) -> Option<Result<(RunDirectory, Release), RunReason>> {
    let release = slot.releases.prepare(&order.desired, &slot.cancel).await?;
    Some(release.and_then(|release| Ok((make_directory(&slot.node, order)?, release))))
}

fn make_directory(node: &Node, order: &Order) -> Result<RunDirectory, RunReason> {
    let machine = |error: crate::durable::WriteError| RunReason::Machine { problem: error.in_one_line() };
    std::fs::create_dir_all(&node.root).map_err(|error| RunReason::Machine {
        problem: format!("cannot make the node's root {}: {error}", node.root.display()),
    })?;
    let directories = match order.run.work {
        Work::Run | Work::Preview | Work::Hooks => node.layout.runs(),
        Work::Validation => node.layout.validations(),
    };
    let directory = RunDirectory::create(&directories, &order.run.run).map_err(machine)?;
    directory.write_snapshot(node, &order.role, &order.run.version, &order.snapshot).map_err(machine)?;
    Ok(directory)
}

/// What the checks said, in the run's log and in its report.
fn validated(order: &Order, job: &Job<'_>, configured: Report, checked: Vec<Checked>) -> Report {
    let mut log = BoundedLog::without(job.secrets);
    if checked.is_empty() {
        log.line(&format!(
            "version {} has no checks for role {}: there is nothing to prove",
            order.run.version, order.role
        ));
    }
    for Checked { number, result: check } in &checked {
        log.line(&check_in_words(check));
        let output = job.directory.check_output(*number);
        // What a check says last is in its message already; most say no more.
        if std::fs::metadata(&output).is_ok_and(|output| output.len() > check.message.len() as u64 + 1) {
            log.lines_of(&output, "  | ");
        }
    }
    let checks = checked.into_iter().map(|checked| checked.result).collect();
    account::validated(order, configured, checks, log.finish(), clock::now())
}

fn configured(node: &Node, order: &Order, applied: Applied, lookups: Lookups, log: BoundedLog) -> Report {
    account::configured(node, order, applied, lookups, log.finish(), clock::now())
}
