//! `muster check`: checks a project: its design, its releases, and their Puppet code.

use std::path::PathBuf;

use muster_core::names::{EnvName, Version};
use muster_design::project::{LoadEnvironmentError, Project};
use muster_server::releases::project::{ProjectRelease, SourceError};
use serde::Serialize;

use crate::args::Globals;
use crate::args::design::only_dirs;
use crate::commands::design;
use crate::commands::design::check::CheckReport;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;
use crate::project::{check_roles, validate_release};

/// Check a project: its design, its releases, and their Puppet code
///
/// Does what `muster up` does before it starts anything, for all environments and all releases, and reports all problems: findings
/// in the design, invalid release.yaml files, missing files, checks for roles that do not exist, and manifests, templates and YAML
/// files that cannot be parsed. Needs no server.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   no errors; there may be warnings
  1   errors
  64  the directory is not a project

Examples:
  muster check                      the project in this directory
  muster check examples/quickstart
  muster check shop -o json | jq '.releases[] | select(.problems != [])'")]
pub struct Args {
    /// Project: a directory with environments/ and releases/
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Do not parse manifests, templates and YAML files of the releases
    #[arg(long)]
    no_validate: bool,
}

#[derive(Debug, Serialize)]
struct ProjectReport {
    design: CheckReport,
    releases: Vec<ReleaseReport>,
}

#[derive(Debug, Serialize)]
struct ReleaseReport {
    version: Version,
    /// Messages with their causes.
    problems: Vec<String>,
}

pub(super) fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let project = Project::open(&args.dir).map_err(|error| Failure::new(Exit::Usage, error))?;
    let dirs = only_dirs(&[args.dir.display().to_string()])?;
    let design = design::check::check(&design::read_dirs(&dirs), globals.env.as_ref());
    design::warn_of_stray_documents(&dirs, &mut terminal.notes);
    let mut releases = Vec::new();
    for version in project.releases() {
        let problems = check_one(&project, version, !args.no_validate, globals.env.as_ref(), terminal)?;
        releases.push(ReleaseReport { version: version.clone(), problems });
    }
    let report = ProjectReport { design, releases };
    let broken = report.releases.iter().filter(|release| !release.problems.is_empty()).count();
    terminal.out.answer(&report, |out| {
        design::check::show(&report.design, None, out);
        for ReleaseReport { version, problems } in &report.releases {
            match problems.len() {
                0 => out.line(format_args!("release {version}: ok")),
                _ => problems.iter().for_each(|problem| out.line(format_args!("release {version}: {problem}"))),
            }
        }
        if report.releases.is_empty() {
            out.line("no releases: a release is a directory with a release.yaml, such as releases/v1/");
        }
    });
    Ok(Exit::yes_if(report.design.errors == 0 && broken == 0))
}

/// Checks a release for each environment, or for the chosen one, and returns all problems. Environments with errors are
/// reported with the design.
fn check_one(
    project: &Project,
    version: &Version,
    validate: bool,
    only: Option<&EnvName>,
    terminal: &mut Terminal,
) -> Result<Vec<String>, Failure> {
    let release = match ProjectRelease::check(project.release_dir(version)) {
        Ok(release) => release,
        // The files can be parsed only with a valid release.yaml.
        Err(error) => return Ok(vec![source_problem(error)]),
    };
    let mut failures = Vec::new();
    if validate {
        failures.extend(validate_release(project, version, &mut terminal.notes).err());
    }
    for name in project.environments() {
        if only.is_some_and(|only| only.as_str() != name) {
            continue;
        }
        match project.environment(Some(name)) {
            Ok(environment) => {
                failures.extend(check_roles(version, &release, &environment.value, &mut terminal.notes).err());
            }
            Err(LoadEnvironmentError::Findings(_)) => {}
            Err(error @ (LoadEnvironmentError::Unknown { .. } | LoadEnvironmentError::Ambiguous { .. })) => {
                return Err(Failure::failed(error));
            }
        }
    }
    let subject = format!("release {version} ");
    let problem = |failure: &Failure| {
        let text = format!("{:#}", failure.error);
        text.strip_prefix(&subject).map(str::to_owned).unwrap_or(text)
    };
    Ok(failures.iter().map(problem).collect())
}

/// The message without the directory, which the version names.
fn source_problem(error: SourceError) -> String {
    let error = match error {
        SourceError::Check { source, .. } => anyhow::Error::new(source),
        error @ (SourceError::Read { .. } | SourceError::Repositories { .. } | SourceError::Content { .. }) => {
            anyhow::Error::new(error)
        }
    };
    format!("{error:#}")
}
