//! Fields of Drydock's kinds and their native names, except for host profiles.

use crate::drydock::DrydockKind;
use crate::drydock::draft::{Draft, add_role, generated_entry};
use crate::drydock::envelope::Envelope;
use crate::drydock::host_profile::{HOST_FIELDS, finish_host};
use crate::drydock::translate::{Shape, ValueShape, ignored, inherited, renamed, same, shape};
use crate::finding::FindingCollector;
use crate::kinds::Kind;
use crate::types::wrong_type;
use crate::yaml::{Value, YamlEntry, YamlKey, YamlMap, YamlNode};

pub(super) const REGION_KIND: DrydockKind =
    DrydockKind { word: "Region", becomes: Kind::Region, shape: &REGION, finish: finish_region };

const REGION: Shape = shape(
    "a region",
    &[
        same("tag_definitions", ValueShape::Members(&TAG_DEFINITION)),
        same("authorized_keys", ValueShape::Texts),
        same("repositories", ValueShape::Object(&REPOSITORIES)),
    ],
);

const TAG_DEFINITION: Shape = shape(
    "a tag definition",
    &[
        same("tag", ValueShape::Text),
        renamed("definition_type", "type", ValueShape::Text),
        same("definition", ValueShape::Text),
    ],
);

/// Repositories by name. The mapping also has the field `remove_unlisted`.
const REPOSITORIES: Shape = Shape {
    what: "the repositories",
    fields: &[same(REMOVE_UNLISTED, ValueShape::Bool)],
    more: &[],
    others: Some(ValueShape::Object(&REPOSITORY)),
    inherits: false,
};

const REMOVE_UNLISTED: &str = "remove_unlisted";

const REPOSITORY: Shape = shape(
    "a repository",
    &[
        renamed("repo_type", "type", ValueShape::Text),
        same("url", ValueShape::Text),
        same("distributions", ValueShape::Texts),
        same("subrepos", ValueShape::Texts),
        same("components", ValueShape::Texts),
        same("gpgkey", ValueShape::Text),
        same("arches", ValueShape::Texts),
        same("options", ValueShape::Values),
    ],
);

fn finish_region(draft: &mut Draft, envelope: &Envelope<'_>, _: &mut FindingCollector<'_>) {
    if let Some(YamlEntry { key, value }) = draft.remove("repositories") {
        let all = value.map().map(|map| map.entries()).unwrap_or_default().iter().cloned();
        let (switch, listed): (Vec<YamlEntry>, Vec<YamlEntry>) =
            all.partition(|entry| &*entry.key.text == REMOVE_UNLISTED);
        let switch = switch.into_iter().map(|entry| YamlEntry {
            key: YamlKey { text: "remove_unlisted_repositories".into(), span: entry.key.span },
            value: entry.value,
        });
        draft.entries.extend(switch);
        draft.entries.push(YamlEntry { key, value: YamlNode::from_entries(listed, value.span) });
    }
    draft.add_labels(envelope);
}

pub(super) const RACK_KIND: DrydockKind =
    DrydockKind { word: "Rack", becomes: Kind::Rack, shape: &RACK, finish: finish_rack };

const RACK: Shape = shape(
    "a rack",
    &[
        same("tor_switches", ValueShape::Named(&SWITCH)),
        same("location", ValueShape::Object(&LOCATION)),
        same("local_networks", ValueShape::Texts),
        same("labels", ValueShape::Words),
    ],
);

const SWITCH: Shape = shape(
    "a switch",
    &[
        same("mgmt_ip", ValueShape::Text),
        same("sdn_api_uri", ValueShape::Text),
        // Drydock's schema has one name; its code reads the other.
        renamed("sdn_api_url", "sdn_api_uri", ValueShape::Text),
    ],
);

const LOCATION: Shape = shape("a location", &[same("clli", ValueShape::Text), same("grid", ValueShape::Text)]);

