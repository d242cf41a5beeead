//! The network of local machines: a part of the loopback network.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The network that local machines get their addresses from.
///
/// Linux answers on all of 127.0.0.0/8, so that each machine can have its own address without configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LoopbackNetwork {
    first: u32,
    prefix: u8,
}

/// Reason that a network is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NetworkError {
    #[error("{text:?} is not a network: write it like 127.77.0.0/24")]
    Syntax { text: String },
    #[error("{text} is not within 127.0.0.0/8: local machines have loopback addresses only, such as 127.77.0.0/24")]
    NotLoopback { text: String },
    #[error(
        "{text} contains 127.0.0.1, which is this machine's own address: choose another network, such as 127.77.0.0/24"
    )]
    ContainsLocalhost { text: String },
    #[error("{text} is too small: the prefix must be at most 30")]
    TooSmall { text: String },
    #[error("{text} has bits set beyond its prefix: do you mean {meant}?")]
    HostBits { text: String, meant: LoopbackNetwork },
}

impl Default for LoopbackNetwork {
    fn default() -> Self {
        Self::block(0)
    }
}

impl LoopbackNetwork {
    /// `127.77.<number>.0/24`
    pub fn block(number: u8) -> Self {
        Self { first: Ipv4Addr::new(127, 77, number, 0).to_bits(), prefix: 24 }
    }

    /// True if the networks have an address in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        let mask = self.mask() & other.mask();
        self.first & mask == other.first & mask
    }

    pub fn contains(&self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask() == self.first
    }

    /// Number of machine addresses.
    pub fn size(&self) -> u32 {
        if self.prefix > 24 { (1 << (32 - self.prefix)) - 2 } else { (1 << (24 - self.prefix)) * 254 }
    }

    /// The address with this index. Addresses that end in 0 or 255 are skipped, also in larger networks: people and some
    /// programs take them for network or broadcast addresses.
    pub fn nth(&self, index: u32) -> Option<Ipv4Addr> {
        if index >= self.size() {
            return None;
        }
        let offset = if self.prefix > 24 { index + 1 } else { (index / 254) * 256 + index % 254 + 1 };
        Some(Ipv4Addr::from_bits(self.first + offset))
    }

    /// A free address: the one with the preferred index, so that a new fleet has its addresses in the order of the design;
    /// else the first free one.
    pub fn pick(&self, preferred: u32, taken: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
        let free = |address: &Ipv4Addr| !taken.contains(address);
        self.nth(preferred).filter(free).or_else(|| (0..self.size()).filter_map(|index| self.nth(index)).find(free))
    }

    fn mask(&self) -> u32 {
        u32::MAX << (32 - self.prefix)
    }
}

impl fmt::Display for LoopbackNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.first), self.prefix)
    }
}

impl FromStr for LoopbackNetwork {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let owned = || text.to_owned();
        let syntax = || NetworkError::Syntax { text: owned() };
        let (address, prefix) = text.split_once('/').ok_or_else(syntax)?;
        let address: Ipv4Addr = address.parse().map_err(|_| syntax())?;
        let prefix: u8 = prefix.parse().ok().filter(|prefix| *prefix <= 32).ok_or_else(syntax)?;
        if !address.is_loopback() || prefix < 8 {
            return Err(NetworkError::NotLoopback { text: owned() });
        }
        if prefix > 30 {
            return Err(NetworkError::TooSmall { text: owned() });
        }
        let mut network = Self { first: address.to_bits(), prefix };
        network.first &= network.mask();
        if network.contains(Ipv4Addr::LOCALHOST) {
            return Err(NetworkError::ContainsLocalhost { text: owned() });
        }
        if network.first != address.to_bits() {
            return Err(NetworkError::HostBits { text: owned(), meant: network });
        }
        Ok(network)
    }
}

impl TryFrom<String> for LoopbackNetwork {
    type Error = NetworkError;
    fn try_from(text: String) -> Result<Self, NetworkError> {
        text.parse()
    }
}

