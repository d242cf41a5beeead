//! Starts a server: opens its parts, waits for the view, joins the other replicas, and spawns the tasks.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use muster_core::node::liveness::LivenessTimeouts;
use muster_core::replica::ControllerName;
use muster_store::{Sharing, Store};
use muster_wire::client::Credentials;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, WeakSender};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::connections::{Listeners, NamedSocket};
use super::{BlobSweeper, STALE_MARK, Server, ServerConfig, ServerStartError, renew_mark};
use crate::agents::{Admission, Hub, Links};
use crate::app::{Agents, App, Clock, Identities, Reader, ReplicaState, Writer};
use crate::audit::{AuditLog, AuditedStore};
use crate::blobs::{BlobPlace, Blobs};
use crate::controllers::design::DesignController;
use crate::controllers::leaders::LeadersController;
use crate::controllers::liveness::LivenessController;
use crate::controllers::rollout::RolloutController;
use crate::design::compiled::Designs;
use crate::identity::rotation;
use crate::identity::tls::{ServerTls, StartTlsError};
use crate::metrics::{self, MeasuredStore, ReportMetrics, ServerMetrics};
use crate::replica::balance::Balance;
use crate::replica::presence::Presence;
use crate::replica::shared_blobs::{BlobMarkWatch, BlobMarks, unseen};
use crate::replica::{ControllerLocks, Identity, LeasePace, Membership, Peers};
use crate::reports::{IntakeHost, IntakeTask, Reports};
use crate::rollouts::gate::commands::GateCommands;
use crate::rollouts::plans::Plans;
use crate::run_history::RunHistory;
use crate::secrets::SecretsFile;
use crate::secrets::task::{SecretsTask, open_keys};
use crate::view::{LatestRevision, View, ViewChange};

/// Changes of the view that may wait to wake sessions. The view waits while the queue is full; no change is lost.
const CHANGES: usize = 256;
/// Logins that may ask the OIDC provider at the same time.
const LOGINS: usize = 4;
/// Clients that may follow logs at the same time. Each costs a task and at most 64 KiB of buffered text.
const LOG_READERS: usize = 256;

/// Parts that every task needs.
struct Parts {
    store: Arc<MeasuredStore>,
    audited: AuditedStore,
    view: Arc<View>,
    hub: Arc<Hub>,
    blobs: Arc<Blobs>,
    marks: BlobMarks,
    clock: Clock,
    registry: Registry,
    tasks: JoinSet<()>,
}

/// Parts of a server that is one of several replicas.
#[derive(Clone)]
struct ReplicaParts {
    membership: Arc<Membership>,
    controller_locks: Arc<ControllerLocks>,
    links: Arc<Links>,
    latest_revision: Arc<LatestRevision>,
    liveness: Arc<LivenessController>,
    admission: Arc<Admission>,
}

