//! The `script` applier: an executable of the release. Exit codes: 0 unchanged, 2 changed, 75 pending, others failed.

use std::io;

use muster_core::report::RunResult;
use muster_core::report::reason::{Need, RunReason};
use muster_core::report::summary::clip;

use crate::applier::{ApplierResult, Job, Mode, base};
use crate::process::supervise::Program;
use crate::run::log;

/// "Temporary failure; try again later" in sysexits.h.
const PENDING: i32 = 75;
const REASON: usize = 300;

/// Prepares the call. A preview needs a script that declares `noop`, or it would change the node.
pub(super) fn program(job: &Job<'_>) -> Result<Program, RunReason> {
    let spec = &job.release.spec;
    match job.mode {
        Mode::Preview if !spec.noop => Err(RunReason::NoPreview { program: spec.manifest.clone() }),
        Mode::Preview | Mode::Apply => Ok(base(job, job.release.directory.join(&spec.manifest))),
    }
}

pub(super) fn not_started(job: &Job<'_>, error: &io::Error) -> RunReason {
    let manifest = &job.release.spec.manifest;
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

pub(super) fn result(job: &Job<'_>, code: i32, needs: Vec<Need>) -> ApplierResult {
    match code {
        0 | 2 if !needs.is_empty() => ApplierResult::failed(RunReason::PendingIgnored { needs }),
        0 => ApplierResult::succeeded(RunResult::Unchanged),
        2 => ApplierResult::succeeded(RunResult::Changed),
        PENDING if !needs.is_empty() => ApplierResult::pending(needs),
        PENDING => {
            let line = log::last_line(&job.directory.output());
            let reason =
                line.map_or_else(|| "an unnamed need".to_owned(), |line| clip(&job.secrets.text(&line), REASON));
            ApplierResult::pending(vec![Need::Other { reason }])
        }
        code => ApplierResult::failed(RunReason::ExitCode { program: job.release.spec.manifest.clone(), code }),
    }
}
