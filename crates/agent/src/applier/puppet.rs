//! The `puppet` applier: `puppet apply` with its own directories, and the agent's Puppet module, which is embedded in the
//! binary.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use muster_core::report::reason::{Need, RunReason};
use muster_core::report::{ResourceError, RunResult};
use muster_supervisor::files::ProgramFile;

use crate::applier::puppet_report::{PuppetReport, PuppetReportReader, ResourceFailure};
use crate::applier::puppet_settings::{ContentPaths, NodeSettings};
use crate::applier::{ApplierResult, Job, Mode, base, puppet_log, puppet_settings, storeconfigs};
use crate::state::durable::{self, StateWriteError};

/// Hiera configuration for a release without one: only Muster's lookup function.
const HIERA: &str = "version: 5\nhierarchy:\n  - {name: muster, lookup_key: muster::lookup_key}\n";

/// Prepares the call.
pub(super) fn program(job: &Job<'_>) -> Result<ProgramFile, RunReason> {
    let (layout, release) = (&job.node.layout, job.release);
    install(&layout.modules()).map_err(|error| RunReason::Machine { problem: error.in_one_line() })?;
    let own = layout.puppet();
    let hiera = match &release.spec.hiera {
        Some(path) => release.directory.join(path),
        None => write_hiera(&own)?,
    };
    let content = ContentPaths::of(release)?;
    let conf = job.node.puppet_conf.clone().unwrap_or_else(|| own.join("conf/puppet.conf"));
    let settings = NodeSettings::read(&conf)?;
    let environments = own.join("environments");
    let environment = puppet_settings::environment(&release.spec.puppet, &settings)?;
    make_directory(&environments.join(&environment))?;

    let mut program = base(job, &puppet_settings::find_program(&job.node.puppet));
    program.pid_file = job.node.puppet_agent_lock.as_ref().map(Into::into);
    program.args.push("apply".into());
    let mut set = |option: &str, value: OsString| program.args.extend([option.into(), value.into()]);
    for (option, directory) in DIRECTORIES {
        set(option, own.join(directory).into());
    }
    set("--config", conf.into());
    set("--environmentpath", environments.into());
    set("--environment", environment.into());
    set("--certname", job.names.certname.clone().into());
    set("--modulepath", modulepath(job, &content));
    set("--hiera_config", hiera.into());
    set("--reports", "muster".into());
    set("--logdest", job.directory.puppet_log().into());
    // With the refreshes that are scheduled; a run that is lost names them.
    set("--log_level", if job.options.debug { "debug" } else { "info" }.into());
    if !job.options.tags.is_empty() {
        set("--tags", job.options.tags.join(",").into());
    }
    program.args.extend(["--detailed-exitcodes", "--color=false"].map(Into::into));
    program.args.extend(puppet_settings::options(&release.spec.puppet, &settings).into_iter().map(Into::into));
    match job.mode {
        Mode::Apply => {}
        Mode::Preview => program.args.push("--noop".into()),
    }
    program.args.push(content.manifest.into());
    Ok(program)
}

/// Puppet's directories, below the node's own. With a default Puppet would use a directory of the machine, and nodes on one
/// machine would share it.
const DIRECTORIES: [(&str, &str); 7] = [
    ("--confdir", "conf"),
    ("--vardir", "var"),
    ("--publicdir", "public"),
    ("--logdir", "log"),
    ("--rundir", "run"),
    ("--codedir", "code"),
    // Debian's Puppet 7 has one for the whole machine, also with another `confdir`.
    ("--ssldir", "ssl"),
];

fn write_hiera(own: &Path) -> Result<PathBuf, RunReason> {
    let path = own.join("hiera.yaml");
    match fs::write(&path, HIERA) {
        Ok(()) => Ok(path),
        Err(error) => Err(RunReason::Machine { problem: format!("cannot write {}: {error}", path.display()) }),
    }
}

fn make_directory(path: &Path) -> Result<(), RunReason> {
    fs::create_dir_all(path)
        .map_err(|error| RunReason::Machine { problem: format!("cannot create {}: {error}", path.display()) })
}

/// The call of a run, for another manifest that changes nothing. `own` has the files that a run in progress would share.
pub(super) fn call(job: &Job<'_>, manifest: &Path, own: &Path) -> Result<ProgramFile, RunReason> {
    let mut program = program(job)?;
    program.args.pop();
    for (option, directory) in [("--vardir", "var"), ("--publicdir", "public"), ("--rundir", "run")] {
        program.args.extend([option.into(), own.join(directory).into()]);
    }
    make_directory(own)?;
    program.args.push(manifest.into());
    Ok(program)
}

/// The release's modules come before the agent's.
fn modulepath(job: &Job<'_>, content: &ContentPaths) -> OsString {
    let mut path = OsString::new();
    for directory in &content.modulepath {
        path.push(directory);
        path.push(":");
    }
    path.push(job.node.layout.modules());
    path
}

