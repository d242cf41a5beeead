//! Checks the format of string fields (IP addresses, CIDRs and others), and parses CIDRs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::finding::Code;

/// Format of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    Any,
    /// `10.0.0.1`, `fd00::1`
    Address,
    AddressOrDhcp,
    /// `10.0.0.0/24`
    Cidr,
    /// `52:54:00:12:34:56`
    Mac,
    /// Size of a volume: `20g`, `512mi`, `30%`, `>20g`
    Size,
    /// Capacity of a disk: `480g`, `2ti`
    Bytes,
    HostName,
    Domain,
    Uuid,
    AbsolutePath,
    /// `0644`
    Permissions,
    /// `2,4-7`
    CpuSet,
}

/// Error for a text that does not have its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FormatError {
    pub code: Code,
    /// Expected format: `an IP address, such as 10.0.0.1 or fd00::1`.
    pub expected: &'static str,
}

impl TextFormat {
    pub(crate) fn check(self, text: &str) -> Result<(), FormatError> {
        let (fits, code, expected) = match self {
            TextFormat::Any => return Ok(()),
            TextFormat::Address => {
                (address(text).is_some(), Code::NotAnAddress, "an IP address, such as 10.0.0.1 or fd00::1")
            }
            TextFormat::AddressOrDhcp => (
                text == "dhcp" || address(text).is_some(),
                Code::NotAnAddress,
                "an IP address, such as 10.0.0.1 or fd00::1, or dhcp",
            ),
            TextFormat::Cidr => {
                (cidr(text).is_some(), Code::NotACidr, "a network in CIDR notation, such as 10.0.0.0/24 or fd00::/64")
            }
            TextFormat::Mac => (is_mac(text), Code::NotAMac, "a hardware address, such as 52:54:00:12:34:56"),
            TextFormat::Size => (size(text).is_some(), Code::NotASize, "a size, such as 20g, 512mi, 30% or >20g"),
            TextFormat::Bytes => (
                matches!(size(text), Some(VolumeSize::Bytes(_))),
                Code::NotASize,
                "a size in bytes, such as 480g or 2ti",
            ),
            TextFormat::HostName => (
                is_domain(text),
                Code::NotAHostName,
                "parts of 1 to 63 of a-z, 0-9 and '-' joined by '.', none of which begins or ends with '-'",
            ),
            TextFormat::Domain => {
                (is_domain(text), Code::NotADomain, "a domain: host names joined by dots, such as example.org")
            }
            TextFormat::Uuid => (is_uuid(text), Code::NotAUuid, "a UUID, such as 8e3d3c04-7b1f-4bd4-a9a4-5b8b2d3c1a00"),
            TextFormat::AbsolutePath => (
                (text.starts_with('/') && !text.contains('\0')) || text == "none",
                Code::NotAPath,
                "an absolute path, such as /var/lib",
            ),
            TextFormat::Permissions => (
                (3..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit)),
                Code::NotPermissions,
                "a file mode in base 8, in quotes, such as '0644'",
            ),
            TextFormat::CpuSet => {
                (is_cpu_set(text), Code::NotACpuSet, "processors and ranges of them, such as '2,4-7'")
            }
        };
        if fits { Ok(()) } else { Err(FormatError { code, expected }) }
    }

    /// Regular expression for editors. It is weaker than [`TextFormat::check`].
    pub(crate) fn pattern(self) -> Option<&'static str> {
        match self {
            TextFormat::Any | TextFormat::Address | TextFormat::AddressOrDhcp => None,
            TextFormat::Cidr => Some("^[0-9A-Fa-f:.]+/[0-9]{1,3}$"),
            TextFormat::Mac => Some("^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}$"),
            TextFormat::Size => Some("^(>?[0-9]+(\\.[0-9]+)?[kKmMgGtT][iI]?[bB]?|[0-9]+(\\.[0-9]+)?%)$"),
            TextFormat::Bytes => Some("^[0-9]+(\\.[0-9]+)?[kKmMgGtT][iI]?[bB]?$"),
            TextFormat::HostName | TextFormat::Domain => {
                Some("^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$")
            }
            TextFormat::Uuid => Some("^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"),
            TextFormat::AbsolutePath => Some("^(/.*|none)$"),
            TextFormat::Permissions => Some("^[0-7]{3,4}$"),
            TextFormat::CpuSet => Some("^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"),
        }
    }
}

pub(crate) fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

