//! `muster env plan`: shows what applying a design would do, and saves the plan to a file.

use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_core::design::plan::{DesignPlan, NodeAction, NodePlan, RolePlan, Totals};
use muster_core::names::EnvName;
use serde::Deserialize;

use crate::args::Globals;
use crate::connect::ServerConnection;
use crate::failure::{Exit, Failure};
use crate::output::changes::{self, ChangeEntry, ChangeKind, ChangedValue};
use crate::output::{Out, Terminal, count};

use super::design_input::DesignInputArgs;

/// Show what applying a design would do: the nodes to create, change, remove and keep
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Nothing is changed. `+` is created, `~` changed, `-` removed, `=` kept. The server computes the plan from the given \
design, the applied design, and the existing nodes.

`muster env apply --plan FILE` executes a plan that was saved with --out. It is refused if the design or the nodes have \
changed since.

Exit codes:
  0   success; with --detailed-exitcode: there are no changes
  1   the design has errors, which are printed
  2   unknown: the server cannot be reached, or is not up to date
  3   with --detailed-exitcode: there are changes
  64  the directory does not exist

Examples:
  muster env plan prod site
  muster env plan prod site --cardinality web=3
  muster env plan prod site --out plan.json && muster env apply prod site --plan plan.json
  muster env plan prod site --detailed-exitcode || echo 'the nodes differ from the design'")]
pub struct Args {
    /// Name of the environment
    #[arg(value_name = "ENV")]
    name: EnvName,
    #[command(flatten)]
    input: DesignInputArgs,
    /// Report by the exit code whether there are changes
    #[arg(long)]
    detailed_exitcode: bool,
    /// Save the plan to a file, for `apply --plan`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let input = args.input.read(&server, &args.name, None, &mut terminal.notes).await?;
    let planned = server.client.plan_design(&args.name, &input.design).await;
    let mut planned = planned.map_err(|error| input.failure(&server, error))?;
    input.note_findings(&mut planned.findings, &mut terminal.notes);
    if let Some(path) = &args.out {
        write_plan(path, &planned.plan)?;
    }
    terminal.out.answer(&planned, |out| show_plan(&planned.plan, out));
    if let Some(path) = &args.out {
        terminal.notes.note(format_args!("plan saved to {}; execute it with `apply --plan`", path.display()));
    }
    Ok(if args.detailed_exitcode && !planned.plan.is_empty() { Exit::Changes } else { Exit::Yes })
}

/// Saves a plan. An existing file is replaced: it has an older plan.
fn write_plan(path: &Path, plan: &DesignPlan) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(plan).context("cannot serialize the plan").map_err(Failure::failed)?;
    let written = std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()));
    written.map_err(Failure::failed)
}

/// Reads a plan, as `--out` writes it or as `-o json` prints it.
pub(super) fn read_plan(path: &Path) -> Result<DesignPlan, Failure> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum PlanFile {
        Printed { plan: DesignPlan },
        Saved(DesignPlan),
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    match serde_json::from_str(&text.map_err(Failure::failed)?) {
        Ok(PlanFile::Printed { plan } | PlanFile::Saved(plan)) => Ok(plan),
        Err(_) => {
            let failure = Failure::failed(anyhow::anyhow!("{} is not a plan", path.display()));
            Err(failure.hint("`muster env plan ENV DIR… --out FILE` writes one"))
        }
    }
}

pub(super) fn show_plan(plan: &DesignPlan, out: &mut Out) {
    if plan.is_empty() {
        let kept = count(plan.totals.keep, "node");
        out.line(format_args!("{}: no changes; {kept} to keep", plan.env));
        return show_retired(plan, out);
    }
    changes::show(plan.nodes.iter().filter_map(entry).collect(), verb, out);
    out.gap();
    for RolePlan { role, before, after, removes_highest } in plan.roles.iter().filter(|role| role.before != role.after)
    {
        let removal = if *removes_highest { ": the highest numbers are removed" } else { "" };
        out.line(format_args!("{role}: {before} → {}{removal}", count(*after, "node")));
    }
    let documents = &plan.documents;
    if documents.added + documents.changed + documents.removed > 0 {
        let (added, changed, removed) = (documents.added, documents.changed, documents.removed);
        out.line(format_args!("documents: {added} added, {changed} changed, {removed} removed"));
    }
    let Totals { create, change, remove, keep } = &plan.totals;
    let env = &plan.env;
    out.line(format_args!("{env}: {create} to create, {change} to change, {remove} to remove, {keep} to keep"));
    show_retired(plan, out);
}

/// Nodes that the design has and an operator has retired.
fn show_retired(plan: &DesignPlan, out: &mut Out) {
    let retired = plan.nodes.iter().filter(|node| node.action == NodeAction::Retired);
    let names: Vec<&str> = retired.map(|node| node.node.as_str()).collect();
    if let [first, ..] = names[..] {
        let nodes = names.join(", ");
        let are = if names.len() == 1 { "is retired and stays" } else { "are retired and stay" };
        out.line(format_args!("{nodes} {are} out: `muster node unretire {first}` lets the design bring it back"));
    }
}

fn entry(node: &NodePlan) -> Option<ChangeEntry<'_>> {
    let change = match node.action {
        NodeAction::Create => ChangeKind::Add,
        NodeAction::Change => ChangeKind::Change,
        NodeAction::Remove => ChangeKind::Remove,
        NodeAction::Keep => ChangeKind::Keep,
        NodeAction::Retired => return None,
    };
    // A new or removed node would list all of its values.
    let shown = change == ChangeKind::Change;
    let values = node.changes.iter().filter(|_| shown).map(|change| ChangedValue {
        path: change.path.clone(),
        before: change.before.as_ref(),
        after: change.after.as_ref(),
    });
    Some(ChangeEntry { change, kind: None, name: node.node.to_string(), values: values.collect() })
}

fn verb(change: ChangeKind) -> &'static str {
    match change {
        ChangeKind::Add => "create",
        ChangeKind::Change => "change",
        ChangeKind::Remove => "remove",
        ChangeKind::Keep => "keep",
    }
}

#[cfg(test)]
mod tests {
    use muster_core::design::plan::{DocumentTotals, PlanBase};

    use super::*;

    #[test]
    fn saved_and_printed_plans_are_read() {
        let plan = DesignPlan {
            env: EnvName::new("lab").unwrap(),
            base: PlanBase::default(),
            design: "ab".into(),
            cardinality: Default::default(),
            nodes: Vec::new(),
            roles: Vec::new(),
            totals: Totals::default(),
            documents: DocumentTotals::default(),
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        write_plan(&path, &plan).unwrap();
        assert_eq!(read_plan(&path).unwrap(), plan);
        let printed = serde_json::json!({ "plan": plan, "findings": [], "revision": 7 });
        std::fs::write(&path, printed.to_string()).unwrap();
        assert_eq!(read_plan(&path).unwrap(), plan);
        std::fs::write(&path, "{}").unwrap();
        assert!(read_plan(&path).unwrap_err().error.to_string().ends_with("is not a plan"));
    }
}
