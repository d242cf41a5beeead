//! Appliers: programs that apply a release to the node. Their exit code and files are the result.

mod puppet;
pub(crate) mod puppet_lock;
mod puppet_log;
mod puppet_report;
mod puppet_settings;
mod storeconfigs;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_core::lookup::published::Publication;
use muster_core::names::{Role, RunId, Version};
use muster_core::release::spec::Applier;
use muster_core::report::reason::{Need, RunReason};
use muster_core::report::summary::clip;
use muster_core::report::{Counts, ResourceChange, ResourceError, RunOptions, RunResult};
use muster_supervisor::files::{EndFile, OsText, PackagePolicy, ProgramEnd, ProgramFile, VERSION};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::{AgentNode, RunNames};
use crate::process;
use crate::process::supervised::{self, Launcher, SupervisedEnd};
use crate::redact::Redactor;
use crate::release::UnpackedRelease;
use crate::run::directory::RunDirectory;
use crate::run::{content_files, environment, log};

pub(crate) use puppet_log::{PuppetLogLine, in_release};

/// Inputs of the applier, the hooks and the checks of one run.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub node: &'a AgentNode,
    pub names: &'a RunNames,
    pub role: &'a Role,
    pub version: &'a Version,
    pub run: &'a RunId,
    pub directory: &'a RunDirectory,
    pub release: &'a UnpackedRelease,
    pub mode: Mode,
    pub options: &'a RunOptions,
    /// Redacts all output of the applier and the checks.
    pub secrets: &'a Redactor,
}

/// Mode of the applier: applies changes, or only previews them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Apply,
    /// Only report the changes.
    Preview,
}

/// Result of the applier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplierResult {
    pub result: RunResult,
    pub reason: Option<RunReason>,
    pub counts: Counts,
    pub errors: Vec<ResourceError>,
    /// The changes made, or the changes that a run would make.
    pub changes: Vec<ResourceChange>,
    /// All values that the run publishes; `None` if it did not succeed.
    pub published: Option<Publication>,
}

impl ApplierResult {
    pub fn failed(reason: RunReason) -> Self {
        Self { result: RunResult::Failed, reason: Some(reason), ..Self::succeeded(RunResult::Failed) }
    }

    /// For work without an applier.
    pub fn none() -> Self {
        Self::succeeded(RunResult::Unchanged)
    }

    pub fn pending(needs: Vec<Need>) -> Self {
        Self { result: RunResult::Pending, ..Self::failed(RunReason::Waiting { needs }) }
    }

    pub fn succeeded(result: RunResult) -> Self {
        Self {
            result,
            reason: None,
            counts: Counts::default(),
            errors: Vec::new(),
            changes: Vec::new(),
            published: None,
        }
    }
}

/// Result of an applier, and the time at which it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedRun {
    pub result: ApplierResult,
    pub ended: Timestamp,
}

/// Applies the release of a job. `None` if the agent shuts down, which does not affect an applier that was started.
pub async fn apply(job: &Job<'_>, launcher: &Launcher, cancel: &CancellationToken) -> Option<AppliedRun> {
    let prepared = match job.release.spec.applier {
        Applier::Puppet => puppet::program(job),
        Applier::Script => script_program(job),
    };
    let program = match prepared {
        Ok(program) => program,
        Err(reason) => return Some(failed(reason)),
    };
    if let Some(lock) = program.pid_file.as_ref().map(OsText::to_os) {
        tokio::select! {
            () = cancel.cancelled() => return None,
            () = puppet_lock::wait(Path::new(&lock)) => {}
        }
    }
    let (directory, unit) = (job.directory.applier(), format!("muster-run-{}", job.run));
    let end = launcher.run(&directory, &unit, &program, cancel).await?;
    Some(match end {
        SupervisedEnd::Ended(end) => applied(job, end),
        SupervisedEnd::Lost => failed(RunReason::Lost { run: job.run.clone(), refreshes: Vec::new() }),
        SupervisedEnd::NotStarted { problem } => {
            failed(RunReason::Machine { problem: format!("cannot start the supervisor of the run: {problem}") })
        }
    })
}

/// Call of Puppet with the settings of a run, for another manifest that changes nothing. `own` is a directory for its files.
pub(crate) fn puppet_call(job: &Job<'_>, manifest: &Path, own: &Path) -> Result<ProgramFile, RunReason> {
    puppet::call(job, manifest, own)
}

/// Errors in the log of Puppet, with their places.
pub(crate) fn log_errors(job: &Job<'_>) -> Vec<String> {
    let errors = puppet_log::errors(&job.directory.puppet_log(), &job.release.directory, job.secrets);
    let place = |error: &ResourceError| match (&error.file, error.line) {
        (Some(file), Some(line)) => format!(" ({file}:{line})"),
        (Some(file), None) => format!(" ({file})"),
        (None, _) => String::new(),
    };
    errors.iter().map(|error| format!("{}{}", error.message, place(error))).collect()
}

/// The applier of a run that an earlier agent has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdoptedApplier {
    Ended(AppliedRun),
    /// It was lost with its supervisor.
    Lost,
    NotStarted,
}

/// Waits for the applier of an earlier agent. `None` if the agent shuts down.
pub async fn adopt(job: &Job<'_>, cancel: &CancellationToken) -> Option<AdoptedApplier> {
    Some(match supervised::wait(&job.directory.applier(), cancel).await? {
        SupervisedEnd::Ended(end) => AdoptedApplier::Ended(applied(job, end)),
        SupervisedEnd::Lost => AdoptedApplier::Lost,
        SupervisedEnd::NotStarted { .. } => AdoptedApplier::NotStarted,
    })
}

