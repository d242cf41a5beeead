//! Reference implementation of inheritance and provenance on plain values, without the code of the merge.

use muster_design::inherit::{LayerAction, LayerStep, Provenance};
use muster_design::types::Type;
use muster_design::yaml::{ScalarKind, Value, YamlNode};

/// A value. Keys keep their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    Null,
    /// A single value as written; a text is in double quotes.
    One(String),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
    /// A removed member, whose position may be reused.
    Gone,
}

impl Tree {
    pub(crate) fn text(text: &str) -> Tree {
        Tree::One(serde_json::to_string(text).unwrap())
    }

    pub(crate) fn from_yaml(node: &YamlNode) -> Tree {
        match &node.value {
            Value::Map(map) => Tree::Map(
                map.entries().iter().map(|entry| (entry.key.text.to_string(), Tree::from_yaml(&entry.value))).collect(),
            ),
            Value::Seq(items) => Tree::List(items.iter().map(Tree::from_yaml).collect()),
            Value::Scalar(scalar) => match scalar.kind() {
                ScalarKind::Null => Tree::Null,
                ScalarKind::Text => Tree::text(scalar.text()),
                ScalarKind::Bool(_) | ScalarKind::Int(_) | ScalarKind::Float => Tree::One(scalar.text().to_owned()),
            },
        }
    }

    /// Text of a single value, without quotes.
    pub(crate) fn single(&self) -> Option<String> {
        match self {
            Tree::One(written) if written.starts_with('"') => serde_json::from_str(written).ok(),
            Tree::One(written) => Some(written.clone()),
            Tree::Null | Tree::List(_) | Tree::Map(_) | Tree::Gone => None,
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Tree> {
        match self {
            Tree::Map(entries) => entries.iter().find(|(there, _)| there == key).map(|(_, value)| value),
            Tree::Null | Tree::One(_) | Tree::List(_) | Tree::Gone => None,
        }
    }

    /// Value at a path: keys, members by primary key, single members.
    pub(crate) fn find(&self, ty: Type, steps: &[String]) -> Option<&Tree> {
        let Some((step, rest)) = steps.split_first() else { return Some(self) };
        let below = match (self, ty) {
            (Tree::Map(_), _) => self.get(step)?,
            (Tree::List(items), Type::Keyed { key, .. }) => {
                items.iter().find(|item| item.get(key).and_then(Tree::single).as_deref() == Some(step))?
            }
            (Tree::List(items), _) => items.iter().find(|item| item.single().as_deref() == Some(step))?,
            (Tree::Null | Tree::One(_) | Tree::Gone, _) => return None,
        };
        below.find(below_type(ty, step), rest)
    }

    /// All valid paths, including removals under the names that they remove.
    pub(crate) fn paths(&self, ty: Type) -> Vec<Vec<String>> {
        let bare = |name: &str| name.strip_prefix('!').unwrap_or(name).to_owned();
        let steps: Vec<(String, Option<&Tree>)> = match (self, ty) {
            (Tree::Map(entries), _) => entries.iter().map(|(key, value)| (bare(key), Some(value))).collect(),
            (Tree::List(items), Type::Keyed { key, .. }) => {
                let name = |item: &Tree| item.get(key).and_then(Tree::single).or_else(|| item.single());
                items.iter().filter_map(|item| Some((bare(&name(item)?), Some(item)))).collect()
            }
            (Tree::List(items), _) => items.iter().filter_map(|item| Some((bare(&item.single()?), None))).collect(),
            (Tree::Null | Tree::One(_) | Tree::Gone, _) => Vec::new(),
        };
        let mut paths = vec![Vec::new()];
        for (step, value) in steps {
            let below = value.map_or_else(|| vec![Vec::new()], |value| value.paths(below_type(ty, &step)));
            paths.extend(below.into_iter().map(|rest| [vec![step.clone()], rest].concat()));
        }
        paths
    }

    /// Reports whether the value contains a removal or `null`. Lists that are inherited verbatim are not searched.
    pub(crate) fn has_marks(&self, ty: Type) -> bool {
        let removes = |text: &str| text.len() > 1 && text.starts_with('!');
        match (self, ty) {
            (Tree::Null | Tree::Gone, _) => true,
            (Tree::One(_), _) => false,
            (Tree::List(items), Type::List(_) | Type::Keyed { .. } | Type::Any)
                if !matches!(ty, Type::Any)
                    || items.iter().all(|item| !matches!(item, Tree::List(_) | Tree::Map(_))) =>
            {
                let below = below_type(ty, "");
                items.iter().any(|item| item.has_marks(below) || item.single().is_some_and(|text| removes(&text)))
            }
            (Tree::List(_), _) => false,
            (Tree::Map(entries), _) => {
                entries.iter().any(|(key, value)| removes(key) || value.has_marks(below_type(ty, key)))
            }
        }
    }

    /// Writes the value as YAML behind a key or a dash, one value for each line.
    pub(crate) fn write(&self, depth: usize, text: &mut String) {
        let indent = "  ".repeat(depth);
        match self {
            Tree::Null | Tree::Gone => text.push_str(" null\n"),
            Tree::One(written) => text.push_str(&format!(" {written}\n")),
            Tree::List(items) if items.is_empty() => text.push_str(" []\n"),
            Tree::Map(entries) if entries.is_empty() => text.push_str(" {}\n"),
            Tree::List(items) => {
                text.push('\n');
                for item in items {
                    text.push_str(&format!("{indent}-"));
                    item.write(depth + 1, text);
                }
            }
            Tree::Map(entries) => {
                text.push('\n');
                for (key, value) in entries {
                    text.push_str(&format!("{indent}{}:", serde_json::to_string(key).unwrap()));
                    value.write(depth + 1, text);
                }
            }
        }
    }
}

/// Type of the values below a value of this type.
pub(crate) fn below_type(ty: Type, step: &str) -> Type {
    match ty {
        Type::Object(object) => object.fields().find(|field| field.name == step).map_or(Type::Any, |field| field.ty),
        Type::Keyed { item, .. } => Type::Object(item),
        Type::Map(item) | Type::List(item) => *item,
        Type::Any
        | Type::ReplacedList(_)
        | Type::Text(_)
        | Type::Integer { .. }
        | Type::Bool
        | Type::OneOf(_)
        | Type::Scalar
        | Type::Reference(_)
        | Type::Secret => Type::Any,
    }
}

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
                LayerAction::Set { value: set } => Some(Tree::from_yaml(set)),
                LayerAction::Changed { value } if stood => Some(Tree::from_yaml(value)),
                LayerAction::Changed { .. } => return Err("a value has changed that was not there".into()),
                LayerAction::Members { written, value: result } => {
                    let lower = value.as_ref().and_then(|value| value.find(ty, below));
                    let made =
                        members(lower, &Tree::from_yaml(written)).ok_or("the members of no list have changed")?;
                    if made != Tree::from_yaml(result) {
                        return Err(format!("{made:?} is not {result:?}"));
                    }
                    Some(made)
                }
                LayerAction::Removed if stood => Some(Tree::Gone),
                LayerAction::Removed => return Err("something was removed that was not there".into()),
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
