//! Deckhand's layering and substitutions, and documents of other programs in the same stream.
//!
//! Muster reads rendered documents, and warns about documents that are not. One substitution is supported: the one of a
//! credential, because it names the secret.

use crate::documents::{Document, DocumentOrigin};
use crate::drydock::draft::{Draft, generated_entry};
use crate::drydock::envelope::Envelope;
use crate::finding::{Code, Report, quote};
use crate::kinds::AnyKind;
use crate::span::Span;
use crate::yaml::{Entry, Kind, Node};

const RENDER: &str = "give Muster the documents that Deckhand renders";

/// Reports whether a document is abstract: a base for layering that is not part of the site.
pub(super) fn is_abstract(envelope: &Envelope<'_>, report: &mut Report<'_>) -> bool {
    let Some(layering) = envelope.metadata("layeringDefinition").and_then(Node::map) else { return false };
    let flag = layering.get("abstract").filter(|entry| entry.value.kind() == Some(Kind::Bool(true)));
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
pub(super) fn substitute(draft: &mut Draft, envelope: &Envelope<'_>, report: &mut Report<'_>) {
    for substitution in envelope.metadata("substitutions").and_then(Node::items).unwrap_or_default() {
        let Some(to) = substitution.get("dest") else { continue };
        let from = substitution.get("src").and_then(|from| from.get("name"));
        for to in to.items().unwrap_or(std::slice::from_ref(to)) {
            let Some(path) = to.get("path") else { continue };
            let steps = path.text().unwrap_or_default().trim_start_matches('$').trim_start_matches('.');
            match from.and_then(Node::scalar) {
                Some(name) if steps == "oob.credential" => {
                    let at = from.map_or(path.span, |from| from.span);
                    credential(draft, Node::from_text(name.shared_text(), at), path.span);
                }
                _ => {
                    let message = format!("nothing is substituted at {}", quote(path.text().unwrap_or_default()));
                    not_rendered(path.span, message, report);
                }
            }
        }
    }
}

fn credential(draft: &mut Draft, name: Node, at: Span) {
    let secret = Node::from_entries(vec![generated_entry("secret", name)], at);
    let own = draft.remove("oob");
    let (key, written) = match &own {
        Some(Entry { key, value }) => (key.clone(), value.map().map(|map| map.entries()).unwrap_or_default()),
        None => (generated_entry("oob", secret.clone()).key, Default::default()),
    };
    let others = written.iter().filter(|entry| &*entry.key.text != "credential").cloned();
    let entries = others.chain([generated_entry("credential", secret)]).collect();
    let span = own.as_ref().map_or(at, |own| own.value.span);
    draft.entries.push(Entry { key, value: Node::from_entries(entries, span) });
}

fn not_rendered(at: Span, message: String, report: &mut Report<'_>) {
    report.add(at, Code::NotRendered.finding(message).help(RENDER));
}

/// Deckhand's kinds whose content is a secret.
const SECRETS: &[&str] = &["Passphrase", "PrivateKey", "CertificateKey", "CertificateAuthorityKey"];

/// A configuration item whose kind is the name of its schema, such as `promenade/Docker/v1`.
pub(super) fn item_document(envelope: &Envelope<'_>, source: usize, report: &mut Report<'_>) -> Option<Document> {
    if holds_secret(envelope)
        && let Some(content) = envelope.content.filter(|content| content.get("secret").is_none())
    {
        let finding = Code::SecretAsText.finding("the document holds a secret").hiding_line();
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
    let is_encrypted = envelope.metadata("storagePolicy").and_then(Node::text) == Some("encrypted");
    is_encrypted || (envelope.space == "deckhand" && SECRETS.contains(&envelope.kind))
}

/// The content, with Deckhand's labels among its keys as in a native document.
fn body(envelope: &Envelope<'_>) -> Node {
    let Some(content) = envelope.content else { return Node::from_entries(Vec::new(), envelope.name_at) };
    let labels = envelope.metadata.and_then(|metadata| metadata.get("labels"));
    match (content.map(), labels) {
        (Some(map), Some(Entry { value, .. })) if value.map().is_some() && map.get("labels").is_none() => {
            Node::from_entries(map.entries().iter().chain(labels).cloned().collect(), content.span)
        }
        _ => content.clone(),
    }
}
