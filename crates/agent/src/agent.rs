//! Puts the tasks together, and takes them apart.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use muster_core::node::status::Activity;
use muster_wire::client::ClientError;

use crate::activity::Teller;
use crate::config::Config;
use crate::ledger::{self, Ledger, LoadError};
use crate::live_log::{LiveLog, Streamer};
use crate::node::Node;
use crate::opening::Opening;
use crate::outbox::{Outbox, OutboxError};
use crate::process::children::{self, Children};
use crate::queue::mind::{Found, Habits, Mind};
use crate::queue::task::{Keeper, Outlets};
use crate::release::Releases;
use crate::release::trust::Trust;
use crate::renewal::Renewal;
use crate::report::Sender;
use crate::servers::Servers;
use crate::state_dir::{OpenStateError, StateDir};
use crate::sync::Sync;
use crate::{report, run, run_id, sync};

/// The queue is asked and written faster than a server speaks; a few messages are enough to smooth it. When the disk
/// does not take them, the stream stands still, which is right; [`Sync`] sees to it that the server knows.
const MESSAGES: usize = 16;
/// How long the tasks may take to end. Ending the processes of a run takes most of it.
const END: Duration = Duration::from_secs(9);
/// How long a state directory may be in use before another agent is taken to live there. From fork to exec is a matter
/// of microseconds, and on a busy machine of some milliseconds.
const TAKE_OVER: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[derive(Debug, Error)]
pub enum AgentError {
    #[error(transparent)]
    State(#[from] OpenStateError),
    #[error(transparent)]
    Ledger(#[from] LoadError),
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    #[error("`server` of the configuration cannot be used")]
    Server(#[source] ClientError),
    #[error("cannot become the parent of orphaned processes")]
    Subreaper(#[source] std::io::Error),
    #[error("a part of the agent has ended, and so does the agent")]
    TaskEnded(#[source] Option<tokio::task::JoinError>),
}

/// Takes the state directory. A killed agent may have left a child that was about to become an applier: until it has, it
/// holds the lock too, and cannot be told by its mark. So the lock is waited for, and who has it finds all of them.
async fn take_over(path: &Path) -> Result<StateDir, OpenStateError> {
    let until = Instant::now() + TAKE_OVER;
    loop {
        match StateDir::open(path) {
            Err(OpenStateError::InUse { .. }) if Instant::now() < until => tokio::time::sleep(LOOK_AGAIN).await,
            opened => return opened,
        }
    }
}

/// Runs an agent until it is told to end.
pub async fn run(config: &Config, cancel: CancellationToken) -> Result<(), AgentError> {
    let servers = Servers::new(&config.env, &config.node, config.server.urls()).map_err(AgentError::Server)?;
    let state = take_over(&config.state_dir).await?;
    let layout = state.layout();
    let mut ledger = Ledger::load(&layout, &config.env, &config.node)?;
    let snapshot = ledger::load_snapshot(&layout)?;
    let outbox = Outbox::new(layout.outbox());
    // If the ledger was lost, the reports that wait still have their numbers, and so have the runs.
    ledger.next_seq = ledger.next_seq.max(outbox.after_last()?).max(run_id::after_last(&layout));
    match &ledger.local {
        Some(local) => {
            tracing::info!(version = %local.version, digest = local.digest, "the node has proved this version")
        }
        None => tracing::info!("the node has proved no version yet"),
    }
    let trust = Arc::new(Trust::load(layout.trust(), config.trusted_keys.clone())?);
    let releases = Arc::new(Releases::open(config, &layout, servers.clone(), Arc::clone(&trust), &ledger)?);
    children::become_subreaper().map_err(AgentError::Subreaper)?;

    let node = Arc::new(Node::new(config, layout));
    let children = Children::default();
    let (messages, inbox) = mpsc::channel(MESSAGES);
    let (orders, order_inbox) = mpsc::channel(1);
    let (opening, opening_now) = watch::channel(Opening::new(&ledger, snapshot.as_ref()));
    let (settled, settled_now) = watch::channel(true);
    let (doing, doing_now) = watch::channel(Activity::Idle);
    let (renewal, renewal_asked) = Renewal::new();
    let (reports, tell_activity) = (Arc::new(Notify::new()), Arc::new(Notify::new()));

    let seen = ledger::seen_by(&node.layout, ledger.last.as_ref());
    let found = Found { ledger, snapshot, seen };
    let habits = Habits { debounce: config.debounce(), retry: config.retry() };
    let mind = Mind::new(Arc::clone(&node), found, habits);
    let (awaited, awaited_now) = watch::channel(mind.told().awaited);
    let keeper = Keeper {
        mind,
        layout: node.layout.clone(),
        outbox: outbox.clone(),
        releases: Arc::clone(&releases),
        outlets: Outlets {
            orders,
            opening,
            activity: doing,
            reports: Arc::clone(&reports),
            renewal: renewal.clone(),
            settled: settled.clone(),
            awaited,
        },
        cancel: cancel.clone(),
    };
    let stream = Sync {
        node: Arc::clone(&node),
        servers: servers.clone(),
        opening: opening_now.clone(),
        activity: doing_now.clone(),
        queue: messages.clone(),
        tell_activity: Arc::clone(&tell_activity),
        renewal: renewal_asked,
        trust,
        bounds: sync::Bounds::default(),
        cancel: cancel.clone(),
    };
    let sender = Sender {
        node: Arc::clone(&node),
        servers: servers.clone(),
        outbox,
        opening: opening_now,
        wake: reports,
        awaited: awaited_now,
        queue: messages.clone(),
        renewal,
        settled,
        answer: report::ANSWER,
        cancel: cancel.clone(),
    };
    let teller = Teller {
        node: Arc::clone(&node),
        servers: servers.clone(),
        activity: doing_now,
        settled: settled_now,
        asked: tell_activity,
        cancel: cancel.clone(),
    };
    let live = LiveLog::default();
    let streamer = Streamer::new(Arc::clone(&node), servers, &live, cancel.clone());
    let slot = run::Slot { node, releases, children: children.clone(), queue: messages, live, cancel: cancel.clone() };
    let mut tasks = JoinSet::new();
    tasks.spawn(streamer.run());
    tasks.spawn(keeper.run(inbox));
    tasks.spawn(stream.run());
    tasks.spawn(sender.run());
    tasks.spawn(run::run(slot, order_inbox));
    tasks.spawn(teller.run());
    let reaper_cancel = cancel.clone();
    tasks.spawn(async move {
        if let Err(error) = children::run(children, reaper_cancel).await {
            tracing::warn!(%error, "ended orphans are not reaped");
        }
    });

    let ended_early = tokio::select! {
        () = cancel.cancelled() => None,
        ended = tasks.join_next() => Some(ended),
    };
    cancel.cancel();
    let all_ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(END, all_ended).await.is_err() {
        tracing::warn!("some parts of the agent did not end in time");
    }
    match ended_early {
        None => Ok(()),
        Some(ended) => Err(AgentError::TaskEnded(ended.and_then(Result::err))),
    }
}
