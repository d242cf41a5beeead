//! Claims a network for the machines of a state directory, so that two fleets on one machine never share an address.
//!
//! - A claim is a Unix socket with an abstract name that contains the network. Abstract names and loopback addresses have
//!   the same scope, a network namespace of Linux. The kernel releases the name when the process ends.
//! - The network of a state directory is kept in its file `network`. A new state directory takes the first free block of
//!   127.77.0.0/16.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::listeners::Listener;
use super::machine_dir::replace;
use super::network::{LoopbackNetwork, NetworkError};

/// Prefix of the abstract names; the network follows.
const NAME: &str = "muster-local/";
/// File of the state directory with its network.
const FILE: &str = "network";

#[derive(Debug, Error)]
pub enum ClaimNetworkError {
    #[error(
        "{network}, the network of the nodes in {}, is in use by another fleet on this machine ({other}): stop it, or choose \
         another network, such as --network {free}", state.display()
    )]
    InUse { network: LoopbackNetwork, other: LoopbackNetwork, free: LoopbackNetwork, state: PathBuf },
    #[error("no block of 127.77.0.0/16 is free: choose another network, such as --network 127.78.0.0/24")]
    Exhausted,
    #[error("cannot use {}, the network of the nodes: correct it, or remove it to choose a new network", path.display())]
    Content {
        path: PathBuf,
        #[source]
        source: NetworkError,
    },
    #[error("cannot use {}, the network of the nodes", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot claim {network} for the nodes")]
    Socket {
        network: LoopbackNetwork,
        #[source]
        source: io::Error,
    },
}

/// A network that no other driver uses while the claim exists.
#[derive(Debug)]
pub(super) struct NetworkClaim {
    pub(super) network: LoopbackNetwork,
    _name: UnixListener,
}

impl NetworkClaim {
    /// Claims the requested network, that of the state directory, or a free block, and keeps it in the state directory.
    ///
    /// A state directory of an earlier version of Muster has machines and no file: its machines keep their addresses, which
    /// are in the default network.
    pub(super) fn open(
        state: &Path,
        requested: Option<LoopbackNetwork>,
        has_machines: bool,
    ) -> Result<Self, ClaimNetworkError> {
        let path = state.join(FILE);
        let kept = read(&path)?;
        let fixed = requested.or(kept).or_else(|| has_machines.then(LoopbackNetwork::default));
        let claim = match fixed {
            Some(network) => Self::take(network)?.map_err(|other| {
                let free = blocks().find(|block| matches!(Self::take(*block), Ok(Ok(_)))).unwrap_or(network);
                ClaimNetworkError::InUse { network, other, free, state: state.to_owned() }
            })?,
            None => Self::take_block()?,
        };
        if kept != Some(claim.network) {
            let written = replace(&path, format!("{}\n", claim.network).as_bytes());
            written.map_err(|source| ClaimNetworkError::Io { path, source })?;
        }
        Ok(claim)
    }

    /// Claims the first block that no other fleet uses and no process listens in.
    fn take_block() -> Result<Self, ClaimNetworkError> {
        let listeners = Listener::all();
        for block in blocks().filter(|block| !listeners.iter().any(|listener| block.contains(listener.address))) {
            if let Ok(claim) = Self::take(block)? {
                return Ok(claim);
            }
        }
        Err(ClaimNetworkError::Exhausted)
    }

    /// Claims a network, unless it overlaps with the network of another claim, which is returned.
    fn take(network: LoopbackNetwork) -> Result<Result<Self, LoopbackNetwork>, ClaimNetworkError> {
        let failed = |source| ClaimNetworkError::Socket { network, source };
        let name = SocketAddr::from_abstract_name(format!("{NAME}{network}")).map_err(failed)?;
        let claim = match UnixListener::bind_addr(&name) {
            Ok(bound) => Self { network, _name: bound },
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(Err(network)),
            Err(error) => return Err(failed(error)),
        };
        // Two networks of different size have different names.
        let other = claimed().into_iter().find(|other| *other != network && other.overlaps(&network));
        Ok(other.map_or(Ok(claim), Err))
    }
}

/// The blocks for state directories without a network.
fn blocks() -> impl Iterator<Item = LoopbackNetwork> {
    (0..=u8::MAX).map(LoopbackNetwork::block)
}

fn read(path: &Path) -> Result<Option<LoopbackNetwork>, ClaimNetworkError> {
    match std::fs::read_to_string(path) {
        Ok(text) => match text.trim().parse() {
            Ok(network) => Ok(Some(network)),
            Err(source) => Err(ClaimNetworkError::Content { path: path.to_owned(), source }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ClaimNetworkError::Io { path: path.to_owned(), source }),
    }
}

/// The networks of all claims; none if the kernel does not show them.
fn claimed() -> Vec<LoopbackNetwork> {
    let sockets = std::fs::read("/proc/net/unix").unwrap_or_default();
    let sockets = String::from_utf8_lossy(&sockets);
    let names = sockets.lines().filter_map(|line| line.split_whitespace().last()?.strip_prefix('@'));
    names.filter_map(|name| name.strip_prefix(NAME)?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network that no other test uses: tests run as processes of their own.
    fn network(prefix: u8) -> LoopbackNetwork {
        let [.., a, b] = std::process::id().to_be_bytes();
        format!("127.{}.{b}.0/{prefix}", 128 | a).parse().unwrap()
    }

    #[test]
    fn claimed_network_is_refused_until_it_is_released() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let claim = NetworkClaim::open(one.path(), Some(network(24)), false).unwrap();
        for overlapping in [network(24), network(28)] {
            let refused = NetworkClaim::open(two.path(), Some(overlapping), false).unwrap_err();
            assert!(matches!(refused, ClaimNetworkError::InUse { other, .. } if other == network(24)), "{refused:?}");
            assert!(refused.to_string().contains("is in use by another fleet on this machine"), "{refused}");
        }
        assert!(!two.path().join(FILE).exists());
        drop(claim);
        NetworkClaim::open(two.path(), Some(network(28)), false).unwrap();
    }

    #[test]
    fn network_is_kept_in_the_state_directory() {
        let state = tempfile::tempdir().unwrap();
        drop(NetworkClaim::open(state.path(), Some(network(26)), false).unwrap());
        let again = NetworkClaim::open(state.path(), None, true).unwrap();
        assert_eq!(again.network, network(26));
        std::fs::write(state.path().join(FILE), "10.0.0.0/8\n").unwrap();
        let refused = NetworkClaim::open(state.path(), None, true).unwrap_err();
        assert!(matches!(refused, ClaimNetworkError::Content { .. }), "{refused:?}");
    }

    #[test]
    fn two_new_state_directories_get_two_blocks() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = NetworkClaim::open(one.path(), None, false).unwrap();
        let second = NetworkClaim::open(two.path(), None, false).unwrap();
        assert!(!first.network.overlaps(&second.network), "{} {}", first.network, second.network);
        let all: LoopbackNetwork = "127.77.0.0/16".parse().unwrap();
        assert!([first.network, second.network].iter().all(|network| network.overlaps(&all)));
    }
}
