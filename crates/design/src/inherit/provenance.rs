//! Provenance of a value: the layers that set, changed or removed it.

use serde::Serialize;

use super::ValuePath;
use super::merge::{ALL, MergeRecorder, is_added, removed_member, single};
use crate::file_text::Span;
use crate::finding::Location;
use crate::types::Type;
use crate::yaml::{Value, YamlNode};

/// A value and the steps that produced it.
#[derive(Clone, Debug, Serialize)]
pub struct Provenance {
    /// None if the value is not set.
    pub value: Option<YamlNode>,
    /// Steps that set, changed or removed the value or a part of it, from the lowest layer up.
    pub steps: Vec<LayerStep>,
}

/// Effect of one layer.
#[derive(Clone, Debug, Serialize)]
pub struct LayerStep {
    /// The source, kind and name of the document.
    pub source: String,
    pub kind: String,
    pub name: String,
    #[serde(rename = "place")]
    pub location: Location,
    /// The requested path, or a path below it.
    #[serde(serialize_with = "as_text")]
    pub path: ValuePath,
    #[serde(flatten)]
    pub action: LayerAction,
}

/// Effect of a layer on a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum LayerAction {
    /// The value was not set before.
    Set {
        value: YamlNode,
    },
    /// The value was set before.
    Changed {
        value: YamlNode,
    },
    /// The layer changed the members of a list: its own list, and the result.
    Members {
        written: YamlNode,
        value: YamlNode,
    },
    Removed,
}

fn as_text<S: serde::Serializer>(path: &ValuePath, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(path)
}

/// A recorded step, before names and lines are looked up.
#[derive(Clone, Debug)]
pub(crate) struct LayerEvent {
    /// Number of the document.
    pub layer: usize,
    pub path: ValuePath,
    pub action: LayerAction,
    pub span: Span,
}

/// Records the steps of the merge at a path and below it.
#[derive(Debug)]
pub(crate) struct StepRecorder<'a> {
    requested: &'a ValuePath,
    ty: Type,
    current: Vec<String>,
    layer: usize,
    /// Value at the requested path before the layer.
    before: Option<YamlNode>,
    /// Number of unfinished calls of `suspend`.
    suspended: usize,
    pub events: Vec<LayerEvent>,
}

impl<'a> StepRecorder<'a> {
    pub(crate) fn new(requested: &'a ValuePath, ty: Type) -> Self {
        StepRecorder { requested, ty, current: Vec::new(), layer: 0, before: None, suspended: 0, events: Vec::new() }
    }

    /// Starts a layer over this value.
    pub(crate) fn begin(&mut self, layer: usize, lower: Option<&YamlNode>) {
        self.layer = layer;
        self.before = lower.and_then(|lower| find(lower, self.ty, &self.requested.0));
    }

    /// Rest of the requested path below the current one; none if the current path does not lead to it.
    fn remaining(&self) -> Option<&'a [String]> {
        self.requested.0.strip_prefix(self.current.as_slice())
    }

    /// Reports whether the current path is below the requested one.
    fn is_below(&self) -> bool {
        self.current.len() > self.requested.0.len() && self.current.starts_with(&self.requested.0)
    }

    fn current_type(&self) -> Type {
        self.current.iter().fold(self.ty, |ty, step| ty.below(step).unwrap_or(Type::Any))
    }

    fn push(&mut self, path: ValuePath, action: LayerAction, span: Span) {
        self.events.push(LayerEvent { layer: self.layer, path, action, span });
    }

    /// Reports whether a path, at or below the requested one, had a value before this layer.
    fn was_set(&self, path: &[String]) -> bool {
        let below = path.get(self.requested.0.len()..).unwrap_or_default();
        let ty = self.requested.0.iter().fold(self.ty, |ty, step| ty.below(step).unwrap_or(Type::Any));
        self.before.as_ref().is_some_and(|before| find(before, ty, below).is_some())
    }

    fn put(&mut self, path: Vec<String>, value: YamlNode, span: Span) {
        let action = if self.was_set(&path) { LayerAction::Changed { value } } else { LayerAction::Set { value } };
        self.push(ValuePath(path), action, span);
    }
}

