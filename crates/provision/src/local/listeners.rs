//! The TCP ports of this machine that processes listen on, from `/proc`.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use muster_marked::find;

use super::MACHINE_MARK;

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Characters of four bytes of an address.
const WORD: usize = 8;

/// A port that a process listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
    /// Identifies the socket in the files of its process.
    inode: u64,
}

impl Listener {
    /// All listeners that accept connections to IPv4 addresses, also those on IPv6 sockets; none if the kernel does not show
    /// them. Listeners on all addresses have the address 0.0.0.0. The kernel does not show whether a listener on `[::]` is
    /// restricted to IPv6.
    pub(super) fn all() -> Vec<Self> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (ipv4, ipv6) = (read("/proc/net/tcp"), read("/proc/net/tcp6"));
        ipv4.lines().chain(ipv6.lines()).filter_map(Self::parse).collect()
    }

    /// Parses a line: number, local address, remote address, state, queues, timer, retransmits, user, timeout, inode.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_whitespace().skip(1);
        let (address, port) = fields.next()?.split_once(':')?;
        if fields.nth(1)? != LISTEN {
            return None;
        }
        Some(Self {
            address: parse_address(address)?,
            port: u16::from_str_radix(port, 16).ok()?,
            inode: fields.nth(5)?.parse().ok()?,
        })
    }

    pub(super) fn is_among(&self, sockets: &BTreeSet<u64>) -> bool {
        sockets.contains(&self.inode)
    }
}

/// Parses an address, and converts an IPv6 address to the IPv4 address of its listener.
fn parse_address(text: &str) -> Option<Ipv4Addr> {
    // The kernel prints each four bytes of the address as a number of this machine's byte order.
    let word = |text: &str| Some(u32::from_str_radix(text, 16).ok()?.to_ne_bytes());
    if text.len() == WORD {
        return word(text).map(Ipv4Addr::from);
    }
    let words = (0..4).map(|number| word(text.get(number * WORD..(number + 1) * WORD)?)).collect::<Option<Vec<_>>>()?;
    let address = Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?);
    if address.is_unspecified() { Some(Ipv4Addr::UNSPECIFIED) } else { address.to_ipv4_mapped() }
}

/// The sockets of a machine's processes.
pub(super) fn sockets_of(machine: &Path) -> BTreeSet<u64> {
    let processes = find(MACHINE_MARK, machine).unwrap_or_default();
    let files = processes.iter().filter_map(|process| std::fs::read_dir(format!("/proc/{}/fd", process.pid())).ok());
    let links = files.flatten().flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
    links.filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn listening_port_is_found_until_it_is_closed() {
        let bound = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = bound.local_addr().unwrap().port();
        let is_listed =
            || Listener::all().iter().any(|found| found.address == Ipv4Addr::LOCALHOST && found.port == port);
        assert!(is_listed());
        drop(bound);
        assert!(!is_listed());
    }

    #[test]
    fn listeners_on_ipv6_sockets_are_found() {
        let table = [("[::]:0", Ipv4Addr::UNSPECIFIED), ("[::ffff:127.0.0.1]:0", Ipv4Addr::LOCALHOST)];
        for (bind, address) in table {
            let bound = TcpListener::bind(bind).unwrap();
            let port = bound.local_addr().unwrap().port();
            assert!(Listener::all().iter().any(|found| (found.address, found.port) == (address, port)), "{bind}");
        }
        assert_eq!(parse_address("00000000000000000000000001000000"), None, "::1 is no IPv4 address");
    }
}