impl Server {
    /// Listens, builds the view, and starts the tasks. Requests are answered once [`Server::run`] runs.
    pub async fn start(
        config: ServerConfig,
        store: Arc<dyn Store>,
        stop: CancellationToken,
    ) -> Result<Self, ServerStartError> {
        let ServerConfig {
            listen,
            tls,
            socket,
            token,
            limits,
            blobs: place,
            secrets_key,
            liveness_timeouts,
            lease,
            gate_commands,
            oidc,
            clock,
        } = config;
        let gate_commands = GateCommands::new(gate_commands.clone())
            .map_err(|source| ServerStartError::GateCommands { path: gate_commands.unwrap_or_default(), source })?;
        let tls = tls.map(|tls| ServerTls::new(tls, clock.clone())).transpose().map_err(Box::new)?.map(Arc::new);
        let listeners = bind(listen, socket, tls.clone()).await?;
        let address =
            listeners.tcp.local_addr().map_err(|source| ServerStartError::Listen { address: listen, source })?;
        let mut identity = Identity::new(url(address, tls.as_deref()), &place, clock.now())?;
        let mut parts = Parts::open(store, &place, &identity, clock, &stop)?;
        let (reports, changes) = parts.spawn_data_path();
        // A server with an incomplete view would give wrong answers: it waits, without a limit.
        parts.view.ready().await;
        if let Some(tls) = &tls {
            rotation::establish(tls, parts.store.as_ref(), &parts.view, parts.clock.now()).await.map_err(Box::new)?;
        }
        open_keys(&parts.view, parts.store.sharing(), &secrets_key, &parts.clock)?;
        identity.set_secret_keys(parts.view.secrets.keys().ids())?;
        let (membership, sharing) = parts.join_replicas(identity, lease, &place).await?;
        membership.set_authorities(tls.as_ref().map(|tls| tls.config().files.pins()).unwrap_or_default());
        let replica = parts.spawn_replica_tasks(membership, liveness_timeouts);
        parts.register_metrics(&replica, &reports, changes);
        let Parts { marks, mut tasks, .. } = parts;
        let reader = Reader {
            history: RunHistory::new(parts.store.clone()),
            view: parts.view,
            latest_revision: replica.latest_revision,
            downloads: Arc::default(),
            deltas: Arc::default(),
            designs: Arc::new(Designs::new(parts.blobs.clone())),
            plans: Arc::new(Plans::new(parts.blobs.clone())),
            gate_commands: Arc::new(gate_commands),
            blobs: parts.blobs,
            clock: parts.clock,
            stop: stop.child_token(),
        };
        let credentials = match &tls {
            Some(tls) => tls.for_peers(token.clone()).map_err(|error| Box::new(StartTlsError::from(error)))?,
            None => Credentials { token: Some(token.clone()), tls: None },
        };
        let agents = Agents {
            hub: parts.hub,
            links: replica.links,
            peers: Arc::new(Peers::new(credentials)),
            reports,
            admission: replica.admission,
            log_readers: Arc::new(Semaphore::new(LOG_READERS)),
            liveness_timeouts,
        };
        let replica = ReplicaState {
            secrets: Arc::new(SecretsFile::new(secrets_key)),
            membership: replica.membership,
            controller_locks: replica.controller_locks,
            liveness: replica.liveness,
            rollouts_checked_at: Arc::new(watch::Sender::new(None)),
            metrics: Arc::new(parts.registry),
        };
        let logins = Arc::new(Semaphore::new(LOGINS));
        let identities = Identities { tls, oidc: oidc.map(Arc::new), logins, failed_logins: Arc::default() };
        let writer = Writer { reader, store: parts.audited, epoch_claims: Arc::default() };
        let app = App { writer, agents, replica, identities };
        if let Some(tls) = app.identities.tls.clone() {
            let (renewed, clock) = (tls.clone(), app.clock.clone());
            tasks.spawn(async move { renewed.renew(&clock).await });
            let (followed, rotating) = (app.clone(), tls.clone());
            tasks.spawn(async move { rotation::run(&followed, &rotating).await });
            let reader = app.reader.clone();
            tasks.spawn(async move { tls.connections.run(&reader.view, &reader.clock).await });
        }
        let secrets = SecretsTask::new(&app);
        tasks.spawn(async move { secrets.run().await });
        let design = DesignController { app: app.for_controller(ControllerName::Design) };
        tasks.spawn(async move { design.run().await });
        let rollout = RolloutController { app: app.clone() };
        tasks.spawn(async move { rollout.run().await });
        let mark_watch = match sharing {
            Sharing::Shared => Some(BlobMarkWatch { marks: marks.clone(), place, lease: lease.ttl }),
            Sharing::Exclusive => None,
        };
        let url = app.replica.membership.record().url;
        Ok(Self { app, url, address, listeners, limits, token, marks, mark_watch, tasks, stop })
    }
}

