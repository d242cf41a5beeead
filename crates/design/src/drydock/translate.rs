//! Translates the tree of a Drydock document into entries of a native one, with a table of each kind's fields: the type of
//! each value and its native name ([`Shape`]).
//!
//! Drydock ignores a field that is `null`, so it is dropped: in a native document it would unset the inherited value. For
//! free keys, such as an interface or a label, `null` removes in both.

use std::sync::Arc;

use muster_core::spelling;

use crate::finding::{Code, FindingCollector, one_line, quote};
use crate::types::{removal, wrong_type};
use crate::yaml::{ScalarKind, Value, YamlEntry, YamlKey, YamlMap, YamlNode};

/// Entries of the native mapping; none if the content is not a mapping.
pub(super) fn translate(
    content: &YamlNode,
    shape: &Shape,
    report: &mut FindingCollector<'_>,
) -> Option<Vec<YamlEntry>> {
    Translation { path: Vec::new(), is_member: false, report }.entries(content, shape)
}

struct Translation<'t, 'n, 'r> {
    /// Path in the document, with Drydock's names, for messages.
    path: Vec<&'n str>,
    /// The value is a member of the list at the path.
    is_member: bool,
    report: &'t mut FindingCollector<'r>,
}

impl<'n> Translation<'_, 'n, '_> {
    fn entries(&mut self, node: &'n YamlNode, shape: &Shape) -> Option<Vec<YamlEntry>> {
        let map = self.mapping(node)?;
        let is_member = std::mem::take(&mut self.is_member);
        let mut made: Vec<YamlEntry> = Vec::with_capacity(map.entries().len());
        for YamlEntry { key, value } in map.entries() {
            let (to, is) = match (shape.field(&key.text), shape.others) {
                (Some(field), _) => (Arc::from(field.to), field.shape),
                (None, Some(is)) => (key.text.clone(), is),
                (None, None) => {
                    self.unknown_key(key, shape);
                    continue;
                }
            };
            // For free keys `null` unsets.
            if value.is_null() && shape.field(&key.text).is_some() {
                continue;
            }
            self.path.push(&key.text);
            if let ValueShape::Beside(shape) = is {
                made.extend(self.entries(value, shape).unwrap_or_default());
            } else if shape.inherits && is.is_single() && unsets(value) {
                let value = YamlNode::from_plain("null", value.span);
                self.add(&mut made, YamlEntry { key: YamlKey { text: to, span: key.span }, value });
            } else if let Some(value) = self.value(value, is) {
                self.add(&mut made, YamlEntry { key: YamlKey { text: to, span: key.span }, value });
            }
            self.path.pop();
        }
        self.is_member = is_member;
        Some(made)
    }

    /// Adds an entry. Some fields have an old and a new name.
    fn add(&mut self, made: &mut Vec<YamlEntry>, entry: YamlEntry) {
        match made.iter().find(|known| known.key.text == entry.key.text) {
            None => made.push(entry),
            Some(first) => {
                let message = format!("{} sets a value that is set already", self.here());
                let finding = Code::DuplicateKey.finding(message).help("remove one of the two");
                self.report.add_with_note(entry.key.span, finding, "the first one is here", first.key.span);
            }
        }
    }

    fn value(&mut self, node: &'n YamlNode, is: ValueShape) -> Option<YamlNode> {
        match is {
            ValueShape::Anything => Some(node.clone()),
            ValueShape::Text => self.single(node, "a text", as_text),
            ValueShape::Integer => self.single(node, "an integer", as_integer),
            ValueShape::Bool => self.single(node, "true or false", as_bool),
            ValueShape::Secret => Some(secret(node)),
            ValueShape::Texts => self.list(node, |this, member| this.single(member, "a text", as_text)),
            ValueShape::Commas => self.commas(node),
            ValueShape::Words => self.named(node, |this, value| this.single(value, "a text", as_word)),
            ValueShape::Values => {
                self.named(node, |this, value| this.single(value, "a single value", |node| Some(node.clone())))
            }
            ValueShape::Object(shape) => Some(YamlNode::from_entries(self.entries(node, shape)?, node.span)),
            ValueShape::Beside(_) | ValueShape::Ignored => None,
            ValueShape::Named(shape) => self.named(node, |this, value| this.value(value, ValueShape::Object(shape))),
            ValueShape::NamedOrListed(shape, key) => match &node.value {
                Value::Seq(items) => Some(self.listed(node, items, shape, key)),
                Value::Scalar(_) | Value::Map(_) => self.value(node, ValueShape::Named(shape)),
            },
            ValueShape::Members(shape) => self.list(node, |this, member| match removed(member) {
                true => Some(member.clone()),
                false => this.value(member, ValueShape::Object(shape)),
            }),
        }
    }

