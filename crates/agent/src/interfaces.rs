//! The node's addresses by interface: as configured, or as the kernel has them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use muster_core::report::Interfaces;
use nix::ifaddrs::getifaddrs;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use tokio::net::UnixDatagram;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::queue::io::Input;
use crate::queue::task::QueueMessage;

/// The `interfaces` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeInterfaces {
    /// Fixed addresses, by interface.
    Configured(Interfaces),
    /// `auto`: those of the kernel, read at each use.
    Auto,
}

impl NodeInterfaces {
    /// The present addresses.
    pub fn addresses(&self) -> Interfaces {
        match self {
            Self::Configured(interfaces) => interfaces.clone(),
            Self::Auto => found(),
        }
    }
}

impl<'de> Deserialize<'de> for NodeInterfaces {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AutoOrTable;
        impl<'de> Visitor<'de> for AutoOrTable {
            type Value = NodeInterfaces;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"auto\", or a table of addresses such as { eth0 = \"10.0.0.5\" }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                match text {
                    "auto" => Ok(NodeInterfaces::Auto),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Self::Value, A::Error> {
                Interfaces::deserialize(MapAccessDeserializer::new(table)).map(NodeInterfaces::Configured)
            }
        }
        deserializer.deserialize_any(AutoOrTable)
    }
}

/// Interfaces of containers and virtual machines. Other nodes do not reach the host by their addresses.
const IGNORED: [&str; 7] = ["docker", "veth", "virbr", "br-", "cni", "cali", "flannel"];

fn found() -> Interfaces {
    match getifaddrs() {
        Ok(addresses) => select(addresses.filter_map(|found| {
            let address = found.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            let v6 = || address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip()));
            Some((found.interface_name, v4.or_else(v6)?))
        })),
        Err(error) => {
            tracing::warn!(%error, "cannot read the addresses of the interfaces");
            Interfaces::new()
        }
    }
}

/// One address of each interface that other nodes may reach: the first IPv4 address or, without one, the first IPv6 address.
fn select(addresses: impl Iterator<Item = (String, IpAddr)>) -> Interfaces {
    let is_local = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local() || address.is_unspecified(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local() || address.is_unspecified(),
    };
    let (v4, v6): (Vec<_>, Vec<_>) = addresses
        .filter(|(name, address)| !is_local(address) && !IGNORED.iter().any(|ignored| name.starts_with(ignored)))
        .partition(|(_, address)| address.is_ipv4());
    let mut selected = BTreeMap::new();
    for (name, address) in v4.into_iter().chain(v6) {
        selected.entry(name).or_insert_with(|| address.to_string());
    }
    selected.into()
}

/// Groups of rtnetlink (`RTMGRP_IPV4_IFADDR` and `RTMGRP_IPV6_IFADDR`): added and removed addresses.
const ADDRESS_GROUPS: u32 = 0x10 | 0x100;
/// A changed network sends several messages. The addresses are compared when they have settled.
const SETTLE: Duration = Duration::from_secs(1);

/// Tells the queue when addresses that were found have changed, until the agent shuts down.
pub(crate) async fn watch(interfaces: NodeInterfaces, queue: mpsc::Sender<QueueMessage>, cancel: CancellationToken) {
    let watching = async {
        match interfaces {
            NodeInterfaces::Configured(_) => std::future::pending::<io::Result<()>>().await,
            NodeInterfaces::Auto => follow(&queue).await,
        }
    };
    tokio::select! {
        () = cancel.cancelled() => {}
        ended = watching => {
            if let Err(error) = ended {
                tracing::error!(%error, "changes of addresses are not noticed; the next report has the new ones");
            }
            cancel.cancelled().await;
        }
    }
}

