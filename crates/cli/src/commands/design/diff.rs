//! `muster design diff`: what is different between two designs, in effect.

use std::collections::BTreeSet;

use muster_core::names::EnvName;
use muster_design::Design;
use muster_design::diff::{Difference, DocumentDiff, diff};
use muster_design::yaml::Node;
use serde::Serialize;
use serde_json::Value;

use crate::args::Globals;
use crate::commands::changes::{self, ChangedValue, Entry, Sign};
use crate::design_args;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Out, Terminal};

use super::load::{self, Loaded};

/// Compare two designs: which documents and nodes are added, removed or changed, and in which values
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Effective values are compared: a node whose value moves to its profile is the same node. Documents that change in \
the same way are told together. All environments that both have are compared, or the one that --env names.

Exit codes:
  0   there is no difference
  1   there are differences, which are shown
  2   cannot tell: one of the designs has errors, which are shown
  64  there is no such directory

Examples:
  muster design diff /srv/design/site site
  muster design diff before after --env prod -o json | jq '.environments[].documents[].name'")]
pub struct Args {
    /// The directory that holds the design as it was
    #[arg(value_name = "A")]
    before: String,
    /// The directory that holds the design as it is to be
    #[arg(value_name = "B")]
    after: String,
}

/// What is different, for programs.
#[derive(Debug, Serialize)]
struct Differences {
    same: bool,
    environments: Vec<Compared>,
    /// The environments that only the first design has.
    removed_environments: Vec<EnvName>,
    /// The environments that only the second design has.
    added_environments: Vec<EnvName>,
}

#[derive(Debug, Serialize)]
struct Compared {
    env: Option<EnvName>,
    documents: Vec<DocumentDiff>,
}

pub(in crate::commands) fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let read = |dir: &str| design_args::only_dirs(&[dir.to_owned()]).map(|dirs| load::read(&dirs));
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let differences = compare(&before, &after, globals.env.as_ref()).map_err(Failure::unanswered)?;
    terminal.out.answer(&differences, |out| show(&differences, out));
    Ok(Exit::yes_if(differences.same))
}

fn compare(before: &Loaded, after: &Loaded, only: Option<&EnvName>) -> Result<Differences, Failure> {
    let environments = |loaded: &Loaded| -> BTreeSet<EnvName> {
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
        let (before, after) = (good(before, env.as_ref())?, good(after, env.as_ref())?);
        compared.push(Compared { env, documents: diff(&before, &after) });
    }
    let removed: Vec<EnvName> = old.difference(&new).filter(|_| only.is_none()).cloned().collect();
    let added: Vec<EnvName> = new.difference(&old).filter(|_| only.is_none()).cloned().collect();
    let same = compared.iter().all(|compared| compared.documents.is_empty()) && removed.is_empty() && added.is_empty();
    Ok(Differences { same, environments: compared, removed_environments: removed, added_environments: added })
}

/// A design that holds together: of one with errors nobody can say what it is.
fn good(loaded: &Loaded, env: Option<&EnvName>) -> Result<Design, Failure> {
    let checked = loaded.compile(env, Default::default());
    let findings: Vec<_> = loaded.unread.iter().chain(&checked.findings).cloned().collect();
    let findings = muster_design::finding::Findings::from(findings);
    if findings.has_errors() { Err(Failure::failed(findings)) } else { Ok(checked.design) }
}

fn show(differences: &Differences, out: &mut Out) {
    let several = differences.environments.len() > 1;
    for env in &differences.removed_environments {
        out.line(format_args!("- environment {env}"));
    }
    for env in &differences.added_environments {
        out.line(format_args!("+ environment {env}"));
    }
    let (mut added, mut removed, mut changed) = (0, 0, 0);
    for Compared { env, documents } in &differences.environments {
        if documents.is_empty() {
            continue;
        }
        if several && let Some(env) = env {
            out.line(format_args!("environment {env}"));
        }
        let values: Vec<Vec<Changed>> = documents.iter().map(values).collect();
        let entries = documents.iter().zip(&values).map(|(document, values)| Entry {
            sign: match document.what {
                Difference::Added => Sign::Add,
                Difference::Removed => Sign::Remove,
                Difference::Changed { .. } => Sign::Change,
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
        changes::show(entries.collect(), word, out);
        for document in documents {
            match document.what {
                Difference::Added => added += 1,
                Difference::Removed => removed += 1,
                Difference::Changed { .. } => changed += 1,
            }
        }
    }
    if differences.same {
        return out.line("no difference");
    }
    if added + removed + changed > 0 {
        out.gap();
        out.line(format_args!("{added} added, {removed} removed, {changed} changed"));
    }
}

/// A path, and what stood and stands there.
type Changed = (String, Option<Value>, Option<Value>);

fn values(document: &DocumentDiff) -> Vec<Changed> {
    let json = |node: &Option<Node>| node.as_ref().and_then(|node| serde_json::to_value(node).ok());
    match &document.what {
        Difference::Added | Difference::Removed => Vec::new(),
        Difference::Changed { values } => {
            values.iter().map(|value| (value.path.to_string(), json(&value.before), json(&value.after))).collect()
        }
    }
}

fn word(sign: Sign) -> &'static str {
    match sign {
        Sign::Add => "added",
        Sign::Remove => "removed",
        Sign::Change => "changed",
        Sign::Keep => "same",
    }
}
