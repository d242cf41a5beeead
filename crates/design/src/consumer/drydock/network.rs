//! A network.

use super::DrydockKind;
use super::draft::Draft;
use super::envelope::Envelope;
use super::shape::{Is, Shape, same, shape};
use crate::finding::Report;
use crate::kinds::Kind;
use crate::yaml::{Entry, Key, Node};

pub(super) const KIND: DrydockKind = DrydockKind { word: "Network", becomes: Kind::Network, shape: &NETWORK, finish };

const NETWORK: Shape = shape(
    "a network",
    &[
        same("vlan", Is::Integer),
        same("mtu", Is::Integer),
        same("cidr", Is::Text),
        same("routedomain", Is::Text),
        same("ranges", Is::Members(&RANGE)),
        same("routes", Is::Members(&ROUTE)),
        same("dns", Is::Object(&DNS)),
        same("dhcp_relay", Is::Object(&DHCP_RELAY)),
        same("labels", Is::Words),
    ],
);

const RANGE: Shape = shape("a range", &[same("type", Is::Text), same("start", Is::Text), same("end", Is::Text)]);

const ROUTE: Shape = shape(
    "a route",
    &[same("subnet", Is::Text), same("gateway", Is::Text), same("metric", Is::Integer), same(DOMAIN, Is::Text)],
);

const DNS: Shape = shape("a DNS section", &[same("domain", Is::Text), same("servers", Is::Commas)]);

const DHCP_RELAY: Shape = shape("a DHCP relay", &[same("self_ip", Is::Text), same("upstream_target", Is::Text)]);

const DOMAIN: &str = "routedomain";
const SUBNET: &str = "subnet";

fn finish(draft: &mut Draft, envelope: &Envelope<'_>, _: &mut Report<'_>) {
    draft.label_as(envelope);
    routes(draft);
}

/// In a native document, routes to a subnet and routes to a routing domain are two lists, each with a key of its own. One
/// that names both is both.
fn routes(draft: &mut Draft) {
    let Some(Entry { key, value }) = draft.take("routes") else { return };
    let (mut subnets, mut domains) = (Vec::new(), Vec::new());
    for route in value.items().unwrap_or_default() {
        let entries = route.map().map(|map| map.entries()).unwrap_or_default();
        let without = |left_out: &str| {
            let kept = entries.iter().filter(|entry| &*entry.key.text != left_out);
            Node::from_entries(kept.cloned().collect(), route.span)
        };
        let names_domain = route.get(DOMAIN).is_some();
        if names_domain {
            domains.push(without(SUBNET));
        }
        if !names_domain || route.get(SUBNET).is_some() {
            subnets.push(without(DOMAIN));
        }
    }
    if !domains.is_empty() {
        let key = Key { text: "domain_routes".into(), span: key.span };
        draft.entries.push(Entry { key, value: Node::from_items(domains, value.span) });
    }
    if !subnets.is_empty() {
        draft.entries.push(Entry { key, value: Node::from_items(subnets, value.span) });
    }
}
