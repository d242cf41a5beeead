//! `muster design check`: reports all findings in a design.

use std::collections::HashMap;

use muster_core::names::EnvName;
use muster_design::finding::{Finding, Findings, Severity};
use serde::Serialize;

use crate::args::Globals;
use crate::args::design::only_dirs;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal, count, render_finding};

use super::LoadedDesign;
use crate::commands::design;

/// Check a design: report all errors and warnings with file, line and help
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Directories are merged: if two of them contain the same document, the later one takes precedence. All environments are \
checked, or only the one of --env; a finding that occurs in several environments is printed once.

`muster design explain CODE` explains a finding.

Exit codes:
  0   no errors; there may be warnings
  1   errors, or warnings with --deny warnings
  64  the directory does not exist

Examples:
  muster design check site
  muster design check site overrides --deny warnings
  muster design check base=/srv/design/site lab=. --env lab
  muster design check site -o json | jq -r '.findings[] | [.code, .file, .span.start.line] | @tsv'")]
pub struct Args {
    /// Directories of the design; later ones take precedence. NAME is the source name
    #[arg(value_name = "[NAME=]DIR", required = true)]
    dirs: Vec<String>,
    /// Findings that also fail the check
    #[arg(long, value_name = "WHAT")]
    deny: Option<Deny>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::commands) enum Deny {
    Warnings,
}

/// Result of the check.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct CheckReport {
    findings: Vec<ReportedFinding>,
    pub(in crate::commands) errors: usize,
    warnings: usize,
    environments: Vec<CheckedEnvironment>,
}

/// A finding, and the environments in which it occurs; empty if the design has no environments.
#[derive(Debug, Serialize)]
struct ReportedFinding {
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
    let dirs = only_dirs(&args.dirs)?;
    let loaded = design::read_dirs(&dirs);
    design::warn_of_stray_documents(&dirs, &mut terminal.notes);
    let report = check(&loaded, globals.env.as_ref());
    terminal.out.answer(&report, |out| show(&report, args.deny, out));
    let denied = report.errors > 0 || args.deny == Some(Deny::Warnings) && report.warnings > 0;
    Ok(Exit::yes_if(!denied))
}

pub(in crate::commands) fn check(loaded: &LoadedDesign, only: Option<&EnvName>) -> CheckReport {
    let mut environments = Vec::new();
    let mut found: Vec<ReportedFinding> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut add = |findings: &Findings, env: Option<&EnvName>| {
        for finding in findings {
            let at = *known.entry(format!("{finding:?}")).or_insert(found.len());
            if at == found.len() {
                found.push(ReportedFinding { finding: finding.clone(), environments: Vec::new() });
            }
            found[at].environments.extend(env.cloned());
        }
    };
    add(&loaded.read_errors, None);
    for checked in loaded.compile_each(only) {
        let design = &checked.design;
        add(&checked.findings, design.env());
        environments.push(CheckedEnvironment {
            env: design.env().cloned(),
            nodes: design.nodes().len(),
            documents: design.effective_documents().count(),
        });
        // The command ends soon, and its end frees the memory at once. A large design has a million values to free.
        std::mem::forget(checked);
    }
    let errors = found.iter().filter(|found| found.finding.severity == Severity::Error).count();
    let warnings = found.len() - errors;
    CheckReport { findings: found, errors, warnings, environments }
}

pub(in crate::commands) fn show(report: &CheckReport, deny: Option<Deny>, out: &mut Out) {
    for ReportedFinding { finding, environments } in &report.findings {
        out.text(render_finding(finding));
        if !environments.is_empty() && environments.len() < report.environments.len() {
            let names: Vec<&str> = environments.iter().map(EnvName::as_str).collect();
            let noun = if names.len() == 1 { "environment" } else { "environments" };
            out.line(format_args!("only in {noun} {}", names.join(", ")));
        }
        out.gap();
    }
    let sizes: Vec<String> = report.environments.iter().map(size).collect();
    match (report.errors, report.warnings) {
        (0, 0) => out.line(format_args!("no findings ({})", sizes.join("; "))),
        (0, warnings) => {
            let effect = match deny {
                Some(Deny::Warnings) => "and warnings are denied",
                None => "and no errors: the design is valid",
            };
            out.line(format_args!("{}, {effect}", count(warnings, "warning")));
        }
        (errors, 0) => out.line(count(errors, "error")),
        (errors, warnings) => {
            out.line(format_args!("{} and {}", count(errors, "error"), count(warnings, "warning")));
        }
    }
}

/// "prod: 40 documents, 12 nodes"
fn size(checked: &CheckedEnvironment) -> String {
    let env = checked.env.as_ref().map(|env| format!("{env}: ")).unwrap_or_default();
    format!("{env}{}, {}", count(checked.documents, "document"), count(checked.nodes, "node"))
}
