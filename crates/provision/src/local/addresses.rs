//! Who has which address. The machines' own files say it; this is all of them, read once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use thiserror::Error;

use muster_core::names::NodeName;

use super::machine_dir::MachineFile;
use super::network::Network;
use crate::driver::MachineSpec;

/// The interface that a machine has when its design wishes none.
const DEFAULT_INTERFACE: &str = "eth0";

/// Why a machine cannot have its addresses.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AddressError {
    #[error(
        "{network} is exhausted: all of its {size} addresses are taken; choose a larger network, such as 127.78.0.0/16"
    )]
    Exhausted { network: Network, size: u32 },
    #[error("{address}, wished for {interface}, is not in {network}")]
    Outside { address: IpAddr, interface: String, network: Network },
    #[error("{address}, wished for {interface}, is the address of {owner}")]
    ReportResult { address: Ipv4Addr, interface: String, owner: NodeName },
}

/// The addresses of all machines that were allocated.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    of: BTreeMap<NodeName, BTreeMap<String, Ipv4Addr>>,
}

impl Addresses {
    pub(super) fn put(&mut self, machine: &MachineFile) {
        self.of.insert(machine.node.clone(), machine.interfaces.clone());
    }

    pub(super) fn remove(&mut self, node: &NodeName) {
        self.of.remove(node);
    }

    /// What a machine has, if that is still what is wished for.
    pub(super) fn kept(&self, spec: &MachineSpec, network: &Network) -> Option<&BTreeMap<String, Ipv4Addr>> {
        let has = self.of.get(&spec.node)?;
        let wishes = wishes(spec);
        let met = |(name, address): &(&str, Option<IpAddr>)| {
            has.get(*name).is_some_and(|has| network.contains(*has) && address.is_none_or(|wish| wish == *has))
        };
        (has.len() == wishes.len() && wishes.iter().all(met)).then_some(has)
    }

    /// Addresses for a machine: what it has, as far as that can stay, and free ones.
    pub(super) fn choose(
        &self,
        spec: &MachineSpec,
        network: &Network,
    ) -> Result<BTreeMap<String, Ipv4Addr>, AddressError> {
        let mut taken: BTreeSet<Ipv4Addr> =
            self.of.iter().filter(|(node, _)| **node != spec.node).flat_map(|(_, has)| has.values().copied()).collect();
        let has = self.of.get(&spec.node);
        let mut chosen = BTreeMap::new();
        let wishes = wishes(spec);
        // Those that wish for a certain one come first, then those that have one: the others take what is left.
        let old = |name: &str| has.and_then(|has| has.get(name)).copied().filter(|old| network.contains(*old));
        for (name, wish) in &wishes {
            let address = match wish {
                Some(wish) => self.wished(spec, name, *wish, network)?,
                None => continue,
            };
            taken.insert(address);
            chosen.insert((*name).to_owned(), address);
        }
        for (name, wish) in &wishes {
            if let (None, Some(old)) = (wish, old(name))
                && taken.insert(old)
            {
                chosen.insert((*name).to_owned(), old);
            }
        }
        for (name, _) in &wishes {
            if !chosen.contains_key(*name) {
                let exhausted = || AddressError::Exhausted { network: *network, size: network.size() };
                let address = network.pick(spec.position, &taken).ok_or_else(exhausted)?;
                taken.insert(address);
                chosen.insert((*name).to_owned(), address);
            }
        }
        Ok(chosen)
    }

    fn wished(
        &self,
        spec: &MachineSpec,
        name: &str,
        wish: IpAddr,
        network: &Network,
    ) -> Result<Ipv4Addr, AddressError> {
        let interface = || name.to_owned();
        let address = match wish {
            IpAddr::V4(address) if network.contains(address) => address,
            IpAddr::V4(_) | IpAddr::V6(_) => {
                return Err(AddressError::Outside { address: wish, interface: interface(), network: *network });
            }
        };
        let owner = self.of.iter().find(|(node, has)| **node != spec.node && has.values().any(|has| *has == address));
        match owner {
            Some((owner, _)) => {
                Err(AddressError::ReportResult { address, interface: interface(), owner: owner.clone() })
            }
            None => Ok(address),
        }
    }
}

fn wishes(spec: &MachineSpec) -> Vec<(&str, Option<IpAddr>)> {
    if spec.interfaces.is_empty() {
        return vec![(DEFAULT_INTERFACE, None)];
    }
    spec.interfaces.iter().map(|wish| (wish.name.as_str(), wish.address)).collect()
}

#[cfg(test)]
mod tests {
    use muster_core::names::{EnvName, Role};
    use proptest::prelude::*;

    use super::*;
    use crate::driver::InterfaceRequest;

    fn spec(node: &str, position: u32, interfaces: &[(&str, Option<&str>)]) -> MachineSpec {
        let wish = |(name, address): &(&str, Option<&str>)| InterfaceRequest {
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
            interfaces: interfaces.iter().map(wish).collect(),
        }
    }

