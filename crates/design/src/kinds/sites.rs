//! Fields of the kinds that describe a site: networks, network links, regions, racks and clouds.

use crate::kinds::{Kind, LABELS};
use crate::types::{ANY_MAP, Field, Object, TEXT, TEXT_MAP, TEXTS, TextFormat, Type, closed, field, integer};

pub(super) const NETWORK_BODY: Object = closed("a network", &[NETWORK_FIELDS, LABELS]);

const NETWORK_FIELDS: &[Field] = &[
    field("vlan", integer(1, 4094), "The VLAN number on trunks; default: untagged."),
    field("mtu", integer(0, MAX_MTU), "The MTU in bytes."),
    field("cidr", Type::Text(TextFormat::Cidr), "Its addresses, IPv4 or IPv6: `10.1.0.0/24`."),
    field("routedomain", TEXT, "Networks of one routing domain reach each other by the routes that name it."),
    field("ranges", Type::Keyed { key: "start", item: &RANGE }, "Ranges of its addresses, by use."),
    field("routes", Type::Keyed { key: "subnet", item: &ROUTE }, "Routes to other networks."),
    field(
        "domain_routes",
        Type::Keyed { key: "routedomain", item: &DOMAIN_ROUTE },
        "Routes to the networks of routing domains.",
    ),
    field("dns", Type::Object(&DNS), "Domain and name servers of the nodes with this primary network."),
    field("dhcp_relay", Type::Object(&DHCP_RELAY), "The relay that forwards DHCP requests to a server."),
];

const RANGE: Object = closed(
    "a range",
    &[&[
        field("type", Type::OneOf(&["static", "dhcp", "reserved"]), "The use of the addresses."),
        field("start", Type::Text(TextFormat::Address), "The first address."),
        field("end", Type::Text(TextFormat::Address), "The last address."),
    ]],
);

const ROUTE: Object = closed(
    "a route",
    &[&[
        field("subnet", Type::Text(TextFormat::Cidr), "The destination."),
        field("gateway", Type::Text(TextFormat::Address), "The router, an address of this network."),
        field("metric", METRIC, "The lowest metric wins."),
    ]],
);

/// Separate from the routes to subnets, because a list has one primary key.
const DOMAIN_ROUTE: Object = closed(
    "a route to a routing domain",
    &[&[
        field("routedomain", TEXT, "The routing domain: every network of it is reached through the gateway."),
        field("gateway", Type::Text(TextFormat::Address), "The router, an address of this network."),
        field("metric", METRIC, "The lowest metric wins."),
    ]],
);

const METRIC: Type = integer(0, u32::MAX as i64);

const DNS: Object = closed(
    "a DNS section",
    &[&[
        field("domain", Type::Text(TextFormat::Domain), "The domain of host names."),
        field("servers", Type::List(&Type::Text(TextFormat::Address)), "Addresses of the DNS servers."),
    ]],
);

const DHCP_RELAY: Object = closed(
    "a DHCP relay",
    &[&[
        field("self_ip", Type::Text(TextFormat::Address), "The relay's own address in this network."),
        field("upstream_target", Type::Text(TextFormat::Address), "The DHCP server."),
    ]],
);

/// A network by its name.
pub(super) const NETWORKS: Type = Type::List(&Type::Reference(Kind::Network));

pub(super) const NETWORK_LINK_BODY: Object = closed("a network link", &[NETWORK_LINK_FIELDS, LABELS]);

const NETWORK_LINK_FIELDS: &[Field] = &[
    field("bonding", Type::Object(&BONDING), "The bond of several devices."),
    field("mtu", integer(0, MAX_MTU), "The MTU in bytes."),
    field("linkspeed", TEXT, "The speed that both ends use: `auto`, `10full`."),
    field("trunking", Type::Object(&TRUNKING), "The VLAN trunk of several networks."),
    field("allowed_networks", Type::List(&Type::Reference(Kind::Network)), "The networks that it carries."),
];

/// Upper bound of the type. A rule checks the legal range.
pub(super) const MAX_MTU: i64 = u32::MAX as i64;
const MILLISECONDS: Type = integer(0, 3_600_000);