pub(super) fn not_started(job: &Job<'_>, error: &io::Error) -> RunReason {
    let program = puppet_settings::find_program(&job.node.puppet);
    let name = program.display();
    if error.kind() == io::ErrorKind::NotFound {
        return RunReason::NotInstalled { program: name.to_string() };
    }
    RunReason::Machine { problem: format!("cannot start {name}: {error}") }
}

pub(super) fn result(job: &Job<'_>, code: i32, needs: Vec<Need>) -> ApplierResult {
    let reader = PuppetReportReader { release: &job.release.directory, secrets: job.secrets, mode: job.mode };
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
    let PuppetReport { failures, skipped, changes, omitted, .. } = report.unwrap_or_default();
    applied.changes = changes;
    if applied.result == RunResult::Failed {
        applied.errors = errors(job, failures);
        applied.errors.extend(skipped);
        applied.errors.extend((omitted > 0).then(|| ResourceError {
            message: format!("{omitted} more resources failed or were skipped; the log of the run names them"),
            ..ResourceError::default()
        }));
    }
    let exported = storeconfigs::exported(&job.directory.puppet_log(), &job.release.directory);
    if !exported.is_empty() && applied.result != RunResult::Pending {
        if applied.result != RunResult::Failed {
            let reason = RunReason::ResourcesFailed { count: u32::try_from(exported.len()).unwrap_or(u32::MAX) };
            applied = ApplierResult { counts, changes: applied.changes, ..ApplierResult::failed(reason) };
        }
        applied.errors.extend(exported);
    }
    storeconfigs::explain_queries(&mut applied.errors);
    applied
}

/// Errors of failed resources from the report, and from the log if the report has no message. Without failures in the
/// report, all errors of the log.
fn errors(job: &Job<'_>, failures: Vec<ResourceFailure>) -> Vec<ResourceError> {
    let (log, release) = (job.directory.puppet_log(), &job.release.directory);
    if failures.is_empty() {
        return puppet_log::errors(&log, release, job.secrets);
    }
    let with_message = |ResourceFailure { mut error, name, has_message }| {
        if let Some(message) =
            (!has_message).then(|| puppet_log::message_of(&log, &name, release, job.secrets)).flatten()
        {
            error.message = message;
        }
        error
    };
    failures.into_iter().map(with_message).collect()
}

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../puppet/muster/", $path)))),*]
    };
}

/// Paths and contents of the module. A test compares them with the directory.
const FILES: &[(&str, &str)] = files![
    "metadata.json",
    "lib/facter/muster.rb",
    "lib/puppet/functions/muster/explain_lookup.rb",
    "lib/puppet/functions/muster/is_leader.rb",
    "lib/puppet/functions/muster/leader.rb",
    "lib/puppet/functions/muster/lookup_key.rb",
    "lib/puppet/functions/muster/pending.rb",
    "lib/puppet/functions/muster/publish.rb",
    "lib/puppet/functions/muster/require_active.rb",
    "lib/puppet/functions/muster/require_published.rb",
    "lib/puppet/functions/muster/self.rb",
    "lib/puppet/reports/muster.rb",
    "lib/puppet_x/muster/lookups.rb",
    "lib/puppet_x/muster/natural_order.rb",
    "lib/puppet_x/muster/pending.rb",
    "lib/puppet_x/muster/corrective_changes.rb",
    "lib/puppet_x/muster/plain_data.rb",
    "lib/puppet_x/muster/published.rb",
    "lib/puppet_x/muster/run_file.rb",
    "lib/puppet_x/muster/snapshot.rb",
];

/// Installs the module in a module directory. Files with the same content are not written.
fn install(modules: &Path) -> Result<(), StateWriteError> {
    for (path, content) in FILES {
        let path = modules.join("muster").join(path);
        if fs::read(&path).is_ok_and(|found| found == content.as_bytes()) {
            continue;
        }
        let directory = path.parent().unwrap_or(modules);
        fs::create_dir_all(directory).map_err(|source| StateWriteError::Io { path: directory.to_owned(), source })?;
        durable::write(&path, content.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn binary_contains_every_file_of_the_module() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../puppet/muster");
        let mut found = BTreeSet::new();
        let mut left = vec![root.clone()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    left.push(path);
                } else {
                    found.insert(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        // Documentation, not part of the installed module.
        found.remove("README.md");
        assert_eq!(FILES.iter().map(|(path, _)| (*path).to_owned()).collect::<BTreeSet<_>>(), found);
    }

    #[test]
    fn changed_file_is_replaced() {
        let modules = tempfile::tempdir().unwrap();
        install(modules.path()).unwrap();
        let file = modules.path().join("muster/metadata.json");
        fs::write(&file, "{}").unwrap();
        install(modules.path()).unwrap();
        assert_eq!(fs::read_to_string(file).unwrap(), FILES[0].1);
    }
}
