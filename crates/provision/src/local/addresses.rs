//! Addresses of all local machines, loaded from the machine files.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use thiserror::Error;

use muster_core::names::NodeName;

use super::machine_dir::MachineFile;
use super::network::LoopbackNetwork;
use crate::driver::MachineSpec;

/// The interface of a machine without requested interfaces.
const DEFAULT_INTERFACE: &str = "eth0";

/// Reason that a machine cannot get its addresses.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AssignAddressError {
    #[error("{network} is exhausted: all {size} addresses are in use; choose a larger network, such as 127.78.0.0/16")]
    Exhausted { network: LoopbackNetwork, size: u32 },
    #[error("{address}, requested for {interface}, is not in {network}")]
    Outside { address: IpAddr, interface: String, network: LoopbackNetwork },
    #[error("{address}, requested for {interface}, is the address of {owner}")]
    InUse { address: Ipv4Addr, interface: String, owner: NodeName },
}

/// Addresses of all allocated machines.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    by_node: BTreeMap<NodeName, BTreeMap<String, Ipv4Addr>>,
}

impl Addresses {
    pub(super) fn put(&mut self, machine: &MachineFile) {
        self.by_node.insert(machine.node.clone(), machine.interfaces.clone());
    }

    pub(super) fn remove(&mut self, node: &NodeName) {
        self.by_node.remove(node);
    }

    /// The addresses of a machine, if they match its spec.
    pub(super) fn matching(
        &self,
        spec: &MachineSpec,
        network: &LoopbackNetwork,
    ) -> Option<&BTreeMap<String, Ipv4Addr>> {
        let has = self.by_node.get(&spec.node)?;
        let requests = requests(spec);
        let met = |(name, address): &(&str, Option<IpAddr>)| {
            has.get(*name).is_some_and(|has| network.contains(*has) && address.is_none_or(|request| request == *has))
        };
        (has.len() == requests.len() && requests.iter().all(met)).then_some(has)
    }

