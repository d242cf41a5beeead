//! The `puppet` applier: `puppet apply` with its own directories.

use std::ffi::OsString;
use std::fs;
use std::io;

use muster_core::report::reason::{Need, RunReason};
use muster_core::report::{ResourceError, RunResult};

use crate::applier::puppet_module;
use crate::applier::puppet_report::{Failure, PuppetReport, Reader};
use crate::applier::{ApplierResult, Job, Mode, base, puppet_log};
use crate::process::supervise::Program;

/// Hiera configuration for a release without one: only Muster's lookup function.
const HIERA: &str = "version: 5\nhierarchy:\n  - {name: muster, lookup_key: muster::lookup_key}\n";

/// Prepares the call.
pub(super) fn program(job: &Job<'_>) -> Result<Program, RunReason> {
    let (layout, release) = (&job.node.layout, job.release);
    puppet_module::install(&layout.modules()).map_err(|error| RunReason::Machine { problem: error.in_one_line() })?;
    let hiera = match &release.spec.hiera {
        Some(path) => release.directory.join(path),
        None => {
            let path = layout.puppet().join("hiera.yaml");
            fs::write(&path, HIERA)
                .map_err(|error| RunReason::Machine { problem: format!("cannot write {}: {error}", path.display()) })?;
            path
        }
    };
    let mut program = base(job, job.node.puppet.clone());
    program.args.push("apply".into());
    let own = layout.puppet();
    let mut set = |option: &str, value: OsString| program.args.extend([option.into(), value]);
    for (option, directory) in [
        ("--confdir", "conf"),
        ("--vardir", "var"),
        ("--publicdir", "public"),
        ("--logdir", "log"),
        ("--rundir", "run"),
        ("--codedir", "code"),
    ] {
        set(option, own.join(directory).into());
    }
    set("--certname", job.node.name.host().into());
    set("--modulepath", modulepath(job));
    set("--hiera_config", hiera.into());
    set("--reports", "muster".into());
    set("--logdest", job.directory.puppet_log().into());
    let flags = ["--detailed-exitcodes", "--color=false", "--strict_variables", "--show_diff"];
    program.args.extend(flags.map(OsString::from));
    match job.mode {
        Mode::Apply => {}
        Mode::Preview => program.args.push("--noop".into()),
    }
    program.args.push(release.directory.join(&release.spec.manifest).into());
    Ok(program)
}

/// The release's modules come before the agent's.
fn modulepath(job: &Job<'_>) -> OsString {
    let mut path = OsString::new();
    for directory in &job.release.spec.modulepath {
        path.push(job.release.directory.join(directory));
        path.push(":");
    }
    path.push(job.node.layout.modules());
    path
}

pub(super) fn not_started(program: &Program, error: &io::Error) -> RunReason {
    let name = program.path.display();
    if error.kind() == io::ErrorKind::NotFound {
        return RunReason::NotInstalled { program: name.to_string() };
    }
    RunReason::Machine { problem: format!("cannot start {name}: {error}") }
}

pub(super) fn result(job: &Job<'_>, code: i32, needs: Vec<Need>) -> ApplierResult {
    let reader = Reader { release: &job.release.directory, secrets: job.secrets, mode: job.mode };
    let report = reader.read(&job.directory.report());
    let counts = report.as_ref().map(|report| report.counts).unwrap_or_default();
    let mut applied = match code {
        0 | 2 if !needs.is_empty() => ApplierResult::failed(RunReason::PendingIgnored { needs }),
        // A preview always exits with 0; its report has the result.
        0 if job.mode == Mode::Preview && counts.failed > 0 => {
            ApplierResult::failed(RunReason::ResourcesFailed { count: counts.failed })
        }
        0 if job.mode == Mode::Preview && counts.changed > 0 => ApplierResult::succeeded(RunResult::Changed),
        0 => ApplierResult::succeeded(RunResult::Unchanged),
        2 => ApplierResult::succeeded(RunResult::Changed),
        1 if !needs.is_empty() => ApplierResult::pending(needs),
        // Without a report nothing was applied.
        1 if report.is_none() => ApplierResult::failed(RunReason::NotCompiled),
        4 | 6 if counts.failed > 0 => ApplierResult::failed(RunReason::ResourcesFailed { count: counts.failed }),
        code => ApplierResult::failed(RunReason::ExitCode { program: "puppet".into(), code }),
    };
    applied.counts = counts;
    let PuppetReport { failures, skipped, changes, .. } = report.unwrap_or_default();
    applied.changes = changes;
    if applied.result == RunResult::Failed {
        applied.errors = errors(job, failures);
        applied.errors.extend(skipped);
    }
    applied
}

/// Errors of failed resources from the report, and from the log if the report has no message. Without failures in the
/// report, all errors of the log.
fn errors(job: &Job<'_>, failures: Vec<Failure>) -> Vec<ResourceError> {
    let (log, release) = (job.directory.puppet_log(), &job.release.directory);
    if failures.is_empty() {
        return puppet_log::errors(&log, release, job.secrets);
    }
    let with_message = |Failure { mut error, name, has_message }| {
        if let Some(message) =
            (!has_message).then(|| puppet_log::message_of(&log, &name, release, job.secrets)).flatten()
        {
            error.message = message;
        }
        error
    };
    failures.into_iter().map(with_message).collect()
}
