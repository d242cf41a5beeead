//! Which pieces of hardware a node's interfaces and disks are.

use std::collections::BTreeMap;

use serde::Serialize;

use super::kernel_params::hardware_profile;
use crate::rules::view::{entries, items};
use crate::rules::{Site, Thing};
use crate::yaml::Node;

/// The devices that a node's interfaces and disks consist of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Devices {
    /// By interface, in the order in which it lists them.
    pub interfaces: BTreeMap<String, Vec<Device>>,
    /// By the name of the disk.
    pub disks: BTreeMap<String, Device>,
}

/// One piece of hardware, by where it is plugged in or by what the system calls it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Device {
    /// The hardware profile has an alias of this name.
    Address {
        alias: String,
        address: String,
        bus_type: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        dev_type: Option<String>,
    },
    Name {
        name: String,
    },
}

pub(super) fn devices(site: &Site<'_>, node: &Thing<'_>) -> Devices {
    let profile = hardware_profile(site, node);
    let aliases = profile.as_ref().and_then(|profile| profile.get("device_aliases"));
    let interfaces = entries(node.tree, "interfaces").iter().map(|entry| {
        let names = items(&entry.value, "devices").iter().filter_map(Node::text);
        (entry.key.text.to_string(), names.map(|name| device(name, aliases)).collect())
    });
    let disks = node.get("storage").map(|storage| entries(storage, "disks")).unwrap_or_default();
    let disks = disks.iter().map(|entry| (entry.key.text.to_string(), device(&entry.key.text, aliases)));
    Devices { interfaces: interfaces.collect(), disks: disks.collect() }
}

/// An alias without an address is as good as none.
fn device(name: &str, aliases: Option<&Node>) -> Device {
    let by_address = || {
        let alias = aliases?.get(name)?;
        let text = |key: &str| alias.get(key).and_then(Node::text).map(str::to_owned);
        Some(Device::Address {
            alias: name.to_owned(),
            address: text("address")?,
            bus_type: text("bus_type")?,
            dev_type: text("dev_type"),
        })
    };
    by_address().unwrap_or_else(|| Device::Name { name: name.to_owned() })
}
