//! A native document in the making.

use std::sync::Arc;

use super::envelope::Envelope;
use crate::document::{Document, Maker, Parent};
use crate::kinds::{AnyKind, Kind};
use crate::span::Span;
use crate::yaml::{Entry, Key, Node};

/// What a document becomes.
#[derive(Debug)]
pub(super) struct Draft {
    kind: AnyKind,
    name: Option<Arc<str>>,
    name_at: Span,
    span: Span,
    content_at: Span,
    pub extends: Option<Vec<Parent>>,
    pub entries: Vec<Entry>,
    /// What holds where nothing else is said, in this document or any other of its name.
    pub defaults: Vec<Entry>,
}

impl Draft {
    pub(super) fn new(kind: Kind, envelope: &Envelope<'_>) -> Self {
        Draft {
            kind: kind.into(),
            name: envelope.name.clone(),
            name_at: envelope.name_at,
            span: envelope.span,
            content_at: envelope.content.map_or(envelope.name_at, |content| content.span),
            extends: None,
            entries: Vec::new(),
            defaults: Vec::new(),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| &*entry.key.text == key)
    }

    pub(super) fn take(&mut self, key: &str) -> Option<Entry> {
        let at = self.entries.iter().position(|entry| &*entry.key.text == key)?;
        Some(self.entries.remove(at))
    }

    /// The labels of a document that has labels of its own, and Deckhand's where those say nothing.
    pub(super) fn label_as(&mut self, envelope: &Envelope<'_>) {
        let Some(map) = envelope.metadata("labels").and_then(Node::map) else { return };
        let own = self.take("labels");
        let mut labels: Vec<Entry> =
            own.as_ref().and_then(|own| own.value.map()).map(|map| map.entries().to_vec()).unwrap_or_default();
        let text = |entry: &Entry| {
            let scalar = entry.value.scalar().filter(|_| !entry.value.is_null())?;
            Some(Entry { key: entry.key.clone(), value: Node::from_text(scalar.shared_text(), entry.value.span) })
        };
        for entry in map.entries() {
            if !labels.iter().any(|label| label.key.text == entry.key.text) {
                labels.extend(text(entry));
            }
        }
        let at = own.map_or(self.name_at, |own| own.key.span);
        self.entries.push(made("labels", Node::from_entries(labels, at)));
    }

    /// The document, above what holds if it says nothing. Without a name there is none, which has been reported; but its
    /// content has been looked at.
    pub(super) fn into_documents(self, source: usize) -> impl Iterator<Item = Document> {
        let Draft { kind, name, name_at, span, content_at, extends, entries, defaults } = self;
        let layer = |name: &Arc<str>, extends, body, maker| Document {
            kind: kind.clone(),
            name: name.clone(),
            name_at,
            extends,
            overlay: None,
            body,
            span,
            source,
            maker,
        };
        let lower = name.as_ref().filter(|_| !defaults.is_empty());
        let lower = lower.map(|name| layer(name, None, Node::from_entries(defaults, name_at), Maker::Default));
        let body = Node::from_entries(entries, content_at);
        let upper = name.as_ref().map(|name| layer(name, extends, body, Maker::Drydock));
        lower.into_iter().chain(upper)
    }
}

/// An entry whose key stands in no file: it has the place of its value.
pub(super) fn made(key: &str, value: Node) -> Entry {
    Entry { key: Key { text: key.into(), span: value.span }, value }
}
