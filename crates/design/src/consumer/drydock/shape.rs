//! What Drydock's fields are, and what they become.

/// A mapping with known keys.
#[derive(Debug)]
pub(super) struct Shape {
    /// What it is, for messages: `a partition`.
    pub what: &'static str,
    pub fields: &'static [Field],
    /// Further fields, so that kinds can share the others.
    pub more: &'static [Field],
    /// What keys that are not known hold; without it they are findings.
    pub others: Option<Is>,
    /// Whether documents inherit it, so that `'!'` and `-1` unset a single value.
    pub inherits: bool,
}

/// A key, what is there, and the native key that it becomes.
#[derive(Debug)]
pub(super) struct Field {
    pub key: &'static str,
    pub to: &'static str,
    pub is: Is,
}

/// What a value is, and with it how it is translated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Is {
    /// A text; a number counts as what was written.
    Text,
    /// An integer; also as a text.
    Integer,
    Bool,
    /// Where the secret is; a text in its place is a finding, and goes no further.
    Secret,
    /// A list of texts.
    Texts,
    /// Texts with commas between them, which become a list.
    Commas,
    /// A mapping of texts by names of the author's own.
    Words,
    /// The same with any single values.
    Values,
    Object(&'static Shape),
    /// A mapping whose content stands beside it in the native document: its own key goes.
    Beside(&'static Shape),
    /// Things by name, in a mapping.
    Named(&'static Shape),
    /// Things in a list.
    Members(&'static Shape),
    /// As it is.
    Anything,
    /// Drydock knows the key, and does nothing with it.
    Ignored,
}

impl Is {
    /// Whether it is one of what Drydock calls simple fields.
    pub(super) fn is_single(self) -> bool {
        match self {
            Is::Text | Is::Integer | Is::Bool | Is::Secret => true,
            Is::Texts
            | Is::Commas
            | Is::Words
            | Is::Values
            | Is::Object(_)
            | Is::Beside(_)
            | Is::Named(_)
            | Is::Members(_)
            | Is::Anything
            | Is::Ignored => false,
        }
    }
}

impl Shape {
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static Field> + use<> {
        self.fields.iter().chain(self.more)
    }

    pub(super) fn field(&self, key: &str) -> Option<&'static Field> {
        self.fields().find(|field| field.key == key)
    }
}

/// A mapping in which no other keys may be.
pub(super) const fn shape(what: &'static str, fields: &'static [Field]) -> Shape {
    Shape { what, fields, more: &[], others: None, inherits: false }
}

/// The same in a document that inherits.
pub(super) const fn inherited(what: &'static str, fields: &'static [Field]) -> Shape {
    Shape { what, fields, more: &[], others: None, inherits: true }
}

/// A field that keeps its name.
pub(super) const fn same(key: &'static str, is: Is) -> Field {
    Field { key, to: key, is }
}

/// A field that is left out.
pub(super) const fn ignored(key: &'static str) -> Field {
    Field { key, to: key, is: Is::Ignored }
}

/// A field that has another name in a native document.
pub(super) const fn renamed(key: &'static str, to: &'static str, is: Is) -> Field {
    Field { key, to, is }
}
