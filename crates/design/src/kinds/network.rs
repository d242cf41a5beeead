//! A network: addresses that reach each other.

use super::network_link::MOST_MTU;
use super::{Kind, LABELS};
use crate::types::{Field, Format, Object, TEXT, Type, closed, field, integer};

pub(super) const BODY: Object = closed("a network", &[FIELDS, LABELS]);

const FIELDS: &[Field] = &[
    field("vlan", integer(1, 4094), "Its number on trunked links; without one it is untagged."),
    field("mtu", integer(0, MOST_MTU), "The largest packet, in bytes."),
    field("cidr", Type::Text(Format::Cidr), "Its addresses, IPv4 or IPv6: `10.1.0.0/24`."),
    field("routedomain", TEXT, "Networks of one routing domain reach each other by the routes that name it."),
    field("ranges", Type::Keyed { key: "start", item: &RANGE }, "What parts of it are for."),
    field("routes", Type::Keyed { key: "subnet", item: &ROUTE }, "How other networks are reached from here."),
    field(
        "domain_routes",
        Type::Keyed { key: "routedomain", item: &DOMAIN_ROUTE },
        "How the networks of routing domains are reached from here.",
    ),
    field("dns", Type::Object(&DNS), "Names: effective on the nodes whose primary network this is."),
    field("dhcp_relay", Type::Object(&DHCP_RELAY), "Who passes DHCP on to a server elsewhere."),
];

const RANGE: Object = closed(
    "a range",
    &[&[
        field("type", Type::OneOf(&["static", "dhcp", "reserved"]), "What the addresses are for."),
        field("start", Type::Text(Format::Address), "The first address."),
        field("end", Type::Text(Format::Address), "The last address."),
    ]],
);

const ROUTE: Object = closed(
    "a route",
    &[&[
        field("subnet", Type::Text(Format::Cidr), "What is reached."),
        field("gateway", Type::Text(Format::Address), "The router, an address of this network."),
        field("metric", METRIC, "The lower wins."),
    ]],
);

/// Apart from the routes that are written out: the members of a list are told apart by one key.
const DOMAIN_ROUTE: Object = closed(
    "a route to a routing domain",
    &[&[
        field("routedomain", TEXT, "The routing domain: every network of it is reached through the gateway."),
        field("gateway", Type::Text(Format::Address), "The router, an address of this network."),
        field("metric", METRIC, "The lower wins."),
    ]],
);

const METRIC: Type = integer(0, u32::MAX as i64);

const DNS: Object = closed(
    "a DNS section",
    &[&[
        field("domain", Type::Text(Format::Domain), "What is added to a host's name."),
        field("servers", Type::List(&Type::Text(Format::Address)), "Who answers."),
    ]],
);

const DHCP_RELAY: Object = closed(
    "a DHCP relay",
    &[&[
        field("self_ip", Type::Text(Format::Address), "The relay's own address in this network."),
        field("upstream_target", Type::Text(Format::Address), "The server that it passes on to."),
    ]],
);

/// A network by its name.
pub(super) const NETWORKS: Type = Type::List(&Type::Reference(Kind::Network));