    fn allocate(addresses: &mut Addresses, spec: &MachineSpec, network: &Network) -> Result<String, AddressError> {
        let interfaces = addresses.choose(spec, network)?;
        let text: Vec<String> = interfaces.iter().map(|(name, address)| format!("{name}={address}")).collect();
        addresses.put(&MachineFile { env: spec.env.clone(), node: spec.node.clone(), interfaces });
        Ok(text.join(" "))
    }

    #[test]
    fn addresses_follow_the_design_whoever_comes_first() {
        let network = Network::default();
        let mut addresses = Addresses::default();
        for (node, position, expected) in [
            ("lb1", 3, "eth0=127.77.0.4"),
            ("db1", 0, "eth0=127.77.0.1"),
            ("web2", 2, "eth0=127.77.0.3"),
            ("web1", 1, "eth0=127.77.0.2"),
            // The role grew later: its place is that of another one, which keeps its address.
            ("web3", 3, "eth0=127.77.0.5"),
        ] {
            assert_eq!(allocate(&mut addresses, &spec(node, position, &[]), &network).unwrap(), expected);
        }
        assert_eq!(allocate(&mut addresses, &spec("lb1", 4, &[]), &network).unwrap(), "eth0=127.77.0.4", "stays");
        addresses.remove(&NodeName::new("db1").unwrap());
        assert_eq!(allocate(&mut addresses, &spec("db2", 9, &[]), &network).unwrap(), "eth0=127.77.0.10");
        assert_eq!(allocate(&mut addresses, &spec("db3", 9, &[]), &network).unwrap(), "eth0=127.77.0.1", "free again");
    }

    #[test]
    fn wishes_are_met_or_refused() {
        let network = Network::default();
        let mut addresses = Addresses::default();
        let two = spec("web1", 0, &[("eth0", None), ("eth1", Some("127.77.0.1"))]);
        assert_eq!(allocate(&mut addresses, &two, &network).unwrap(), "eth0=127.77.0.2 eth1=127.77.0.1");
        assert!(addresses.kept(&two, &network).is_some());
        assert!(addresses.kept(&spec("web1", 0, &[]), &network).is_none(), "one interface too many");

        let taken = allocate(&mut addresses, &spec("web2", 1, &[("eth0", Some("127.77.0.2"))]), &network).unwrap_err();
        assert_eq!(taken.to_string(), "127.77.0.2, wished for eth0, is the address of web1");
        let outside = allocate(&mut addresses, &spec("web2", 1, &[("eth0", Some("10.0.0.1"))]), &network).unwrap_err();
        assert_eq!(outside.to_string(), "10.0.0.1, wished for eth0, is not in 127.77.0.0/24");
    }

    #[test]
    fn an_exhausted_network_says_so() {
        let network: Network = "127.1.2.0/30".parse().unwrap();
        let mut addresses = Addresses::default();
        allocate(&mut addresses, &spec("web1", 0, &[]), &network).unwrap();
        allocate(&mut addresses, &spec("web2", 1, &[]), &network).unwrap();
        let error = allocate(&mut addresses, &spec("web3", 2, &[]), &network).unwrap_err().to_string();
        assert!(error.starts_with("127.1.2.0/30 is exhausted: all of its 2 addresses are taken"), "{error}");
    }

    #[test]
    fn another_network_gives_new_addresses() {
        let mut addresses = Addresses::default();
        let spec = spec("web1", 0, &[]);
        allocate(&mut addresses, &spec, &Network::default()).unwrap();
        let other: Network = "127.99.0.0/24".parse().unwrap();
        assert!(addresses.kept(&spec, &other).is_none());
        assert_eq!(allocate(&mut addresses, &spec, &other).unwrap(), "eth0=127.99.0.1");
    }

    proptest! {
        #[test]
        fn never_two_interfaces_with_one_address(
            machines in prop::collection::vec((1..40_u32, 0..40_u32, 1..3_usize), 1..60),
        ) {
            let network: Network = "127.1.2.0/26".parse().unwrap();
            let mut addresses = Addresses::default();
            for (number, position, interfaces) in machines {
                let names = [("eth0", None), ("eth1", None)];
                let spec = spec(&format!("web{number}"), position, &names[..interfaces]);
                let before = addresses.of.get(&spec.node).cloned().unwrap_or_default();
                if allocate(&mut addresses, &spec, &network).is_ok() {
                    prop_assert!(addresses.kept(&spec, &network).is_some());
                    let now = &addresses.of[&spec.node];
                    prop_assert!(before.iter().all(|(name, old)| now.get(name).is_none_or(|now| now == old)));
                }
                let all: Vec<&Ipv4Addr> = addresses.of.values().flat_map(BTreeMap::values).collect();
                let distinct: BTreeSet<&&Ipv4Addr> = all.iter().collect();
                prop_assert_eq!(all.len(), distinct.len());
            }
        }
    }
}
