//! Starts the tasks of the agent, connects them with channels, and stops them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::RunId;
use muster_core::node::status::Activity;

use crate::config::{AgentNode, ConfigFile, configured_holder};
use crate::identity::renewal::Renewal;
use crate::live_log::{LiveLog, Streamer};
use crate::process::children::{self, Children};
use crate::process::supervised::Launcher;
use crate::queue::state_machine::{FirstWork, InitialState, RunQueue, Timings};
use crate::queue::task::{Channels, QueueTask};
use crate::release::NodeReleases;
use crate::release::trust::TrustStore;
use crate::report::activity::{ActivitySender, StreamReplies};
use crate::report::sender::{self, ReportSender};
use crate::run::directory;
use crate::service_manager::ServiceManager;
use crate::state::directory::{Layout, OpenStateDirError, StateDir};
use crate::state::ledger::{self, Ledger, LoadError};
use crate::state::outbox::{Outbox, OutboxError};
use crate::sync::Sync;
use crate::sync::handshake::{IncarnationRenewal, SyncState};
use crate::sync::servers::{ServerClients, ServersError};
use crate::{interfaces, run, sync};

/// Capacity of the queue's inbox. The queue handles messages faster than a server sends them. When the disk blocks the
/// queue, the stream stops too; [`Sync`] keeps the connection alive meanwhile.
const INBOX: usize = 16;
/// Time that the tasks have to stop. Ending the processes of checks takes most of it. A run is left alone.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(9);
/// Time to wait for the lock of the state directory before another agent is assumed to run there. The time from fork to
/// exec is microseconds, or some milliseconds on a busy machine.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOCK_RETRY: Duration = Duration::from_millis(20);

