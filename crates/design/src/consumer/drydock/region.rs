//! A region.

use super::DrydockKind;
use super::draft::Draft;
use super::envelope::Envelope;
use super::shape::{Is, Shape, renamed, same, shape};
use crate::finding::Report;
use crate::kinds::Kind;
use crate::yaml::{Entry, Key, Node};

pub(super) const KIND: DrydockKind = DrydockKind { word: "Region", becomes: Kind::Region, shape: &REGION, finish };

const REGION: Shape = shape(
    "a region",
    &[
        same("tag_definitions", Is::Members(&TAG_DEFINITION)),
        same("authorized_keys", Is::Texts),
        same("repositories", Is::Object(&REPOSITORIES)),
    ],
);

const TAG_DEFINITION: Shape = shape(
    "a tag definition",
    &[same("tag", Is::Text), renamed("definition_type", "type", Is::Text), same("definition", Is::Text)],
);

/// Among the repositories stands a switch.
const REPOSITORIES: Shape = Shape {
    what: "the repositories",
    fields: &[same(REMOVE_UNLISTED, Is::Bool)],
    more: &[],
    others: Some(Is::Object(&REPOSITORY)),
    inherits: false,
};

const REMOVE_UNLISTED: &str = "remove_unlisted";

const REPOSITORY: Shape = shape(
    "a repository",
    &[
        renamed("repo_type", "type", Is::Text),
        same("url", Is::Text),
        same("distributions", Is::Texts),
        same("subrepos", Is::Texts),
        same("components", Is::Texts),
        same("gpgkey", Is::Text),
        same("arches", Is::Texts),
        same("options", Is::Values),
    ],
);

fn finish(draft: &mut Draft, envelope: &Envelope<'_>, _: &mut Report<'_>) {
    if let Some(Entry { key, value }) = draft.take("repositories") {
        let all = value.map().map(|map| map.entries()).unwrap_or_default().iter().cloned();
        let (switch, listed): (Vec<Entry>, Vec<Entry>) = all.partition(|entry| &*entry.key.text == REMOVE_UNLISTED);
        let switch = switch.into_iter().map(|entry| Entry {
            key: Key { text: "remove_unlisted_repositories".into(), span: entry.key.span },
            value: entry.value,
        });
        draft.entries.extend(switch);
        draft.entries.push(Entry { key, value: Node::from_entries(listed, value.span) });
    }
    draft.label_as(envelope);
}
