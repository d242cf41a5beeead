//! Starting and stopping: the tasks of a server, and who owns what.

mod start_error;

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use muster_core::names::ReplicaId;
use muster_core::node::liveness::LivenessTimeouts;
use muster_store::{Sharing, Store};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::App;
use crate::agents::admission::Admission;
use crate::agents::{Hub, Links};
use crate::api;
use crate::blobs::Blobs;
use crate::clock::Clock;
use crate::controllers::design::DesignController;
use crate::controllers::leaders::Leaders;
use crate::controllers::liveness::Liveness;
use crate::controllers::rollout::RolloutController;
use crate::design::cache::Designs;
use crate::design::tree::name_all;
use crate::metrics::{self, MeasuredStore, ReportMetrics, ServerMetrics};
use crate::replica::balance::Balance;
use crate::replica::presence::Presence;
use crate::replica::shared_blobs::{BlobMarkWatch, BlobMarks, unseen};
use crate::replica::{ControllerLocks, Identity, LeasePace, Membership};
use crate::reports::intake::Intake;
use crate::reports::{Committer, Reports};
use crate::rollouts::plans::Plans;
use crate::view::{LatestRevision, View};
pub use start_error::StartError;

/// A mark that is older than this, and whose replica is not in the store, was left by one that died.
const OLD_MARK: Duration = Duration::from_secs(3600);
/// How many changes of the view may wait to wake somebody. The view waits when it is full; nothing is lost.
const CHANGES: usize = 256;

/// How long requests that are under way may take after the server was told to stop.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// How many may follow logs at the same time. Each costs a task, and at most some 64 KiB that wait for it.
const LOG_READERS: usize = 256;

#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    /// The directory of the blobs.
    pub blobs: PathBuf,
    pub patience: LivenessTimeouts,
    /// How long the others wait for this server when it is gone without a word.
    pub lease: LeasePace,
    pub clock: Clock,
}

