//! A rack: where machines stand.

use super::{Kind, LABELS};
use crate::types::{Field, Format, Object, TEXT, Type, closed, field};

pub(super) const BODY: Object = closed("a rack", &[FIELDS, LABELS]);

const FIELDS: &[Field] = &[
    field("region", Type::Reference(Kind::Region), "The region that the rack is in."),
    field("tor_switches", Type::Map(&SWITCH), "The switches at the top of the rack, by name."),
    field("location", Type::Object(&LOCATION), "Where the rack stands."),
    field("local_networks", Type::List(&Type::Reference(Kind::Network)), "The networks that do not leave the rack."),
];

const SWITCH: Type = Type::Object(&closed(
    "a switch",
    &[&[
        field("mgmt_ip", Type::Text(Format::Address), "The address that the switch is managed at."),
        field("sdn_api_uri", TEXT, "Where the switch is programmed."),
    ]],
));

const LOCATION: Object = closed(
    "a location",
    &[&[field("clli", TEXT, "The code of the building."), field("grid", TEXT, "The place on the floor.")]],
);
