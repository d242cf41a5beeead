//! A native document under construction, and the role of a node, which Drydock does not have.

use std::sync::Arc;

use muster_core::names::Role;

use crate::documents::{Document, DocumentOrigin, Parent};
use crate::drydock::envelope::Envelope;
use crate::file_text::Span;
use crate::kinds::{AnyKind, Kind};
use crate::yaml::{YamlEntry, YamlKey, YamlNode};

/// A native document under construction.
#[derive(Debug)]
pub(super) struct Draft {
    kind: AnyKind,
    name: Option<Arc<str>>,
    name_at: Span,
    span: Span,
    content_at: Span,
    pub extends: Option<Vec<Parent>>,
    pub entries: Vec<YamlEntry>,
    /// Default values, below all documents of this name.
    pub defaults: Vec<YamlEntry>,
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

    pub(super) fn get(&self, key: &str) -> Option<&YamlEntry> {
        self.entries.iter().find(|entry| &*entry.key.text == key)
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<YamlEntry> {
        let at = self.entries.iter().position(|entry| &*entry.key.text == key)?;
        Some(self.entries.remove(at))
    }

    /// Adds Deckhand's labels to the document's own labels, which win.
    pub(super) fn add_labels(&mut self, envelope: &Envelope<'_>) {
        let Some(map) = envelope.metadata("labels").and_then(YamlNode::map) else { return };
        let own = self.remove("labels");
        let mut labels: Vec<YamlEntry> =
            own.as_ref().and_then(|own| own.value.map()).map(|map| map.entries().to_vec()).unwrap_or_default();
        let text = |entry: &YamlEntry| {
            let scalar = entry.value.scalar().filter(|_| !entry.value.is_null())?;
            Some(YamlEntry {
                key: entry.key.clone(),
                value: YamlNode::from_text(scalar.shared_text(), entry.value.span),
            })
        };
        for entry in map.entries() {
            if !labels.iter().any(|label| label.key.text == entry.key.text) {
                labels.extend(text(entry));
            }
        }
        let at = own.map_or(self.name_at, |own| own.key.span);
        self.entries.push(generated_entry("labels", YamlNode::from_entries(labels, at)));
    }

    /// The document and its defaults. Empty if the document has no name, which was reported.
    pub(super) fn into_documents(self, source: usize) -> impl Iterator<Item = Document> {
        let Draft { kind, name, name_at, span, content_at, extends, entries, defaults } = self;
        let layer = |name: &Arc<str>, extends, body, origin| Document {
            kind: kind.clone(),
            name: name.clone(),
            name_at,
            extends,
            overlay: None,
            body,
            span,
            source,
            origin,
        };
        let lower = name.as_ref().filter(|_| !defaults.is_empty());
        let lower =
            lower.map(|name| layer(name, None, YamlNode::from_entries(defaults, name_at), DocumentOrigin::Default));
        let body = YamlNode::from_entries(entries, content_at);
        let upper = name.as_ref().map(|name| layer(name, extends, body, DocumentOrigin::Drydock));
        lower.into_iter().chain(upper)
    }
}

/// An entry whose key is not in a file: the key has the span of its value.
pub(super) fn generated_entry(key: &str, value: YamlNode) -> YamlEntry {
    YamlEntry { key: YamlKey { text: key.into(), span: value.span }, value }
}

/// Key of the owner data that names the role.
const ROLE: &str = "role";
/// Role of a node whose names give none.
const DEFAULT_ROLE: &str = "node";

/// Adds the role of a node: the one in its owner data, or a default derived from the name of its profile or of the node.
/// The default is the lowest layer, below environment files and other sources.
pub(super) fn add_role(draft: &mut Draft, envelope: &Envelope<'_>) {
    let role = draft.get("owner_data").and_then(|entry| entry.value.get(ROLE)).filter(|role| !role.is_null()).cloned();
    if let Some(role) = role {
        draft.entries.push(generated_entry(ROLE, role));
        return;
    }
    let profile = draft.extends.iter().flatten().next().map(|parent| (&*parent.name, parent.span));
    let own = envelope.name.as_deref().map(|name| (name, envelope.name_at));
    let role = |(name, span): (&str, Span)| Some((role_name(name)?, span));
    let (role, span) =
        profile.and_then(role).or_else(|| own.and_then(role)).unwrap_or((DEFAULT_ROLE.into(), envelope.name_at));
    draft.defaults.push(generated_entry(ROLE, YamlNode::from_text(role, span)));
}

/// Derives a legal role from a name: `CP_r720` becomes `cp-r`.
fn role_name(name: &str) -> Option<String> {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let word: String = name.chars().take(40).map(letter).collect();
    let word = word.trim_matches(|c: char| !c.is_ascii_lowercase());
    Role::new(word).ok().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_roles() {
        let table = [
            ("compute", Some("compute")),
            ("CP_r720", Some("cp-r")),
            ("controller01", Some("controller")),
            ("r1-compute-07", Some("r1-compute")),
            ("2nd.rack", Some("nd-rack")),
            ("42", None),
            ("ä", None),
            ("", None),
        ];
        for (name, role) in table {
            assert_eq!(role_name(name).as_deref(), role, "{name:?}");
        }
        assert_eq!(role_name(&"a".repeat(100)).map(|role| role.len()), Some(40));
    }
}
