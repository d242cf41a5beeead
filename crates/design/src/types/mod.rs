//! What the values of a document must be.
//!
//! One description of each kind's fields ([`crate::kinds`]) serves everything that must know them: the check of what is
//! written, with "did you mean" ([`check`](crate::types::check)), how a value is inherited ([`crate::inherit`]), and the
//! JSON Schema for editors ([`json_schema`]). So they cannot disagree.

mod check;
mod describe;
mod format;
mod json_schema;

pub(crate) use check::{Reference, Words, check, removal};
pub(crate) use describe::wrong_type;
pub use format::{Cidr, Format};
pub(crate) use format::{Size, address, cidr, mac, size};
pub use json_schema::{json_schema, spec_schema};

use crate::kinds::Kind;

/// What a value must be; with it goes the rule by which it is inherited.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// A text of a certain form.
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
    /// `{secret: NAME}`: where the secret is, never the secret.
    Secret,
    /// A list of single values.
    List(&'static Type),
    /// A list of mappings that are told apart by one of their keys.
    Keyed {
        key: &'static str,
        item: &'static Object,
    },
    /// A list that means something only as a whole, such as the steps of a pipeline: it is inherited as such.
    Whole(&'static Type),
    /// A mapping with keys of the author's own.
    Map(&'static Type),
    /// A mapping with known keys.
    Object(&'static Object),
    /// Anything: parameters that are not Muster's.
    Any,
}

/// A mapping with known keys.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// What it is, for messages: `a partition`.
    pub what: &'static str,
    /// In groups, so that kinds can share one.
    pub groups: &'static [&'static [Field]],
    /// Whether keys that are not known may be there, with any value.
    pub open: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub ty: Type,
    /// What it is for, in a sentence: it stands in the JSON Schema, where editors show it.
    pub about: &'static str,
}

impl Object {
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> + use<> {
        self.groups.iter().copied().flatten()
    }

    /// The type of a field; of an unknown one where they are allowed, anything.
    pub(crate) fn field(&self, name: &str) -> Option<Type> {
        let known = self.fields().find(|field| field.name == name).map(|field| field.ty);
        known.or(self.open.then_some(Type::Any))
    }
}

impl Type {
    /// The type of what is below a value of this type, at a key or a member's name.
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