/// A network as written. Host bits may be set; a rule reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub address: IpAddr,
    /// At most the number of bits of the address: only [`cidr`] constructs it.
    pub(crate) prefix: u8,
}

pub(crate) fn cidr(text: &str) -> Option<Cidr> {
    let (address, prefix) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    // `parse` would accept a sign.
    let prefix: u8 = prefix.bytes().all(|digit| digit.is_ascii_digit()).then(|| prefix.parse().ok())??;
    (prefix <= Cidr::bits(address)).then_some(Cidr { address, prefix })
}

impl Cidr {
    fn bits(address: IpAddr) -> u8 {
        match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        }
    }

    /// Mask as a number of 128 bits; an IPv4 mask has 32. Only numbers of one family are compared.
    fn mask(self) -> u128 {
        let host_bits = u32::from(Cidr::bits(self.address) - self.prefix);
        !1u128.checked_shl(host_bits).map_or(u128::MAX, |bit| bit - 1)
    }

    /// The same network with no host bits set.
    pub fn canonical(self) -> Cidr {
        Cidr { address: self.network(), ..self }
    }

    /// Last address; for IPv4 the broadcast address.
    pub(crate) fn last(self) -> IpAddr {
        match self.network() {
            IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() | !self.mask() as u32).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() | !self.mask()).into(),
        }
    }

    /// Reports whether an address is the network or broadcast address of an IPv4 network. IPv6 has neither, and nor do
    /// networks of one or two addresses.
    pub(crate) fn is_of_no_host(self, address: IpAddr) -> bool {
        self.address.is_ipv4() && self.prefix < 31 && (address == self.network() || address == self.last())
    }

    /// The address with no host bits set.
    pub(crate) fn network(self) -> IpAddr {
        match self.address {
            IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & self.mask() as u32).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & self.mask()).into(),
        }
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && Cidr { address, prefix: self.prefix }.network() == self.network()
    }

    /// Reports whether two networks overlap.
    pub(crate) fn overlaps(self, other: Cidr) -> bool {
        let wider = self.prefix.min(other.prefix);
        self.address.is_ipv4() == other.address.is_ipv4()
            && Cidr { prefix: wider, ..self }.network() == Cidr { prefix: wider, ..other }.network()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Size of a volume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum VolumeSize {
    Bytes(u64),
    Percent(f64),
    /// Minimum in bytes, plus the remaining space.
    AtLeast(u64),
}

/// `20g`, `20gb`: powers of 1000; `20gi`, `20gib`: powers of 1024; `30%`; `>20g`.
pub(crate) fn size(text: &str) -> Option<VolumeSize> {
    let (at_least, rest) = text.strip_prefix('>').map_or((false, text), |rest| (true, rest));
    let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, unit) = rest.split_at(digits);
    if number.is_empty() || number.starts_with('.') || number.ends_with('.') {
        return None;
    }
    let number: f64 = number.parse().ok()?;
    if unit == "%" {
        return (!at_least).then_some(VolumeSize::Percent(number));
    }
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix('b').filter(|_| unit.len() > 1).unwrap_or(&unit);
    let factor: f64 = match unit {
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "t" => 1e12,
        "ki" => 1024.0,
        "mi" => 1024.0 * 1024.0,
        "gi" => 1024.0 * 1024.0 * 1024.0,
        "ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = number * factor;
    // Above 2^53 a float is not exact; no disk is that large.
    if bytes > (1u64 << 53) as f64 {
        return None;
    }
    let bytes = bytes.round() as u64;
    Some(if at_least { VolumeSize::AtLeast(bytes) } else { VolumeSize::Bytes(bytes) })
}

/// Bytes of a hardware address, for the comparison of different spellings.
pub(crate) fn mac(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() == 2 && part.bytes().all(|c| c.is_ascii_hexdigit()))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

fn is_mac(text: &str) -> bool {
    mac(text).is_some()
}

pub(crate) fn is_label(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(legal) && !text.starts_with('-') && !text.ends_with('-')
}

/// Labels joined by dots, as long as DNS allows.
fn is_domain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_uuid(text: &str) -> bool {
    let mut parts = text.split('-');
    [8, 4, 4, 4, 12].into_iter().all(|length| {
        parts.next().is_some_and(|part| part.len() == length && part.bytes().all(|c| c.is_ascii_hexdigit()))
    }) && parts.next().is_none()
}

fn is_cpu_set(text: &str) -> bool {
    let number = |text: &str| text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse::<u16>().ok())?;
    text.split(',').all(|part| match part.split_once('-') {
        None => number(part).is_some(),
        Some((first, last)) => number(first).zip(number(last)).is_some_and(|(first, last)| first <= last),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn every_format_accepts_its_examples() {
        let table: &[(TextFormat, &[&str], &[&str])] = &[
            (
                TextFormat::Address,
                &["10.0.0.1", "fd00::1"],
                &["10.0.0", "10.0.0.256", "fd00::g", "dhcp", "", "10.0.0.1/24"],
            ),
            (TextFormat::AddressOrDhcp, &["dhcp", "10.0.0.1"], &["DHCP", "none"]),
            (
                TextFormat::Cidr,
                &["10.0.0.0/24", "fd00::/64", "0.0.0.0/0", "10.0.0.1/32"],
                &["10.0.0.0/33", "10.0.0.0/99", "10.0.0.0", "/24", "fd00::/129", "10.0.0.0/+8", "10.0.0.0/"],
            ),
            (
                TextFormat::Mac,
                &["52:54:00:12:34:56", "52-54-00-AB-cd-EF"],
                &["52:54:00:12:34", "52:54:00:12:34:5g", "525400123456", "52:54:00:12:34:56:78"],
            ),
            (
                TextFormat::Size,
                &["20g", "20GB", "20gi", "20GiB", "30%", ">20g", "1.5t", "512m"],
                &["20", "g", ">30%", "20x", "-1g", "", "20b", "1e3g", ".5g", "5.g", "9999999999999t"],
            ),
            (TextFormat::Bytes, &["480g", "2ti"], &[">480g", "30%"]),
            (
                TextFormat::HostName,
                &["web1", "a", "0", "a-b", "a.b-c.d"],
                &["Web1", "-a", "a-", "a..b", "a.", "a_b", "", "ä"],
            ),
            (TextFormat::Domain, &["example.org", "local"], &["example..org", ".org", "Example.org", ""]),
            (
                TextFormat::Uuid,
                &["8e3d3c04-7b1f-4bd4-a9a4-5b8b2d3c1a00"],
                &["8e3d3c04", "8e3d3c04-7b1f-4bd4-a9a4-5b8b2d3c1a0x"],
            ),
            (TextFormat::AbsolutePath, &["/", "/var", "none"], &["var", ""]),
            (TextFormat::Permissions, &["0644", "644"], &["0o644", "888", "64", "u+x"]),
            (TextFormat::CpuSet, &["2,4", "0", "2-7,9"], &["", "a", "7-2", "1,", "-1", "1-2-3"]),
        ];
        for (format, good, bad) in table {
            for text in *good {
                assert_eq!(format.check(text), Ok(()), "{format:?} {text:?}");
            }
            for text in *bad {
                assert!(format.check(text).is_err(), "{format:?} {text:?}");
            }
        }
    }

    #[test]
    fn cidr_contains_its_addresses() {
        let net = |text| cidr(text).unwrap();
        assert!(net("10.0.0.0/24").contains("10.0.0.255".parse().unwrap()));
        assert!(!net("10.0.0.0/24").contains("10.0.1.0".parse().unwrap()));
        assert!(!net("10.0.0.0/24").contains("::10.0.0.1".parse().unwrap()));
        assert!(net("fd00::/64").contains("fd00::ffff".parse().unwrap()));
        assert!(net("0.0.0.0/0").contains("255.255.255.255".parse().unwrap()));
        assert!(net("::/0").contains("ffff::".parse().unwrap()));
        assert!(net("10.0.0.0/8").overlaps(net("10.1.0.0/16")));
        assert!(!net("10.0.0.0/16").overlaps(net("10.1.0.0/16")));
        assert_eq!(net("10.0.0.7/24").network(), "10.0.0.0".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn sizes_are_parsed_with_units() {
        assert_eq!(size("20g"), Some(VolumeSize::Bytes(20_000_000_000)));
        assert_eq!(size("20gi"), Some(VolumeSize::Bytes(20 << 30)));
        assert_eq!(size("1.5k"), Some(VolumeSize::Bytes(1500)));
        assert_eq!(size(">20g"), Some(VolumeSize::AtLeast(20_000_000_000)));
        assert_eq!(size("99.5%"), Some(VolumeSize::Percent(99.5)));
    }
}
