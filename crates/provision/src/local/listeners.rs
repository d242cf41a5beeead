//! The TCP ports of this machine that processes listen on, from `/proc`.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;

use muster_marked::find;

use super::MACHINE_MARK;

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// A port that a process listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
    /// Identifies the socket in the files of its process.
    inode: u64,
}

impl Listener {
    /// All listeners of IPv4; none if the kernel does not show them.
    pub(super) fn all() -> Vec<Self> {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        sockets.lines().filter_map(Self::parse).collect()
    }

    /// Parses a line: number, local address, remote address, state, queues, timer, retransmits, user, timeout, inode.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_whitespace().skip(1);
        let (address, port) = fields.next()?.split_once(':')?;
        if fields.nth(1)? != LISTEN {
            return None;
        }
        // The kernel prints the bytes of the address as a number of this machine's byte order.
        let address = u32::from_str_radix(address, 16).ok()?.to_ne_bytes().into();
        Some(Self { address, port: u16::from_str_radix(port, 16).ok()?, inode: fields.nth(5)?.parse().ok()? })
    }

    pub(super) fn is_among(&self, sockets: &BTreeSet<u64>) -> bool {
        sockets.contains(&self.inode)
    }
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
}
