//! A node.

use super::DrydockKind;
use super::draft::Draft;
use super::envelope::Envelope;
use super::host_profile::{FIELDS, finish_host};
use super::role;
use super::shape::{Is, Shape, inherited, renamed, same, shape};
use crate::finding::Report;
use crate::kinds::Kind;

pub(super) const KIND: DrydockKind =
    DrydockKind { word: "BaremetalNode", becomes: Kind::Node, shape: &BAREMETAL_NODE, finish };

const BAREMETAL_NODE: Shape =
    Shape { more: &[renamed("addressing", "addresses", Is::Members(&ADDRESS))], ..inherited("a node", FIELDS) };

const ADDRESS: Shape = shape("an address", &[same("network", Is::Text), same("address", Is::Text)]);

fn finish(draft: &mut Draft, envelope: &Envelope<'_>, _: &mut Report<'_>) {
    finish_host(draft);
    role::give(draft, envelope);
}