impl Parts {
    /// Opens the blobs, and writes the mark by which other replicas see that they share them.
    fn open(
        store: Arc<dyn Store>,
        place: &BlobPlace,
        identity: &Identity,
        clock: Clock,
        stop: &CancellationToken,
    ) -> Result<Self, ServerStartError> {
        let unusable = |source| ServerStartError::Blobs { place: place.to_string(), source };
        let blobs = Arc::new(Blobs::open(place.clone(), identity.id.clone()).map_err(unusable)?);
        let marks = blobs.marks();
        marks.put(&identity.id, &identity.record.blobs.nonce).map_err(unusable)?;
        let mut registry = Registry::default();
        let store = Arc::new(MeasuredStore::new(store, &mut registry));
        let view = Arc::new(View::default());
        let hub = Arc::new(Hub::new(clock.clone(), stop.child_token(), &view));
        let log = Arc::new(AuditLog::new(store.clone(), view.clone(), clock.clone()));
        let audited = AuditedStore::new(store.clone(), log.clone());
        let mut tasks = JoinSet::new();
        let kept = blobs.clone();
        let ready = view.clone();
        tasks.spawn(async move {
            ready.ready().await;
            log.run(&kept).await;
        });
        Ok(Self { store, audited, view, hub, blobs, marks, clock, registry, tasks })
    }

    /// Spawns the tasks between the store and the agents: the view, the wake-ups and the report intake.
    fn spawn_data_path(&mut self) -> (Reports, WeakSender<ViewChange>) {
        let metrics = ReportMetrics::new(&mut self.registry);
        let (reports, queue) = Reports::channel(metrics.clone());
        let (changed, changes) = mpsc::channel(CHANGES);
        let weak = changed.downgrade();
        let (view, store, hub) = (self.view.clone(), self.store.clone(), self.hub.clone());
        let clock = self.clock.clone();
        self.tasks.spawn(async move {
            let error = view.follow(store.as_ref(), changed, &clock).await;
            tracing::debug!(%error, "the view no longer follows the store");
        });
        self.tasks.spawn(async move { hub.wake(changes).await });
        let (store, view, blobs) = (self.store.clone(), self.view.clone(), self.blobs.clone());
        let host = IntakeHost { store, view, blobs, clock: self.clock.clone(), metrics };
        self.tasks.spawn(IntakeTask::new(queue, host).run());
        (reports, weak)
    }

    /// Revokes what earlier servers left, or checks that all replicas of a shared store share their blobs.
    async fn join_replicas(
        &self,
        identity: Identity,
        lease: LeasePace,
        place: &BlobPlace,
    ) -> Result<(Arc<Membership>, Sharing), ServerStartError> {
        let membership = Membership::new(identity, lease, self.store.clone(), self.view.clone(), self.clock.clone());
        let sharing = membership.clear_predecessors().await.map_err(ServerStartError::Predecessors)?;
        if sharing == Sharing::Shared
            && let Some((replica, record)) = unseen(&self.view, &self.marks, membership.id(), lease.ttl).await
        {
            self.marks.remove(membership.id());
            let (host, theirs) = (record.host, record.blobs.directory);
            return Err(ServerStartError::BlobsNotShared { replica, host, theirs, ours: Box::new(place.clone()) });
        }
        Ok((Arc::new(membership), sharing))
    }

    /// Spawns the tasks of this replica: its lease, its controller locks, its agents, and the controllers that need no [`App`].
    fn spawn_replica_tasks(
        &mut self,
        membership: Arc<Membership>,
        liveness_timeouts: LivenessTimeouts,
    ) -> ReplicaParts {
        let (store, view, hub, clock) = (&self.store, &self.view, &self.hub, &self.clock);
        let locks = ControllerLocks::new(self.audited.clone(), view.clone(), membership.clone(), clock.clone());
        let controller_locks = Arc::new(locks);
        let links = Arc::new(Links::new(membership.id().clone(), hub.clone(), clock.clone(), view));
        let latest_revision = Arc::new(LatestRevision::new(store.clone()));
        let liveness = Arc::new(LivenessController {
            view: view.clone(),
            hub: hub.clone(),
            links: links.clone(),
            controller_locks: controller_locks.clone(),
            latest_revision: latest_revision.clone(),
            clock: clock.clone(),
            liveness_timeouts,
            held: Mutex::default(),
        });
        let leaders = LeadersController {
            view: view.clone(),
            hub: hub.clone(),
            links: links.clone(),
            controller_locks: controller_locks.clone(),
            clock: clock.clone(),
            liveness_timeouts,
        };
        let (store, view, hub) = (store.clone(), view.clone(), hub.clone());
        let presence = Presence { store, view: view.clone(), hub: hub.clone(), membership: membership.clone() };
        let balance = Balance { me: membership.id().clone(), view: view.clone(), hub };
        let replica =
            ReplicaParts { membership, controller_locks, links, latest_revision, liveness, admission: Arc::default() };
        self.spawn_sweep(&replica);
        let ReplicaParts { membership, controller_locks, links, liveness, .. } = replica.clone();
        self.tasks.spawn(async move { membership.run().await });
        self.tasks.spawn(async move { controller_locks.run().await });
        self.tasks.spawn(async move { links.watch(&view).await });
        self.tasks.spawn(async move { presence.run().await });
        self.tasks.spawn(async move { balance.run().await });
        self.tasks.spawn(async move { liveness.run().await });
        self.tasks.spawn(async move { leaders.run().await });
        replica
    }

