//! Schema types for the fields of design documents.
//!
//! One description of each kind's fields ([`crate::kinds`]) drives the check of documents ([`check`](crate::types::check)),
//! inheritance ([`crate::inherit`]), and the JSON Schema for editors ([`json_schema`]), so they cannot disagree.

mod check;
mod format;
mod json_schema;

use crate::finding::{Code, FindingCollector, one_line, quote};
use crate::kinds::Kind;
use crate::yaml::{ScalarKind, Value, YamlNode};

pub(crate) use check::{Dialect, DocumentReference, check, removal};
pub(crate) use format::{VolumeSize, address, cidr, mac, size};

pub use format::{Cidr, TextFormat};
pub use json_schema::{json_schema, spec_schema};

/// Shorthands for the tables of [`crate::kinds`].
pub(crate) const TEXT: Type = Type::Text(TextFormat::Any);
pub(crate) const TEXTS: Type = Type::List(&TEXT);
pub(crate) const TEXT_MAP: Type = Type::Map(&TEXT);
pub(crate) const ANY_MAP: Type = Type::Map(&Type::Any);

/// Type of a value, which also decides how the value is inherited.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// A text with a format.
    Text(TextFormat),
    /// An integer, both bounds included.
    Integer {
        min: i64,
        max: i64,
    },
    Bool,
    OneOf(&'static [&'static str]),
    /// Any single value: a text, a number or a boolean.
    Scalar,
    /// The name of a document of this kind.
    Reference(Kind),
    /// `{secret: NAME}`: a reference to a secret, never its value.
    Secret,
    /// A list of single values.
    List(&'static Type),
    /// A list of mappings with a primary key.
    Keyed {
        key: &'static str,
        item: &'static Object,
    },
    /// A list that is inherited as a whole, such as the steps of a pipeline.
    ReplacedList(&'static Type),
    /// A mapping with free keys.
    Map(&'static Type),
    /// A mapping with known keys.
    Object(&'static Object),
    /// Any value; not checked.
    Any,
}

/// A mapping with known keys.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Name for messages: `a partition`.
    pub what: &'static str,
    /// Groups of fields, which kinds can share.
    pub groups: &'static [&'static [Field]],
    /// Accepts unknown keys with any value.
    pub open: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub ty: Type,
    /// Purpose, in a sentence, for the JSON Schema and the book.
    pub about: &'static str,
}

impl Object {
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> + use<> {
        self.groups.iter().copied().flatten()
    }

    /// Type of a field; `Any` for an unknown key if these are accepted.
    pub(crate) fn field(&self, name: &str) -> Option<Type> {
        let known = self.fields().find(|field| field.name == name).map(|field| field.ty);
        known.or(self.open.then_some(Type::Any))
    }
}

impl Type {
    /// Type of the value at a key or a member below a value of this type.
    pub(crate) fn below(&self, step: &str) -> Option<Type> {
        match self {
            Type::Object(object) => object.field(step),
            Type::Keyed { item, .. } => Some(Type::Object(item)),
            Type::Map(value) => Some(**value),
            Type::List(item) => Some(**item),
            Type::Any => Some(Type::Any),
            Type::ReplacedList(_)
            | Type::Text(_)
            | Type::Integer { .. }
            | Type::Bool
            | Type::OneOf(_)
            | Type::Scalar
            | Type::Reference(_)
            | Type::Secret => None,
        }
    }
}

pub(crate) const fn field(name: &'static str, ty: Type, about: &'static str) -> Field {
    Field { name, ty, about }
}

pub(crate) const fn closed(what: &'static str, groups: &'static [&'static [Field]]) -> Object {
    Object { what, groups, open: false }
}

pub(crate) const fn integer(min: i64, max: i64) -> Type {
    Type::Integer { min, max }
}

/// Reports a value of the wrong type.
pub(crate) fn wrong_type<T>(
    node: &YamlNode,
    what: &str,
    expected: &str,
    report: &mut FindingCollector<'_>,
) -> Option<T> {
    let message = format!("{what} must be {expected}, but is {}", describe(node));
    let finding = Code::WrongType.finding(message).expected(format!("expected {expected}"));
    report.add(node.span, finding.help_if(punctuation(node, expected)));
    None
}

/// Describes a value.
fn describe(node: &YamlNode) -> String {
    match &node.value {
        Value::Seq(_) => "a list".to_owned(),
        Value::Map(_) => "a mapping".to_owned(),
        Value::Scalar(scalar) => match scalar.kind() {
            ScalarKind::Null if scalar.text().is_empty() => "empty".to_owned(),
            ScalarKind::Null => "null".to_owned(),
            ScalarKind::Bool(value) => format!("the boolean {value}"),
            ScalarKind::Int(_) => format!("the integer {}", one_line(scalar.text())),
            ScalarKind::Float => format!("the number {}", one_line(scalar.text())),
            ScalarKind::Text => format!("the text {}", quote(scalar.text())),
        },
    }
}

/// Suggests missing or wrong quotes and brackets.
fn punctuation(node: &YamlNode, expected: &str) -> Option<String> {
    let Value::Scalar(scalar) = &node.value else { return None };
    let text = one_line(scalar.text());
    match scalar.kind() {
        ScalarKind::Bool(_) | ScalarKind::Int(_) | ScalarKind::Float if expected == "a text" => {
            Some(format!("put it in quotes: \"{text}\""))
        }
        ScalarKind::Text if expected.starts_with("an integer") && text.parse::<i64>().is_ok() => {
            Some(format!("leave out the quotes: {text}"))
        }
        ScalarKind::Text if expected.starts_with("a list of the program") => {
            let words: Vec<String> = text.split_whitespace().map(word).collect();
            Some(format!("write it as a list: [{}]", words.join(", ")))
        }
        ScalarKind::Text if expected.starts_with("a list") => Some(format!("write it as a list: [{text}]")),
        ScalarKind::Null | ScalarKind::Bool(_) | ScalarKind::Int(_) | ScalarKind::Float | ScalarKind::Text => None,
    }
}

/// Quotes a word for a flow list, if necessary.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._=+-".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { quote(text) }
}
