//! A boot action.

use super::DrydockKind;
use super::draft::{Draft, made};
use super::envelope::Envelope;
use super::shape::{Is, Shape, renamed, same, shape};
use crate::finding::Report;
use crate::kinds::Kind;
use crate::types::wrong_type;
use crate::yaml::{Entry, Key, Map, Node, Value};

pub(super) const KIND: DrydockKind =
    DrydockKind { word: "BootAction", becomes: Kind::BootAction, shape: &BOOT_ACTION, finish };

const BOOT_ACTION: Shape = shape(
    "a boot action",
    &[same("signaling", Is::Bool), same(ASSETS, Is::Members(&ASSET)), same("node_filter", Is::Object(&NODE_FILTER))],
);

const ASSETS: &str = "assets";
const DATA: &str = "data";

const ASSET: Shape = shape(
    "an asset",
    &[
        same("type", Is::Text),
        same("path", Is::Text),
        same("location", Is::Text),
        same(DATA, Is::Anything),
        same("location_pipeline", Is::Texts),
        same("data_pipeline", Is::Texts),
        same("permissions", Is::Text),
    ],
);

const NODE_FILTER: Shape = shape(
    "a node filter",
    &[renamed("filter_set_type", "set", Is::Text), renamed("filter_set", "filters", Is::Members(&FILTER))],
);

const FILTER: Shape = shape(
    "a filter",
    &[
        renamed("filter_type", "type", Is::Text),
        same("node_names", Is::Texts),
        same("node_tags", Is::Texts),
        same("node_labels", Is::Words),
        same("rack_names", Is::Texts),
        same("rack_labels", Is::Words),
    ],
);

fn finish(draft: &mut Draft, envelope: &Envelope<'_>, report: &mut Report<'_>) {
    draft.label_as(envelope);
    let Some(Entry { key, value }) = draft.take(ASSETS) else { return };
    let assets = value.items().unwrap_or_default().iter().zip(1_u32..);
    let assets = assets.map(|(node, number)| asset(node, number, report)).collect();
    draft.entries.push(Entry { key, value: Node::from_items(assets, value.span) });
}

/// An asset gets a name, which it does not have in Drydock: its number.
fn asset(node: &Node, number: u32, report: &mut Report<'_>) -> Node {
    let entries = node.map().map(Map::entries).unwrap_or_default().iter();
    let name = made("name", Node::from_text(format!("asset-{number}"), node.span));
    let entries = entries.cloned().filter_map(|entry| match &*entry.key.text {
        DATA => data(entry, report),
        _ => Some(entry),
    });
    Node::from_entries([name].into_iter().chain(entries).collect(), node.span)
}

/// The content of a file, or packages and their versions.
fn data(entry: Entry, report: &mut Report<'_>) -> Option<Entry> {
    match &entry.value.value {
        Value::Scalar(_) => Some(Entry { value: text(&entry.value, report)?, key: entry.key }),
        Value::Map(packages) => {
            let version = |package: &Entry| Some(Entry { key: package.key.clone(), value: version(package, report)? });
            let packages = packages.entries().iter().filter_map(version).collect();
            let key = Key { text: "packages".into(), span: entry.key.span };
            Some(Entry { key, value: Node::from_entries(packages, entry.value.span) })
        }
        Value::Seq(_) => wrong_type(&entry.value, "\"data\"", "a text, or a mapping of packages", report),
    }
}

/// A package without a version is to be installed all the same; `null` would take it out.
fn version(package: &Entry, report: &mut Report<'_>) -> Option<Node> {
    if package.value.is_null() { Some(Node::from_text("", package.value.span)) } else { text(&package.value, report) }
}

fn text(node: &Node, report: &mut Report<'_>) -> Option<Node> {
    match node.scalar() {
        Some(scalar) => Some(Node::from_text(scalar.shared_text(), node.span)),
        None => wrong_type(node, "a package's version", "a text", report),
    }
}