const BONDING: Object = closed(
    "a bonding",
    &[&[
        field(
            "mode",
            Type::OneOf(&[
                "disabled",
                "802.3ad",
                "active-backup",
                "balance-rr",
                "balance-xor",
                "broadcast",
                "balance-tlb",
                "balance-alb",
            ]),
            "The mode of the bond.",
        ),
        field(
            "hash",
            Type::OneOf(&["layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4", "vlan+srcmac"]),
            "The hash that selects the member of a packet (802.3ad).",
        ),
        field("peer_rate", Type::OneOf(&["slow", "fast"]), "The LACP rate of the peer (802.3ad)."),
        field("mon_rate", MILLISECONDS, "The interval of link checks, in milliseconds."),
        field("up_delay", MILLISECONDS, "The delay before a member that is up is used, in milliseconds."),
        field("down_delay", MILLISECONDS, "The delay before a member that is down is dropped, in milliseconds."),
    ]],
);

const TRUNKING: Object = closed(
    "a trunking",
    &[&[
        field("mode", Type::OneOf(&["disabled", "802.1q"]), "The mode of VLAN tagging."),
        field("default_network", Type::Reference(Kind::Network), "The network of untagged frames."),
    ]],
);

pub(super) const REGION_BODY: Object = closed("a region", &[REGION_FIELDS, LABELS]);

const REGION_FIELDS: &[Field] = &[
    field("tag_definitions", Type::Keyed { key: "tag", item: &TAG_DEFINITION }, "Tags of machines by their hardware."),
    field("authorized_keys", TEXTS, "SSH public keys that may log in to every machine."),
    field("repositories", Type::Map(&REPOSITORY), "Package repositories, by name."),
    field("remove_unlisted_repositories", Type::Bool, "True if other repositories are removed from machines."),
];

const TAG_DEFINITION: Object = closed(
    "a tag definition",
    &[&[
        field("tag", TEXT, "The tag."),
        field("type", Type::OneOf(&["lshw_xpath"]), "The language of the definition."),
        field("definition", TEXT, "The condition on the hardware."),
    ]],
);

const REPOSITORY: Type = Type::Object(&closed(
    "a repository",
    &[&[
        field("type", Type::OneOf(&["apt", "rpm"]), "The package manager."),
        field("url", TEXT, "Where it is."),
        field("distributions", TEXTS, "Its distributions: `bookworm`."),
        field("subrepos", TEXTS, "Suffixes of the distribution's name: `security`."),
        field("components", TEXTS, "Its components: `main`."),
        field("gpgkey", TEXT, "The public key that signs it."),
        field("arches", TEXTS, "The architectures that it has packages for."),
        field("options", ANY_MAP, "Options of the package manager."),
    ]],
));

pub(super) const RACK_BODY: Object = closed("a rack", &[RACK_FIELDS, LABELS]);

const RACK_FIELDS: &[Field] = &[
    field("region", Type::Reference(Kind::Region), "The region that the rack is in."),
    field("tor_switches", Type::Map(&SWITCH), "The switches at the top of the rack, by name."),
    field("location", Type::Object(&LOCATION), "The location of the rack."),
    field("local_networks", Type::List(&Type::Reference(Kind::Network)), "The networks that do not leave the rack."),
];

const SWITCH: Type = Type::Object(&closed(
    "a switch",
    &[&[
        field("mgmt_ip", Type::Text(TextFormat::Address), "The address that the switch is managed at."),
        field("sdn_api_uri", TEXT, "The URL of the switch's API."),
    ]],
));

const LOCATION: Object = closed(
    "a location",
    &[&[field("clli", TEXT, "The code of the building."), field("grid", TEXT, "The grid position on the floor.")]],
);

pub(super) const CLOUD_BODY: Object = closed("a cloud", &[CLOUD_FIELDS, LABELS]);

const CLOUD_FIELDS: &[Field] = &[
    field("flavor", TEXT_MAP, "Names of flavors in the cloud."),
    field("image", TEXT_MAP, "Names of images in the cloud."),
];
