//! Checks a document, as written, against the types of its kind.
//!
//! A document that inherits may remove (`'!name'`) and unset (`null`) anywhere, and may be incomplete. Required values
//! are checked by rules, on effective values. Each mistake is reported once, where it is written, even if many nodes
//! inherit it.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Object, TextFormat, Type, wrong_type};
use crate::file_text::Span;
use crate::finding::{Code, FindingCollector, is_secret_key, one_line, quote};
use crate::kinds::Kind;
use crate::yaml::{self, Scalar, Value, YamlEntry, YamlKey, YamlMap, YamlNode};
use muster_core::finding::Severity;
use muster_core::spelling;

/// A value that names a document.
#[derive(Clone, Debug)]
pub(crate) struct DocumentReference {
    pub kind: Kind,
    pub name: Arc<str>,
    pub span: Span,
    /// Severity if the document does not exist.
    pub severity: Severity,
}

/// Checks a value and everything in it. References are collected and resolved when all documents are loaded.
pub(crate) fn check(
    node: &YamlNode,
    ty: &Type,
    dialect: Dialect,
    references: &mut Vec<DocumentReference>,
    report: &mut FindingCollector<'_>,
) {
    let mut check = DocumentCheck { path: Vec::new(), dialect, references, report };
    check.value(node, ty);
}

/// Syntax of a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    /// Maps a native key to the key of the syntax.
    pub key_name: fn(&str) -> &str,
    /// Severity of what the program of the syntax accepts, and sites in the field have: a credential as text, and a rack
    /// without a document.
    pub accepted_elsewhere: Severity,
}

struct DocumentCheck<'c, 'n, 'r> {
    /// Path in the document, for messages.
    path: Vec<&'n str>,
    dialect: Dialect,
    references: &'c mut Vec<DocumentReference>,
    report: &'c mut FindingCollector<'r>,
}

impl<'n> DocumentCheck<'_, 'n, '_> {
    fn value(&mut self, node: &'n YamlNode, ty: &Type) {
        if node.is_null() {
            return;
        }
        match ty {
            Type::Any => self.anything(node),
            Type::Text(format) => self.text(node, *format),
            Type::Integer { min, max } => self.integer(node, *min, *max),
            Type::Bool => match node.kind() {
                Some(yaml::ScalarKind::Bool(_)) => {}
                _ => self.wrong(node, "true or false"),
            },
            Type::OneOf(words) => self.one_of(node, words),
            Type::Scalar => {
                if node.kind().is_none() {
                    self.wrong(node, "a single value");
                }
            }
            Type::Reference(kind) => {
                if let Some(scalar) = self.filled_text(node) {
                    let name = scalar.shared_text();
                    let is_rack = *kind == Kind::Rack;
                    let severity = if is_rack { self.dialect.accepted_elsewhere } else { Severity::Error };
                    self.references.push(DocumentReference { kind: *kind, name, span: node.span, severity });
                }
            }
            Type::Secret => self.secret(node),
            Type::List(item) => self.list(node, item, true),
            Type::ReplacedList(item) => self.list(node, item, false),
            Type::Keyed { key, item } => self.keyed(node, key, item),
            Type::Map(value) => {
                let Some(map) = self.mapping(node) else { return };
                for YamlEntry { key, value: node } in map.entries() {
                    self.below(key, node, value);
                }
            }
            Type::Object(object) => self.object(node, object),
        }
    }

    fn below(&mut self, key: &'n YamlKey, node: &'n YamlNode, ty: &Type) {
        // The value of a removal is ignored: it is empty, `{}` or `null`.
        if removal(&key.text).is_none() {
            self.path.push(&key.text);
            let is_free = matches!(ty, Type::Any | Type::Text(TextFormat::Any));
            if is_free && (is_secret_key(&key.text) || matches!(ty, Type::Any)) {
                self.parameter(&key.text, node);
            } else {
                self.value(node, ty);
            }
            self.path.pop();
        }
    }

