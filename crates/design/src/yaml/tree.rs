//! The tree of a document. Plain data; whoever holds it needs neither the file nor the parser.

use super::scalar::{Kind, Scalar};
use crate::span::Span;

/// A value, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub value: Value,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Scalar(Scalar),
    Seq(Vec<Node>),
    Map(Map),
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
    pub text: Box<str>,
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
    /// What a scalar is; `None` for a list or a mapping.
    pub fn kind(&self) -> Option<Kind> {
        match &self.value {
            Value::Scalar(scalar) => Some(scalar.kind()),
            Value::Seq(_) | Value::Map(_) => None,
        }
    }

    /// Whether nothing was written here, or `null`.
    pub fn is_null(&self) -> bool {
        self.kind() == Some(Kind::Null)
    }
}
