//! A loopback network for one test.

use std::net::{Ipv4Addr, TcpListener};

/// A loopback network `127.a.b.0/24`. While it is held, no other test gets the same one.
///
/// A network and not a free port of 127.0.0.1: another process could get the port of a process that was killed before it
/// is started again.
#[derive(Debug)]
pub struct LoopbackNetwork {
    a: u8,
    b: u8,
    _lock: TcpListener,
}

impl LoopbackNetwork {
    /// Networks of end-to-end tests. 127.0 is in general use, 127.77 is the default of `muster up`.
    pub fn for_fleet() -> Self {
        Self::claim(1, 70, 7299)
    }

    /// Networks of etcd clusters.
    pub fn for_etcd() -> Self {
        Self::claim(80, 40, 2378)
    }

    /// Claims a network from 127.`first` on. A listener on `lock_port` of its address 253 is the lock. The search starts at
    /// the number of this process, because that network is free most of the time.
    fn claim(first: u8, count: u8, lock_port: u16) -> Self {
        let start = std::process::id();
        for number in start..start + u32::from(count) * 256 {
            let [_, _, a, b] = number.to_be_bytes();
            let a = first + a % count;
            if let Ok(lock) = TcpListener::bind((Ipv4Addr::new(127, a, b, 253), lock_port)) {
                return Self { a, b, _lock: lock };
            }
        }
        panic!("no loopback network is free (a listener on port {lock_port} of 127.a.b.253 marks one in use)");
    }

    /// An address of this network.
    pub fn address(&self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.a, self.b, last)
    }

    /// The network in CIDR notation.
    pub fn cidr(&self) -> String {
        format!("127.{}.{}.0/24", self.a, self.b)
    }
}