/// A server that listens, and whose view is complete.
#[derive(Debug)]
pub struct Server {
    app: App,
    address: SocketAddr,
    listener: TcpListener,
    marks: BlobMarks,
    /// None on a store that nobody else can use.
    watchful: Option<BlobMarkWatch>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Server {
    /// Listens, builds the view, and starts the tasks. Requests are answered once [`Server::run`] runs.
    pub async fn start(config: Config, store: Arc<dyn Store>, stop: CancellationToken) -> Result<Self, StartError> {
        let Config { listen, blobs: blobs_dir, patience, lease, clock } = config;
        let listener = bind(listen).await?;
        let address = listener.local_addr().map_err(|source| StartError::Listen { address: listen, source })?;
        let unusable = |source| StartError::Blobs { path: blobs_dir.clone(), source };
        let identity = Identity::new(address, &blobs_dir, clock.now())?;
        let blobs = Arc::new(Blobs::open(&blobs_dir, identity.id.clone()).map_err(unusable)?);
        let marks = BlobMarks::of(&blobs_dir);
        marks.put(&identity.id, &identity.record.blobs.nonce).map_err(unusable)?;
        let mut registry = Registry::default();
        let measured = Arc::new(MeasuredStore::new(store, &mut registry));
        let store: Arc<dyn Store> = measured.clone();
        let view = Arc::new(View::default());
        let hub = Arc::new(Hub::new(clock.clone(), stop.child_token(), &view));
        let counts = ReportMetrics::new(&mut registry);
        let (reports, jobs) = Reports::channel(counts.clone());
        let committer = Committer {
            store: store.clone(),
            view: view.clone(),
            blobs: blobs.clone(),
            clock: clock.clone(),
            metrics: counts,
        };

        let mut tasks = JoinSet::new();
        let (changed, changes) = mpsc::channel(CHANGES);
        let waiting = changed.downgrade();
        let (following, from) = (view.clone(), store.clone());
        tasks.spawn(async move {
            let error = following.follow(from.as_ref(), changed).await;
            tracing::debug!(%error, "the view is no longer followed");
        });
        let waking = hub.clone();
        tasks.spawn(async move { waking.wake(changes).await });
        tasks.spawn(Intake::new(jobs, committer).run());
        // However long it takes: a server with half a view would say what is not true.
        view.ready().await;
        let membership = Membership::new(identity, lease, store.clone(), view.clone(), clock.clone());
        let cleared = membership.clear_predecessors().await.map_err(StartError::Predecessors)?;
        if cleared == Sharing::Shared
            && let Some((replica, record)) = unseen(&view, &marks, membership.id(), lease.ttl).await
        {
            marks.remove(membership.id());
            let (host, theirs) = (record.host, record.blobs.directory);
            return Err(StartError::BlobsNotShared { replica, host, theirs, ours: blobs_dir });
        }
        let (sweeping, known, all_marks, of_store) = (blobs.clone(), view.clone(), marks.clone(), store.clone());
        let (id, nonce) = (membership.id().clone(), membership.record().blobs.nonce.clone());
        tasks.spawn(async move {
            sweep(sweeping, all_marks.clone(), known, of_store.name()).await;
            keep_mark(&all_marks, &id, &nonce, OLD_MARK / 4).await;
        });
        let membership = Arc::new(membership);
        let controller_locks = ControllerLocks::new(store.clone(), view.clone(), membership.clone(), clock.clone());
        let controller_locks = Arc::new(controller_locks);
        let links = Arc::new(Links::new(membership.id().clone(), hub.clone(), clock.clone(), &view));
        let latest_revision = Arc::new(LatestRevision::new(store.clone()));
        let liveness = Arc::new(Liveness {
            view: view.clone(),
            hub: hub.clone(),
            links: links.clone(),
            controller_locks: controller_locks.clone(),
            latest_revision: latest_revision.clone(),
            clock: clock.clone(),
            patience,
            held: Mutex::default(),
        });
        let leaders = Leaders {
            view: view.clone(),
            hub: hub.clone(),
            links: links.clone(),
            controller_locks: controller_locks.clone(),
            clock: clock.clone(),
            patience,
        };
        tasks.spawn(async move { leaders.run().await });
        let (member, holding, living) = (membership.clone(), controller_locks.clone(), liveness.clone());
        tasks.spawn(async move { member.run().await });
        tasks.spawn(async move { holding.run().await });
        let (linking, seen) = (links.clone(), view.clone());
        tasks.spawn(async move { linking.watch(&seen).await });
        tasks.spawn(async move { living.run().await });
        let presence =
            Presence { store: store.clone(), view: view.clone(), hub: hub.clone(), membership: membership.clone() };
        tasks.spawn(async move { presence.run().await });
        let balance = Balance { me: membership.id().clone(), view: view.clone(), hub: hub.clone() };
        tasks.spawn(async move { balance.run().await });

        let admission = Arc::new(Admission::default());
        let work = ServerMetrics {
            admission: admission.clone(),
            store: measured,
            view: view.clone(),
            hub: hub.clone(),
            links: links.clone(),
            reports: reports.clone(),
            blobs: blobs.clone(),
            liveness: liveness.clone(),
            membership: membership.clone(),
            changes: waiting,
            clock: clock.clone(),
        };
        metrics::watch_over(&mut registry, work, clock.now());
        let app = App {
            store,
            view,
            hub,
            reports,
            designs: Arc::new(Designs::new(blobs.clone())),
            plans: Arc::new(Plans::new(blobs.clone())),
            rollouts_checked_at: Arc::new(tokio::sync::watch::Sender::new(None)),
            patience,
            blobs,
            downloads: Arc::default(),
            liveness,
            membership,
            controller_locks,
            links,
            peers: Arc::default(),
            latest_revision,
            clock,
            admission,
            log_readers: Arc::new(Semaphore::new(LOG_READERS)),
            metrics: Arc::new(registry),
        };
        let following = DesignController { app: app.clone() };
        tasks.spawn(async move { following.run().await });
        let rolling = RolloutController { app: app.clone() };
        tasks.spawn(async move { rolling.run().await });
        let watchful = match cleared {
            Sharing::Shared => Some(BlobMarkWatch { marks: marks.clone(), directory: blobs_dir, lease: lease.ttl }),
            Sharing::Exclusive => None,
        };
        Ok(Self { app, address, listener, marks, watchful, tasks, stop })
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
        let apart = async {
            match &self.watchful {
                Some(watchful) => watchful.apart(&self.app).await,
                None => std::future::pending().await,
            }
        };
        let served = tokio::select! {
            served = serve => served,
            // Whoever has not read an answer by then, of a backup for instance, does not keep the server from stopping.
            () = async { stop.cancelled().await; tokio::time::sleep(LAST_ANSWERS).await } => Ok(()),
            apart = apart => {
                stop.cancel();
                Err(io::Error::other(apart))
            }
            ended = self.tasks.join_next() => {
                stop.cancel();
                let what = ended.map_or_else(|| "none".into(), |ended| format!("{ended:?}"));
                Err(io::Error::other(format!("a task of the server ended: {what}")))
            }
        };
        self.tasks.shutdown().await;
        // Last, when nothing is done any more in this replica's name: the others take over at once.
        self.app.membership.leave().await;
        self.marks.remove(self.app.membership.id());
        served
    }
}

/// Removes the blobs that no history, no design, no release and no rollout names, and the marks of replicas that are gone.
async fn sweep(blobs: Arc<Blobs>, marks: BlobMarks, view: Arc<View>, store: &str) {
    #[expect(clippy::disallowed_methods, reason = "compared with the times of files, which are the machine's own")]
    let now = SystemTime::now();
    let (mut needed, manifests, live): (HashSet<String>, Vec<String>, HashSet<ReplicaId>) = {
        let fleets = view.fleets();
        let runs = fleets.values().flat_map(|fleet| fleet.recorded()).flat_map(|(_, node, _)| node.history().0);
        let designs = fleets.values().flat_map(|fleet| fleet.design().revisions.values());
        let replicas = fleets.values().flat_map(|fleet| fleet.replicas().keys().cloned());
        let releases = fleets.values().flat_map(|fleet| fleet.releases().values());
        let bundles = releases.filter_map(|release| release.digest.strip_prefix("sha256:").map(str::to_owned));
        let rollouts = fleets.values().flat_map(|fleet| fleet.rollouts().values());
        let plans = rollouts.flat_map(|(record, _)| [Some(record.plan.clone()), record.outcome.clone()]).flatten();
        let needed = runs.flat_map(|past| past.logs).chain(bundles).chain(plans).collect();
        (needed, designs.map(|revision| revision.manifest.clone()).collect(), replicas.collect())
    };
    let store = store.to_owned();
    let swept = move || {
        let named = manifests.iter().try_for_each(|manifest| name_all(&blobs, manifest, &mut needed));
        let removed = if let Err(error) = named {
            // What it names is not known, and somebody may yet bring it back.
            tracing::warn!(%error, "a revision of a design is not whole: nothing is swept away until it is");
            0
        } else if blobs.belong_to(&store)? {
            blobs.sweep(now, |digest| needed.contains(digest))?
        } else {
            tracing::warn!("the directory of the blobs was first used with another store: nothing in it is swept away");
            0
        };
        marks.sweep(now.checked_sub(OLD_MARK).unwrap_or(now), |id| live.contains(id))?;
        io::Result::Ok(removed)
    };
    match tokio::task::spawn_blocking(swept).await {
        Ok(Ok(0)) | Err(_) => {}
        Ok(Ok(removed)) => tracing::info!(removed, "reports that nothing refers to were removed"),
        Ok(Err(error)) => tracing::warn!(%error, "reports that nothing refers to cannot be removed"),
    }
}

/// Keeps the mark of this replica young, for ever. While it is cut off from the store its key is not there, and a server
/// that starts at that moment would take an old mark for one that was left behind; and whoever starts later would not
/// find it, and not start.
async fn keep_mark(marks: &BlobMarks, id: &ReplicaId, nonce: &str, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let (marks, id, nonce) = (marks.clone(), id.clone(), nonce.to_owned());
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || marks.put(&id, &nonce)).await {
            tracing::warn!(%error, "the mark of this replica cannot be renewed: others may not find it");
        }
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

#[cfg(test)]
mod tests {
    use muster_core::replica::{BlobsMark, ReplicaRecord};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_mark_that_somebody_swept_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (marks, id) = (BlobMarks::of(dir.path()), ReplicaId::new("one-1").unwrap());
        let blobs = BlobsMark { directory: String::new(), nonce: "7".into() };
        let (url, host, version) = (String::new(), String::new(), String::new());
        let record = ReplicaRecord { url, host, pid: 1, version, since: jiff::Timestamp::UNIX_EPOCH, blobs };
        marks.put(&id, "7").unwrap();
        #[expect(clippy::disallowed_methods, reason = "compared with the times of files, which are the machine's own")]
        let late = SystemTime::now() + OLD_MARK;
        marks.sweep(late, |_| false).unwrap();
        assert!(!marks.shows(&id, &record));
        let again = async {
            while !marks.shows(&id, &record) {
                tokio::time::sleep(OLD_MARK / 4).await;
            }
        };
        tokio::select! {
            () = keep_mark(&marks, &id, "7", OLD_MARK / 4) => {}
            () = again => {}
        }
        assert!(marks.shows(&id, &record));
    }
}
