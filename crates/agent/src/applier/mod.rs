//! Appliers: programs that apply a release to the node. Their exit code and files are the result.

mod needs;
mod published;
mod puppet;
mod puppet_changes;
mod puppet_log;
mod puppet_module;
mod puppet_report;
mod script;

pub(crate) use puppet_log::{Line, in_release};

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use muster_core::lookup::published::Publication;
use muster_core::names::{Role, RunId, Version};
use muster_core::release::spec::Applier;
use muster_core::report::reason::RunReason;
use muster_core::report::{Counts, ResourceChange, ResourceError, RunResult};

use crate::node::Node;
use crate::process::children::Children;
use crate::process::mark::{self, Mark};
use crate::process::supervise::{Leftovers, Program, ProgramEnd, supervise};
use crate::redact::Redactor;
use crate::release::Release;
use crate::run::directory::RunDirectory;
use crate::run::environment;

/// Inputs of the applier, the hooks and the checks of one run.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub node: &'a Node,
    pub role: &'a Role,
    pub version: &'a Version,
    pub run: &'a RunId,
    pub directory: &'a RunDirectory,
    pub release: &'a Release,
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

    pub fn pending(needs: Vec<muster_core::report::reason::Need>) -> Self {
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
        Applier::Script => script::program(job),
    };
    let program = match prepared {
        Ok(program) => program,
        Err(reason) => return Some(ApplierResult::failed(reason)),
    };
    let name = match job.release.spec.applier {
        Applier::Puppet => "puppet".to_owned(),
        Applier::Script => job.release.spec.manifest.clone(),
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
                Applier::Script => script::not_started(job, &error),
            }));
        }
    };
    let needs = needs::read(&job.directory.pending(), job.secrets);
    let applied = match job.release.spec.applier {
        Applier::Puppet => puppet::result(job, code, needs),
        Applier::Script => script::result(job, code, needs),
    };
    Some(match job.mode {
        Mode::Apply => published::add(applied, &job.directory.published(), job.secrets),
        Mode::Preview => applied,
    })
}

/// The parts of a program that all appliers share.
fn base(job: &Job<'_>, path: std::path::PathBuf) -> Program {
    Program {
        path,
        args: Vec::new(),
        directory: job.directory.path().to_owned(),
        environment: environment::variables(job),
        output: job.directory.output(),
        mark: Mark::new(environment::RUN_ID, job.run.as_str()),
        deadline: Duration::try_from(job.release.spec.deadline).unwrap_or_default(),
        grace: mark::GRACE,
        leftovers: Leftovers::Keep,
    }
}

#[cfg(test)]
mod tests;