/// Resources that a lost run had notified and not refreshed yet, as far as Puppet's log shows them.
pub fn due_refreshes(directory: &RunDirectory, secrets: &Redactor) -> Vec<String> {
    puppet_log::due_refreshes(&directory.puppet_log(), secrets)
}

fn failed(reason: RunReason) -> AppliedRun {
    AppliedRun { result: ApplierResult::failed(reason), ended: clock::now() }
}

/// Result of an applier that has ended.
fn applied(job: &Job<'_>, end: EndFile) -> AppliedRun {
    let ended = supervised::ended_at(&end, clock::now());
    let mut result = result_of(job, end.end);
    if end.dpkg_interrupted && result.result == RunResult::Failed {
        let message =
            "dpkg was left interrupted: run `dpkg --configure -a` on the node, or set `repair_packages: true` \
                       in release.yaml"
                .to_owned();
        result.errors.insert(0, ResourceError { message, ..ResourceError::default() });
    }
    AppliedRun { result, ended }
}

fn result_of(job: &Job<'_>, end: ProgramEnd) -> ApplierResult {
    let spec = &job.release.spec;
    let name = match spec.applier {
        Applier::Puppet => "puppet".to_owned(),
        Applier::Script => spec.executable().to_owned(),
    };
    let code = match end {
        ProgramEnd::Exited { code } => code,
        ProgramEnd::Killed { signal } => return ApplierResult::failed(RunReason::Killed { program: name, signal }),
        ProgramEnd::Deadline => {
            let seconds = duration(spec.deadline).as_secs();
            return ApplierResult::failed(RunReason::Deadline { program: name, seconds });
        }
        ProgramEnd::NotStarted { errno, message } => {
            let error = supervised::start_error(errno, message);
            return ApplierResult::failed(match spec.applier {
                Applier::Puppet => puppet::not_started(job, &error),
                Applier::Script => script_not_started(job, &error),
            });
        }
    };
    let needs = content_files::read_needs(&job.directory.pending(), job.secrets);
    let applied = match spec.applier {
        Applier::Puppet => puppet::result(job, code, needs),
        Applier::Script => script_result(job, code, needs),
    };
    match job.mode {
        Mode::Apply => content_files::add_published(applied, &job.directory.published(), job.secrets),
        Mode::Preview => applied,
    }
}

/// The parts of a program that all appliers share.
fn base(job: &Job<'_>, path: &Path) -> ProgramFile {
    let spec = &job.release.spec;
    let repair = spec.repair_packages && job.mode == Mode::Apply;
    ProgramFile {
        version: VERSION,
        path: path.into(),
        args: Vec::new(),
        directory: job.directory.path().into(),
        environment: environment::for_supervisor(environment::variables(job)),
        output: job.directory.output().into(),
        mark: (environment::RUN_ID.to_owned(), job.run.as_str().to_owned()),
        deadline: duration(spec.deadline),
        grace: process::GRACE,
        packages: PackagePolicy::of_host(duration(spec.deadline_extension), repair),
        pid_file: None,
    }
}

fn duration(time: SignedDuration) -> Duration {
    Duration::try_from(time).unwrap_or_default()
}

/// Exit code of a script: "Temporary failure; try again later" in sysexits.h.
const PENDING: i32 = 75;
/// Maximum length of the reason that a script prints for it.
const MAX_REASON: usize = 300;

/// Prepares the call of a script. A preview needs one that declares `noop`, or it would change the node.
fn script_program(job: &Job<'_>) -> Result<ProgramFile, RunReason> {
    let spec = &job.release.spec;
    match job.mode {
        Mode::Preview if !spec.noop => Err(RunReason::NoPreview { program: spec.executable().to_owned() }),
        Mode::Preview | Mode::Apply => Ok(base(job, &job.release.directory.join(spec.executable()))),
    }
}

fn script_not_started(job: &Job<'_>, error: &io::Error) -> RunReason {
    let manifest = job.release.spec.executable();
    if error.kind() == io::ErrorKind::PermissionDenied {
        return RunReason::Release {
            problem: format!("{manifest} of the release cannot be executed: check its permissions"),
        };
    }
    if error.kind() == io::ErrorKind::NotFound {
        // The file exists, which was checked before: its interpreter is missing.
        return RunReason::NotInstalled { program: format!("the interpreter of {manifest}") };
    }
    RunReason::Machine { problem: format!("cannot start {manifest} of the release: {error}") }
}

/// Result of a script. Exit codes: 0 unchanged, 2 changed, 75 pending, others failed.
fn script_result(job: &Job<'_>, code: i32, needs: Vec<Need>) -> ApplierResult {
    match code {
        0 | 2 if !needs.is_empty() => ApplierResult::failed(RunReason::PendingIgnored { needs }),
        0 => ApplierResult::succeeded(RunResult::Unchanged),
        2 => ApplierResult::succeeded(RunResult::Changed),
        PENDING if !needs.is_empty() => ApplierResult::pending(needs),
        PENDING => {
            let line = log::last_line(&job.directory.output());
            let reason =
                line.map_or_else(|| "an unnamed need".to_owned(), |line| clip(&job.secrets.text(&line), MAX_REASON));
            ApplierResult::pending(vec![Need::Other { reason }])
        }
        code => ApplierResult::failed(RunReason::ExitCode { program: job.release.spec.executable().to_owned(), code }),
    }
}
