//! A hardware profile: what a sort of machine is made of.

use super::LABELS;
use crate::types::{Field, Format, Object, TEXT, Type, closed, field, integer};

pub(super) const BODY: Object = closed("a hardware profile", &[FIELDS, LABELS]);

const FIELDS: &[Field] = &[
    field("vendor", TEXT, "Who made it."),
    field("generation", TEXT, "Its generation: `8`."),
    field("hw_version", TEXT, "Its revision: `3`."),
    field("bios_version", TEXT, "The firmware that it must have."),
    field("boot_mode", Type::OneOf(&["bios", "uefi"]), "How the firmware starts a system."),
    field("bootstrap_protocol", Type::OneOf(&["pxe", "usb", "hdd"]), "What it is installed from."),
    field("pxe_interface", TEXT, "The interface that it is installed through: an alias or a name."),
    field("device_aliases", Type::Map(&ALIAS), "Names for devices by where they are plugged in."),
    field("cpu_sets", Type::Map(&Type::Text(Format::CpuSet)), "Sets of processors, for kernel parameters: `2,4-7`."),
    field("hugepages", Type::Map(&HUGEPAGES), "Sorts of huge pages, for kernel parameters."),
];

const ALIAS: Type = Type::Object(&closed(
    "a device alias",
    &[&[
        field("address", TEXT, "`0000:00:03.0` on PCI, `2:0.0.0` on SCSI."),
        field("bus_type", Type::OneOf(&["pci", "scsi"]), "The bus that the address is on."),
        field("dev_type", TEXT, "What sits there, as the hardware names itself."),
        field("size", Type::Text(Format::Bytes), "How much a disk holds: `480g`."),
    ]],
));

const HUGEPAGES: Type = Type::Object(&closed(
    "a sort of huge pages",
    &[&[field("size", TEXT, "`2M` or `1G`."), field("count", integer(0, i64::MAX), "How many.")]],
));