    fn object(&mut self, node: &'n YamlNode, object: &Object) {
        let Some(map) = self.mapping(node) else { return };
        for YamlEntry { key, value } in map.entries() {
            let name = removal(&key.text).unwrap_or(&key.text);
            match object.field(name) {
                Some(ty) => self.below(key, value, &ty),
                None => self.unknown_key(key, name, object),
            }
        }
    }

    fn unknown_key(&mut self, key: &YamlKey, name: &str, object: &Object) {
        let known = || object.fields().map(|field| field.name);
        let help = match spelling::nearest(name, known()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("known here: {}", known().collect::<Vec<_>>().join(", ")),
        };
        let message = format!("unknown key {} in {}", quote(name), object.what);
        self.report.add(key.span, Code::UnknownKey.finding(message).help(help));
    }

    fn list(&mut self, node: &'n YamlNode, item: &Type, may_remove: bool) {
        let Value::Seq(items) = &node.value else { return self.wrong(node, "a list") };
        for member in items.iter() {
            let is_removal = may_remove && member.text().is_some_and(|text| removal(text).is_some());
            if !is_removal {
                self.value(member, item);
            }
        }
    }

    fn keyed(&mut self, node: &'n YamlNode, key: &'static str, item: &Object) {
        let Value::Seq(items) = &node.value else { return self.wrong(node, "a list") };
        let mut first: HashMap<&str, Span> = HashMap::new();
        for member in items.iter() {
            if member.text().is_some_and(|text| removal(text).is_some()) {
                continue;
            }
            let Value::Map(map) = &member.value else {
                self.wrong(member, item.what);
                continue;
            };
            match map.get(key).map(|entry| (&entry.value, entry.value.text())) {
                Some((_, Some(name))) if removal(name).is_some() => continue,
                Some((at, Some(name))) => {
                    if let Some(first) = first.insert(name, at.span) {
                        let message = format!("{} {} is defined twice", item.what, quote(name));
                        let finding = Code::DuplicateMember.finding(message).help("remove one of the two");
                        self.report.add_with_note(at.span, finding, "the first one is here", first);
                    }
                    self.path.push(name);
                    self.object(member, item);
                    self.path.pop();
                }
                // The primary key is not a text; its type is reported.
                Some((_, None)) => self.object(member, item),
                None => {
                    if !map.has_refused() {
                        let message = format!("{} has no \"{key}\"", item.what);
                        let finding = Code::MemberWithoutKey.finding(message);
                        let help = format!("\"{key}\" is the primary key of this list: add it");
                        self.report.add(member.span, finding.help(help));
                    }
                    self.object(member, item);
                }
            }
        }
    }

    fn integer(&mut self, node: &'n YamlNode, min: i64, max: i64) {
        let Some(yaml::ScalarKind::Int(number)) = node.kind() else { return self.wrong(node, "an integer") };
        if number < min || number > max {
            let finding = Code::OutOfRange.finding(format!("{} cannot be {number}", self.here()));
            let expected = match max {
                i64::MAX => format!("expected at least {min}"),
                _ => format!("expected {min} to {max}"),
            };
            self.report.add(node.span, finding.expected(expected));
        }
    }

