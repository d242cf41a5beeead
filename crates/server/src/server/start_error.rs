//! Why a server does not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use muster_core::names::ReplicaId;
use muster_store::StoreError;
use thiserror::Error;

use crate::replica::IdentityError;

#[derive(Debug, Error)]
pub enum StartError {
    #[error(
        "refusing to listen on {0}: agents and operators have no identities yet, so whoever reaches the server could \
         steer the fleet; listen on a loopback address (127.0.0.1 or ::1)"
    )]
    NotLoopback(SocketAddr),
    #[error(
        "{address} is taken by another process: stop it, or choose another address with --listen (port 0 takes a free one)"
    )]
    AddressTaken { address: SocketAddr },
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("cannot use {} for reports and logs", path.display())]
    Blobs {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "replica {replica} on {host} keeps reports and logs in {theirs}, which is not the directory {} here: all replicas \
         need the same one, or each would miss the logs of the others; give it to them with --blobs (on a file system \
         that all of their machines share), or stop that replica",
        ours.display()
    )]
    BlobsNotShared { replica: ReplicaId, host: String, theirs: String, ours: PathBuf },
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("what earlier servers have left in the store cannot be cleared")]
    Predecessors(#[source] StoreError),
}
