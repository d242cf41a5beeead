//! Who said so: the layers that made a value what it is.

use serde::Serialize;

use super::Path;
use super::merge::{ALL, is_added, removed_member, single};
use super::record::Record;
use crate::finding::Location;
use crate::span::Span;
use crate::types::Type;
use crate::yaml::{Node, Value};

/// A value, and how it came about.
#[derive(Clone, Debug, Serialize)]
pub struct Why {
    /// None: it is not set.
    pub value: Option<Node>,
    /// Everything that set, changed or removed it or something in it, the lowest layer first.
    pub steps: Vec<Step>,
}

/// What one layer did.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The source, kind and name of the document.
    pub source: String,
    pub kind: String,
    pub name: String,
    /// Where it stands.
    #[serde(rename = "place")]
    pub location: Location,
    /// What it was done to: the path that was asked for, or one below it.
    #[serde(serialize_with = "as_text")]
    pub path: Path,
    #[serde(flatten)]
    pub action: Action,
}

/// What a layer does to a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// There was none before.
    Set {
        value: Node,
    },
    /// There was another before.
    Changed {
        value: Node,
    },
    /// It has changed the members of a list: these are its own words, and what the list is after them.
    Members {
        written: Node,
        value: Node,
    },
    Removed,
}

fn as_text<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(path)
}

/// What was recorded, before it is given names and lines.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Which layer, in the order in which they are laid.
    pub layer: usize,
    pub path: Path,
    pub action: Action,
    pub span: Span,
}

/// Records what the merge does at a path and below it.
#[derive(Debug)]
pub(crate) struct Trail<'a> {
    asked: &'a Path,
    ty: Type,
    here: Vec<String>,
    layer: usize,
    /// What is there before the layer.
    before: Option<Node>,
    /// How often it was told to be silent.
    hushed: usize,
    pub events: Vec<Event>,
}

impl<'a> Trail<'a> {
    pub(crate) fn new(asked: &'a Path, ty: Type) -> Self {
        Trail { asked, ty, here: Vec::new(), layer: 0, before: None, hushed: 0, events: Vec::new() }
    }

    /// The next layer is laid over this value.
    pub(crate) fn begin(&mut self, layer: usize, lower: Option<&Node>) {
        self.layer = layer;
        self.before = lower.and_then(|lower| find(lower, self.ty, &self.asked.0));
    }

    /// What was asked for is here, or above, by so many steps.
    fn above(&self) -> Option<&'a [String]> {
        self.asked.0.strip_prefix(self.here.as_slice())
    }

    /// What was asked for is above: this is a part of it.
    fn is_below(&self) -> bool {
        self.here.len() > self.asked.0.len() && self.here.starts_with(&self.asked.0)
    }

    fn type_here(&self) -> Type {
        self.here.iter().fold(self.ty, |ty, step| ty.below(step).unwrap_or(Type::Any))
    }

    fn tell(&mut self, path: Path, action: Action, span: Span) {
        self.events.push(Event { layer: self.layer, path, action, span });
    }

    /// What stood at a path, at or below the one that was asked for, before this layer.
    fn stood(&self, path: &[String]) -> bool {
        let below = path.get(self.asked.0.len()..).unwrap_or_default();
        let ty = self.asked.0.iter().fold(self.ty, |ty, step| ty.below(step).unwrap_or(Type::Any));
        self.before.as_ref().is_some_and(|before| find(before, ty, below).is_some())
    }

    fn put(&mut self, path: Vec<String>, value: Node, span: Span) {
        let action = if self.stood(&path) { Action::Changed { value } } else { Action::Set { value } };
        self.tell(Path(path), action, span);
    }
}

impl Record for Trail<'_> {
    fn enter(&mut self, step: &str) {
        self.here.push(step.to_owned());
    }

    fn leave(&mut self) {
        self.here.pop();
    }

    fn hush(&mut self) {
        self.hushed += 1;
    }

    fn speak(&mut self) {
        self.hushed -= 1;
    }

    fn set(&mut self, value: &Node) {
        if self.hushed > 0 {
            return;
        }
        if let Some(rest) = self.above() {
            match find(value, self.type_here(), rest) {
                Some(part) => {
                    let span = part.span;
                    self.put(self.asked.0.clone(), part, span);
                }
                // A value of another shape has taken the place of what was above it.
                None if self.before.is_some() => self.tell(self.asked.clone(), Action::Removed, value.span),
                None => {}
            }
        } else if self.is_below() {
            self.put(self.here.clone(), value.clone(), value.span);
        }
    }

    fn removed(&mut self, at: Span) {
        if self.hushed > 0 {
            return;
        }
        if self.above().is_some() {
            if self.before.take().is_some() {
                self.tell(self.asked.clone(), Action::Removed, at);
            }
        } else if self.is_below() {
            let path = self.here.clone();
            if self.stood(&path) {
                self.tell(Path(path), Action::Removed, at);
            }
        }
    }

    fn members(&mut self, layer: &Node, result: &Node) {
        if self.hushed > 0 {
            return;
        }
        let changed = |path| (Path(path), Action::Members { written: layer.clone(), value: result.clone() });
        match self.above() {
            Some([]) => {
                let (path, action) = changed(self.asked.0.clone());
                self.tell(path, action, layer.span);
            }
            // The path names one member of the list.
            Some([member]) => {
                let items = layer.items().unwrap_or_default();
                let added = items.iter().find(|item| is_added(item) && single(item) == Some(member)).cloned();
                let removes = |name: &str| items.iter().find(|item| removed_member(item) == Some(name));
                match (added, removes(member).or_else(|| removes(ALL))) {
                    (Some(value), _) => {
                        let span = value.span;
                        self.put(self.asked.0.clone(), value, span);
                    }
                    (None, Some(removal)) if self.before.is_some() => {
                        self.tell(self.asked.clone(), Action::Removed, removal.span);
                    }
                    (None, _) => {}
                }
            }
            Some(_) => {}
            None if self.is_below() => {
                let (path, action) = changed(self.here.clone());
                self.tell(path, action, layer.span);
            }
            None => {}
        }
    }
}

/// The value at a path: keys of mappings, primary keys of list members, and single members of lists.
pub(crate) fn find(node: &Node, ty: Type, steps: &[String]) -> Option<Node> {
    let Some((step, rest)) = steps.split_first() else { return Some(node.clone()) };
    let below = match (&node.value, ty) {
        (Value::Map(map), _) => map.get(step).map(|entry| &entry.value),
        (Value::Seq(items), Type::Keyed { key, .. }) => {
            items.iter().find(|item| item.get(key).and_then(Node::scalar).is_some_and(|scalar| scalar.text() == step))
        }
        (Value::Seq(items), _) => items.iter().find(|item| item.scalar().is_some_and(|scalar| scalar.text() == step)),
        (Value::Scalar(_), _) => None,
    }?;
    find(below, ty.below(step).unwrap_or(Type::Any), rest)
}

/// The steps that lead on from a value.
pub(crate) fn steps_below(node: &Node, ty: Type) -> Vec<String> {
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
