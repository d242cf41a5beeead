//! The tree of a document. Plain data; whoever holds it needs neither the file nor the parser.
//!
//! Trees are shared, not copied: to clone one costs the count of a reference. What a thousand nodes inherit from a
//! profile is in memory once.

use std::sync::Arc;

use super::scalar::{Kind, Scalar};
use crate::span::Span;

/// A value, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub value: Value,
    pub span: Span,
    /// Whether something in here may remove or unset what is inherited: else it can be taken over as it is.
    marked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Scalar(Scalar),
    Seq(Arc<[Node]>),
    Map(Arc<Map>),
}

/// A mapping, in the order of the file. No key is there twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    pub(super) entries: Vec<Entry>,
    pub(super) has_refused: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    pub value: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub text: Arc<str>,
    pub span: Span,
}

impl Map {
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether something that stands in the file is not in here because its key was refused, which has been reported.
    /// That something is missing cannot be said then.
    pub fn has_refused(&self) -> bool {
        self.has_refused
    }

    /// Looks at one entry after the other: mappings of documents are short. Who looks up many keys in a long one
    /// should index it.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| &*entry.key.text == key)
    }
}

impl Node {
    pub fn new(value: Value, span: Span) -> Self {
        let marked = match &value {
            Value::Scalar(scalar) => scalar.kind() == Kind::Null || scalar.text().starts_with('!'),
            Value::Seq(items) => items.iter().any(|item| item.marked),
            Value::Map(map) => map.entries.iter().any(|entry| entry.value.marked || entry.key.text.starts_with('!')),
        };
        Node { value, span, marked }
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.marked
    }

    /// A mapping that was not read but made.
    pub(crate) fn from_entries(entries: Vec<Entry>, span: Span) -> Self {
        Node::new(Value::Map(Arc::new(Map { entries, has_refused: false })), span)
    }

    pub(crate) fn from_items(items: Vec<Node>, span: Span) -> Self {
        Node::new(Value::Seq(items.into()), span)
    }

    /// A text that was not read but made.
    pub(crate) fn from_text(text: impl Into<Arc<str>>, span: Span) -> Self {
        Node::new(Value::Scalar(Scalar::made(text.into())), span)
    }

    /// A single value that was not read but made, and is what it looks like.
    pub(crate) fn from_plain(text: &str, span: Span) -> Self {
        Node::new(Value::Scalar(Scalar::plain(text)), span)
    }

    /// What a scalar is; `None` for a list or a mapping.
    pub fn kind(&self) -> Option<Kind> {
        match &self.value {
            Value::Scalar(scalar) => Some(scalar.kind()),
            Value::Seq(_) | Value::Map(_) => None,
        }
    }

    pub fn scalar(&self) -> Option<&Scalar> {
        match &self.value {
            Value::Scalar(scalar) => Some(scalar),
            Value::Seq(_) | Value::Map(_) => None,
        }
    }

    /// The text of a scalar that is one.
    pub fn text(&self) -> Option<&str> {
        self.scalar().filter(|scalar| scalar.kind() == Kind::Text).map(Scalar::text)
    }

    pub fn map(&self) -> Option<&Map> {
        match &self.value {
            Value::Map(map) => Some(map),
            Value::Scalar(_) | Value::Seq(_) => None,
        }
    }

    pub fn items(&self) -> Option<&[Node]> {
        match &self.value {
            Value::Seq(items) => Some(items),
            Value::Scalar(_) | Value::Map(_) => None,
        }
    }

    /// The value at a key of a mapping.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.map()?.get(key).map(|entry| &entry.value)
    }

    /// Whether nothing was written here, or `null`.
    pub fn is_null(&self) -> bool {
        self.kind() == Some(Kind::Null)
    }
}
