//! Starting and stopping: the tasks of a server, and who owns what.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use muster_core::liveness::Patience;
use muster_store::Store;
use prometheus_client::registry::Registry;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::App;
use crate::api;
use crate::blobs::Blobs;
use crate::clock::Clock;
use crate::controllers::liveness::Liveness;
use crate::hub::Hub;
use crate::metrics::{self, Measured, ReportMetrics, Work};
use crate::reports::Reports;
use crate::view::View;

/// How many changes of the view may wait to wake somebody. The view waits when it is full; nothing is lost.
const CHANGES: usize = 256;

#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    /// The directory of the blobs.
    pub blobs: PathBuf,
    pub patience: Patience,
    pub clock: Clock,
}

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
}

/// A server that listens, and whose view is complete.
#[derive(Debug)]
pub struct Server {
    app: App,
    address: SocketAddr,
    listener: TcpListener,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Server {
    /// Listens, builds the view, and starts the tasks. Requests are answered once [`Server::run`] runs.
    pub async fn start(config: Config, store: Arc<dyn Store>, stop: CancellationToken) -> Result<Self, StartError> {
        let Config { listen, blobs: blobs_dir, patience, clock } = config;
        let listener = bind(listen).await?;
        let address = listener.local_addr().map_err(|source| StartError::Listen { address: listen, source })?;
        let blobs = Blobs::open(&blobs_dir).map_err(|source| StartError::Blobs { path: blobs_dir, source })?;
        let blobs = Arc::new(blobs);
        let mut registry = Registry::default();
        let measured = Arc::new(Measured::new(store, &mut registry));
        let store: Arc<dyn Store> = measured.clone();
        let view = Arc::new(View::default());
        let hub = Arc::new(Hub::new(clock.clone(), stop.child_token()));
        let counts = ReportMetrics::new(&mut registry);
        let (reports, intake) = Reports::channel(store.clone(), view.clone(), blobs.clone(), clock.clone(), counts);
        let liveness = Liveness::new(store.clone(), view.clone(), hub.clone(), clock.clone(), patience);
        let liveness = Arc::new(liveness);

        let mut tasks = JoinSet::new();
        let (changed, changes) = mpsc::channel(CHANGES);
        let work = Work {
            store: measured,
            view: view.clone(),
            hub: hub.clone(),
            reports: reports.clone(),
            blobs: blobs.clone(),
            liveness: liveness.clone(),
            changes: changed.downgrade(),
            clock: clock.clone(),
        };
        metrics::watch_over(&mut registry, work, clock.now());
        let metrics = Arc::new(registry);
        let (following, from) = (view.clone(), store.clone());
        tasks.spawn(async move {
            let error = following.follow(from.as_ref(), changed).await;
            tracing::debug!(%error, "the view is no longer followed");
        });
        let waking = hub.clone();
        tasks.spawn(async move { waking.wake(changes).await });
        tasks.spawn(intake.run());
        // However long it takes: a server with half a view would say what is not true.
        view.ready().await;
        let (sweeping, known) = (blobs.clone(), view.clone());
        tasks.spawn(async move {
            sweep(sweeping, known).await;
            // The server ends when one of its tasks does, and this one is only done early.
            std::future::pending::<()>().await;
        });
        let living = liveness.clone();
        tasks.spawn(async move { living.run().await });

        let app = App { store, view, hub, reports, blobs, liveness, clock, metrics };
        Ok(Self { app, address, listener, tasks, stop })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn app(&self) -> &App {
        &self.app
    }

    /// Answers requests until the server is told to stop. A task that dies takes the server with it: half a server
    /// would look alive and be wrong.
    pub async fn run(mut self) -> io::Result<()> {
        let router = api::router(self.app.clone());
        let stop = self.stop.clone();
        let serve = axum::serve(self.listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        let served = tokio::select! {
            served = serve => served,
            ended = self.tasks.join_next() => {
                stop.cancel();
                let what = ended.map_or_else(|| "none".into(), |ended| format!("{ended:?}"));
                Err(io::Error::other(format!("a task of the server ended: {what}")))
            }
        };
        self.tasks.shutdown().await;
        served
    }
}

/// Removes the blobs that no history names.
async fn sweep(blobs: Arc<Blobs>, view: Arc<View>) {
    #[expect(clippy::disallowed_methods, reason = "compared with the times of files, which are the machine's own")]
    let now = SystemTime::now();
    let needed: HashSet<String> = {
        let fleets = view.fleets();
        let runs = fleets.values().flat_map(|fleet| fleet.designed()).flat_map(|(_, node, _)| node.history().0);
        runs.flat_map(|past| past.logs).collect()
    };
    let swept = tokio::task::spawn_blocking(move || blobs.sweep(now, |digest| needed.contains(digest))).await;
    match swept {
        Ok(Ok(0)) | Err(_) => {}
        Ok(Ok(removed)) => tracing::info!(removed, "reports that nothing refers to were removed"),
        Ok(Err(error)) => tracing::warn!(%error, "reports that nothing refers to cannot be removed"),
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    if !address.ip().is_loopback() {
        return Err(StartError::NotLoopback(address));
    }
    TcpListener::bind(address).await.map_err(|source| {
        if source.kind() == io::ErrorKind::AddrInUse {
            StartError::AddressTaken { address }
        } else {
            StartError::Listen { address, source }
        }
    })
}
