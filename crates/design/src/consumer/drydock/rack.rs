//! A rack.

use super::DrydockKind;
use super::draft::Draft;
use super::envelope::Envelope;
use super::shape::{Is, Shape, renamed, same, shape};
use crate::finding::Report;
use crate::kinds::Kind;

pub(super) const KIND: DrydockKind = DrydockKind { word: "Rack", becomes: Kind::Rack, shape: &RACK, finish };

const RACK: Shape = shape(
    "a rack",
    &[
        same("tor_switches", Is::Named(&SWITCH)),
        same("location", Is::Object(&LOCATION)),
        same("local_networks", Is::Texts),
        same("labels", Is::Words),
    ],
);

const SWITCH: Shape = shape(
    "a switch",
    &[
        same("mgmt_ip", Is::Text),
        same("sdn_api_uri", Is::Text),
        // Drydock's schema has the one, and its code reads the other.
        renamed("sdn_api_url", "sdn_api_uri", Is::Text),
    ],
);

const LOCATION: Shape = shape("a location", &[same("clli", Is::Text), same("grid", Is::Text)]);

fn finish(draft: &mut Draft, envelope: &Envelope<'_>, _: &mut Report<'_>) {
    draft.label_as(envelope);
}
