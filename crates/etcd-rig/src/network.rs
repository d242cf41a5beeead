//! A loopback network of its own for each cluster.

use std::net::{Ipv4Addr, TcpListener};

/// Nothing listens here but the rig itself: whoever holds it owns the network.
const CLAIM: u16 = 2378;

/// A loopback network `127.a.b.0/24`.
#[derive(Debug)]
pub(crate) struct Network {
    a: u8,
    b: u8,
    _claim: TcpListener,
}

impl Network {
    /// Takes a network that nobody has. It begins with a number of this process, so that the first try is mostly right.
    ///
    /// An address of its own, and not a free port of 127.0.0.1: a port that a killed member had could be somebody
    /// else's when it is started again, and these ports are below those that the kernel gives out by itself.
    pub(crate) fn claim() -> Self {
        let start = std::process::id();
        for number in start..start + 8_000 {
            let [_, _, a, b] = number.to_be_bytes();
            // Below 127.78 are the networks of the end-to-end tests and of `muster up`, from 127.128 on others.
            let a = 80 + a % 40;
            if let Ok(claim) = TcpListener::bind((Ipv4Addr::new(127, a, b, 253), CLAIM)) {
                return Self { a, b, _claim: claim };
            }
        }
        panic!("no network 127.x.y.0/24 is free (port {CLAIM} on one stands for a network in use)");
    }

    /// An address of it.
    pub(crate) fn address(&self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.a, self.b, last)
    }
}
