//! A hardware profile.

use super::DrydockKind;
use super::draft::Draft;
use super::envelope::Envelope;
use super::shape::{Is, Shape, same, shape};
use crate::finding::Report;
use crate::kinds::Kind;

pub(super) const KIND: DrydockKind =
    DrydockKind { word: "HardwareProfile", becomes: Kind::HardwareProfile, shape: &HARDWARE_PROFILE, finish };

const HARDWARE_PROFILE: Shape = shape(
    "a hardware profile",
    &[
        same("vendor", Is::Text),
        same("generation", Is::Text),
        same("hw_version", Is::Text),
        same("bios_version", Is::Text),
        same("boot_mode", Is::Text),
        same("bootstrap_protocol", Is::Text),
        same("pxe_interface", Is::Text),
        same("device_aliases", Is::Named(&ALIAS)),
        same("cpu_sets", Is::Words),
        same("hugepages", Is::Named(&HUGEPAGES)),
    ],
);

const ALIAS: Shape =
    shape("a device alias", &[same("address", Is::Text), same("bus_type", Is::Text), same("dev_type", Is::Text)]);

const HUGEPAGES: Shape = shape("a sort of huge pages", &[same("size", Is::Text), same("count", Is::Integer)]);

fn finish(draft: &mut Draft, envelope: &Envelope<'_>, _: &mut Report<'_>) {
    draft.label_as(envelope);
    // Drydock's schema wants a number here, which counts interfaces in an order that is not defined; nothing reads it.
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    if draft.get("pxe_interface").is_some_and(|entry| entry.value.text().is_some_and(is_number)) {
        draft.take("pxe_interface");
    }
}
