//! Reference implementation of provenance: applies the steps one after the other, without the code of the merge.

use muster_design::inherit::{Action, LayerStep, Provenance};
use muster_design::types::Type;

use crate::value::{Tree, below_type};

/// Value that results from the steps.
pub(crate) fn replay(why: &Provenance, asked: &[String], body: Type) -> Result<Option<Tree>, String> {
    let ty = asked.iter().fold(body, |ty, step| below_type(ty, step));
    let mut value: Option<Tree> = None;
    for layer in why.steps.chunk_by(|a, b| layer_of(a) == layer_of(b)) {
        let before = value.clone();
        for step in layer {
            let below = step.path.0.strip_prefix(asked).ok_or("a step is about something else")?;
            let stood = before.as_ref().is_some_and(|before| before.find(ty, below).is_some());
            let result = match &step.action {
                Action::Set { value: set } => Some(Tree::of(set)),
                Action::Changed { value } if stood => Some(Tree::of(value)),
                Action::Changed { .. } => return Err("a value has changed that was not there".into()),
                Action::Members { written, value: result } => {
                    let lower = value.as_ref().and_then(|value| value.find(ty, below));
                    let made = members(lower, &Tree::of(written)).ok_or("the members of no list have changed")?;
                    if made != Tree::of(result) {
                        return Err(format!("{made:?} is not {result:?}"));
                    }
                    Some(made)
                }
                Action::Removed if stood => Some(Tree::Gone),
                Action::Removed => return Err("something was removed that was not there".into()),
            };
            put(&mut value, ty, below, result)?;
        }
        value = value.and_then(without_gone);
    }
    Ok(value)
}

/// Identity of a layer. The environment file and the document of a node are different layers.
fn layer_of(step: &LayerStep) -> (&str, &str, &str, &str) {
    (&step.source, &step.kind, &step.name, &step.location.file)
}

/// Upper members, then the lower members that are neither among them nor removed.
fn members(lower: Option<&Tree>, written: &Tree) -> Option<Tree> {
    let (Some(Tree::List(lower)), Tree::List(written)) = (lower, written) else { return None };
    let removes: Vec<String> =
        written.iter().filter_map(Tree::single).filter(|text| text.len() > 1 && text.starts_with('!')).collect();
    let is_removal = |item: &&Tree| item.single().is_some_and(|text| removes.contains(&text));
    let upper: Vec<Tree> = written.iter().filter(|item| **item != Tree::Null && !is_removal(item)).cloned().collect();
    let said: Vec<Option<String>> = upper.iter().map(Tree::single).collect();
    let stays = |item: &&Tree| {
        let text = item.single().unwrap_or_default();
        !said.contains(&Some(text.clone())) && !removes.contains(&format!("!{text}")) && !removes.contains(&"!*".into())
    };
    let rest: Vec<Tree> = lower.iter().filter(stays).cloned().collect();
    Some(Tree::List([upper, rest].concat()))
}

fn put(at: &mut Option<Tree>, ty: Type, path: &[String], value: Option<Tree>) -> Result<(), String> {
    let Some((step, rest)) = path.split_first() else {
        *at = value;
        return Ok(());
    };
    let below = below_type(ty, step);
    match (at, ty) {
        (Some(Tree::Map(entries)), _) => {
            let found = entries.iter_mut().find(|(key, _)| key == step);
            let mut slot = found.as_ref().map(|(_, value)| value.clone());
            put(&mut slot, below, rest, value)?;
            match (found, slot) {
                (Some((_, there)), Some(slot)) => *there = slot,
                (None, Some(slot)) => entries.push((step.clone(), slot)),
                (_, None) => {}
            }
            Ok(())
        }
        (Some(Tree::List(items)), Type::Keyed { key, .. }) => {
            // A new member takes the position of a removed member of the same name.
            let named = |item: &Tree| item.get(key).and_then(Tree::single).as_deref() == Some(step);
            let found = items.iter_mut().find(|item| named(item));
            let mut slot = found.as_ref().map(|value| (**value).clone());
            put(&mut slot, below, rest, value)?;
            match (found, slot) {
                // A removed member keeps its name until the layer ends, because the layer may replace it.
                (Some(there), Some(Tree::Gone)) => *there = gone(key, step),
                (Some(there), Some(slot)) => *there = slot,
                (None, Some(slot)) => items.push(slot),
                (_, None) => {}
            }
            Ok(())
        }
        (there, _) => Err(format!("{step:?} cannot be put into {there:?}")),
    }
}

fn gone(key: &str, name: &str) -> Tree {
    Tree::Map(vec![(key.to_owned(), Tree::text(name)), ("gone".into(), Tree::Gone)])
}

/// Drops removed members at the end of a layer.
fn without_gone(tree: Tree) -> Option<Tree> {
    match tree {
        Tree::Gone => None,
        Tree::Map(entries) if entries.last().is_some_and(|(key, value)| key == "gone" && *value == Tree::Gone) => None,
        Tree::Map(entries) => {
            let kept = entries.into_iter().filter_map(|(key, value)| Some((key, without_gone(value)?)));
            Some(Tree::Map(kept.collect()))
        }
        Tree::List(items) => Some(Tree::List(items.into_iter().filter_map(without_gone).collect())),
        other @ (Tree::Null | Tree::One(_)) => Some(other),
    }
}