fn finish_rack(draft: &mut Draft, envelope: &Envelope<'_>, _: &mut FindingCollector<'_>) {
    draft.add_labels(envelope);
}

pub(super) const NETWORK_LINK_KIND: DrydockKind =
    DrydockKind { word: "NetworkLink", becomes: Kind::NetworkLink, shape: &NETWORK_LINK, finish: finish_network_link };

const NETWORK_LINK: Shape = shape(
    "a network link",
    &[
        same("bonding", ValueShape::Object(&BONDING)),
        same("mtu", ValueShape::Integer),
        same("linkspeed", ValueShape::Text),
        same("trunking", ValueShape::Object(&TRUNKING)),
        same("allowed_networks", ValueShape::Texts),
        same("labels", ValueShape::Words),
    ],
);

const BONDING: Shape = shape(
    "a bonding",
    &[
        same("mode", ValueShape::Text),
        same("hash", ValueShape::Text),
        same("peer_rate", ValueShape::Text),
        same("mon_rate", ValueShape::Integer),
        same("up_delay", ValueShape::Integer),
        same("down_delay", ValueShape::Integer),
    ],
);

const TRUNKING: Shape =
    shape("a trunking", &[same("mode", ValueShape::Text), same("default_network", ValueShape::Text)]);

/// Monitoring interval and delays, in milliseconds.
const BOND_DEFAULTS: &[(&str, &str)] = &[("mon_rate", "100"), ("up_delay", "200"), ("down_delay", "200")];
const LACP_DEFAULTS: &[(&str, &str)] = &[("hash", "layer3+4"), ("peer_rate", "fast")];

fn finish_network_link(draft: &mut Draft, envelope: &Envelope<'_>, _: &mut FindingCollector<'_>) {
    draft.add_labels(envelope);
    let Some(mode) = draft.get("bonding").and_then(|bonding| bonding.value.get("mode")) else { return };
    let defaults: &[&[(&str, &str)]] = match mode.text() {
        Some("802.3ad") => &[BOND_DEFAULTS, LACP_DEFAULTS],
        Some("active-backup" | "balance-rr") => &[BOND_DEFAULTS],
        Some(_) | None => return,
    };
    // The mode implies the defaults, so they have its span.
    let span = mode.span;
    let entries =
        defaults.concat().into_iter().map(|(key, value)| generated_entry(key, YamlNode::from_plain(value, span)));
    draft.defaults.push(generated_entry("bonding", YamlNode::from_entries(entries.collect(), span)));
}

pub(super) const NETWORK_KIND: DrydockKind =
    DrydockKind { word: "Network", becomes: Kind::Network, shape: &NETWORK, finish: finish_network };

const NETWORK: Shape = shape(
    "a network",
    &[
        same("vlan", ValueShape::Integer),
        same("mtu", ValueShape::Integer),
        same("cidr", ValueShape::Text),
        same("routedomain", ValueShape::Text),
        same("ranges", ValueShape::Members(&RANGE)),
        same("routes", ValueShape::Members(&ROUTE)),
        same("dns", ValueShape::Object(&DNS)),
        same("dhcp_relay", ValueShape::Object(&DHCP_RELAY)),
        same("labels", ValueShape::Words),
        // Of older documents. The types of the ranges say it.
        ignored("allocation"),
    ],
);

const RANGE: Shape =
    shape("a range", &[same("type", ValueShape::Text), same("start", ValueShape::Text), same("end", ValueShape::Text)]);

const ROUTE: Shape = shape(
    "a route",
    &[
        same("subnet", ValueShape::Text),
        same("gateway", ValueShape::Text),
        same("metric", ValueShape::Integer),
        same(DOMAIN, ValueShape::Text),
    ],
);

const DNS: Shape = shape("a DNS section", &[same("domain", ValueShape::Text), same("servers", ValueShape::Commas)]);

const DHCP_RELAY: Shape =
    shape("a DHCP relay", &[same("self_ip", ValueShape::Text), same("upstream_target", ValueShape::Text)]);

