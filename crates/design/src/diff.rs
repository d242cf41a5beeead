//! Differences between the effective values of two designs, by document and path.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::compile::Design;
use crate::inherit::ValuePath;
use crate::inherit::provenance::find;
use crate::kinds::AnyKind;
use crate::types::Type;
use crate::yaml::{Value, YamlNode};

/// Difference of one document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedDocument {
    pub kind: String,
    pub name: String,
    #[serde(flatten)]
    pub what: DocumentChange,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "difference", rename_all = "snake_case")]
pub enum DocumentChange {
    Added,
    Removed,
    Changed { values: Vec<ValueDiff> },
}

/// Difference of one value; none if it is not set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValueDiff {
    #[serde(serialize_with = "as_text")]
    pub path: ValuePath,
    pub before: Option<YamlNode>,
    pub after: Option<YamlNode>,
}

fn as_text<S: serde::Serializer>(path: &ValuePath, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(path)
}

/// Documents that differ, by kind and name.
pub fn diff(before: &Design, after: &Design) -> Vec<ChangedDocument> {
    let all = |design| Design::effective_documents(design).map(|(kind, name, tree)| ((kind, name), tree));
    let (old, new): (BTreeMap<_, _>, BTreeMap<_, _>) = (all(before).collect(), all(after).collect());
    let mut diffs = Vec::new();
    for (&(kind, name), tree) in &old {
        let what = match new.get(&(kind, name)) {
            None => DocumentChange::Removed,
            Some(other) => match values(tree, other, kind) {
                values if values.is_empty() => continue,
                values => DocumentChange::Changed { values },
            },
        };
        diffs.push(((kind, name), what));
    }
    diffs.extend(new.keys().filter(|key| !old.contains_key(*key)).map(|key| (*key, DocumentChange::Added)));
    diffs.sort_by_key(|(key, _)| *key);
    let diff = |((kind, name), what): ((&AnyKind, &str), DocumentChange)| ChangedDocument {
        kind: kind.to_string(),
        name: name.to_owned(),
        what,
    };
    diffs.into_iter().map(diff).collect()
}

/// Values that differ between two documents of one kind.
pub fn values(before: &YamlNode, after: &YamlNode, kind: &AnyKind) -> Vec<ValueDiff> {
    let mut values = Vec::new();
    compare(Some(before), Some(after), kind.body(), &mut Vec::new(), &mut values);
    values
}

fn compare(
    before: Option<&YamlNode>,
    after: Option<&YamlNode>,
    ty: Type,
    path: &mut Vec<String>,
    out: &mut Vec<ValueDiff>,
) {
    if let (Some(before), Some(after)) = (before, after) {
        if is_same(before, after) {
            return;
        }
        if let (Some(mut old), Some(new)) = (steps(before, ty), steps(after, ty)) {
            let len = out.len();
            old.extend(new.into_iter().filter(|step| !old.contains(step)).collect::<Vec<_>>());
            for step in old {
                let below = |node: &YamlNode| find(node, ty, std::slice::from_ref(&step));
                let (before, after) = (below(before), below(after));
                let ty = ty.below(&step).unwrap_or(Type::Any);
                path.push(step);
                compare(before.as_ref(), after.as_ref(), ty, path, out);
                path.pop();
            }
            if out.len() > len {
                return;
            }
            // The members are equal, in another order.
        }
    }
    out.push(ValueDiff { path: ValuePath(path.clone()), before: before.cloned(), after: after.cloned() });
}

/// Steps to the parts of a value that are compared separately; none for a value that is compared as a whole.
fn steps(node: &YamlNode, ty: Type) -> Option<Vec<String>> {
    match (&node.value, ty) {
        (Value::Map(_), _) | (Value::Seq(_), Type::Keyed { .. }) => {
            Some(crate::inherit::provenance::steps_below(node, ty))
        }
        (Value::Seq(_) | Value::Scalar(_), _) => None,
    }
}

/// Reports whether two values are equal, ignoring spans and the order of keys.
pub fn is_same(a: &YamlNode, b: &YamlNode) -> bool {
    match (&a.value, &b.value) {
        (Value::Scalar(a), Value::Scalar(b)) => a == b,
        (Value::Seq(a), Value::Seq(b)) => {
            Arc::ptr_eq(a, b) || (a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| is_same(a, b)))
        }
        (Value::Map(a), Value::Map(b)) => {
            std::ptr::eq(a.entries(), b.entries())
                || (a.entries().len() == b.entries().len()
                    && a.entries().iter().enumerate().all(|(at, entry)| {
                        // Usually the keys are in the same order.
                        let same = b.entries().get(at).filter(|other| other.key.text == entry.key.text);
                        same.or_else(|| b.get(&entry.key.text)).is_some_and(|other| is_same(&entry.value, &other.value))
                    }))
        }
        (Value::Scalar(_) | Value::Seq(_) | Value::Map(_), _) => false,
    }
}
