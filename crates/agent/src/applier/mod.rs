//! Appliers: programs that apply a release to the node. Their exit code and files are the result.

mod puppet;
mod puppet_log;
mod puppet_report;
mod puppet_settings;
mod storeconfigs;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::time::Duration;

use muster_core::lookup::published::Publication;
use muster_core::names::{Role, RunId, Version};
use muster_core::release::spec::Applier;
use muster_core::report::reason::{Need, RunReason};
use muster_core::report::summary::clip;
use muster_core::report::{Counts, ResourceChange, ResourceError, RunResult};
use tokio_util::sync::CancellationToken;

use crate::config::AgentNode;
use crate::process::children::Children;
use crate::process::supervise::{Leftovers, Program, ProgramEnd, supervise};
use crate::process::{self, ProcessMark};
use crate::redact::Redactor;
use crate::release::UnpackedRelease;
use crate::run::directory::RunDirectory;
use crate::run::{content_files, environment, log};

pub(crate) use puppet_log::{PuppetLogLine, in_release};

/// Inputs of the applier, the hooks and the checks of one run.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub node: &'a AgentNode,
    pub role: &'a Role,
    pub version: &'a Version,
    pub run: &'a RunId,
    pub directory: &'a RunDirectory,
    pub release: &'a UnpackedRelease,
    pub mode: Mode,
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

/// Applies the release of a job. `None` if the agent shuts down: the applier was ended with all its processes.
pub async fn apply(job: &Job<'_>, children: &Children, cancel: &CancellationToken) -> Option<ApplierResult> {
    let prepared = match job.release.spec.applier {
        Applier::Puppet => puppet::program(job),
        Applier::Script => script_program(job),
    };
    let program = match prepared {
        Ok(program) => program,
        Err(reason) => return Some(ApplierResult::failed(reason)),
    };
    let name = match job.release.spec.applier {
        Applier::Puppet => "puppet".to_owned(),
        Applier::Script => job.release.spec.executable().to_owned(),
    };
    let code = match supervise(&program, children, cancel).await {
        ProgramEnd::Exited(code) => code,
        ProgramEnd::Cancelled => return None,
        ProgramEnd::Killed(signal) => return Some(ApplierResult::failed(RunReason::Killed { program: name, signal })),
        ProgramEnd::Deadline => {
            let seconds = program.deadline.as_secs();
            return Some(ApplierResult::failed(RunReason::Deadline { program: name, seconds }));
        }
        ProgramEnd::NotStarted(error) => {
            return Some(ApplierResult::failed(match job.release.spec.applier {
                Applier::Puppet => puppet::not_started(&program, &error),
                Applier::Script => script_not_started(job, &error),
            }));
        }
    };
    let needs = content_files::read_needs(&job.directory.pending(), job.secrets);
    let applied = match job.release.spec.applier {
        Applier::Puppet => puppet::result(job, code, needs),
        Applier::Script => script_result(job, code, needs),
    };
    Some(match job.mode {
        Mode::Apply => content_files::add_published(applied, &job.directory.published(), job.secrets),
        Mode::Preview => applied,
    })
}

/// Call of Puppet with the settings of a run, for another manifest that changes nothing. `own` is a directory for its files.
pub(crate) fn puppet_call(job: &Job<'_>, manifest: &Path, own: &Path) -> Result<Program, RunReason> {
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

/// The parts of a program that all appliers share.
fn base(job: &Job<'_>, path: std::path::PathBuf) -> Program {
    Program {
        path,
        args: Vec::new(),
        directory: job.directory.path().to_owned(),
        environment: environment::variables(job),
        output: job.directory.output(),
        mark: ProcessMark::new(environment::RUN_ID, job.run.as_str()),
        deadline: Duration::try_from(job.release.spec.deadline).unwrap_or_default(),
        grace: process::GRACE,
        leftovers: Leftovers::Keep,
    }
}

/// Exit code of a script: "Temporary failure; try again later" in sysexits.h.
const PENDING: i32 = 75;
/// Maximum length of the reason that a script prints for it.
const MAX_REASON: usize = 300;

/// Prepares the call of a script. A preview needs one that declares `noop`, or it would change the node.
fn script_program(job: &Job<'_>) -> Result<Program, RunReason> {
    let spec = &job.release.spec;
    match job.mode {
        Mode::Preview if !spec.noop => Err(RunReason::NoPreview { program: spec.executable().to_owned() }),
        Mode::Preview | Mode::Apply => Ok(base(job, job.release.directory.join(spec.executable()))),
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
