//! Fields of the kinds that describe a site: networks, network links, regions, racks and clouds.

use crate::kinds::{Kind, LABELS};
use crate::types::{ANY_MAP, Field, Object, TEXT, TEXT_MAP, TEXTS, TextFormat, Type, closed, field, integer};

pub(super) const NETWORK_BODY: Object = closed("a network", &[NETWORK_FIELDS, LABELS]);

const NETWORK_FIELDS: &[Field] = &[
    field("vlan", integer(1, 4094), "Its number on trunked links; without one it is untagged."),
    field("mtu", integer(0, MAX_MTU), "The largest packet, in bytes."),
    field("cidr", Type::Text(TextFormat::Cidr), "Its addresses, IPv4 or IPv6: `10.1.0.0/24`."),
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
        field("start", Type::Text(TextFormat::Address), "The first address."),
        field("end", Type::Text(TextFormat::Address), "The last address."),
    ]],
);

const ROUTE: Object = closed(
    "a route",
    &[&[
        field("subnet", Type::Text(TextFormat::Cidr), "What is reached."),
        field("gateway", Type::Text(TextFormat::Address), "The router, an address of this network."),
        field("metric", METRIC, "The lower wins."),
    ]],
);

/// Separate from the routes to subnets, because a list has one primary key.
const DOMAIN_ROUTE: Object = closed(
    "a route to a routing domain",
    &[&[
        field("routedomain", TEXT, "The routing domain: every network of it is reached through the gateway."),
        field("gateway", Type::Text(TextFormat::Address), "The router, an address of this network."),
        field("metric", METRIC, "The lower wins."),
    ]],
);

const METRIC: Type = integer(0, u32::MAX as i64);

const DNS: Object = closed(
    "a DNS section",
    &[&[
        field("domain", Type::Text(TextFormat::Domain), "What is added to a host's name."),
        field("servers", Type::List(&Type::Text(TextFormat::Address)), "Who answers."),
    ]],
);

const DHCP_RELAY: Object = closed(
    "a DHCP relay",
    &[&[
        field("self_ip", Type::Text(TextFormat::Address), "The relay's own address in this network."),
        field("upstream_target", Type::Text(TextFormat::Address), "The server that it passes on to."),
    ]],
);

/// A network by its name.
pub(super) const NETWORKS: Type = Type::List(&Type::Reference(Kind::Network));

pub(super) const NETWORK_LINK_BODY: Object = closed("a network link", &[NETWORK_LINK_FIELDS, LABELS]);

const NETWORK_LINK_FIELDS: &[Field] = &[
    field("bonding", Type::Object(&BONDING), "How several interfaces work as one."),
    field("mtu", integer(0, MAX_MTU), "The largest packet, in bytes."),
    field("linkspeed", TEXT, "The speed that both ends use: `auto`, `10full`."),
    field("trunking", Type::Object(&TRUNKING), "How several networks share the link."),
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
            "How the members share the work.",
        ),
        field(
            "hash",
            Type::OneOf(&["layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4", "vlan+srcmac"]),
            "What a packet's member is chosen by (802.3ad).",
        ),
        field("peer_rate", Type::OneOf(&["slow", "fast"]), "How often the peer is asked to speak (802.3ad)."),
        field("mon_rate", MILLISECONDS, "How often a member is looked at, in milliseconds."),
        field("up_delay", MILLISECONDS, "How long a member is up before it is used, in milliseconds."),
        field("down_delay", MILLISECONDS, "How long a member is down before it is left, in milliseconds."),
    ]],
);

const TRUNKING: Object = closed(
    "a trunking",
    &[&[
        field("mode", Type::OneOf(&["disabled", "802.1q"]), "Whether frames carry the number of their network."),
        field("default_network", Type::Reference(Kind::Network), "The network of frames that carry none."),
    ]],
);

pub(super) const REGION_BODY: Object = closed("a region", &[REGION_FIELDS, LABELS]);

const REGION_FIELDS: &[Field] = &[
    field(
        "tag_definitions",
        Type::Keyed { key: "tag", item: &TAG_DEFINITION },
        "Tags that a machine gets by what its hardware is.",
    ),
    field("authorized_keys", TEXTS, "SSH public keys that may log in to every machine."),
    field("repositories", Type::Map(&REPOSITORY), "Package repositories, by name."),
    field("remove_unlisted_repositories", Type::Bool, "Whether other repositories are taken out of a machine."),
];

const TAG_DEFINITION: Object = closed(
    "a tag definition",
    &[&[
        field("tag", TEXT, "The tag."),
        field("type", Type::OneOf(&["lshw_xpath"]), "In what language the definition is written."),
        field("definition", TEXT, "What the hardware must be for the machine to get the tag."),
    ]],
);

const REPOSITORY: Type = Type::Object(&closed(
    "a repository",
    &[&[
        field("type", Type::OneOf(&["apt", "rpm"]), "Which package manager it is for."),
        field("url", TEXT, "Where it is."),
        field("distributions", TEXTS, "Its distributions: `bookworm`."),
        field("subrepos", TEXTS, "What is added to a distribution's name: `security`."),
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
    field("location", Type::Object(&LOCATION), "Where the rack stands."),
    field("local_networks", Type::List(&Type::Reference(Kind::Network)), "The networks that do not leave the rack."),
];

const SWITCH: Type = Type::Object(&closed(
    "a switch",
    &[&[
        field("mgmt_ip", Type::Text(TextFormat::Address), "The address that the switch is managed at."),
        field("sdn_api_uri", TEXT, "Where the switch is programmed."),
    ]],
));

const LOCATION: Object = closed(
    "a location",
    &[&[field("clli", TEXT, "The code of the building."), field("grid", TEXT, "The place on the floor.")]],
);

pub(super) const CLOUD_BODY: Object = closed("a cloud", &[CLOUD_FIELDS, LABELS]);

const CLOUD_FIELDS: &[Field] = &[
    field("flavor", TEXT_MAP, "What a flavor is called there."),
    field("image", TEXT_MAP, "What an image is called there."),
];
