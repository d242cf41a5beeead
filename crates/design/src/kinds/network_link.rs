//! A network link: the cable, or the bundle of cables, that networks share.

use super::{Kind, LABELS};
use crate::types::{Field, Object, TEXT, Type, closed, field, integer};

pub(super) const BODY: Object = closed("a network link", &[FIELDS, LABELS]);

const FIELDS: &[Field] = &[
    field("bonding", Type::Object(&BONDING), "How several interfaces work as one."),
    field("mtu", integer(0, MOST_MTU), "The largest packet, in bytes."),
    field("linkspeed", TEXT, "The speed that both ends use: `auto`, `10full`."),
    field("trunking", Type::Object(&TRUNKING), "How several networks share the link."),
    field("allowed_networks", Type::List(&Type::Reference(Kind::Network)), "The networks that it carries."),
];

/// What is legal is a rule's business; this only keeps the number in hand.
pub(super) const MOST_MTU: i64 = u32::MAX as i64;
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
