//! What is different, for people: things that change in the same way are told together, so that a profile of a thousand
//! nodes is one entry.

use std::collections::HashMap;

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use crate::terminal::{Out, plain, value};

/// So many names stand in one entry; the others are counted.
const NAMES: usize = 12;
/// So many values of one entry are shown.
const VALUES: usize = 20;

/// What happens to something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Add,
    Change,
    Remove,
    Keep,
}

/// One thing, and what of it changes.
#[derive(Clone, Debug)]
pub(super) struct Entry<'v> {
    pub(super) sign: Sign,
    /// Said once before the names of this kind; none where all are of one.
    pub(super) kind: Option<String>,
    pub(super) name: String,
    pub(super) values: Vec<ChangedValue<'v>>,
}

/// One value before and after; none: it is not set.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChangedValue<'v> {
    pub(super) path: String,
    pub(super) before: Option<&'v Value>,
    pub(super) after: Option<&'v Value>,
}

impl Sign {
    fn mark(self) -> char {
        match self {
            Sign::Add => '+',
            Sign::Change => '~',
            Sign::Remove => '-',
            Sign::Keep => '=',
        }
    }

    fn style(self) -> Style {
        match self {
            Sign::Add => AnsiColor::Green.on_default(),
            Sign::Change => AnsiColor::Yellow.on_default(),
            Sign::Remove => AnsiColor::Red.on_default(),
            Sign::Keep => Style::new().dimmed(),
        }
    }
}

/// Shows all entries in the order in which their first ones came; `word` says what a sign means here.
pub(super) fn show(entries: Vec<Entry<'_>>, word: impl Fn(Sign) -> &'static str, out: &mut Out) {
    let groups = grouped(entries);
    let width = groups.iter().map(|group| word(group.sign).len()).max().unwrap_or(0);
    for Group { sign, names, values } in groups {
        let style = sign.style();
        let (mark, word) = (sign.mark(), word(sign));
        out.line(format_args!("{style}{mark} {word:width$}{style:#}  {}", listed(&names)));
        for ChangedValue { path, before, after } in values.iter().take(VALUES) {
            let path = plain::one_line(path);
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

struct Group<'v> {
    sign: Sign,
    names: Vec<(Option<String>, String)>,
    values: Vec<ChangedValue<'v>>,
}

fn grouped(entries: Vec<Entry<'_>>) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    // By their text: values cannot be hashed, and thousands of nodes may each change in a way of their own.
    let mut known: HashMap<String, usize> = HashMap::new();
    for Entry { sign, kind, name, values } in entries {
        let at = *known.entry(format!("{sign:?} {values:?}")).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.names.push((kind, name)),
            None => groups.push(Group { sign, names: vec![(kind, name)], values }),
        }
    }
    groups
}

/// "HostProfile base, edge; Node web1, web2 and 38 more"
fn listed(names: &[(Option<String>, String)]) -> String {
    let shown = &names[..names.len().min(NAMES)];
    let of_one_kind = |of: &[(Option<String>, String)]| {
        let kind = of.first().and_then(|(kind, _)| kind.as_ref());
        let kind = kind.map(|kind| format!("{} ", plain::one_line(kind))).unwrap_or_default();
        let names: Vec<String> = of.iter().map(|(_, name)| plain::one_line(name)).collect();
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
    use std::cell::RefCell;
    use std::io::Write;
    use std::rc::Rc;

    use serde_json::json;

    use super::*;
    use crate::args::Format;

    #[derive(Clone, Default)]
    struct Paper(Rc<RefCell<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_changes_alike_is_told_together() {
        let (old, new, list) = (json!(1500), json!(9000), json!(["a", "b"]));
        let mtu = || ChangedValue { path: "interfaces.bond0.mtu".into(), before: Some(&old), after: Some(&new) };
        let tags = || ChangedValue { path: "tags".into(), before: Some(&list), after: None };
        let entry = |sign, name: &str, values| Entry { sign, kind: None, name: name.into(), values };
        let mut entries = vec![
            entry(Sign::Add, "web3", vec![]),
            entry(Sign::Change, "web1", vec![mtu()]),
            entry(Sign::Change, "db1", vec![mtu(), tags()]),
            entry(Sign::Change, "web2", vec![mtu()]),
            entry(Sign::Remove, "db2", vec![]),
        ];
        entries.extend((1..=14).map(|number| entry(Sign::Keep, &format!("lb{number}"), vec![])));
        let paper = Paper::default();
        let mut out = Out::new(Box::new(paper.clone()), Format::Table, None);
        let word = |sign| match sign {
            Sign::Add => "create",
            Sign::Change => "change",
            Sign::Remove => "remove",
            Sign::Keep => "keep",
        };
        show(entries, word, &mut out);
        out.finish().unwrap();
        let text = String::from_utf8(paper.0.take()).unwrap();
        insta::assert_snapshot!(anstream::adapter::strip_str(&text), @"
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