async fn follow(queue: &mpsc::Sender<QueueMessage>) -> io::Result<()> {
    let socket = open()?;
    let mut known = found();
    loop {
        socket.readable().await?;
        tokio::time::sleep(SETTLE).await;
        drain(&socket)?;
        let now = found();
        if now != known {
            tracing::info!(?now, "the addresses of the node have changed");
            known = now;
            if queue.send(Input::AddressesChanged.into()).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Opens the socket. Tokio has no type for netlink; the one of Unix datagrams only receives from the descriptor.
fn open() -> io::Result<UnixDatagram> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // The default protocol is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, ADDRESS_GROUPS))?;
    UnixDatagram::from_std(socket.into())
}

/// Reads all waiting messages. Their content does not matter: the addresses are read afterwards.
fn drain(socket: &UnixDatagram) -> io::Result<()> {
    let mut buffer = [0; 8192];
    loop {
        match socket.try_recv(&mut buffer) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            // Messages were lost, and the addresses are read anyway.
            Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use muster_testkit::passed_in_a_namespace;
    use nix::sched::{CloneFlags, unshare};
    use tokio::task::JoinSet;

    use super::*;

    #[test]
    fn one_reachable_address_of_each_interface_is_taken() {
        let addresses = [
            ("lo", "127.0.0.1"),
            ("lo", "::1"),
            ("eth0", "fe80::1"),
            ("eth0", "2001:db8::5"),
            ("eth0", "10.0.0.5"),
            ("eth0", "10.0.0.6"),
            ("eth1", "169.254.3.4"),
            ("eth2", "2001:db8:1::5"),
            ("eth3", "fe80::3"),
            ("docker0", "172.17.0.1"),
            ("vethab12", "10.9.9.9"),
        ];
        let found = select(addresses.iter().map(|(name, address)| ((*name).to_owned(), address.parse().unwrap())));
        let expected = [("eth0", "10.0.0.5"), ("eth2", "2001:db8:1::5")];
        assert_eq!(found, expected.map(|(name, address)| (name.to_owned(), address.to_owned())).into());
    }

    #[test]
    fn configuration_is_auto_or_a_table() {
        #[derive(Deserialize)]
        struct Config {
            interfaces: NodeInterfaces,
        }
        let read = |text: &str| toml::from_str::<Config>(text).map(|config| config.interfaces);
        assert_eq!(read("interfaces = \"auto\"").unwrap(), NodeInterfaces::Auto);
        let fixed = Interfaces::from([("eth0".to_owned(), "10.0.0.5".to_owned())]);
        assert_eq!(read("interfaces = { eth0 = \"10.0.0.5\" }").unwrap(), NodeInterfaces::Configured(fixed));
        for wrong in ["interfaces = \"automatic\"", "interfaces = 3", "interfaces = { eth0 = 3 }"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("interfaces"), "{wrong}: {error}");
        }
    }

    #[tokio::test]
    async fn changed_address_is_noticed() {
        if passed_in_a_namespace() {
            return;
        }
        // The network of this thread, and of programs that it starts.
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let ip =
            |args: &str| assert!(Command::new("ip").args(args.split(' ')).status().unwrap().success(), "ip {args}");
        let lo = |address: &str| Interfaces::from([("lo".to_owned(), address.to_owned())]);
        ip("link set lo up");
        ip("address add 10.0.0.5/32 dev lo");
        assert_eq!(NodeInterfaces::Auto.addresses(), lo("10.0.0.5"));
        let (queue, mut inputs) = mpsc::channel(1);
        let cancel = CancellationToken::new();
        let mut watching = JoinSet::new();
        watching.spawn(watch(NodeInterfaces::Auto, queue, cancel.clone()));
        // The task listens when it has been polled once.
        tokio::task::yield_now().await;
        ip("address add 10.0.0.9/32 dev lo");
        ip("address del 10.0.0.5/32 dev lo");
        assert_eq!(inputs.recv().await.unwrap().input, Input::AddressesChanged);
        assert_eq!(NodeInterfaces::Auto.addresses(), lo("10.0.0.9"));
        cancel.cancel();
        watching.join_next().await.unwrap().unwrap();
    }
}
