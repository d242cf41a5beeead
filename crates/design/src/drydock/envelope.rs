//! Envelopes of Drydock's documents.
//!
//! Deckhand's envelope is `{schema: drydock/<Kind>/v1, metadata: {name}, data}`, the plain one
//! `{apiVersion: drydock/v1, kind, metadata: {name}, spec}`.
//!
//! Muster reads documents that Deckhand has rendered, and warns about others. One substitution is supported: the one of a
//! credential, because it names the secret. Documents of other programs in the same stream become configuration items.

use std::sync::Arc;

use muster_core::spelling;

use crate::documents::native::check_name;
use crate::documents::{Document, DocumentOrigin};
use crate::drydock::draft::{Draft, generated_entry};
use crate::file_text::Span;
use crate::finding::{Code, FindingCollector, quote};
use crate::kinds::AnyKind;
use crate::types::wrong_type;
use crate::yaml::{ScalarKind, Value, YamlEntry, YamlMap, YamlNode};

const NAMED: &str = "for instance: metadata: {name: rack1}";
const RENDER: &str = "give Muster the documents that Deckhand renders";
/// Deckhand's kinds whose content is a secret.
const SECRETS: &[&str] = &["Passphrase", "PrivateKey", "CertificateKey", "CertificateAuthorityKey"];

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
    pub metadata: Option<&'n YamlMap>,
    /// `data` or `spec`; none if it is empty.
    pub content: Option<&'n YamlNode>,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Deckhand,
    Plain,
}

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
pub(super) fn is_envelope(tree: &YamlNode) -> bool {
    form(tree).is_some()
}

fn form(tree: &YamlNode) -> Option<Form> {
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
    pub(super) fn open(tree: &'n YamlNode, report: &mut FindingCollector<'_>) -> Option<Self> {
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
    pub(super) fn metadata(&self, key: &str) -> Option<&'n YamlNode> {
        self.metadata?.get(key).map(|entry| &entry.value).filter(|value| !value.is_null())
    }
}

fn unknown_keys(map: &YamlMap, form: Form, report: &mut FindingCollector<'_>) {
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

fn metadata<'n>(map: &'n YamlMap, at: Span, report: &mut FindingCollector<'_>) -> Option<&'n YamlMap> {
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

fn name(metadata: Option<&YamlMap>, at: Span, report: &mut FindingCollector<'_>) -> Option<(Arc<str>, Span)> {
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

/// Reports whether a document is abstract: a base for layering that is not part of the site.
pub(super) fn is_abstract(envelope: &Envelope<'_>, report: &mut FindingCollector<'_>) -> bool {
    let Some(layering) = envelope.metadata("layeringDefinition").and_then(YamlNode::map) else { return false };
    let flag = layering.get("abstract").filter(|entry| entry.value.kind() == Some(ScalarKind::Bool(true)));
    if let Some(entry) = flag {
        not_rendered(entry.key.span, "the document is abstract, and is left out".to_owned(), report);
        return true;
    }
    if let Some(entry) = layering.get("parentSelector").filter(|entry| !entry.value.is_null()) {
        not_rendered(entry.key.span, "the document is not laid over the one that it selects".to_owned(), report);
    }
    false
}

/// Replaces the substitution of a credential by a reference to the secret.
pub(super) fn substitute(draft: &mut Draft, envelope: &Envelope<'_>, report: &mut FindingCollector<'_>) {
    for substitution in envelope.metadata("substitutions").and_then(YamlNode::items).unwrap_or_default() {
        let Some(to) = substitution.get("dest") else { continue };
        let from = substitution.get("src").and_then(|from| from.get("name"));
        for to in to.items().unwrap_or(std::slice::from_ref(to)) {
            let Some(path) = to.get("path") else { continue };
            let steps = path.text().unwrap_or_default().trim_start_matches('$').trim_start_matches('.');
            match from.and_then(YamlNode::scalar) {
                Some(name) if steps == "oob.credential" => {
                    let at = from.map_or(path.span, |from| from.span);
                    credential(draft, YamlNode::from_text(name.shared_text(), at), path.span);
                }
                _ => {
                    let message = format!("nothing is substituted at {}", quote(path.text().unwrap_or_default()));
                    not_rendered(path.span, message, report);
                }
            }
        }
    }
}

fn credential(draft: &mut Draft, name: YamlNode, at: Span) {
    let secret = YamlNode::from_entries(vec![generated_entry("secret", name)], at);
    let own = draft.remove("oob");
    let (key, written) = match &own {
        Some(YamlEntry { key, value }) => (key.clone(), value.map().map(|map| map.entries()).unwrap_or_default()),
        None => (generated_entry("oob", secret.clone()).key, Default::default()),
    };
    let others = written.iter().filter(|entry| &*entry.key.text != "credential").cloned();
    let entries = others.chain([generated_entry("credential", secret)]).collect();
    let span = own.as_ref().map_or(at, |own| own.value.span);
    draft.entries.push(YamlEntry { key, value: YamlNode::from_entries(entries, span) });
}

fn not_rendered(at: Span, message: String, report: &mut FindingCollector<'_>) {
    report.add(at, Code::NotRendered.finding(message).help(RENDER));
}

/// A configuration item whose kind is the name of its schema, such as `promenade/Docker/v1`.
pub(super) fn item_document(
    envelope: &Envelope<'_>,
    source: usize,
    report: &mut FindingCollector<'_>,
) -> Option<Document> {
    if holds_secret(envelope)
        && let Some(content) = envelope.content.filter(|content| content.get("secret").is_none())
    {
        let finding = Code::SecretAsText.finding("the document has a secret").hiding_line();
        report.add(content.span, finding.help("keep it out of the design: documents name secrets, {secret: NAME}"));
        return None;
    }
    let parts = [envelope.space, envelope.kind, envelope.version];
    let kind = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    Some(Document {
        kind: AnyKind::new(&kind),
        name: envelope.name.clone()?,
        name_at: envelope.name_at,
        extends: None,
        overlay: None,
        body: body(envelope),
        span: envelope.span,
        source,
        origin: DocumentOrigin::Drydock,
    })
}

fn holds_secret(envelope: &Envelope<'_>) -> bool {
    let is_encrypted = envelope.metadata("storagePolicy").and_then(YamlNode::text) == Some("encrypted");
    is_encrypted || (envelope.space == "deckhand" && SECRETS.contains(&envelope.kind))
}

/// The content, with Deckhand's labels among its keys as in a native document.
fn body(envelope: &Envelope<'_>) -> YamlNode {
    let Some(content) = envelope.content else { return YamlNode::from_entries(Vec::new(), envelope.name_at) };
    let labels = envelope.metadata.and_then(|metadata| metadata.get("labels"));
    match (content.map(), labels) {
        (Some(map), Some(YamlEntry { value, .. })) if value.map().is_some() && map.get("labels").is_none() => {
            YamlNode::from_entries(map.entries().iter().chain(labels).cloned().collect(), content.span)
        }
        _ => content.clone(),
    }
}
