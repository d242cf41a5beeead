//! The server: its configuration, its tasks, how it starts and stops, and the sweep of its blob directory.

mod connections;
mod places;
mod start;
mod token_file;

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use muster_core::fleet::Fleet;
use muster_core::names::{EnvName, NodeName, ReplicaId};
use muster_core::node::liveness::LivenessTimeouts;
use muster_identity::secret_keys::SecretKeysError;
use muster_store::{Store, StoreError};
use muster_wire::token::Token;
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::AccessControl;
use crate::app::Clock;
use crate::blobs::report_packs::blob_of;
use crate::blobs::{BlobPlace, Blobs};
use crate::design::tree::add_references;
use crate::identity::tls::StartTlsError;
use crate::identity::{EstablishError, TlsConfig};
use crate::oidc::OidcConfig;
use crate::replica::shared_blobs::{BlobMarkWatch, BlobMarks};
use crate::replica::{IdentityError, LeasePace};
use crate::rollouts::gate::commands::GateDirectoryError;
use crate::run_history::RunHistory;
use crate::view::{LatestRevision, View};
use crate::{App, api};

use connections::Listeners;

pub use connections::ConnectionLimits;
pub(crate) use connections::{Takeover, TakeoverSlot};
pub(crate) use places::Place;
pub use token_file::{TOKEN_FILE, TokenFileError, read_token, state_token};

/// Time that open requests have to finish after the server was stopped.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    /// Without TLS the server listens on loopback only.
    pub tls: Option<TlsConfig>,
    /// Path of the Unix socket, if the server has one.
    pub socket: Option<PathBuf>,
    /// Token of requests on TCP. All replicas of a store need the same one.
    pub token: Token,
    pub limits: ConnectionLimits,
    pub blobs: BlobPlace,
    /// The file with the keys of secrets. It is made at the first start of an installation.
    pub secrets_key: PathBuf,
    pub liveness_timeouts: LivenessTimeouts,
    /// TTL and renewal interval of the replica's lease.
    pub lease: LeasePace,
    /// The directory of the programs that gates may run; none: gates run no commands.
    pub gate_commands: Option<PathBuf>,
    /// The provider at which people log in; none: they have tokens only.
    pub oidc: Option<OidcConfig>,
    pub clock: Clock,
}