    /// A single value, converted by `make`.
    fn single(
        &mut self,
        node: &'n YamlNode,
        expected: &str,
        make: fn(&YamlNode) -> Option<YamlNode>,
    ) -> Option<YamlNode> {
        let made = node.scalar().and_then(|_| make(node));
        if made.is_none() {
            self.wrong(node, expected);
        }
        made
    }

    fn list(
        &mut self,
        node: &'n YamlNode,
        mut member: impl FnMut(&mut Self, &'n YamlNode) -> Option<YamlNode>,
    ) -> Option<YamlNode> {
        let Value::Seq(items) = &node.value else {
            self.wrong(node, "a list");
            return None;
        };
        let was_member = std::mem::replace(&mut self.is_member, true);
        let made = items.iter().filter(|item| !item.is_null()).filter_map(|item| member(self, item)).collect();
        self.is_member = was_member;
        Some(YamlNode::from_items(made, node.span))
    }

    /// A mapping with free keys: `'!name'` and `null` remove.
    fn named(
        &mut self,
        node: &'n YamlNode,
        mut value: impl FnMut(&mut Self, &'n YamlNode) -> Option<YamlNode>,
    ) -> Option<YamlNode> {
        let map = self.mapping(node)?;
        let mut made = Vec::with_capacity(map.entries().len());
        for entry in map.entries() {
            if entry.value.is_null() || removal(&entry.key.text).is_some() {
                made.push(entry.clone());
                continue;
            }
            self.path.push(&entry.key.text);
            made.extend(value(self, &entry.value).map(|value| YamlEntry { key: entry.key.clone(), value }));
            self.path.pop();
        }
        Some(YamlNode::from_entries(made, node.span))
    }

    /// A list of objects with names, as the mapping that newer documents have.
    fn listed(&mut self, node: &'n YamlNode, items: &'n [YamlNode], shape: &'static Shape, key: &str) -> YamlNode {
        let mut made = Vec::with_capacity(items.len());
        for item in items.iter().filter(|item| !item.is_null()) {
            let Some(map) = self.mapping(item) else { continue };
            let name = map.get(key).map(|entry| &entry.value);
            let Some((name, scalar)) = name.and_then(|name| Some((name, name.scalar()?))) else {
                let finding = Code::MemberWithoutKey.finding(format!("{} has no \"{key}\"", shape.what));
                self.report.add(item.span, finding.help(format!("\"{key}\" names a member of this list: add it")));
                continue;
            };
            self.path.push(scalar.text());
            if let Some(value) = self.value(item, ValueShape::Object(shape)) {
                let key = YamlKey { text: scalar.shared_text(), span: name.span };
                self.add(&mut made, YamlEntry { key, value });
            }
            self.path.pop();
        }
        YamlNode::from_entries(made, node.span)
    }

    fn commas(&mut self, node: &'n YamlNode) -> Option<YamlNode> {
        if node.items().is_some() {
            return self.value(node, ValueShape::Texts);
        }
        let text = self.single(node, "texts separated by commas", as_text)?;
        let parts = text.text().unwrap_or_default().split(',').map(str::trim).filter(|part| !part.is_empty());
        Some(YamlNode::from_items(parts.map(|part| YamlNode::from_text(part, node.span)).collect(), node.span))
    }

    fn mapping(&mut self, node: &'n YamlNode) -> Option<&'n YamlMap> {
        let map = node.map();
        if map.is_none() {
            self.wrong(node, "a mapping");
        }
        map
    }

    fn unknown_key(&mut self, key: &YamlKey, shape: &Shape) {
        let known = || shape.fields().map(|field| field.key);
        let help = match spelling::nearest(&key.text, known()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("Drydock's keys here are {}", known().collect::<Vec<_>>().join(", ")),
        };
        let message = format!("unknown key {} in {}", quote(&key.text), shape.what);
        self.report.add(key.span, Code::UnknownKey.finding(message).help(help));
    }

    fn wrong(&mut self, node: &YamlNode, expected: &str) {
        let here = self.here();
        let _: Option<()> = wrong_type(node, &here, expected, self.report);
    }

    fn here(&self) -> String {
        match self.path.as_slice() {
            [] => "the document's content".to_owned(),
            path if self.is_member => format!("a member of \"{}\"", one_line(&path.join("."))),
            path => format!("\"{}\"", one_line(&path.join("."))),
        }
    }
}

/// Drops the text of a secret. The check of native documents reports it.
fn secret(node: &YamlNode) -> YamlNode {
    match &node.value {
        Value::Map(_) => node.clone(),
        Value::Scalar(_) | Value::Seq(_) => YamlNode::from_text("", node.span),
    }
}

/// Reports whether a single value unsets the inherited one.
fn unsets(node: &YamlNode) -> bool {
    node.scalar().is_some_and(|scalar| matches!(scalar.text(), "!" | "-1"))
}

fn removed(member: &YamlNode) -> bool {
    member.text().is_some_and(|text| removal(text).is_some())
}

fn as_text(node: &YamlNode) -> Option<YamlNode> {
    let scalar = node.scalar()?;
    match scalar.kind() {
        ScalarKind::Text => Some(node.clone()),
        ScalarKind::Int(_) | ScalarKind::Float => Some(YamlNode::from_text(scalar.shared_text(), node.span)),
        ScalarKind::Null | ScalarKind::Bool(_) => None,
    }
}

/// Text of a label; `true` becomes the text as written.
fn as_word(node: &YamlNode) -> Option<YamlNode> {
    let scalar = node.scalar()?;
    match scalar.kind() {
        ScalarKind::Bool(_) => Some(YamlNode::from_text(scalar.shared_text(), node.span)),
        ScalarKind::Null | ScalarKind::Int(_) | ScalarKind::Float | ScalarKind::Text => as_text(node),
    }
}

fn as_integer(node: &YamlNode) -> Option<YamlNode> {
    let scalar = node.scalar()?;
    match scalar.kind() {
        ScalarKind::Int(_) => Some(node.clone()),
        ScalarKind::Text => {
            let made = YamlNode::from_plain(scalar.text().trim(), node.span);
            matches!(made.kind(), Some(ScalarKind::Int(_))).then_some(made)
        }
        ScalarKind::Null | ScalarKind::Bool(_) | ScalarKind::Float => None,
    }
}

fn as_bool(node: &YamlNode) -> Option<YamlNode> {
    matches!(node.kind(), Some(ScalarKind::Bool(_))).then(|| node.clone())
}

/// A mapping with known keys.
#[derive(Debug)]
pub(super) struct Shape {
    /// Name for messages: `a partition`.
    pub what: &'static str,
    pub fields: &'static [DrydockField],
    /// Further fields; `fields` can be shared between kinds.
    pub more: &'static [DrydockField],
    /// Shape of unknown keys; without it they are reported.
    pub others: Option<ValueShape>,
    /// The mapping is inherited: `'!'` and `-1` unset a single value.
    pub inherits: bool,
}

/// A field: its key, its native key and the shape of its value.
#[derive(Debug)]
pub(super) struct DrydockField {
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
    /// The same, or a list as in older documents, whose members have their name under a key.
    NamedOrListed(&'static Shape, &'static str),
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
            | ValueShape::NamedOrListed(..)
            | ValueShape::Members(_)
            | ValueShape::Anything
            | ValueShape::Ignored => false,
        }
    }
}

impl Shape {
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static DrydockField> + use<> {
        self.fields.iter().chain(self.more)
    }

    pub(super) fn field(&self, key: &str) -> Option<&'static DrydockField> {
        self.fields().find(|field| field.key == key)
    }
}

/// A mapping without other keys.
pub(super) const fn shape(what: &'static str, fields: &'static [DrydockField]) -> Shape {
    Shape { what, fields, more: &[], others: None, inherits: false }
}

/// A mapping without other keys in a document that inherits.
pub(super) const fn inherited(what: &'static str, fields: &'static [DrydockField]) -> Shape {
    Shape { what, fields, more: &[], others: None, inherits: true }
}

/// A field that keeps its name.
pub(super) const fn same(key: &'static str, is: ValueShape) -> DrydockField {
    DrydockField { key, to: key, shape: is }
}

/// A field that is left out.
pub(super) const fn ignored(key: &'static str) -> DrydockField {
    DrydockField { key, to: key, shape: ValueShape::Ignored }
}

/// A field that has another name in a native document.
pub(super) const fn renamed(key: &'static str, to: &'static str, is: ValueShape) -> DrydockField {
    DrydockField { key, to, shape: is }
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
