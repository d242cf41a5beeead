//! What Deckhand would do to a document before Drydock sees it: layers and substitutions. Muster reads rendered documents,
//! and says so where one is not. One substitution is understood: a credential's, for it says where the secret is.

use super::draft::{Draft, made};
use super::envelope::Envelope;
use crate::finding::{Code, Report, quote};
use crate::span::Span;
use crate::yaml::{Entry, Kind, Node};

const RENDER: &str = "give Muster the documents that Deckhand renders";

/// Whether a document is only there for others to be laid over: it is not part of the site.
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

/// Puts a reference to a secret where Deckhand would put the secret.
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
    let secret = Node::from_entries(vec![made("secret", name)], at);
    let own = draft.take("oob");
    let (key, written) = match &own {
        Some(Entry { key, value }) => (key.clone(), value.map().map(|map| map.entries()).unwrap_or_default()),
        None => (made("oob", secret.clone()).key, Default::default()),
    };
    let others = written.iter().filter(|entry| &*entry.key.text != "credential").cloned();
    let entries = others.chain([made("credential", secret)]).collect();
    let span = own.as_ref().map_or(at, |own| own.value.span);
    draft.entries.push(Entry { key, value: Node::from_entries(entries, span) });
}

fn not_rendered(at: Span, message: String, report: &mut Report<'_>) {
    report.add(at, Code::NotRendered.finding(message).help(RENDER));
}
