//! Documents of other programs in the same stream: kept as they are.

use super::envelope::Envelope;
use crate::document::{Document, Maker};
use crate::finding::{Code, Report};
use crate::kinds::AnyKind;
use crate::yaml::{Entry, Node};

/// Deckhand's kinds whose content is a secret.
const SECRETS: &[&str] = &["Passphrase", "PrivateKey", "CertificateKey", "CertificateAuthorityKey"];

/// An item whose kind is the name of its schema, `promenade/Docker/v1`, in whichever envelope it came.
pub(super) fn document(envelope: &Envelope<'_>, source: usize, report: &mut Report<'_>) -> Option<Document> {
    if holds_secret(envelope)
        && let Some(content) = envelope.content.filter(|content| content.get("secret").is_none())
    {
        let finding = Code::SecretAsText.finding("the document holds a secret").hiding_line();
        report.add(content.span, finding.help("keep it out of the design: documents name secrets, {secret: NAME}"));
        return None;
    }
    let words = [envelope.space, envelope.kind, envelope.version];
    let kind = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("/");
    Some(Document {
        kind: AnyKind::new(&kind),
        name: envelope.name.clone()?,
        name_at: envelope.name_at,
        extends: None,
        overlay: None,
        body: body(envelope),
        span: envelope.span,
        source,
        maker: Maker::Drydock,
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
