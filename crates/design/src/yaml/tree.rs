//! Trees of documents: plain data, independent of the file and the parser.
//!
//! Trees are reference-counted: clones are cheap, and an inherited value is in memory once.

use std::sync::Arc;

use serde::ser::{Error, Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::file_text::Span;

use super::scalar::{Scalar, ScalarKind};

/// A value and its span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlNode {
    pub value: Value,
    pub span: Span,
    /// The tree may hold a removal or `null`. Without one it can be inherited as it is.
    marked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Scalar(Scalar),
    Seq(Arc<[YamlNode]>),
    Map(YamlMap),
}

/// A mapping with unique keys, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct YamlMap {
    pub(super) entries: Arc<[YamlEntry]>,
    pub(super) has_refused: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlEntry {
    pub key: YamlKey,
    pub value: YamlNode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlKey {
    pub text: Arc<str>,
    pub span: Span,
}

impl YamlMap {
    pub fn entries(&self) -> &[YamlEntry] {
        &self.entries
    }

    /// Reports whether an entry was dropped because its key was invalid, which was reported. A missing key must not be
    /// reported then.
    pub fn has_refused(&self) -> bool {
        self.has_refused
    }

    /// Scans the entries: mappings of documents are short. Use an index to look up many keys of a long mapping.
    pub fn get(&self, key: &str) -> Option<&YamlEntry> {
        self.entries.iter().find(|entry| &*entry.key.text == key)
    }
}

impl YamlNode {
    pub fn new(value: Value, span: Span) -> Self {
        let marked = match &value {
            Value::Scalar(scalar) => scalar.kind() == ScalarKind::Null || scalar.text().starts_with('!'),
            Value::Seq(items) => items.iter().any(|item| item.marked),
            Value::Map(map) => map.entries.iter().any(|entry| entry.value.marked || entry.key.text.starts_with('!')),
        };
        YamlNode { value, span, marked }
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.marked
    }

    /// A generated mapping.
    pub(crate) fn from_entries(entries: Vec<YamlEntry>, span: Span) -> Self {
        YamlNode::new(Value::Map(YamlMap { entries: entries.into(), has_refused: false }), span)
    }

    pub(crate) fn from_items(items: Vec<YamlNode>, span: Span) -> Self {
        YamlNode::new(Value::Seq(items.into()), span)
    }

    /// A generated text.
    pub(crate) fn from_text(text: impl Into<Arc<str>>, span: Span) -> Self {
        YamlNode::new(Value::Scalar(Scalar::quoted(text)), span)
    }

    /// A generated plain scalar.
    pub(crate) fn from_plain(text: &str, span: Span) -> Self {
        YamlNode::new(Value::Scalar(Scalar::plain(text)), span)
    }

    /// Type of a scalar; `None` for a list or a mapping.
    pub fn kind(&self) -> Option<ScalarKind> {
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

    /// Text of a scalar of type text.
    pub fn text(&self) -> Option<&str> {
        self.scalar().filter(|scalar| scalar.kind() == ScalarKind::Text).map(Scalar::text)
    }

    pub fn map(&self) -> Option<&YamlMap> {
        match &self.value {
            Value::Map(map) => Some(map),
            Value::Scalar(_) | Value::Seq(_) => None,
        }
    }

    pub fn items(&self) -> Option<&[YamlNode]> {
        match &self.value {
            Value::Seq(items) => Some(items),
            Value::Scalar(_) | Value::Map(_) => None,
        }
    }

    /// Value at a key of a mapping.
    pub fn get(&self, key: &str) -> Option<&YamlNode> {
        self.map()?.get(key).map(|entry| &entry.value)
    }

    /// Reports whether the value is empty or `null`.
    pub fn is_null(&self) -> bool {
        self.kind() == Some(ScalarKind::Null)
    }
}

impl Serialize for YamlNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Value::Map(map) => {
                let mut out = serializer.serialize_map(Some(map.entries().len()))?;
                for entry in map.entries() {
                    out.serialize_entry(&*entry.key.text, &entry.value)?;
                }
                out.end()
            }
            Value::Seq(items) => {
                let mut out = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| out.serialize_element(item))?;
                out.end()
            }
            Value::Scalar(scalar) => match scalar.kind() {
                ScalarKind::Null => serializer.serialize_unit(),
                ScalarKind::Bool(value) => serializer.serialize_bool(value),
                ScalarKind::Int(value) => serializer.serialize_i64(value),
                ScalarKind::Float => match scalar.as_float() {
                    Some(value) => serializer.serialize_f64(value),
                    None => Err(S::Error::custom("a number that has no value")),
                },
                ScalarKind::Text => serializer.serialize_str(scalar.text()),
            },
        }
    }
}
