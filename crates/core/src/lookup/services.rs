//! Services that active nodes offer, with a hash (tag) per service to detect changes.
//!
//! A service is part of the node's entry in `active_roles`: it is added when a validation passes, and removed with the node's
//! entry when a validation fails, the node is lost, its machine is restarted or the node leaves.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::lookup::{Sum, Tag, hash};
use crate::names::{NodeName, ServiceName};

/// Maximum size of the services of a node, in bytes of JSON.
pub const SERVICES_LIMIT: usize = 1024;

/// Services of one node.
pub type Services = BTreeMap<ServiceName, Service>;

/// A service of one node, as other nodes look it up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Service {
    pub address: String,
    pub port: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// A service with its node, as one entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceOffer {
    pub node: NodeName,
    pub address: String,
    pub port: u16,
    pub tags: Vec<String>,
}

impl ServiceOffer {
    pub fn new((node, service): (&NodeName, &Service)) -> Self {
        let Service { address, port, tags } = service.clone();
        Self { node: node.clone(), address, port, tags }
    }
}

/// Size in bytes of JSON.
pub fn size(services: &Services) -> usize {
    serde_json::to_vec(services).map_or(usize::MAX, |text| text.len())
}

/// Services of all active nodes of an environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceIndex(BTreeMap<ServiceName, Offers>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Offers {
    by_node: BTreeMap<NodeName, Service>,
    tag: Sum,
}

impl ServiceIndex {
    /// Replaces the services of a node. Returns the names of the services that changed.
    pub(crate) fn replace(&mut self, node: &NodeName, before: &Services, after: &Services) -> BTreeSet<ServiceName> {
        let names = before.keys().chain(after.keys());
        let changed: BTreeSet<ServiceName> =
            names.filter(|name| before.get(*name) != after.get(*name)).cloned().collect();
        for name in &changed {
            let offers = self.0.entry(name.clone()).or_default();
            if let Some(old) = offers.by_node.remove(node) {
                offers.tag.remove(part(node, &old));
            }
            if let Some(new) = after.get(name) {
                offers.tag.add(part(node, new));
                offers.by_node.insert(node.clone(), new.clone());
            }
            if offers.by_node.is_empty() {
                self.0.remove(name);
            }
        }
        changed
    }

    /// Tag of a service. A service that no node offers is empty, not absent.
    pub fn tag(&self, name: &str) -> Tag {
        self.0.get(name).map_or_else(Sum::default, |offers| offers.tag).tag()
    }

    /// The nodes that offer a service.
    pub fn at(&self, name: &str) -> Option<&BTreeMap<NodeName, Service>> {
        self.0.get(name).map(|offers| &offers.by_node)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ServiceName, &BTreeMap<NodeName, Service>)> {
        self.0.iter().map(|(name, offers)| (name, &offers.by_node))
    }
}

/// Tag of a service that is not stored here.
pub fn tag_of<'a>(offers: impl Iterator<Item = (&'a NodeName, &'a Service)>) -> Tag {
    let mut sum = Sum::default();
    offers.for_each(|(node, service)| sum.add(part(node, service)));
    sum.tag()
}

fn part(node: &NodeName, Service { address, port, tags }: &Service) -> u64 {
    let port = port.to_string();
    let parts = [node.as_str(), address, &port].into_iter().chain(tags.iter().map(String::as_str));
    hash(&parts.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn services(offered: &[(&str, &str, u16)]) -> Services {
        let service = |address: &str, port| Service { address: address.into(), port, tags: vec!["blue".into()] };
        offered
            .iter()
            .map(|(name, address, port)| (ServiceName::new(*name).unwrap(), service(address, *port)))
            .collect()
    }

    #[test]
    fn only_changed_services_are_reported_and_tagged() {
        let (web1, web2) = (NodeName::new("web1").unwrap(), NodeName::new("web2").unwrap());
        let none = Services::new();
        let mut index = ServiceIndex::default();
        let empty = index.tag("http");
        let first = services(&[("http", "10.0.0.1", 80), ("metrics", "10.0.0.1", 9100)]);
        assert_eq!(index.replace(&web1, &none, &first).len(), 2);
        assert!(index.replace(&web1, &first, &first).is_empty());
        let other = services(&[("http", "10.0.0.2", 80)]);
        index.replace(&web2, &none, &other);
        assert_eq!(index.tag("http"), tag_of(index.at("http").unwrap().iter()));
        assert_ne!(index.tag("http"), empty);

        let metrics = index.tag("metrics");
        let moved = services(&[("http", "10.0.0.1", 8080), ("metrics", "10.0.0.1", 9100)]);
        let changed: Vec<String> = index.replace(&web1, &first, &moved).iter().map(ToString::to_string).collect();
        assert_eq!(changed, ["http"]);
        assert_eq!(index.tag("metrics"), metrics);

        index.replace(&web1, &moved, &none);
        index.replace(&web2, &other, &none);
        assert_eq!((index.tag("http"), index), (empty, ServiceIndex::default()));
    }
}