/// Reason why a server does not start, or stops itself.
#[derive(Debug, Error)]
pub enum ServerStartError {
    #[error(
        "refusing to listen on {0} without TLS: every host on the way could read the token and control the fleet; listen on \
         a loopback address (127.0.0.1 or ::1)"
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
    #[error("cannot listen on the Unix socket {}", path.display())]
    Socket {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot use {place} for reports and logs")]
    Blobs {
        place: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "replica {replica} on {host} stores reports and logs in {theirs}, which is not {ours}, where this replica does: all \
         replicas need one bucket, or one directory on a shared file system; set it with --blobs, or stop the other replica"
    )]
    BlobsNotShared { replica: ReplicaId, host: String, theirs: String, ours: Box<BlobPlace> },
    #[error("cannot use {} for the commands of gates", path.display())]
    GateCommands {
        path: PathBuf,
        #[source]
        source: GateDirectoryError,
    },
    #[error(transparent)]
    Secrets(#[from] SecretKeysError),
    #[error(transparent)]
    Tls(#[from] Box<StartTlsError>),
    #[error(transparent)]
    Authority(#[from] Box<EstablishError>),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("the leases that earlier servers left in the store cannot be revoked")]
    Predecessors(#[source] StoreError),
}

/// A server that listens, and whose view is complete.
#[derive(Debug)]
pub struct Server {
    url: String,
    app: App,
    address: SocketAddr,
    listeners: Listeners,
    limits: ConnectionLimits,
    token: Token,
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

    /// Path of the Unix socket, if the server listens on one.
    pub fn socket(&self) -> Option<&Path> {
        self.listeners.socket.as_ref().map(connections::NamedSocket::path)
    }

    /// URL of the TCP port, for clients of this machine.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn app(&self) -> &App {
        &self.app
    }

    /// Answers requests until the server is stopped. When a task ends, the server ends too: without one of its tasks it
    /// would answer requests wrongly.
    pub async fn run(mut self) -> io::Result<()> {
        let router = api::router(self.app.clone(), AccessControl::new(self.token, &self.app));
        let stop = self.stop.clone();
        let serve = self.listeners.serve(router, self.limits, &stop);
        let blobs_differ = async {
            match &self.mark_watch {
                Some(watch) => watch.run(&self.app).await,
                None => std::future::pending().await,
            }
        };
        let served = tokio::select! {
            () = serve => Ok(()),
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

/// A mark of this age, whose replica is not in the store, was left by a replica that died.
const STALE_MARK: Duration = Duration::from_secs(3600);

/// Interval of sweeps. Blobs are removed when they are an hour old: after at most two hours.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// Blobs that one sweep removes at most, so that it does not keep a shared directory busy. The next one continues. A rollout of
/// 10,000 nodes replaces 20,000 reports in their histories.
const MAX_SWEPT: usize = 50_000;

/// Removes the blobs that no history, design, release or rollout refers to, and the marks of dead replicas.
struct BlobSweeper {
    blobs: Arc<Blobs>,
    marks: BlobMarks,
    view: Arc<View>,
    store: Arc<dyn Store>,
    history: RunHistory,
    latest_revision: Arc<LatestRevision>,
}

/// References of all environments to blobs.
struct BlobReferences {
    direct: HashSet<String>,
    /// Manifests of designs; reading them yields further references.
    manifests: Vec<String>,
    replicas: HashSet<ReplicaId>,
}

impl BlobSweeper {
    /// Sweeps now and every hour, forever.
    async fn run(&self) {
        loop {
            self.sweep().await;
            tokio::time::sleep(SWEEP_EVERY).await;
        }
    }

    async fn sweep(&self) {
        let references = match self.references().await {
            Ok(references) => references,
            Err(reason) => {
                tracing::warn!(reason, "unreferenced blobs are not removed now");
                return;
            }
        };
        #[expect(clippy::disallowed_methods, reason = "compared with file times, which come from the machine's clock")]
        let now = SystemTime::now();
        let (blobs, marks, store) = (self.blobs.clone(), self.marks.clone(), self.store.name().to_owned());
        let sweep = move || {
            let BlobReferences { direct: mut referenced, manifests, replicas } = references;
            let named = manifests.iter().try_for_each(|manifest| add_references(&blobs, manifest, &mut referenced));
            let removed = if let Err(error) = named {
                // The blobs that this revision refers to are unknown, and an operator may still restore it.
                tracing::warn!(%error, "a design revision cannot be read: no blob is removed until it can");
                0
            } else if blobs.belong_to(&store)? {
                blobs.sweep(now, MAX_SWEPT, |digest| referenced.contains(digest))?
            } else {
                tracing::warn!("the blobs were first used with another store: no blob is removed");
                0
            };
            marks.sweep(now.checked_sub(STALE_MARK).unwrap_or(now), |id| replicas.contains(id))?;
            io::Result::Ok(removed)
        };
        match tokio::task::spawn_blocking(sweep).await {
            Ok(Ok(0)) | Err(_) => {}
            Ok(Ok(removed)) => tracing::info!(removed, "unreferenced blobs were removed"),
            Ok(Err(error)) => tracing::warn!(%error, "unreferenced blobs cannot be removed"),
        }
    }

    /// The references, or the reason why they are not known. A stale view would lack those of other replicas.
    async fn references(&self) -> Result<BlobReferences, String> {
        let latest = self.latest_revision.read().await.map_err(|error| error.to_string())?;
        self.view.reach(latest).await.map_err(|error| error.to_string())?;
        let mut references = self.viewed_references()?;
        self.add_runs(&mut references).await?;
        Ok(references)
    }

    /// References in the view.
    fn viewed_references(&self) -> Result<BlobReferences, String> {
        let fleets = self.view.fleets();
        if let Some(fleet) = fleets.values().find(|fleet| fleet.restoring().is_some()) {
            return Err(format!("{} is being restored", fleet.env));
        }
        if let Some(key) = fleets.values().find_map(|fleet| fleet.unreadable().keys().next()) {
            return Err(format!("{key} cannot be read, and may refer to blobs"));
        }
        let segments: Vec<String> =
            self.view.server_records().segments().values().map(|segment| segment.digest.clone()).collect();
        let nodes = || fleets.values().flat_map(|fleet| fleet.nodes()).map(|(_, node)| node);
        let observed = nodes().filter_map(|node| node.observed.as_ref()).map(|(observed, _)| observed);
        let last = observed.flat_map(|observed| {
            let failure = observed.failure.as_ref().and_then(|failure| failure.log.clone());
            observed.last.as_ref().and_then(|last| last.log.clone()).into_iter().chain(failure)
        });
        let runs = nodes().flat_map(|node| node.open_run().into_iter().chain(node.history.listed().0));
        let logs = runs.flat_map(|past| past.logs).chain(last);
        let designs = fleets.values().flat_map(|fleet| fleet.design().revisions.values());
        let replicas = fleets.values().flat_map(|fleet| fleet.replicas().keys().cloned());
        let releases = fleets.values().flat_map(|fleet| fleet.releases().values());
        let bundles = releases.filter_map(|release| release.digest.strip_prefix("sha256:").map(str::to_owned));
        let rollouts = fleets.values().flat_map(|fleet| fleet.rollouts().values());
        let plans = rollouts.flat_map(|(record, _)| [Some(record.plan.clone()), record.outcome.clone()]).flatten();
        Ok(BlobReferences {
            direct: logs.map(|place| blob_of(&place).to_owned()).chain(bundles).chain(plans).chain(segments).collect(),
            manifests: designs.map(|revision| revision.manifest.clone()).collect(),
            replicas: replicas.collect(),
        })
    }

    /// Adds the blobs of the runs in the histories. A run that has ended since the view was read is in one of both.
    async fn add_runs(&self, references: &mut BlobReferences) -> Result<(), String> {
        let nodes: Vec<(EnvName, NodeName)> = {
            let fleets = self.view.fleets();
            let of_fleet = |fleet: &Fleet| {
                let nodes = fleet.nodes().filter(|(_, node)| !node.history.keys().is_empty());
                nodes.map(|(name, _)| (fleet.env.clone(), name.clone())).collect::<Vec<_>>()
            };
            fleets.values().flat_map(of_fleet).collect()
        };
        for (env, node) in nodes {
            let runs = self.history.ended(&env, &node).await.map_err(|error| error.to_string())?;
            let logs = runs.iter().flat_map(|past| &past.logs);
            references.direct.extend(logs.map(|place| blob_of(place).to_owned()));
        }
        Ok(())
    }
}

/// Renews the mark of this replica, forever. While the replica is cut off from the store, its key is missing there. A
/// server that starts at that moment would remove an old mark; and one that starts later would not find it, and fail.
async fn renew_mark(marks: &BlobMarks, id: &ReplicaId, nonce: &str, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let (marks, id, nonce) = (marks.clone(), id.clone(), nonce.to_owned());
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || marks.put(&id, &nonce)).await {
            tracing::warn!(%error, "the mark of this replica cannot be renewed: other replicas may not find it");
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_core::replica::{BlobsMark, ReplicaRecord};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn blobs_are_swept_every_hour() {
        let dir = tempfile::tempdir().unwrap();
        let spec = format!("embedded:{}", dir.path().join("store").display());
        let store = muster_store::open(&spec, &muster_store::StoreAccess::default()).await.unwrap();
        let (view, root) = (Arc::new(View::default()), dir.path().join("blobs"));
        let blobs = Arc::new(Blobs::open(root.as_path(), ReplicaId::new("one-1").unwrap()).unwrap());
        let sweeper = BlobSweeper {
            blobs: blobs.clone(),
            marks: blobs.marks(),
            view: view.clone(),
            store: store.clone(),
            history: RunHistory::new(store.clone()),
            latest_revision: Arc::new(LatestRevision::new(store.clone())),
        };
        let (changed, _changes) = tokio::sync::mpsc::channel(8);
        let clock = Clock::system();
        let orphan = |text: &str| {
            let digest = blobs.put(text.as_bytes()).unwrap();
            let path = root.join(&digest[..2]).join(&digest[2..]);
            let file = std::fs::File::options().append(true).open(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
            digest
        };
        let check = async {
            view.ready().await;
            for hour in 0..3 {
                let digest = orphan(&format!("of hour {hour}"));
                while blobs.get(&digest).is_some() {
                    tokio::time::sleep(SWEEP_EVERY / 8).await;
                }
            }
        };
        let begun = tokio::time::Instant::now();
        tokio::select! {
            _ = view.follow(store.as_ref(), changed, &clock) => panic!("the store is open"),
            () = async { view.ready().await; sweeper.run().await } => {}
            () = check => {}
        }
        assert!(begun.elapsed() < SWEEP_EVERY * 4, "{:?}", begun.elapsed());
        assert_eq!(blobs.unregistered().swept, 3);
    }

    #[tokio::test]
    async fn blobs_of_past_runs_are_not_swept() {
        let dir = tempfile::tempdir().unwrap();
        let spec = format!("embedded:{}", dir.path().join("store").display());
        let store = muster_store::open(&spec, &muster_store::StoreAccess::default()).await.unwrap();
        let (view, root) = (Arc::new(View::default()), dir.path().join("blobs"));
        let blobs = Arc::new(Blobs::open(root.as_path(), ReplicaId::new("one-1").unwrap()).unwrap());
        let sweeper = BlobSweeper {
            blobs: blobs.clone(),
            marks: blobs.marks(),
            view: view.clone(),
            store: store.clone(),
            history: RunHistory::new(store.clone()),
            latest_revision: Arc::new(LatestRevision::new(store.clone())),
        };
        let old_blob = |text: &str| {
            let digest = blobs.put(text.as_bytes()).unwrap();
            let path = root.join(&digest[..2]).join(&digest[2..]);
            let file = std::fs::File::options().append(true).open(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
            digest
        };
        let [ended, listed, open, last, failed, orphan] =
            ["ended", "listed", "open", "last", "failed", "orphan"].map(old_blob);
        let time = "2027-01-15T08:00:00Z";
        let past = |log: &str| {
            serde_json::json!({"run": "r1", "version": "v1", "phase": "validated", "result": "passed", "causes": [],
                "started": time, "ended": time, "logs": [log]})
        };
        let observed = serde_json::json!({"incarnation": 1, "seq": 1, "open": {"run": "r2", "logs": [open]},
            "failure": {"run": "r0", "log": failed},
            "last": {"run": "r2", "phase": "configured", "result": "changed", "version": "v1", "digest": "",
                "generation": {"epoch": 1, "number": 1}, "causes": [], "started": time, "ended": time,
                "counts": {"total": 0, "changed": 0, "failed": 0, "skipped": 0}, "log": last}});
        let (env, node) = (EnvName::new("test").unwrap(), NodeName::new("web1").unwrap());
        let keys = muster_core::keys::Keys::new(&env);
        let run = muster_core::names::RunId::new("r1").unwrap();
        let put = |key, value: &serde_json::Value| muster_core::txn::Op::put_json(key, value).unwrap();
        let txn = muster_core::txn::Txn::new()
            .op(put(keys.past_run(&node, &run), &past(&ended)))
            .op(put(keys.run_list(&node), &serde_json::json!([past(&format!("{listed}:3"))])))
            .op(put(keys.observed(&node), &observed));
        store.commit(txn).await.unwrap();
        let (changed, _changes) = tokio::sync::mpsc::channel(8);
        let clock = Clock::system();
        tokio::select! {
            _ = view.follow(store.as_ref(), changed, &clock) => panic!("the store is open"),
            () = async { view.ready().await; sweeper.sweep().await } => {}
        }
        assert!([ended, listed, open, last, failed].iter().all(|digest| blobs.get(digest).is_some()));
        assert_eq!((blobs.get(&orphan), blobs.unregistered().swept), (None, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn swept_mark_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let id = ReplicaId::new("one-1").unwrap();
        let marks = Blobs::open(dir.path(), id.clone()).unwrap().marks();
        let blobs = BlobsMark { directory: String::new(), nonce: "7".into() };
        let (url, host, version) = (String::new(), String::new(), String::new());
        let record = ReplicaRecord {
            url,
            host,
            pid: 1,
            version,
            since: jiff::Timestamp::UNIX_EPOCH,
            blobs,
            secret_keys: Vec::new(),
            authorities: Vec::new(),
        };
        marks.put(&id, "7").unwrap();
        #[expect(clippy::disallowed_methods, reason = "compared with file times, which come from the machine's clock")]
        let late = SystemTime::now() + STALE_MARK;
        marks.sweep(late, |_| false).unwrap();
        assert!(!marks.shows(&id, &record).unwrap());
        let again = async {
            while !marks.shows(&id, &record).unwrap() {
                tokio::time::sleep(STALE_MARK / 4).await;
            }
        };
        tokio::select! {
            () = renew_mark(&marks, &id, "7", STALE_MARK / 4) => {}
            () = again => {}
        }
        assert!(marks.shows(&id, &record).unwrap());
    }
}