    fn one_of(&mut self, node: &'n YamlNode, words: &'static [&'static str]) {
        let Some(scalar) = self.filled_text(node) else { return };
        if words.contains(&scalar.text()) {
            return;
        }
        let message = format!("{} cannot be {}", self.here(), quote(scalar.text()));
        let finding = Code::NotOneOf.finding(message).expected(format!("expected {}", words.join(", ")));
        let near = spelling::nearest(scalar.text(), words.iter().copied());
        self.report.add(node.span, finding.help_if(near.map(|near| format!("did you mean \"{near}\"?"))));
    }

    fn text(&mut self, node: &'n YamlNode, format: TextFormat) {
        let Some(scalar) = node.scalar().filter(|scalar| scalar.kind() == yaml::ScalarKind::Text) else {
            return self.wrong(node, "a text");
        };
        if let Err(malformed) = format.check(scalar.text()) {
            let message = format!("{} is {}", self.here(), quote(scalar.text()));
            let finding = malformed.code.finding(message);
            self.report.add(node.span, finding.expected(format!("expected {}", malformed.expected)));
        }
    }

    fn secret(&mut self, node: &'n YamlNode) {
        if !names_secret(node) {
            // The finding contains neither the value nor its line.
            let message = format!("{} must name a secret, not be one", self.here());
            let mut finding = Code::SecretAsText.finding(message).hiding_line();
            // Parameters of a driver stay errors: only this value is dropped when it is read.
            if self.path.last() == Some(&"credential") {
                finding.severity = self.dialect.accepted_elsewhere;
            }
            self.report.add(node.span, finding.help("write {secret: NAME}, and keep the secret itself elsewhere"));
        }
    }

    /// Checks a value of type `Any` for secrets, by the names of keys.
    fn anything(&mut self, node: &'n YamlNode) {
        match &node.value {
            Value::Scalar(_) => {}
            Value::Seq(items) => items.iter().for_each(|item| self.anything(item)),
            Value::Map(map) => {
                for YamlEntry { key, value } in map.entries() {
                    self.path.push(&key.text);
                    self.parameter(&key.text, value);
                    self.path.pop();
                }
            }
        }
    }

    fn parameter(&mut self, name: &str, value: &'n YamlNode) {
        if is_secret_key(name) && value.scalar().is_some_and(|scalar| !scalar.text().is_empty()) {
            self.secret(value);
        } else if !names_secret(value) {
            self.anything(value);
        }
    }

    fn mapping(&mut self, node: &'n YamlNode) -> Option<&'n YamlMap> {
        match &node.value {
            Value::Map(map) => Some(map),
            Value::Scalar(_) | Value::Seq(_) => {
                self.wrong(node, "a mapping");
                None
            }
        }
    }

    fn filled_text(&mut self, node: &'n YamlNode) -> Option<&'n Scalar> {
        let Some(scalar) = node.scalar().filter(|scalar| scalar.kind() == yaml::ScalarKind::Text) else {
            self.wrong(node, "a text");
            return None;
        };
        if scalar.text().trim().is_empty() {
            let finding = Code::EmptyText.finding(format!("{} is empty", self.here()));
            self.report.add(node.span, finding.expected("expected a text"));
            return None;
        }
        Some(scalar)
    }

    fn wrong(&mut self, node: &YamlNode, expected: &str) {
        let here = self.here();
        let _: Option<()> = wrong_type(node, &here, expected, self.report);
    }

    /// Path for messages: `"interfaces.bond0.mtu"`. At the top: the document's content.
    fn here(&self) -> String {
        match self.path.as_slice() {
            [] => "the document's content".to_owned(),
            path => {
                let words: Vec<&str> = path.iter().map(|key| (self.dialect.key_name)(key)).collect();
                format!("\"{}\"", one_line(&words.join(".")))
            }
        }
    }
}

/// Reports whether a text may be the name of a secret. Names have no spaces and at most 128 characters, so most secrets
/// that are written in place of their name are detected.
fn is_name_of_secret(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
    (1..=128).contains(&name.len()) && name.chars().all(legal)
}

/// Reports whether a value is `{secret: NAME}`.
fn names_secret(node: &YamlNode) -> bool {
    let only = node.map().map(YamlMap::entries);
    matches!(only, Some([only]) if &*only.key.text == "secret" && only.value.text().is_some_and(is_name_of_secret))
}

/// Name in a removal `'!name'`.
pub(crate) fn removal(text: &str) -> Option<&str> {
    text.strip_prefix('!').filter(|name| !name.is_empty())
}
