//! Muster's own documents: `{kind, name, labels?, extends?, overlay?, spec}`, many to a file.

use std::sync::Arc;

use super::{DocumentReader, ReaderOutput};
use crate::documents::{Document, DocumentOrigin, Parent};
use crate::file_text::{FileText, Span};
use crate::finding::{Code, FindingCollector, quote};
use crate::kinds::{AnyKind, Kind};
use crate::types::wrong_type;
use crate::yaml::{Value, YamlEntry, YamlMap, YamlNode};
use muster_core::spelling;

pub(super) struct NativeDocuments;

const KEYS: &[&str] = &["kind", "name", "labels", "extends", "overlay", "spec"];
const EXAMPLE: &str = "for instance: {kind: Network, name: mgmt, spec: {cidr: 10.1.0.0/24}}";

impl DocumentReader for NativeDocuments {
    fn name(&self) -> &'static str {
        "native"
    }

    /// Claims everything that no other reader claims, so that invalid documents are reported.
    fn claims(&self, _: &FileText, _: Option<&YamlNode>) -> bool {
        true
    }

    fn read(&self, _: &FileText, trees: &[YamlNode], made: &mut ReaderOutput<'_, '_>) {
        let filled = trees.iter().filter(|tree| !tree.is_null());
        if filled.clone().next().is_none() {
            if !made.report.has_errors() {
                let finding = Code::EmptyFile.finding("the file has no document");
                made.report.add_to_file(finding.help("write a document into it, or remove it"));
            }
            return;
        }
        for tree in filled {
            if let Some(document) = document(tree, made.source, made.report) {
                made.documents.push(document);
            }
        }
    }
}

fn document(tree: &YamlNode, source: usize, report: &mut FindingCollector<'_>) -> Option<Document> {
    let Value::Map(map) = &tree.value else {
        let finding = Code::NotADocument.finding("a document must be a mapping with a kind and a name");
        report.add(tree.span, finding.help(EXAMPLE));
        return None;
    };
    let at = map.entries().first().map_or(tree.span, |entry| entry.key.span);
    let misspelt = unknown_keys(map, report);
    let missing = |key: &str, report: &mut FindingCollector<'_>| {
        if !map.has_refused() && !misspelt.contains(&key) {
            let finding = Code::NotADocument.finding(format!("the document has no \"{key}\""));
            report.add(at, finding.help(EXAMPLE));
        }
    };
    let kind = match map.get("kind") {
        Some(entry) => filled(&entry.value, "\"kind\"", report),
        None => {
            missing("kind", report);
            None
        }
    };
    let name = match map.get("name") {
        Some(entry) => name(&entry.value, report),
        None => {
            missing("name", report);
            None
        }
    };
    let extends = map.get("extends").and_then(|entry| extends(&entry.value, report));
    let overlay = map.get("overlay").and_then(|entry| overlay(entry, report));
    let body = body(map, at, report)?;
    let (kind, (name, name_at)) = (AnyKind::new(kind?), name?);
    Some(Document {
        kind,
        name,
        name_at,
        extends,
        overlay,
        body,
        span: tree.span,
        source,
        origin: DocumentOrigin::Native,
    })
}

/// Reports unknown keys; returns the known keys that were probably meant.
fn unknown_keys(map: &YamlMap, report: &mut FindingCollector<'_>) -> Vec<&'static str> {
    let mut meant = Vec::new();
    for YamlEntry { key, .. } in map.entries() {
        if KEYS.contains(&&*key.text) {
            continue;
        }
        let near = spelling::nearest(&key.text, KEYS.iter().copied());
        let of_a_kind = || {
            let is_field = |kind: &&Kind| kind.body().below(&key.text).is_some();
            Kind::ALL.iter().find(is_field).map(|_| "it belongs into the document's \"spec\"".to_owned())
        };
        let help = match near {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => of_a_kind().unwrap_or_else(|| format!("known here: {}", KEYS.join(", "))),
        };
        meant.extend(near);
        let message = format!("unknown key {} in a document", quote(&key.text));
        report.add(key.span, Code::UnknownKey.finding(message).help(help));
    }
    meant
}

fn filled<'n>(node: &'n YamlNode, what: &str, report: &mut FindingCollector<'_>) -> Option<&'n str> {
    match node.text() {
        Some(text) if !text.trim().is_empty() => Some(text),
        Some(_) => {
            report.add(node.span, Code::EmptyText.finding(format!("{what} is empty")).expected("expected a text"));
            None
        }
        None => wrong_type(node, what, "a text", report),
    }
}

fn name(node: &YamlNode, report: &mut FindingCollector<'_>) -> Option<(Arc<str>, Span)> {
    let text = filled(node, "\"name\"", report)?;
    check_name(text, node.span, report)?;
    Some((node.scalar()?.shared_text(), node.span))
}

/// Checks a name. Names are parts of paths, of store keys and of API paths, and `'!name'` is a removal.
pub(crate) fn check_name(text: &str, span: Span, report: &mut FindingCollector<'_>) -> Option<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.+:@/".contains(c);
    let fits = text.len() <= 128 && text.chars().all(legal) && text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !fits {
        let finding = Code::DocumentName.finding(format!("{} is not a legal name of a document", quote(text)));
        let rule = "legal: 1 to 128 of A-Z, a-z, 0-9 and - _ . + : @ /, beginning with a letter or digit";
        report.add(span, finding.help(rule));
    }
    fits.then_some(())
}

fn extends(node: &YamlNode, report: &mut FindingCollector<'_>) -> Option<Vec<Parent>> {
    let parent = |node: &YamlNode, report: &mut FindingCollector<'_>| {
        filled(node, "a member of \"extends\"", report)?;
        Some(Parent { name: node.scalar()?.shared_text(), span: node.span })
    };
    match &node.value {
        Value::Seq(items) => Some(items.iter().filter_map(|item| parent(item, report)).collect()),
        _ if node.is_null() => None,
        Value::Scalar(_) | Value::Map(_) => wrong_type(node, "\"extends\"", "a list of names", report),
    }
}

fn overlay(entry: &YamlEntry, report: &mut FindingCollector<'_>) -> Option<Span> {
    match entry.value.kind() {
        Some(crate::yaml::ScalarKind::Bool(true)) => Some(entry.key.span),
        Some(crate::yaml::ScalarKind::Bool(false)) => None,
        _ => wrong_type(&entry.value, "\"overlay\"", "true or false", report),
    }
}

/// The spec with the labels as one of its keys; without labels, the spec itself.
fn body(map: &YamlMap, at: Span, report: &mut FindingCollector<'_>) -> Option<YamlNode> {
    let labels = map.get("labels").filter(|labels| !labels.value.is_null());
    let spec = map.get("spec").map(|entry| &entry.value).filter(|spec| !spec.is_null());
    if let Some(spec) = spec {
        let Value::Map(fields) = &spec.value else { return wrong_type(spec, "\"spec\"", "a mapping", report) };
        if let Some(entry) = fields.get("labels") {
            let finding = Code::UnknownKey.finding("unknown key \"labels\" in \"spec\"");
            report.add(entry.key.span, finding.help("labels stand beside \"spec\", not in it"));
        }
    }
    Some(match (spec, labels) {
        (Some(spec), None) => spec.clone(),
        (spec, labels) => {
            let fields = spec.and_then(YamlNode::map).map(YamlMap::entries).unwrap_or_default();
            let labels = labels.cloned();
            YamlNode::from_entries(fields.iter().cloned().chain(labels).collect(), spec.map_or(at, |spec| spec.span))
        }
    })
}