    fn spawn_sweep(&mut self, replica: &ReplicaParts) {
        let (blobs, marks) = (self.blobs.clone(), self.marks.clone());
        let (view, store, latest_revision) = (self.view.clone(), self.store.clone(), replica.latest_revision.clone());
        let history = RunHistory::new(store.clone());
        let sweeper = BlobSweeper { blobs, marks: marks.clone(), view, store, history, latest_revision };
        self.tasks.spawn(async move { sweeper.run().await });
        let membership = &replica.membership;
        let (id, nonce) = (membership.id().clone(), membership.record().blobs.nonce.clone());
        self.tasks.spawn(async move { renew_mark(&marks, &id, &nonce, STALE_MARK / 4).await });
    }

    fn register_metrics(&mut self, replica: &ReplicaParts, reports: &Reports, changes: WeakSender<ViewChange>) {
        let metrics = ServerMetrics {
            admission: replica.admission.clone(),
            store: self.store.clone(),
            view: self.view.clone(),
            hub: self.hub.clone(),
            links: replica.links.clone(),
            reports: reports.clone(),
            blobs: self.blobs.clone(),
            liveness: replica.liveness.clone(),
            membership: replica.membership.clone(),
            changes,
            clock: self.clock.clone(),
        };
        metrics::register_collectors(&mut self.registry, metrics, self.clock.now());
    }
}

/// URL of the TCP port, for agents and other replicas. Replicas that listen on loopback are on the same machine.
fn url(address: SocketAddr, tls: Option<&ServerTls>) -> String {
    if let Some(url) = tls.and_then(|tls| tls.config().advertise.clone()) {
        return url;
    }
    let name = tls.filter(|_| !address.ip().is_loopback()).and_then(|tls| tls.config().names.first());
    match name {
        Some(name) if name.contains(':') => format!("https://[{name}]:{}", address.port()),
        Some(name) => format!("https://{name}:{}", address.port()),
        None => format!("http://{address}"),
    }
}

/// Listens on a TCP address and on the Unix socket.
async fn bind(
    address: SocketAddr,
    socket: Option<PathBuf>,
    tls: Option<Arc<ServerTls>>,
) -> Result<Listeners, ServerStartError> {
    if !address.ip().is_loopback() && tls.is_none() {
        return Err(ServerStartError::NotLoopback(address));
    }
    let tcp = TcpListener::bind(address).await.map_err(|source| {
        if source.kind() == io::ErrorKind::AddrInUse {
            ServerStartError::AddressTaken { address }
        } else {
            ServerStartError::Listen { address, source }
        }
    })?;
    let socket = match socket {
        None => None,
        Some(path) => {
            let bound = NamedSocket::bind(&path).await;
            let bound = bound.map_err(|source| ServerStartError::Socket { path: path.clone(), source })?;
            if bound.is_none() {
                let path = path.display();
                tracing::warn!(%path, "another server listens on this Unix socket: clients of this server use TCP");
            }
            bound
        }
    };
    Ok(Listeners { tcp, socket, tls })
}
