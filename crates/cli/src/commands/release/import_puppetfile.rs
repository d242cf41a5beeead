//! `muster release import-puppetfile`: writes the modules of a Puppetfile to `repos.yaml`, and pins them.

use std::fs;
use std::path::{Path, PathBuf};

use muster_release::puppetfile::Puppetfile;
use muster_release::repos::assemble::AssembledRepo;
use muster_release::repos::import::{self, ImportPlan};
use muster_release::repos::repos_files::{LOCK, REPOS};
use serde::Serialize;

use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal};

use super::repositories::{self, RepoArgs, fetch_with_progress};

/// Write the modules of a Puppetfile to repos.yaml, and pin them in repos.lock
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Reads the Puppetfile of an r10k control repository: `forge`, `moduledir` and `mod` with git repositories, modules of the Puppet \
Forge (`'owner/name', '1.2.3'` or `:latest`) and local modules. A Puppetfile is Ruby; it is not evaluated, and anything but plain \
declarations is an error with its line.

Every module is fetched. Git refs are pinned to commits, and modules of the Forge to the SHA-256 of their archives. If a module \
cannot be fetched, nothing is written. Importing again after a change of the Puppetfile keeps the other pins; a tag that has moved \
since is an error. Repositories that are not in the Puppetfile stay, if repos.yaml was not written by this command.

MUSTER_FORGE, or `forge` in the Puppetfile, names a server with the API of the Forge [default: https://forgeapi.puppet.com]. \
MUSTER_GIT_MIRROR names a git mirror.

Exit codes:
  0   success
  1   the Puppetfile cannot be parsed, or a module cannot be fetched; all problems are printed
  64  the Puppetfile does not exist

Examples:
  muster release import-puppetfile
  muster release import-puppetfile control/Puppetfile && git -C control add repos.yaml repos.lock
  muster release import-puppetfile --dry-run
  muster release import-puppetfile --update
  muster release import-puppetfile -o json | jq -r '.modules[] | .name + \" \" + .commit'")]
pub struct Args {
    /// Puppetfile of the control repository; repos.yaml is written beside it
    #[arg(value_name = "FILE", default_value = "Puppetfile")]
    file: PathBuf,
    /// Print repos.yaml, and write and fetch nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    repos: RepoArgs,
}

#[derive(Debug, Serialize)]
struct ImportOutput {
    file: PathBuf,
    /// The text of repos.yaml.
    repos_yaml: String,
    written: bool,
    /// Modules that were fetched and pinned; empty with --dry-run.
    modules: Vec<ModuleOutput>,
    local: Vec<String>,
    /// Repositories that are not in the Puppetfile.
    kept: Vec<String>,
    removed: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ModuleOutput {
    name: String,
    source: String,
    #[serde(rename = "ref")]
    reference: String,
    commit: String,
    dest: String,
}

pub(in crate::commands) async fn run(args: &Args, terminal: &mut Terminal) -> Result<Exit, Failure> {
    // A directory stands for its Puppetfile.
    let file = if args.file.is_dir() { args.file.join("Puppetfile") } else { args.file.clone() };
    let text = fs::read_to_string(&file).map_err(|error| {
        Failure::argument(anyhow::Error::new(error).context(format!("cannot read {}", file.display())))
    })?;
    let puppetfile = Puppetfile::parse(&text).map_err(Failure::failed)?;
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new(".")).to_owned();
    let (dry_run, dir) = (args.dry_run, directory.clone());
    let (plan, modules) = fetch_with_progress(&args.repos, terminal, true, move |settings, progress| {
        let failed = |error| repositories::failure(error, &dir);
        let plan = import::plan(&dir, &puppetfile, settings).map_err(failed)?;
        let modules = match dry_run {
            true => Vec::new(),
            false => import::import(&dir, &plan, settings, progress).map_err(failed)?,
        };
        Ok((plan, modules))
    })
    .await?;
    let output = output(directory.join(REPOS), plan, modules, !dry_run);
    terminal.out.answer(&output, |out| show(&output, out));
    if !output.kept.is_empty() {
        terminal.notes.note(format_args!("not in the Puppetfile, and kept: {}", output.kept.join(", ")));
    }
    Ok(Exit::Yes)
}

fn output(file: PathBuf, plan: ImportPlan, modules: Vec<AssembledRepo>, written: bool) -> ImportOutput {
    let ImportPlan { text, kept, removed, local } = plan;
    let module = |AssembledRepo { name, pin, dest, .. }: AssembledRepo| ModuleOutput {
        name,
        source: pin.source,
        reference: pin.reference,
        commit: pin.commit.to_string(),
        dest,
    };
    let modules = modules.into_iter().map(module).collect();
    ImportOutput { file, repos_yaml: text, written, modules, local, kept, removed }
}

fn show(output: &ImportOutput, out: &mut Out) {
    if !output.written {
        output.repos_yaml.lines().for_each(|line| out.line(line));
        return;
    }
    for module in &output.modules {
        let commit: String = module.commit.chars().take(12).collect();
        out.line(format_args!("{} {commit} ({} {})", module.name, module.source, module.reference));
    }
    for name in &output.local {
        out.line(format_args!("{name} is local"));
    }
    for name in &output.removed {
        out.line(format_args!("{name} was removed"));
    }
    out.line(format_args!("{} and {LOCK} were written", output.file.display()));
}
