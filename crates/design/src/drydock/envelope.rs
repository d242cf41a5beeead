//! Envelopes of Drydock's documents.
//!
//! Deckhand's envelope is `{schema: drydock/<Kind>/v1, metadata: {name}, data}`, the plain one
//! `{apiVersion: drydock/v1, kind, metadata: {name}, spec}`.

use std::sync::Arc;

use crate::documents::native::check_name;
use crate::finding::{Code, Report, quote};
use crate::span::Span;
use crate::types::wrong_type;
use crate::yaml::{Map, Node, Value};
use muster_core::spelling;

/// A parsed envelope.
#[derive(Debug)]
pub(super) struct Envelope<'n> {
    form: Form,
    /// `drydock`, `promenade`, …; empty if the schema's name is not made of three parts.
    pub space: &'n str,
    pub kind: &'n str,
    pub kind_at: Span,
    pub version: &'n str,
    pub version_at: Span,
    /// A missing name was reported; the content is checked anyway.
    pub name: Option<Arc<str>>,
    pub name_at: Span,
    pub metadata: Option<&'n Map>,
    /// `data` or `spec`; none if it is empty.
    pub content: Option<&'n Node>,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Deckhand,
    Plain,
}

const NAMED: &str = "for instance: metadata: {name: rack1}";

impl Form {
    fn keys(self) -> &'static [&'static str] {
        match self {
            Form::Deckhand => &["schema", "metadata", "data"],
            Form::Plain => &["apiVersion", "kind", "metadata", "spec"],
        }
    }

    fn content(self) -> &'static str {
        match self {
            Form::Deckhand => "data",
            Form::Plain => "spec",
        }
    }
}

/// Reports whether a tree has one of these envelopes.
pub(super) fn is_envelope(tree: &Node) -> bool {
    form(tree).is_some()
}

fn form(tree: &Node) -> Option<Form> {
    let map = tree.map()?;
    let has_path =
        |key: &str| map.get(key).is_some_and(|entry| entry.value.text().is_some_and(|text| text.contains('/')));
    if has_path("schema") && map.get("kind").is_none() {
        Some(Form::Deckhand)
    } else {
        has_path("apiVersion").then_some(Form::Plain)
    }
}

impl<'n> Envelope<'n> {
    /// Parses an envelope; none if its kind is unknown.
    pub(super) fn open(tree: &'n Node, report: &mut Report<'_>) -> Option<Self> {
        let (form, map) = (form(tree)?, tree.map()?);
        unknown_keys(map, form, report);
        let (space, kind, kind_at, version, version_at) = match form {
            Form::Deckhand => {
                let node = &map.get("schema")?.value;
                let mut parts = node.text()?.splitn(3, '/');
                let (space, kind) = (parts.next()?, parts.next().unwrap_or_default());
                (space, kind, node.span, parts.next().unwrap_or_default(), node.span)
            }
            Form::Plain => {
                let version = &map.get("apiVersion")?.value;
                let (space, number) = version.text()?.split_once('/')?;
                let Some(kind) = map.get("kind").map(|entry| &entry.value) else {
                    let finding = Code::NotADocument.finding("the document has no \"kind\"");
                    report.add(version.span, finding.help("for instance: kind: HostProfile"));
                    return None;
                };
                let Some(word) = kind.text() else { return wrong_type(kind, "\"kind\"", "a text", report) };
                (space, word, kind.span, number, version.span)
            }
        };
        let metadata = metadata(map, kind_at, report);
        let name = name(metadata, kind_at, report);
        let name_at = name.as_ref().map_or(kind_at, |(_, span)| *span);
        let content = map.get(form.content()).map(|entry| &entry.value).filter(|content| !content.is_null());
        let name = name.map(|(name, _)| name);
        Some(Envelope {
            form,
            space,
            kind,
            kind_at,
            version,
            version_at,
            name,
            name_at,
            metadata,
            content,
            span: tree.span,
        })
    }

    /// First line of such a document with this version, for suggestions.
    pub(super) fn example(&self, version: &str) -> String {
        match self.form {
            Form::Deckhand => format!("schema: {}/{}/{version}", self.space, self.kind),
            Form::Plain => format!("apiVersion: {}/{version}", self.space),
        }
    }

    /// A value of the metadata; `null` counts as absent.
    pub(super) fn metadata(&self, key: &str) -> Option<&'n Node> {
        self.metadata?.get(key).map(|entry| &entry.value).filter(|value| !value.is_null())
    }
}

fn unknown_keys(map: &Map, form: Form, report: &mut Report<'_>) {
    let keys = form.keys();
    for key in map.entries().iter().map(|entry| &entry.key).filter(|key| !keys.contains(&&*key.text)) {
        let help = match spelling::nearest(&key.text, keys.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None if matches!(&*key.text, "data" | "spec") => format!("with this envelope it is \"{}\"", form.content()),
            None => format!("known here: {}", keys.join(", ")),
        };
        let message = format!("unknown key {} in a document", quote(&key.text));
        report.add(key.span, Code::UnknownKey.finding(message).help(help));
    }
}

fn metadata<'n>(map: &'n Map, at: Span, report: &mut Report<'_>) -> Option<&'n Map> {
    let Some(node) = map.get("metadata").map(|entry| &entry.value) else {
        let finding = Code::NotADocument.finding("the document has no \"metadata\"");
        report.add(at, finding.help(NAMED));
        return None;
    };
    match &node.value {
        Value::Map(map) => Some(map),
        Value::Scalar(_) | Value::Seq(_) => wrong_type(node, "\"metadata\"", "a mapping", report),
    }
}

fn name(metadata: Option<&Map>, at: Span, report: &mut Report<'_>) -> Option<(Arc<str>, Span)> {
    let Some(entry) = metadata?.get("name") else {
        let finding = Code::NotADocument.finding("the document has no \"metadata.name\"");
        report.add(at, finding.help(NAMED));
        return None;
    };
    let node = &entry.value;
    // Drydock accepts numbers as names.
    let is_single = !node.is_null() && node.scalar().is_some();
    let Some(scalar) = node.scalar().filter(|_| is_single) else {
        return wrong_type(node, "\"metadata.name\"", "a text", report);
    };
    check_name(scalar.text(), node.span, report)?;
    Some((scalar.shared_text(), node.span))
}