impl MergeRecorder for StepRecorder<'_> {
    fn enter(&mut self, step: &str) {
        self.current.push(step.to_owned());
    }

    fn leave(&mut self) {
        self.current.pop();
    }

    fn suspend(&mut self) {
        self.suspended += 1;
    }

    fn resume(&mut self) {
        self.suspended -= 1;
    }

    fn set(&mut self, value: &YamlNode) {
        if self.suspended > 0 {
            return;
        }
        if let Some(rest) = self.remaining() {
            match find(value, self.current_type(), rest) {
                Some(part) => {
                    let span = part.span;
                    self.put(self.requested.0.clone(), part, span);
                }
                // A value of another shape replaced an ancestor.
                None if self.before.is_some() => self.push(self.requested.clone(), LayerAction::Removed, value.span),
                None => {}
            }
        } else if self.is_below() {
            self.put(self.current.clone(), value.clone(), value.span);
        }
    }

    fn removed(&mut self, at: Span) {
        if self.suspended > 0 {
            return;
        }
        if self.remaining().is_some() {
            if self.before.take().is_some() {
                self.push(self.requested.clone(), LayerAction::Removed, at);
            }
        } else if self.is_below() {
            let path = self.current.clone();
            if self.was_set(&path) {
                self.push(ValuePath(path), LayerAction::Removed, at);
            }
        }
    }

    fn members(&mut self, layer: &YamlNode, result: &YamlNode) {
        if self.suspended > 0 {
            return;
        }
        let changed = |path| (ValuePath(path), LayerAction::Members { written: layer.clone(), value: result.clone() });
        match self.remaining() {
            Some([]) => {
                let (path, action) = changed(self.requested.0.clone());
                self.push(path, action, layer.span);
            }
            // The path names one member of the list.
            Some([member]) => {
                let items = layer.items().unwrap_or_default();
                let added = items.iter().find(|item| is_added(item) && single(item) == Some(member)).cloned();
                let removes = |name: &str| items.iter().find(|item| removed_member(item) == Some(name));
                match (added, removes(member).or_else(|| removes(ALL))) {
                    (Some(value), _) => {
                        let span = value.span;
                        self.put(self.requested.0.clone(), value, span);
                    }
                    (None, Some(removal)) if self.before.is_some() => {
                        self.push(self.requested.clone(), LayerAction::Removed, removal.span);
                    }
                    (None, _) => {}
                }
            }
            Some(_) => {}
            None if self.is_below() => {
                let (path, action) = changed(self.current.clone());
                self.push(path, action, layer.span);
            }
            None => {}
        }
    }
}

/// Value at a path of mapping keys, primary keys and single list members.
pub(crate) fn find(node: &YamlNode, ty: Type, steps: &[String]) -> Option<YamlNode> {
    let Some((step, rest)) = steps.split_first() else { return Some(node.clone()) };
    let below = match (&node.value, ty) {
        (Value::Map(map), _) => map.get(step).map(|entry| &entry.value),
        (Value::Seq(items), Type::Keyed { key, .. }) => items
            .iter()
            .find(|item| item.get(key).and_then(YamlNode::scalar).is_some_and(|scalar| scalar.text() == step)),
        (Value::Seq(items), _) => items.iter().find(|item| item.scalar().is_some_and(|scalar| scalar.text() == step)),
        (Value::Scalar(_), _) => None,
    }?;
    find(below, ty.below(step).unwrap_or(Type::Any), rest)
}

/// Steps from a value to its direct parts.
pub(crate) fn steps_below(node: &YamlNode, ty: Type) -> Vec<String> {
    match (&node.value, ty) {
        (Value::Map(map), _) => map.entries().iter().map(|entry| entry.key.text.to_string()).collect(),
        (Value::Seq(items), Type::Keyed { key, .. }) => {
            let names = items.iter().filter_map(|item| item.get(key)?.scalar());
            names.map(|name| name.text().to_owned()).collect()
        }
        (Value::Seq(items), _) => {
            items.iter().filter_map(|item| item.scalar().map(|scalar| scalar.text().to_owned())).collect()
        }
        (Value::Scalar(_), _) => Vec::new(),
    }
}
