//! `muster design check`: everything that is wrong with a design, in one pass.

use std::collections::HashMap;

use muster_core::names::EnvName;
use muster_design::finding::{Finding, Findings, Severity};
use serde::Serialize;

use crate::args::Globals;
use crate::commands::rows::count;
use crate::design_args;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Out, Terminal, styled};

use super::load::{self, Loaded};

/// Check a design: every finding in one pass, with its place, the line, and what to do
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The directories are laid over each other: where two of them say something of one document, the later one wins. All \
environments of the directories are checked, or the one that --env names; what is found in several of them is told once.

`muster design explain CODE` says more about a finding.

Exit codes:
  0   nothing was found, or warnings alone, which do not keep a design from being used
  1   there are errors; or warnings, with --deny warnings
  64  there is no such directory

Examples:
  muster design check site
  muster design check site overrides --deny warnings
  muster design check base=/srv/design/site lab=. --env lab
  muster design check site -o json | jq -r '.findings[] | [.code, .file, .span.start.line] | @tsv'")]
pub struct Args {
    /// The directories that hold the design, the one that wins last; NAME is what findings call it
    #[arg(value_name = "[NAME=]DIR", required = true)]
    dirs: Vec<String>,
    /// Fail for these as well
    #[arg(long, value_name = "WHAT")]
    deny: Option<Deny>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Deny {
    Warnings,
}

/// What was found, for programs.
#[derive(Debug, Serialize)]
struct Report {
    findings: Vec<Found>,
    errors: usize,
    warnings: usize,
    environments: Vec<CheckedEnvironment>,
}

/// A finding, and the environments in which it was made; none if the design has none.
#[derive(Debug, Serialize)]
struct Found {
    #[serde(flatten)]
    finding: Finding,
    environments: Vec<EnvName>,
}

#[derive(Debug, Serialize)]
struct CheckedEnvironment {
    env: Option<EnvName>,
    nodes: usize,
    documents: usize,
}

pub(in crate::commands) fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let dirs = design_args::only_dirs(&args.dirs)?;
    let loaded = load::read(&dirs);
    let report = check(&loaded, globals.env.as_ref());
    terminal.out.answer(&report, |out| show(&report, args.deny, out));
    let denied = report.errors > 0 || args.deny == Some(Deny::Warnings) && report.warnings > 0;
    Ok(Exit::yes_if(!denied))
}

fn check(loaded: &Loaded, only: Option<&EnvName>) -> Report {
    let mut environments = Vec::new();
    let mut found: Vec<Found> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut take = |findings: &Findings, env: Option<&EnvName>| {
        for finding in findings {
            let at = *known.entry(format!("{finding:?}")).or_insert(found.len());
            if at == found.len() {
                found.push(Found { finding: finding.clone(), environments: Vec::new() });
            }
            found[at].environments.extend(env.cloned());
        }
    };
    take(&loaded.unread, None);
    for checked in loaded.compile_each(only) {
        let design = &checked.design;
        take(&checked.findings, design.env());
        environments.push(CheckedEnvironment {
            env: design.env().cloned(),
            nodes: design.nodes().len(),
            documents: design.effective_documents().count(),
        });
    }
    let errors = found.iter().filter(|found| found.finding.severity == Severity::Error).count();
    let warnings = found.len() - errors;
    Report { findings: found, errors, warnings, environments }
}

fn show(report: &Report, deny: Option<Deny>, out: &mut Out) {
    for Found { finding, environments } in &report.findings {
        out.text(styled(finding));
        if !environments.is_empty() && environments.len() < report.environments.len() {
            let names: Vec<&str> = environments.iter().map(EnvName::as_str).collect();
            let word = if names.len() == 1 { "environment" } else { "environments" };
            out.line(format_args!("only in {word} {}", names.join(", ")));
        }
        out.gap();
    }
    let sizes: Vec<String> = report.environments.iter().map(size).collect();
    match (report.errors, report.warnings) {
        (0, 0) => out.line(format_args!("nothing found ({})", sizes.join("; "))),
        (0, warnings) => {
            let effect = match deny {
                Some(Deny::Warnings) => "and warnings are denied",
                None => "and no error: the design can be used",
            };
            out.line(format_args!("{}, {effect}", count(warnings, "warning")));
        }
        (errors, 0) => out.line(count(errors, "error")),
        (errors, warnings) => {
            out.line(format_args!("{} and {}", count(errors, "error"), count(warnings, "warning")));
        }
    }
}

/// "prod: 12 nodes, 40 documents"
fn size(checked: &CheckedEnvironment) -> String {
    let env = checked.env.as_ref().map(|env| format!("{env}: ")).unwrap_or_default();
    format!("{env}{}, {}", count(checked.documents, "document"), count(checked.nodes, "node"))
}
