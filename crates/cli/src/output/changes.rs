//! Shows differences between designs. Entries with the same changes are grouped: a profile of a thousand nodes is one
//! entry.

use std::collections::HashMap;

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use super::{Out, text, value};

/// Names that are listed in one entry; further ones are counted.
const NAMES: usize = 12;
/// Values that are shown in one entry.
const VALUES: usize = 20;

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Add,
    Change,
    Remove,
    Keep,
}

/// A document or node, and its changed values.
#[derive(Clone, Debug)]
pub struct ChangeEntry<'v> {
    pub change: ChangeKind,
    /// Kind of the document, printed once before the names of the same kind; none if all entries have one kind.
    pub kind: Option<String>,
    pub name: String,
    pub values: Vec<ChangedValue<'v>>,
}

/// A value before and after; none if it is not set.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedValue<'v> {
    pub path: String,
    pub before: Option<&'v Value>,
    pub after: Option<&'v Value>,
}

impl ChangeKind {
    fn mark(self) -> char {
        match self {
            ChangeKind::Add => '+',
            ChangeKind::Change => '~',
            ChangeKind::Remove => '-',
            ChangeKind::Keep => '=',
        }
    }

    fn style(self) -> Style {
        match self {
            ChangeKind::Add => AnsiColor::Green.on_default(),
            ChangeKind::Change => AnsiColor::Yellow.on_default(),
            ChangeKind::Remove => AnsiColor::Red.on_default(),
            ChangeKind::Keep => Style::new().dimmed(),
        }
    }
}

/// Shows the entries in the order of the first entry of each group; `verb` names the kinds of changes.
pub fn show(entries: Vec<ChangeEntry<'_>>, verb: impl Fn(ChangeKind) -> &'static str, out: &mut Out) {
    let groups = group(entries);
    let width = groups.iter().map(|group| verb(group.change).len()).max().unwrap_or(0);
    for ChangeGroup { change, names, values } in groups {
        let style = change.style();
        let (mark, verb) = (change.mark(), verb(change));
        out.line(format_args!("{style}{mark} {verb:width$}{style:#}  {}", join_names(&names)));
        for ChangedValue { path, before, after } in values.iter().take(VALUES) {
            let path = text::one_line(path);
            match (before, after) {
                (Some(before), Some(after)) => {
                    out.line(format_args!("      {path}: {} → {}", value(before), value(after)));
                }
                (None, Some(after)) => out.line(format_args!("      {path}: {} (was not set)", value(after))),
                (Some(before), None) => out.line(format_args!("      {path}: no longer set (was {})", value(before))),
                (None, None) => {}
            }
        }
        if values.len() > VALUES {
            out.line(format_args!("      … and {} more values: -o json shows all", values.len() - VALUES));
        }
    }
}

struct ChangeGroup<'v> {
    change: ChangeKind,
    names: Vec<(Option<String>, String)>,
    values: Vec<ChangedValue<'v>>,
}

fn group(entries: Vec<ChangeEntry<'_>>) -> Vec<ChangeGroup<'_>> {
    let mut groups: Vec<ChangeGroup<'_>> = Vec::new();
    // Keyed by text: values cannot be hashed, and comparing each pair is too slow for thousands of nodes.
    let mut known: HashMap<String, usize> = HashMap::new();
    for ChangeEntry { change, kind, name, values } in entries {
        let at = *known.entry(format!("{change:?} {values:?}")).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.names.push((kind, name)),
            None => groups.push(ChangeGroup { change, names: vec![(kind, name)], values }),
        }
    }
    groups
}

/// "HostProfile base, edge; Node web1, web2 and 38 more"
fn join_names(names: &[(Option<String>, String)]) -> String {
    let shown = &names[..names.len().min(NAMES)];
    let of_one_kind = |of: &[(Option<String>, String)]| {
        let kind = of.first().and_then(|(kind, _)| kind.as_ref());
        let kind = kind.map(|kind| format!("{} ", text::one_line(kind))).unwrap_or_default();
        let names: Vec<String> = of.iter().map(|(_, name)| text::one_line(name)).collect();
        format!("{kind}{}", names.join(", "))
    };
    let kinds: Vec<String> = shown.chunk_by(|(a, _), (b, _)| a == b).map(of_one_kind).collect();
    match names.len() - shown.len() {
        0 => kinds.join("; "),
        more => format!("{} and {more} more", kinds.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::render_table;
    use super::*;

    #[test]
    fn entries_with_the_same_changes_are_grouped() {
        let (old, new, list) = (json!(1500), json!(9000), json!(["a", "b"]));
        let mtu = || ChangedValue { path: "interfaces.bond0.mtu".into(), before: Some(&old), after: Some(&new) };
        let tags = || ChangedValue { path: "tags".into(), before: Some(&list), after: None };
        let entry = |change, name: &str, values| ChangeEntry { change, kind: None, name: name.into(), values };
        let mut entries = vec![
            entry(ChangeKind::Add, "web3", vec![]),
            entry(ChangeKind::Change, "web1", vec![mtu()]),
            entry(ChangeKind::Change, "db1", vec![mtu(), tags()]),
            entry(ChangeKind::Change, "web2", vec![mtu()]),
            entry(ChangeKind::Remove, "db2", vec![]),
        ];
        entries.extend((1..=14).map(|number| entry(ChangeKind::Keep, &format!("lb{number}"), vec![])));
        let verb = |change| match change {
            ChangeKind::Add => "create",
            ChangeKind::Change => "change",
            ChangeKind::Remove => "remove",
            ChangeKind::Keep => "keep",
        };
        insta::assert_snapshot!(render_table(|out| show(entries, verb, out)), @"
        + create  web3
        ~ change  web1, web2
              interfaces.bond0.mtu: 1500 → 9000
        ~ change  db1
              interfaces.bond0.mtu: 1500 → 9000
              tags: no longer set (was [a, b])
        - remove  db2
        = keep    lb1, lb2, lb3, lb4, lb5, lb6, lb7, lb8, lb9, lb10, lb11, lb12 and 2 more
        ");
    }
}