    /// The addresses of all machines with their nodes.
    pub(super) fn all(&self) -> impl Iterator<Item = (&NodeName, Ipv4Addr)> {
        self.by_node.iter().flat_map(|(node, has)| has.values().map(move |address| (node, *address)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    /// Chooses addresses for a machine: its current ones where possible, and free ones. `busy` are addresses that a process
    /// listens on.
    pub(super) fn choose(
        &self,
        spec: &MachineSpec,
        network: &LoopbackNetwork,
        busy: &BTreeSet<Ipv4Addr>,
    ) -> Result<BTreeMap<String, Ipv4Addr>, AssignAddressError> {
        let mut taken: BTreeSet<Ipv4Addr> = self
            .by_node
            .iter()
            .filter(|(node, _)| **node != spec.node)
            .flat_map(|(_, has)| has.values().copied())
            .collect();
        let has = self.by_node.get(&spec.node);
        let mut chosen = BTreeMap::new();
        let requests = requests(spec);
        // Requested addresses first, then current ones, then free ones.
        let old = |name: &str| has.and_then(|has| has.get(name)).copied().filter(|old| network.contains(*old));
        for (name, request) in &requests {
            let address = match request {
                Some(request) => self.requested(spec, name, *request, network)?,
                None => continue,
            };
            taken.insert(address);
            chosen.insert((*name).to_owned(), address);
        }
        for (name, request) in &requests {
            if let (None, Some(old)) = (request, old(name))
                && taken.insert(old)
            {
                chosen.insert((*name).to_owned(), old);
            }
        }
        taken.extend(busy);
        for (name, _) in &requests {
            if !chosen.contains_key(*name) {
                let exhausted = || AssignAddressError::Exhausted { network: *network, size: network.size() };
                let address = network.pick(spec.position, &taken).ok_or_else(exhausted)?;
                taken.insert(address);
                chosen.insert((*name).to_owned(), address);
            }
        }
        Ok(chosen)
    }

    fn requested(
        &self,
        spec: &MachineSpec,
        name: &str,
        request: IpAddr,
        network: &LoopbackNetwork,
    ) -> Result<Ipv4Addr, AssignAddressError> {
        let interface = || name.to_owned();
        let address = match request {
            IpAddr::V4(address) if network.contains(address) => address,
            IpAddr::V4(_) | IpAddr::V6(_) => {
                return Err(AssignAddressError::Outside {
                    address: request,
                    interface: interface(),
                    network: *network,
                });
            }
        };
        let owner =
            self.by_node.iter().find(|(node, has)| **node != spec.node && has.values().any(|has| *has == address));
        match owner {
            Some((owner, _)) => {
                Err(AssignAddressError::InUse { address, interface: interface(), owner: owner.clone() })
            }
            None => Ok(address),
        }
    }
}

fn requests(spec: &MachineSpec) -> Vec<(&str, Option<IpAddr>)> {
    if spec.interfaces.is_empty() {
        return vec![(DEFAULT_INTERFACE, None)];
    }
    spec.interfaces.iter().map(|request| (request.name.as_str(), request.address)).collect()
}

#[cfg(test)]
mod tests {
    use muster_core::names::{EnvName, Role};
    use proptest::prelude::*;

    use super::*;
    use crate::driver::InterfaceRequest;

    fn spec(node: &str, position: u32, interfaces: &[(&str, Option<&str>)]) -> MachineSpec {
        let request = |(name, address): &(&str, Option<&str>)| InterfaceRequest {
            name: (*name).to_owned(),
            address: address.map(|address| address.parse().unwrap()),
        };
        MachineSpec {
            env: EnvName::new("prod").unwrap(),
            node: NodeName::new(node).unwrap(),
            role: Role::new("web").unwrap(),
            position,
            flavor: None,
            leaving: false,
            labels: BTreeMap::new(),
            interfaces: interfaces.iter().map(request).collect(),
        }
    }

    fn allocate(
        addresses: &mut Addresses,
        spec: &MachineSpec,
        network: &LoopbackNetwork,
    ) -> Result<String, AssignAddressError> {
        let interfaces = addresses.choose(spec, network, &BTreeSet::new())?;
        let text: Vec<String> = interfaces.iter().map(|(name, address)| format!("{name}={address}")).collect();
        addresses.put(&MachineFile { env: spec.env.clone(), node: spec.node.clone(), interfaces });
        Ok(text.join(" "))
    }

    #[test]
    fn addresses_follow_the_order_of_the_design() {
        let network = LoopbackNetwork::default();
        let mut addresses = Addresses::default();
        for (node, position, expected) in [
            ("lb1", 3, "eth0=127.77.0.4"),
            ("db1", 0, "eth0=127.77.0.1"),
            ("web2", 2, "eth0=127.77.0.3"),
            ("web1", 1, "eth0=127.77.0.2"),
            // A later node with the position of another one, which keeps its address.
            ("web3", 3, "eth0=127.77.0.5"),
        ] {
            assert_eq!(allocate(&mut addresses, &spec(node, position, &[]), &network).unwrap(), expected);
        }
        assert_eq!(allocate(&mut addresses, &spec("lb1", 4, &[]), &network).unwrap(), "eth0=127.77.0.4", "unchanged");
        addresses.remove(&NodeName::new("db1").unwrap());
        assert_eq!(allocate(&mut addresses, &spec("db2", 9, &[]), &network).unwrap(), "eth0=127.77.0.10");
        assert_eq!(allocate(&mut addresses, &spec("db3", 9, &[]), &network).unwrap(), "eth0=127.77.0.1", "free again");
    }

    #[test]
    fn requested_addresses_are_assigned_or_refused() {
        let network = LoopbackNetwork::default();
        let mut addresses = Addresses::default();
        let two = spec("web1", 0, &[("eth0", None), ("eth1", Some("127.77.0.1"))]);
        assert_eq!(allocate(&mut addresses, &two, &network).unwrap(), "eth0=127.77.0.2 eth1=127.77.0.1");
        assert!(addresses.matching(&two, &network).is_some());
        assert!(addresses.matching(&spec("web1", 0, &[]), &network).is_none(), "one interface too many");

        let taken = allocate(&mut addresses, &spec("web2", 1, &[("eth0", Some("127.77.0.2"))]), &network).unwrap_err();
        assert_eq!(taken.to_string(), "127.77.0.2, requested for eth0, is the address of web1");
        let outside = allocate(&mut addresses, &spec("web2", 1, &[("eth0", Some("10.0.0.1"))]), &network).unwrap_err();
        assert_eq!(outside.to_string(), "10.0.0.1, requested for eth0, is not in 127.77.0.0/24");
    }

    #[test]
    fn busy_address_is_not_given_to_a_new_machine() {
        let network = LoopbackNetwork::default();
        let mut addresses = Addresses::default();
        allocate(&mut addresses, &spec("web1", 0, &[]), &network).unwrap();
        let busy = ["127.77.0.1", "127.77.0.2"].map(|address| address.parse().unwrap()).into();
        let chosen = |node, position| addresses.choose(&spec(node, position, &[]), &network, &busy).unwrap();
        assert_eq!(chosen("web1", 0)["eth0"], Ipv4Addr::new(127, 77, 0, 1), "its own services listen there");
        assert_eq!(chosen("web2", 1)["eth0"], Ipv4Addr::new(127, 77, 0, 3));
    }

    #[test]
    fn exhausted_network_is_an_error() {
        let network: LoopbackNetwork = "127.1.2.0/30".parse().unwrap();
        let mut addresses = Addresses::default();
        allocate(&mut addresses, &spec("web1", 0, &[]), &network).unwrap();
        allocate(&mut addresses, &spec("web2", 1, &[]), &network).unwrap();
        let error = allocate(&mut addresses, &spec("web3", 2, &[]), &network).unwrap_err().to_string();
        assert!(error.starts_with("127.1.2.0/30 is exhausted: all 2 addresses are in use"), "{error}");
    }

    #[test]
    fn changed_network_assigns_new_addresses() {
        let mut addresses = Addresses::default();
        let spec = spec("web1", 0, &[]);
        allocate(&mut addresses, &spec, &LoopbackNetwork::default()).unwrap();
        let other: LoopbackNetwork = "127.99.0.0/24".parse().unwrap();
        assert!(addresses.matching(&spec, &other).is_none());
        assert_eq!(allocate(&mut addresses, &spec, &other).unwrap(), "eth0=127.99.0.1");
    }

    proptest! {
        #[test]
        fn no_two_interfaces_share_an_address(
            machines in prop::collection::vec((1..40_u32, 0..40_u32, 1..3_usize), 1..60),
        ) {
            let network: LoopbackNetwork = "127.1.2.0/26".parse().unwrap();
            let mut addresses = Addresses::default();
            for (number, position, interfaces) in machines {
                let names = [("eth0", None), ("eth1", None)];
                let spec = spec(&format!("web{number}"), position, &names[..interfaces]);
                let before = addresses.by_node.get(&spec.node).cloned().unwrap_or_default();
                if allocate(&mut addresses, &spec, &network).is_ok() {
                    prop_assert!(addresses.matching(&spec, &network).is_some());
                    let now = &addresses.by_node[&spec.node];
                    prop_assert!(before.iter().all(|(name, old)| now.get(name).is_none_or(|now| now == old)));
                }
                let all: Vec<&Ipv4Addr> = addresses.by_node.values().flat_map(BTreeMap::values).collect();
                let distinct: BTreeSet<&&Ipv4Addr> = all.iter().collect();
                prop_assert_eq!(all.len(), distinct.len());
            }
        }
    }
}
