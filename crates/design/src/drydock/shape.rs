//! Fields of Drydock's documents: the type of each value and its native name.

/// A mapping with known keys.
#[derive(Debug)]
pub(super) struct Shape {
    /// Name for messages: `a partition`.
    pub what: &'static str,
    pub fields: &'static [Field],
    /// Further fields; `fields` can be shared between kinds.
    pub more: &'static [Field],
    /// Shape of unknown keys; without it they are reported.
    pub others: Option<ValueShape>,
    /// The mapping is inherited: `'!'` and `-1` unset a single value.
    pub inherits: bool,
}

/// A field: its key, its native key and the shape of its value.
#[derive(Debug)]
pub(super) struct Field {
    pub key: &'static str,
    pub to: &'static str,
    pub shape: ValueShape,
}

/// Type of a value, which decides its translation.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueShape {
    /// A text; a number becomes the text as written.
    Text,
    /// An integer; also as a text.
    Integer,
    Bool,
    /// Reference to a secret. A plain text is reported and dropped.
    Secret,
    /// A list of texts.
    Texts,
    /// Texts separated by commas, which become a list.
    Commas,
    /// A mapping of texts with free keys.
    Words,
    /// A mapping of single values with free keys.
    Values,
    Object(&'static Shape),
    /// A mapping whose entries move one level up in the native document.
    Beside(&'static Shape),
    /// Objects in a mapping with free keys.
    Named(&'static Shape),
    /// Objects in a list.
    Members(&'static Shape),
    /// As it is.
    Anything,
    /// Accepted and ignored.
    Ignored,
}

impl ValueShape {
    /// Reports whether it is a simple field in Drydock's terms.
    pub(super) fn is_single(self) -> bool {
        match self {
            ValueShape::Text | ValueShape::Integer | ValueShape::Bool | ValueShape::Secret => true,
            ValueShape::Texts
            | ValueShape::Commas
            | ValueShape::Words
            | ValueShape::Values
            | ValueShape::Object(_)
            | ValueShape::Beside(_)
            | ValueShape::Named(_)
            | ValueShape::Members(_)
            | ValueShape::Anything
            | ValueShape::Ignored => false,
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

/// A mapping without other keys.
pub(super) const fn shape(what: &'static str, fields: &'static [Field]) -> Shape {
    Shape { what, fields, more: &[], others: None, inherits: false }
}

/// A mapping without other keys in a document that inherits.
pub(super) const fn inherited(what: &'static str, fields: &'static [Field]) -> Shape {
    Shape { what, fields, more: &[], others: None, inherits: true }
}

/// A field that keeps its name.
pub(super) const fn same(key: &'static str, is: ValueShape) -> Field {
    Field { key, to: key, shape: is }
}

/// A field that is left out.
pub(super) const fn ignored(key: &'static str) -> Field {
    Field { key, to: key, shape: ValueShape::Ignored }
}

/// A field that has another name in a native document.
pub(super) const fn renamed(key: &'static str, to: &'static str, is: ValueShape) -> Field {
    Field { key, to, shape: is }
}

/// Drydock's name of a native key, for findings. Keys that several Drydock keys map to, such as `type`, stay unchanged.
pub(crate) fn drydock_key(native: &str) -> &str {
    match native {
        "addresses" => "addressing",
        "devices" => "slaves",
        "disks" => "physical_devices",
        "domain_routes" => "routes",
        "filters" => "filter_set",
        "packages" => "data",
        "set" => "filter_set_type",
        "trusted_mode" => "trustedmode",
        same => same,
    }
}