#[derive(Debug, Error)]
pub enum AgentError {
    #[error(transparent)]
    State(#[from] OpenStateDirError),
    #[error(transparent)]
    Ledger(#[from] LoadError),
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    #[error(transparent)]
    Servers(#[from] ServersError),
    #[error("cannot become the parent of orphaned processes")]
    Subreaper(#[source] std::io::Error),
    #[error("a task of the agent has ended, so the agent stops")]
    TaskEnded(#[source] Option<tokio::task::JoinError>),
}

/// Locks the state directory. A killed agent may have left a child between fork and exec: it holds the lock too and does
/// not carry the mark of its run yet. After waiting for the lock, the agent finds all of them by their marks.
async fn lock_state_dir(path: &Path) -> Result<StateDir, OpenStateDirError> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match StateDir::open(path) {
            Err(OpenStateDirError::InUse { .. }) if Instant::now() < until => tokio::time::sleep(LOCK_RETRY).await,
            opened => return opened,
        }
    }
}

/// Runs an agent until it is cancelled.
pub async fn run(config: &ConfigFile, cancel: CancellationToken) -> Result<(), AgentError> {
    run_with(config, FirstWork::Run, watch::Sender::new(0), cancel).await
}

/// As [`run`], for an agent that starts with the checks. `validations` counts those that have ended.
pub async fn run_checks(
    config: &ConfigFile,
    validations: watch::Sender<u64>,
    cancel: CancellationToken,
) -> Result<(), AgentError> {
    run_with(config, FirstWork::Checks, validations, cancel).await
}

async fn run_with(
    config: &ConfigFile,
    first: FirstWork,
    validations: watch::Sender<u64>,
    cancel: CancellationToken,
) -> Result<(), AgentError> {
    let servers = ServerClients::from_config(config)?;
    let state = lock_state_dir(&config.state_dir).await?;
    let servers = servers.for_agent(configured_holder(config).as_deref());
    let stored = StoredState::load(config, state.layout(), &servers)?;
    children::become_subreaper().map_err(AgentError::Subreaper)?;
    let timings = Timings { debounce: config.debounce(), retry: config.retry(), first };
    let mut tasks = spawn(config, stored, servers, (timings, validations), &cancel);
    let ended_early = tokio::select! {
        // Tasks end when they are cancelled, and may have ended already.
        biased;
        () = cancel.cancelled() => None,
        ended = tasks.join_next() => Some(ended),
    };
    cancel.cancel();
    let all_ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, all_ended).await.is_err() {
        tracing::warn!("some tasks of the agent did not stop in time");
    }
    match ended_early {
        None => Ok(()),
        Some(ended) => Err(AgentError::TaskEnded(ended.and_then(Result::err))),
    }
}

/// State that the agent reads from its disk before the tasks start.
struct StoredState {
    layout: Layout,
    ledger: Ledger,
    snapshot: Option<Snapshot>,
    outbox: Outbox,
    trust: Arc<TrustStore>,
    releases: Arc<NodeReleases>,
}

impl StoredState {
    fn load(config: &ConfigFile, layout: Layout, servers: &ServerClients) -> Result<Self, AgentError> {
        let mut ledger = Ledger::load(&layout, &config.env, &config.node)?;
        let snapshot = ledger::load_snapshot(&layout)?;
        let outbox = Outbox::new(layout.outbox());
        // If the ledger was lost, unsent reports and the directories of runs still have their numbers.
        ledger.next_seq = ledger.next_seq.max(outbox.next_seq()?).max(directory::next_seq(&layout));
        match &ledger.local {
            Some(local) => tracing::info!(version = %local.version, digest = local.digest, "last validated version"),
            None => tracing::info!("no version has been validated on this node yet"),
        }
        let trust = Arc::new(TrustStore::load(layout.trust(), config.trusted_keys.clone())?);
        let releases = Arc::new(NodeReleases::open(config, &layout, servers.clone(), Arc::clone(&trust), &ledger)?);
        Ok(Self { layout, ledger, snapshot, outbox, trust, releases })
    }
}

fn spawn(
    config: &ConfigFile,
    stored: StoredState,
    servers: ServerClients,
    (timings, validations): (Timings, watch::Sender<u64>),
    cancel: &CancellationToken,
) -> JoinSet<()> {
    let StoredState { layout, ledger, snapshot, outbox, trust, releases } = stored;
    let node = Arc::new(AgentNode::new(config, layout));
    let (inbox, messages) = mpsc::channel(INBOX);
    let (orders, order_inbox) = mpsc::channel(1);
    let (sync_state, sync_state_now) = watch::channel(SyncState::new(&ledger, snapshot.as_ref()));
    let (settled, settled_now) = watch::channel(true);
    let (activity, activity_now) = watch::channel(Activity::Idle);
    let (renewal, renewal_requests) = IncarnationRenewal::new();
    let (reports, activity_requests) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let replies = StreamReplies::default();

    let of_run = |run: Option<&RunId>| ledger::snapshot_of_run(&node.layout, run);
    let last_snapshot = of_run(ledger.last.as_ref().map(|last| &last.run));
    let running_snapshot = of_run(ledger.running.as_ref().map(|running| &running.run));
    let initial = InitialState { ledger, snapshot, last_snapshot, running_snapshot };
    let queue = RunQueue::new(Arc::clone(&node), initial, timings);
    let (awaited, awaited_now) = watch::channel(queue.published().awaited);

    let queue = QueueTask {
        queue,
        layout: node.layout.clone(),
        outbox: outbox.clone(),
        releases: Arc::clone(&releases),
        channels: Channels {
            orders,
            sync_state,
            activity,
            reports: Arc::clone(&reports),
            renewal: renewal.clone(),
            settled: settled.clone(),
            awaited,
            validations,
        },
        service_manager: ServiceManager::from_process(),
        cancel: cancel.clone(),
    };
    let sync = Sync {
        node: Arc::clone(&node),
        servers: servers.clone(),
        sync_state: sync_state_now.clone(),
        activity: activity_now.clone(),
        queue: inbox.clone(),
        activity_requests: Arc::clone(&activity_requests),
        replies: Arc::clone(&replies),
        renewal: renewal_requests,
        trust,
        timeouts: sync::SyncTimeouts::default(),
        cancel: cancel.clone(),
    };
    let sync_state_for_runs = sync_state_now.clone();
    let report_sender = ReportSender {
        node: Arc::clone(&node),
        servers: servers.clone(),
        outbox,
        sync_state: sync_state_now,
        wake: reports,
        awaited: awaited_now,
        queue: inbox.clone(),
        renewal,
        settled,
        answer_timeout: sender::ANSWER_TIMEOUT,
        cancel: cancel.clone(),
    };
    let activity_sender = ActivitySender {
        node: Arc::clone(&node),
        servers: servers.clone(),
        replies,
        activity: activity_now,
        settled: settled_now,
        requested: activity_requests,
        cancel: cancel.clone(),
    };
    let live = LiveLog::default();
    let renewal_task = servers.identity().map(|identity| Renewal {
        identity: Arc::clone(identity),
        env: config.env.clone(),
        node: config.node.clone(),
        servers: servers.clone(),
        cancel: cancel.clone(),
    });
    let streamer = Streamer::new(Arc::clone(&node), servers, &live, cancel.clone());
    let children = Children::default();
    let mut tasks = JoinSet::new();
    let (evicting, stop) = (Arc::clone(&releases), cancel.clone());
    tasks.spawn(async move { evicting.remove_evicted(stop).await });
    tasks.spawn(interfaces::watch(node.interfaces.clone(), inbox.clone(), cancel.clone()));
    let slot = run::WorkSlot {
        node,
        releases,
        children: children.clone(),
        launcher: Launcher::for_this_host(),
        queue: inbox,
        live,
        sync_state: sync_state_for_runs,
        cancel: cancel.clone(),
    };
    if let Some(renewal) = renewal_task {
        tasks.spawn(renewal.run());
    }
    tasks.spawn(streamer.run());
    tasks.spawn(queue.run(messages));
    tasks.spawn(sync.run());
    tasks.spawn(report_sender.run());
    tasks.spawn(run::run(slot, order_inbox));
    tasks.spawn(activity_sender.run());
    tasks.spawn(reap_orphans(children, cancel.clone()));
    tasks
}

async fn reap_orphans(children: Children, cancel: CancellationToken) {
    if let Err(error) = children::run(children, cancel).await {
        tracing::warn!(%error, "orphaned processes are not reaped");
    }
}
