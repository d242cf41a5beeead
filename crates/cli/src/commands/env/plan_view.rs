//! A plan for people.

use muster_core::design::plan::{DesignPlan, NodeAction, NodePlan, RolePlan, Totals};

use crate::commands::changes::{self, ChangedValue, Entry, Sign};
use crate::commands::rows::count;
use crate::terminal::Out;

pub(super) fn show(plan: &DesignPlan, out: &mut Out) {
    if plan.is_empty() {
        let kept = count(plan.totals.keep, "node");
        return out.line(format_args!("{}: nothing to do; {kept} to keep", plan.env));
    }
    let entries: Vec<Entry<'_>> = plan.nodes.iter().map(entry).collect();
    changes::show(entries, word, out);
    out.gap();
    for RolePlan { role, before, after, removes_highest } in plan.roles.iter().filter(|role| role.before != role.after)
    {
        let how = if *removes_highest { ": the highest numbers go" } else { "" };
        out.line(format_args!("{role}: {before} → {}{how}", count(*after, "node")));
    }
    let documents = &plan.documents;
    if documents.added + documents.changed + documents.removed > 0 {
        let (added, changed, removed) = (documents.added, documents.changed, documents.removed);
        out.line(format_args!("documents: {added} added, {changed} changed, {removed} removed"));
    }
    out.line(format_args!("{}: {}", plan.env, totals(&plan.totals)));
}

/// "1 to create, 2 to change, 0 to remove, 4 to keep"
pub(super) fn totals(totals: &Totals) -> String {
    let Totals { create, change, remove, keep } = totals;
    format!("{create} to create, {change} to change, {remove} to remove, {keep} to keep")
}

fn entry(node: &NodePlan) -> Entry<'_> {
    let sign = match node.action {
        NodeAction::Create => Sign::Add,
        NodeAction::Change => Sign::Change,
        NodeAction::Remove => Sign::Remove,
        NodeAction::Keep => Sign::Keep,
    };
    // Of a node that is new or goes, all values would be different.
    let shown = sign == Sign::Change;
    let values = node.changes.iter().filter(|_| shown).map(|change| ChangedValue {
        path: change.path.clone(),
        before: change.before.as_ref(),
        after: change.after.as_ref(),
    });
    Entry { sign, kind: None, name: node.node.to_string(), values: values.collect() }
}

fn word(sign: Sign) -> &'static str {
    match sign {
        Sign::Add => "create",
        Sign::Change => "change",
        Sign::Remove => "remove",
        Sign::Keep => "keep",
    }
}