const DOMAIN: &str = "routedomain";
const SUBNET: &str = "subnet";

fn finish_network(draft: &mut Draft, envelope: &Envelope<'_>, _: &mut FindingCollector<'_>) {
    draft.add_labels(envelope);
    split_routes(draft);
}

/// Splits the routes: in a native document, routes to a subnet and routes to a routing domain are two lists with
/// different primary keys. A route that names both is added to both.
fn split_routes(draft: &mut Draft) {
    let Some(YamlEntry { key, value }) = draft.remove("routes") else { return };
    let (mut subnets, mut domains) = (Vec::new(), Vec::new());
    for route in value.items().unwrap_or_default() {
        let entries = route.map().map(|map| map.entries()).unwrap_or_default();
        let without = |left_out: &str| {
            let kept = entries.iter().filter(|entry| &*entry.key.text != left_out);
            YamlNode::from_entries(kept.cloned().collect(), route.span)
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
        let key = YamlKey { text: "domain_routes".into(), span: key.span };
        draft.entries.push(YamlEntry { key, value: YamlNode::from_items(domains, value.span) });
    }
    if !subnets.is_empty() {
        draft.entries.push(YamlEntry { key, value: YamlNode::from_items(subnets, value.span) });
    }
}

pub(super) const HARDWARE_PROFILE_KIND: DrydockKind = DrydockKind {
    word: "HardwareProfile",
    becomes: Kind::HardwareProfile,
    shape: &HARDWARE_PROFILE,
    finish: finish_hardware_profile,
};

const HARDWARE_PROFILE: Shape = shape(
    "a hardware profile",
    &[
        same("vendor", ValueShape::Text),
        same("generation", ValueShape::Text),
        same("hw_version", ValueShape::Text),
        same("bios_version", ValueShape::Text),
        same("boot_mode", ValueShape::Text),
        same("bootstrap_protocol", ValueShape::Text),
        same("pxe_interface", ValueShape::Text),
        same("device_aliases", ValueShape::NamedOrListed(&ALIAS, "alias")),
        same("cpu_sets", ValueShape::Words),
        same("hugepages", ValueShape::Named(&HUGEPAGES)),
    ],
);

const ALIAS: Shape = shape(
    "a device alias",
    &[
        same("address", ValueShape::Text),
        same("bus_type", ValueShape::Text),
        same("dev_type", ValueShape::Text),
        // The name of a member, where older documents have a list.
        ignored("alias"),
    ],
);

const HUGEPAGES: Shape =
    shape("a sort of huge pages", &[same("size", ValueShape::Text), same("count", ValueShape::Integer)]);

fn finish_hardware_profile(draft: &mut Draft, envelope: &Envelope<'_>, _: &mut FindingCollector<'_>) {
    draft.add_labels(envelope);
    // Drydock's schema requires a number here: the index of an interface, in an undefined order. No code reads it.
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    if draft.get("pxe_interface").is_some_and(|entry| entry.value.text().is_some_and(is_number)) {
        draft.remove("pxe_interface");
    }
}

pub(super) const BAREMETAL_NODE_KIND: DrydockKind =
    DrydockKind { word: "BaremetalNode", becomes: Kind::Node, shape: &BAREMETAL_NODE, finish: finish_baremetal_node };

const BAREMETAL_NODE: Shape = Shape {
    more: &[renamed("addressing", "addresses", ValueShape::Members(&ADDRESS))],
    ..inherited("a node", HOST_FIELDS)
};

const ADDRESS: Shape = shape("an address", &[same("network", ValueShape::Text), same("address", ValueShape::Text)]);

fn finish_baremetal_node(draft: &mut Draft, envelope: &Envelope<'_>, _: &mut FindingCollector<'_>) {
    finish_host(draft);
    add_role(draft, envelope);
}

pub(super) const BOOT_ACTION_KIND: DrydockKind =
    DrydockKind { word: "BootAction", becomes: Kind::BootAction, shape: &BOOT_ACTION, finish: finish_boot_action };

const BOOT_ACTION: Shape = shape(
    "a boot action",
    &[
        same("signaling", ValueShape::Bool),
        same(ASSETS, ValueShape::Members(&ASSET)),
        same("node_filter", ValueShape::Object(&NODE_FILTER)),
    ],
);

const ASSETS: &str = "assets";
const DATA: &str = "data";

const ASSET: Shape = shape(
    "an asset",
    &[
        same("type", ValueShape::Text),
        same("path", ValueShape::Text),
        same("location", ValueShape::Text),
        same(DATA, ValueShape::Anything),
        same("location_pipeline", ValueShape::Texts),
        same("data_pipeline", ValueShape::Texts),
        same("permissions", ValueShape::Text),
    ],
);

const NODE_FILTER: Shape = shape(
    "a node filter",
    &[
        renamed("filter_set_type", "set", ValueShape::Text),
        renamed("filter_set", "filters", ValueShape::Members(&FILTER)),
    ],
);

const FILTER: Shape = shape(
    "a filter",
    &[
        renamed("filter_type", "type", ValueShape::Text),
        same("node_names", ValueShape::Texts),
        same("node_tags", ValueShape::Texts),
        same("node_labels", ValueShape::Words),
        same("rack_names", ValueShape::Texts),
        same("rack_labels", ValueShape::Words),
    ],
);

fn finish_boot_action(draft: &mut Draft, envelope: &Envelope<'_>, report: &mut FindingCollector<'_>) {
    draft.add_labels(envelope);
    let Some(YamlEntry { key, value }) = draft.remove(ASSETS) else { return };
    let assets = value.items().unwrap_or_default().iter().zip(1_u32..);
    let assets = assets.map(|(node, number)| asset(node, number, report)).collect();
    draft.entries.push(YamlEntry { key, value: YamlNode::from_items(assets, value.span) });
}

/// Translates an asset. Drydock's assets have no names, so the number becomes the name.
fn asset(node: &YamlNode, number: u32, report: &mut FindingCollector<'_>) -> YamlNode {
    let entries = node.map().map(YamlMap::entries).unwrap_or_default().iter();
    let name = generated_entry("name", YamlNode::from_text(format!("asset-{number}"), node.span));
    let entries = entries.cloned().filter_map(|entry| match &*entry.key.text {
        DATA => data(entry, report),
        _ => Some(entry),
    });
    YamlNode::from_entries([name].into_iter().chain(entries).collect(), node.span)
}

/// Translates the content of a file, or packages with their versions.
fn data(entry: YamlEntry, report: &mut FindingCollector<'_>) -> Option<YamlEntry> {
    match &entry.value.value {
        Value::Scalar(_) => Some(YamlEntry { value: text(&entry.value, report)?, key: entry.key }),
        Value::Map(packages) => {
            let version =
                |package: &YamlEntry| Some(YamlEntry { key: package.key.clone(), value: version(package, report)? });
            let packages = packages.entries().iter().filter_map(version).collect();
            let key = YamlKey { text: "packages".into(), span: entry.key.span };
            Some(YamlEntry { key, value: YamlNode::from_entries(packages, entry.value.span) })
        }
        Value::Seq(_) => wrong_type(&entry.value, "\"data\"", "a text, or a mapping of packages", report),
    }
}

/// Translates the version of a package. A package without a version is still installed; `null` would remove it.
fn version(package: &YamlEntry, report: &mut FindingCollector<'_>) -> Option<YamlNode> {
    if package.value.is_null() {
        Some(YamlNode::from_text("", package.value.span))
    } else {
        text(&package.value, report)
    }
}

fn text(node: &YamlNode, report: &mut FindingCollector<'_>) -> Option<YamlNode> {
    match node.scalar() {
        Some(scalar) => Some(YamlNode::from_text(scalar.shared_text(), node.span)),
        None => wrong_type(node, "a package's version", "a text", report),
    }
}
