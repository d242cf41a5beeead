//! `muster design diff`: compares the effective values of two designs.

use std::collections::BTreeSet;

use muster_core::names::EnvName;
use muster_design::Design;
use muster_design::diff::{ChangedDocument, DocumentChange, diff};
use muster_design::yaml::YamlNode;
use serde::Serialize;
use serde_json::Value;

use crate::args::Globals;
use crate::args::design::only_dirs;
use crate::failure::{Exit, Failure};
use crate::output::changes::{self, ChangeEntry, ChangeKind, ChangedValue};
use crate::output::{Out, Terminal};

use super::LoadedDesign;
use crate::commands::design;

/// Compare two designs: added, removed and changed documents and nodes, with their values
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Effective values are compared: moving a value from a node to its profile is no difference for the node. Documents with the \
same changes are grouped. All environments of both designs are compared, or only the one of --env.

Exit codes:
  0   no differences
  1   there are differences, which are printed
  2   unknown: one of the designs has errors, which are printed
  64  the directory does not exist

Examples:
  muster design diff /srv/design/site site
  muster design diff before after --env prod -o json | jq '.environments[].documents[].name'")]
pub struct Args {
    /// Directory of the first design
    #[arg(value_name = "A")]
    before: String,
    /// Directory of the second design
    #[arg(value_name = "B")]
    after: String,
}

/// Differences between two designs.
#[derive(Debug, Serialize)]
struct DesignDifferences {
    same: bool,
    environments: Vec<EnvironmentDiff>,
    /// Environments of the first design only.
    removed_environments: Vec<EnvName>,
    /// Environments of the second design only.
    added_environments: Vec<EnvName>,
}

#[derive(Debug, Serialize)]
struct EnvironmentDiff {
    env: Option<EnvName>,
    documents: Vec<ChangedDocument>,
}

pub(in crate::commands) fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let read = |dir: &str| only_dirs(&[dir.to_owned()]).map(|dirs| design::read_dirs(&dirs));
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let differences = compare(&before, &after, globals.env.as_ref()).map_err(Failure::as_cannot_tell)?;
    terminal.out.answer(&differences, |out| show(&differences, out));
    Ok(Exit::yes_if(differences.same))
}

fn compare(before: &LoadedDesign, after: &LoadedDesign, only: Option<&EnvName>) -> Result<DesignDifferences, Failure> {
    let environments = |loaded: &LoadedDesign| -> BTreeSet<EnvName> {
        loaded.compile(None, Default::default()).design.environments().cloned().collect()
    };
    let (old, new) = (environments(before), environments(after));
    let both: Vec<Option<EnvName>> = match only {
        Some(env) => vec![Some(env.clone())],
        None if old.is_empty() || new.is_empty() => vec![None],
        None => old.intersection(&new).cloned().map(Some).collect(),
    };
    let mut compared = Vec::new();
    for env in both {
        let (before, after) = (compile_valid(before, env.as_ref())?, compile_valid(after, env.as_ref())?);
        compared.push(EnvironmentDiff { env, documents: diff(&before, &after) });
    }
    let removed: Vec<EnvName> = old.difference(&new).filter(|_| only.is_none()).cloned().collect();
    let added: Vec<EnvName> = new.difference(&old).filter(|_| only.is_none()).cloned().collect();
    let same = compared.iter().all(|compared| compared.documents.is_empty()) && removed.is_empty() && added.is_empty();
    Ok(DesignDifferences { same, environments: compared, removed_environments: removed, added_environments: added })
}

/// Compiles a design. A design with errors has no defined values, and is refused.
fn compile_valid(loaded: &LoadedDesign, env: Option<&EnvName>) -> Result<Design, Failure> {
    let checked = loaded.compile(env, Default::default());
    let findings: Vec<_> = loaded.read_errors.iter().chain(&checked.findings).cloned().collect();
    let findings = muster_design::finding::Findings::from(findings);
    if findings.has_errors() { Err(Failure::failed(findings)) } else { Ok(checked.design) }
}

fn show(differences: &DesignDifferences, out: &mut Out) {
    let several = differences.environments.len() > 1;
    for env in &differences.removed_environments {
        out.line(format_args!("- environment {env}"));
    }
    for env in &differences.added_environments {
        out.line(format_args!("+ environment {env}"));
    }
    let (mut added, mut removed, mut changed) = (0, 0, 0);
    for EnvironmentDiff { env, documents } in &differences.environments {
        if documents.is_empty() {
            continue;
        }
        if several && let Some(env) = env {
            out.line(format_args!("environment {env}"));
        }
        let values: Vec<Vec<ChangedValueRow>> = documents.iter().map(values).collect();
        let entries = documents.iter().zip(&values).map(|(document, values)| ChangeEntry {
            change: match document.what {
                DocumentChange::Added => ChangeKind::Add,
                DocumentChange::Removed => ChangeKind::Remove,
                DocumentChange::Changed { .. } => ChangeKind::Change,
            },
            kind: Some(document.kind.clone()),
            name: document.name.clone(),
            values: values
                .iter()
                .map(|(path, before, after)| ChangedValue {
                    path: path.clone(),
                    before: before.as_ref(),
                    after: after.as_ref(),
                })
                .collect(),
        });
        changes::show(entries.collect(), verb, out);
        for document in documents {
            match document.what {
                DocumentChange::Added => added += 1,
                DocumentChange::Removed => removed += 1,
                DocumentChange::Changed { .. } => changed += 1,
            }
        }
    }
    if differences.same {
        return out.line("no differences");
    }
    if added + removed + changed > 0 {
        out.gap();
        out.line(format_args!("{added} added, {removed} removed, {changed} changed"));
    }
}

/// Path, old value, new value.
type ChangedValueRow = (String, Option<Value>, Option<Value>);

fn values(document: &ChangedDocument) -> Vec<ChangedValueRow> {
    let json = |node: &Option<YamlNode>| node.as_ref().and_then(|node| serde_json::to_value(node).ok());
    match &document.what {
        DocumentChange::Added | DocumentChange::Removed => Vec::new(),
        DocumentChange::Changed { values } => {
            values.iter().map(|value| (value.path.to_string(), json(&value.before), json(&value.after))).collect()
        }
    }
}

fn verb(change: ChangeKind) -> &'static str {
    match change {
        ChangeKind::Add => "added",
        ChangeKind::Remove => "removed",
        ChangeKind::Change => "changed",
        ChangeKind::Keep => "same",
    }
}
