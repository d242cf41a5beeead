//! The server: its configuration, its tasks, and how it starts and stops.

mod start;
mod sweep;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use muster_core::names::ReplicaId;
use muster_core::node::liveness::LivenessTimeouts;
use muster_store::StoreError;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::App;
use crate::api;
use crate::clock::Clock;
use crate::replica::shared_blobs::{BlobMarkWatch, BlobMarks};
use crate::replica::{IdentityError, LeasePace};

/// Time that open requests have to finish after the server was stopped.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    /// The directory of the blobs.
    pub blobs: PathBuf,
    pub patience: LivenessTimeouts,
    /// TTL and renewal interval of the replica's lease.
    pub lease: LeasePace,
    pub clock: Clock,
}

/// Reason why a server does not start, or stops itself.
#[derive(Debug, Error)]
pub enum StartError {
    #[error(
        "refusing to listen on {0}: requests are not authenticated yet, and every client that reaches the server could \
         control the fleet; listen on a loopback address (127.0.0.1 or ::1)"
    )]
    NotLoopback(SocketAddr),
    #[error(
        "{address} is in use by another process: stop it, or choose another address with --listen (port 0 takes a free one)"
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
        "replica {replica} on {host} stores reports and logs in {theirs}, which is not the directory {} of this replica: \
         all replicas need one directory on a shared file system; set it with --blobs, or stop the other replica",
        ours.display()
    )]
    BlobsNotShared { replica: ReplicaId, host: String, theirs: String, ours: PathBuf },
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("the leases that earlier servers left in the store cannot be revoked")]
    Predecessors(#[source] StoreError),
}

/// A server that listens, and whose view is complete.
#[derive(Debug)]
pub struct Server {
    app: App,
    address: SocketAddr,
    listener: TcpListener,
    marks: BlobMarks,
    /// None on a store that only this process can open.
    mark_watch: Option<BlobMarkWatch>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Server {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn app(&self) -> &App {
        &self.app
    }

    /// Answers requests until the server is stopped. When a task ends, the server ends too: without one of its tasks it
    /// would answer requests wrongly.
    pub async fn run(mut self) -> io::Result<()> {
        let router = api::router(self.app.clone());
        let stop = self.stop.clone();
        let serve = axum::serve(self.listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        let blobs_differ = async {
            match &self.mark_watch {
                Some(watch) => watch.run(&self.app).await,
                None => std::future::pending().await,
            }
        };
        let served = tokio::select! {
            served = serve => served,
            // A client that reads slowly, a backup for instance, does not keep the server from stopping.
            () = async { stop.cancelled().await; tokio::time::sleep(DRAIN_TIMEOUT).await } => Ok(()),
            error = blobs_differ => {
                stop.cancel();
                Err(io::Error::other(error))
            }
            ended = self.tasks.join_next() => {
                stop.cancel();
                let ended = ended.map_or_else(|| "none".into(), |ended| format!("{ended:?}"));
                Err(io::Error::other(format!("a task of the server ended: {ended}")))
            }
        };
        self.tasks.shutdown().await;
        // Last, when nothing acts in the name of this replica any more: then the other replicas may take over.
        self.app.replica.membership.leave().await;
        self.marks.remove(self.app.replica.membership.id());
        served
    }
}
