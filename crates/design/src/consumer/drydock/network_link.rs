//! A network link, and what Drydock fills in for a bond of which only the mode is said.

use super::DrydockKind;
use super::draft::{Draft, made};
use super::envelope::Envelope;
use super::shape::{Is, Shape, same, shape};
use crate::finding::Report;
use crate::kinds::Kind;
use crate::yaml::Node;

pub(super) const KIND: DrydockKind =
    DrydockKind { word: "NetworkLink", becomes: Kind::NetworkLink, shape: &NETWORK_LINK, finish };

const NETWORK_LINK: Shape = shape(
    "a network link",
    &[
        same("bonding", Is::Object(&BONDING)),
        same("mtu", Is::Integer),
        same("linkspeed", Is::Text),
        same("trunking", Is::Object(&TRUNKING)),
        same("allowed_networks", Is::Texts),
        same("labels", Is::Words),
    ],
);

const BONDING: Shape = shape(
    "a bonding",
    &[
        same("mode", Is::Text),
        same("hash", Is::Text),
        same("peer_rate", Is::Text),
        same("mon_rate", Is::Integer),
        same("up_delay", Is::Integer),
        same("down_delay", Is::Integer),
    ],
);

const TRUNKING: Shape = shape("a trunking", &[same("mode", Is::Text), same("default_network", Is::Text)]);

/// How often members are looked at, and how long they wait, in milliseconds.
const OF_A_BOND: &[(&str, &str)] = &[("mon_rate", "100"), ("up_delay", "200"), ("down_delay", "200")];
const OF_LACP: &[(&str, &str)] = &[("hash", "layer3+4"), ("peer_rate", "fast")];

fn finish(draft: &mut Draft, envelope: &Envelope<'_>, _: &mut Report<'_>) {
    draft.label_as(envelope);
    let Some(mode) = draft.get("bonding").and_then(|bonding| bonding.value.get("mode")) else { return };
    let defaults: &[&[(&str, &str)]] = match mode.text() {
        Some("802.3ad") => &[OF_A_BOND, OF_LACP],
        Some("active-backup" | "balance-rr") => &[OF_A_BOND],
        Some(_) | None => return,
    };
    // They come with the mode, and it is where they come from.
    let span = mode.span;
    let entries = defaults.concat().into_iter().map(|(key, value)| made(key, Node::from_plain(value, span)));
    draft.defaults.push(made("bonding", Node::from_entries(entries.collect(), span)));
}
