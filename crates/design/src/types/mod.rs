//! Types of the values of documents.
//!
//! One description of each kind's fields ([`crate::kinds`]) drives the check of documents ([`check`](crate::types::check)),
//! inheritance ([`crate::inherit`]), and the JSON Schema for editors ([`json_schema`]), so they cannot disagree.

mod check;
mod describe;
mod format;
mod json_schema;

pub(crate) use check::{KeyNames, Reference, check, removal};
pub(crate) use describe::wrong_type;
pub use format::{Cidr, Format};
pub(crate) use format::{Size, address, cidr, mac, size};
pub use json_schema::{json_schema, spec_schema};

use crate::kinds::Kind;

/// Type of a value, which also decides how the value is inherited.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// A text with a format.
    Text(Format),
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
    Whole(&'static Type),
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
            Type::Whole(_)
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

/// Shorthands for the tables of [`crate::kinds`].
pub(crate) const TEXT: Type = Type::Text(Format::Any);
pub(crate) const TEXTS: Type = Type::List(&TEXT);
pub(crate) const TEXT_MAP: Type = Type::Map(&TEXT);
pub(crate) const ANY_MAP: Type = Type::Map(&Type::Any);

pub(crate) const fn field(name: &'static str, ty: Type, about: &'static str) -> Field {
    Field { name, ty, about }
}

pub(crate) const fn closed(what: &'static str, groups: &'static [&'static [Field]]) -> Object {
    Object { what, groups, open: false }
}

pub(crate) const fn integer(min: i64, max: i64) -> Type {
    Type::Integer { min, max }
}
