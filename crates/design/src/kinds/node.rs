//! A node: one machine. Explicit values stand here; what it shares with others stands in the profiles that it extends.

use super::{Kind, LABELS, host_profile};
use crate::types::{Field, Format, Object, TEXT, Type, closed, field};

pub(super) const BODY: Object = closed("a node", &[FIELDS, host_profile::FIELDS, LABELS]);

const FIELDS: &[Field] = &[
    field("role", TEXT, "What it is for."),
    field("environment", TEXT, "The environment that it belongs to, where there are several."),
    field("host_name", Type::Text(Format::HostName), "Its host name, if it is not the node's name."),
    field("addresses", Type::Keyed { key: "network", item: &ADDRESS }, "Its addresses, one a network."),
];

const ADDRESS: Object = closed(
    "an address",
    &[&[
        field("network", Type::Reference(Kind::Network), "The network."),
        field("address", Type::Text(Format::AddressOrDhcp), "The address, or `dhcp`."),
    ]],
);