impl From<LoopbackNetwork> for String {
    fn from(network: LoopbackNetwork) -> String {
        network.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(text: &str) -> LoopbackNetwork {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_count_from_one() {
        for (text, index, address) in [
            ("127.77.0.0/24", 0, Some("127.77.0.1")),
            ("127.77.0.0/24", 253, Some("127.77.0.254")),
            ("127.77.0.0/24", 254, None),
            ("127.78.0.0/16", 254, Some("127.78.1.1")),
            ("127.78.0.0/16", 256 * 254 - 1, Some("127.78.255.254")),
            ("127.78.0.0/16", 256 * 254, None),
            ("127.1.2.240/28", 0, Some("127.1.2.241")),
            ("127.1.2.240/28", 13, Some("127.1.2.254")),
            ("127.1.2.240/28", 14, None),
            ("127.1.2.4/30", 1, Some("127.1.2.6")),
            ("127.1.2.4/30", 2, None),
        ] {
            assert_eq!(
                network(text).nth(index).map(|address| address.to_string()).as_deref(),
                address,
                "{text} {index}"
            );
        }
        assert_eq!(LoopbackNetwork::default().to_string(), "127.77.0.0/24");
    }

    #[test]
    fn networks_overlap_if_one_contains_the_other() {
        for (one, other, overlap) in [
            ("127.77.0.0/24", "127.77.0.0/24", true),
            ("127.77.0.0/24", "127.77.1.0/24", false),
            ("127.77.0.0/16", "127.77.3.0/24", true),
            ("127.78.0.0/16", "127.77.3.0/24", false),
            ("127.77.3.0/28", "127.77.3.16/28", false),
        ] {
            assert_eq!(network(one).overlaps(&network(other)), overlap, "{one} {other}");
            assert_eq!(network(other).overlaps(&network(one)), overlap, "{other} {one}");
        }
    }

    #[test]
    fn invalid_network_has_a_hint() {
        for (text, says) in [
            ("127.77.0.0", "\"127.77.0.0\" is not a network: write it like 127.77.0.0/24"),
            ("web/24", "\"web/24\" is not a network: write it like 127.77.0.0/24"),
            ("127.77.0.0/33", "\"127.77.0.0/33\" is not a network: write it like 127.77.0.0/24"),
            (
                "10.0.0.0/24",
                "10.0.0.0/24 is not within 127.0.0.0/8: local machines have loopback addresses only, such as 127.77.0.0/24",
            ),
            (
                "127.0.0.0/7",
                "127.0.0.0/7 is not within 127.0.0.0/8: local machines have loopback addresses only, such as 127.77.0.0/24",
            ),
            (
                "127.0.0.0/16",
                "127.0.0.0/16 contains 127.0.0.1, which is this machine's own address: choose another network, such as 127.77.0.0/24",
            ),
            ("127.77.0.1/32", "127.77.0.1/32 is too small: the prefix must be at most 30"),
            ("127.77.0.7/24", "127.77.0.7/24 has bits set beyond its prefix: do you mean 127.77.0.0/24?"),
        ] {
            assert_eq!(text.parse::<LoopbackNetwork>().unwrap_err().to_string(), says);
        }
    }

    #[test]
    fn preferred_address_is_used_if_free() {
        let network = network("127.1.2.0/30");
        let [first, second] = [network.nth(0).unwrap(), network.nth(1).unwrap()];
        assert_eq!(network.pick(1, &BTreeSet::new()), Some(second));
        assert_eq!(network.pick(1, &BTreeSet::from([second])), Some(first));
        assert_eq!(network.pick(7, &BTreeSet::new()), Some(first));
        assert_eq!(network.pick(0, &BTreeSet::from([first, second])), None, "exhausted");
    }

    proptest! {
        #[test]
        fn addresses_are_unique_and_all_are_used(
            prefix in 22..=30_u8, preferred in prop::collection::vec(0..2000_u32, 0..300),
        ) {
            let network = network(&format!("127.77.0.0/{prefix}"));
            let mut taken = BTreeSet::new();
            for (count, preferred) in preferred.into_iter().enumerate() {
                match network.pick(preferred, &taken) {
                    Some(address) => {
                        prop_assert!(network.contains(address) && address.is_loopback());
                        prop_assert!(!matches!(address.octets()[3], 0 | 255));
                        prop_assert!(taken.insert(address), "{address} was given twice");
                    }
                    None => {
                        prop_assert_eq!(taken.len(), network.size() as usize);
                        prop_assert!(count >= taken.len());
                    }
                }
            }
        }

        #[test]
        fn network_round_trips_as_text(prefix in 9..=30_u8, bits: u32) {
            let masked = (0x7f00_0000 | (bits & 0x00ff_ffff)) & (u32::MAX << (32 - prefix));
            let text = format!("{}/{prefix}", Ipv4Addr::from_bits(masked));
            if let Ok(network) = text.parse::<LoopbackNetwork>() {
                prop_assert_eq!(network.to_string(), text);
                prop_assert_eq!(network.nth(network.size()), None);
                prop_assert!(network.nth(network.size() - 1).is_some_and(|last| network.contains(last)));
            }
        }
    }
}
