//! The whole store in memory, kept by one watch. Reads never hit the store.
//!
//! One task ([`View::follow`]) writes; everybody else reads under a lock that is held for microseconds. Each
//! transaction is taken in whole, so no reader sees half a move. After a gap everything is built anew beside the old
//! state and swapped in.

pub(crate) mod event_cache;
mod latest_revision;
pub(crate) mod node_fields;
pub mod node_rows;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use bytes::Bytes;
use muster_core::fleet::{DesiredVersion, Effects, Fleet, KeyChange, Node};
use muster_core::keys::{self, Key, ROOT};
use muster_core::names::{EnvName, NodeName};
use muster_core::rollout::record::RolloutPhase;
use muster_core::txn::Revision;
use muster_rollout::arrivals::Arrivals;
use muster_store::{KeyValue, Sharing, Store, StoreError, WatchChange, WatchEvent, WatchFrom};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use event_cache::{DesiredTexts, SnapshotText, SnapshotTexts};
pub use latest_revision::LatestRevision;

/// How long a reader that demands a revision waits for it. The watch is milliseconds behind when all is well.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the followers of the view are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewChange {
    /// One transaction, for one environment.
    Env(EnvName, Effects),
    /// Everything may be different: the view was built anew.
    Everything,
}

/// The view has not reached a revision in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the view is at revision {at}, and {demanded} was demanded")]
pub struct StaleView {
    pub at: Revision,
    pub demanded: Revision,
}

#[derive(Debug)]
pub struct View {
    fleets: RwLock<BTreeMap<EnvName, Fleet>>,
    /// None until the first snapshot is complete.
    revision: watch::Sender<Option<Revision>>,
    /// Steps when what concerns servers has changed: replicas, holders of controllers, presence, environments.
    servers: watch::Sender<u64>,
    /// Steps when the record of some node is another one.
    records: watch::Sender<u64>,
    /// Steps when who can lead, who leads, or who is paused may be others now.
    leading: watch::Sender<u64>,
    /// Steps when a rollout that goes on may have something to do.
    rollouts: watch::Sender<u64>,
    snapshots: SnapshotTexts,
    desired: DesiredTexts,
    builds: AtomicU64,
    arrivals: Mutex<Arrivals>,
    /// What the times of arrivals are counted from.
    began: Instant,
}

impl Default for View {
    fn default() -> Self {
        Self {
            fleets: RwLock::default(),
            revision: watch::Sender::new(None),
            servers: watch::Sender::new(0),
            records: watch::Sender::new(0),
            leading: watch::Sender::new(0),
            rollouts: watch::Sender::new(0),
            snapshots: SnapshotTexts::default(),
            desired: DesiredTexts::default(),
            builds: AtomicU64::new(0),
            arrivals: Mutex::default(),
            began: Instant::now(),
        }
    }
}

impl View {
    /// The environments as they are now.
    pub fn fleets(&self) -> RwLockReadGuard<'_, BTreeMap<EnvName, Fleet>> {
        self.fleets.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revision that the view has reached; none before it is ready.
    pub fn revision(&self) -> Option<Revision> {
        *self.revision.borrow()
    }

    /// How often it was built from a whole snapshot: once at the start, and once after each gap.
    pub fn builds(&self) -> u64 {
        self.builds.load(Ordering::Relaxed)
    }

    /// When what is in the view has arrived there; and now, by the same clock.
    pub(crate) fn arrivals(&self) -> (MutexGuard<'_, Arrivals>, Duration) {
        (self.arrivals.lock().unwrap_or_else(PoisonError::into_inner), self.began.elapsed())
    }

    /// Tells of every step of the view.
    pub fn subscribe(&self) -> watch::Receiver<Option<Revision>> {
        self.revision.subscribe()
    }

    /// Tells when replicas, holders of controllers, agents' presence or environments have changed. Quiet while nothing
    /// but reports arrive: whoever cares for servers alone is not woken by a fleet at work.
    pub fn subscribe_servers(&self) -> watch::Receiver<u64> {
        self.servers.subscribe()
    }

    /// Tells whoever looks after machines that the nodes they are for may be others now.
    pub fn subscribe_records(&self) -> watch::Receiver<u64> {
        self.records.subscribe()
    }

    /// Tells whoever looks after leaders and pauses that they may be others now.
    pub fn subscribe_leading(&self) -> watch::Receiver<u64> {
        self.leading.subscribe()
    }

    /// Tells whoever carries rollouts out that one of them may have something to do. Quiet while none goes on.
    pub fn subscribe_rollouts(&self) -> watch::Receiver<u64> {
        self.rollouts.subscribe()
    }

    /// Waits until the view is complete for the first time.
    pub async fn ready(&self) {
        // The sender lives as long as this view: it cannot fail.
        let _ = self.subscribe().wait_for(Option::is_some).await;
    }

    /// Waits until the view has reached a revision.
    pub async fn reach(&self, demanded: Revision) -> Result<(), StaleView> {
        let mut steps = self.subscribe();
        let reached = steps.wait_for(|at| at.is_some_and(|at| at >= demanded));
        match timeout(PATIENCE, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(StaleView { at: self.revision().unwrap_or_default(), demanded }),
        }
    }

    /// What a node may look up, as the text that it is sent. The fleet is one of this view.
    pub(crate) fn snapshot(
        &self,
        fleet: &Fleet,
        name: &NodeName,
        node: Option<&Node>,
    ) -> Result<SnapshotText, serde_json::Error> {
        self.snapshots.of(fleet, name, node)
    }

    /// The event that tells a node what it should run. The fleet is one of this view.
    pub(crate) fn desired_text(
        &self,
        fleet: &Fleet,
        node: &NodeName,
        desired: &DesiredVersion,
    ) -> Result<Option<Bytes>, serde_json::Error> {
        self.desired.of(fleet, node, desired)
    }

    /// Keeps the view equal to the store, for ever; ends only when the store is closed.
    pub async fn follow(&self, store: &dyn Store, changed: mpsc::Sender<ViewChange>) -> StoreError {
        let mut watch = store.watch(ROOT, WatchFrom::Now);
        let mut building: BTreeMap<EnvName, Fleet> = BTreeMap::new();
        loop {
            let told = match watch.next().await {
                Ok(WatchEvent::Snapshot(kvs)) => {
                    take_snapshot(&mut building, &kvs);
                    Vec::new()
                }
                Ok(WatchEvent::SnapshotEnd { revision }) => {
                    let mut fleets = std::mem::take(&mut building);
                    all_at(&mut fleets, revision);
                    {
                        let mut known = self.fleets.write().unwrap_or_else(PoisonError::into_inner);
                        *known = fleets;
                        self.snapshots.forget_all();
                    }
                    let is_first = self.builds.fetch_add(1, Ordering::Relaxed) == 0;
                    self.reached(revision);
                    if is_first && store.sharing() == Sharing::Exclusive {
                        // By this machine's clock, in an earlier life of this server.
                        self.arrivals().0.trust_all();
                    }
                    vec![ViewChange::Everything]
                }
                Ok(WatchEvent::Changes { revision, changes }) => {
                    let told = self.take(revision, &changes);
                    self.reached(revision);
                    told
                }
                Ok(WatchEvent::Progress { revision }) => {
                    all_at(&mut self.fleets.write().unwrap_or_else(PoisonError::into_inner), revision);
                    self.reached(revision);
                    Vec::new()
                }
                Ok(WatchEvent::Gap { after, cause }) => {
                    tracing::warn!(%after, ?cause, "the store's history has a gap; the view is built anew");
                    building.clear();
                    Vec::new()
                }
                Err(StoreError::Closed) => return StoreError::Closed,
                Err(error) => {
                    // The watch goes on where it was; until then readers see the last state, and those who demand a
                    // newer one are told that it cannot be told.
                    tracing::error!(error = &error as &dyn std::error::Error, "the watch of the store failed");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    Vec::new()
                }
            };
            if told.iter().any(concerns_servers) {
                self.servers.send_modify(|steps| *steps += 1);
            }
            if told.iter().any(concerns_records) {
                self.records.send_modify(|steps| *steps += 1);
            }
            if told.iter().any(concerns_leading) {
                self.leading.send_modify(|steps| *steps += 1);
            }
            if told.iter().any(|changed| self.concerns_rollouts(changed)) {
                self.rollouts.send_modify(|steps| *steps += 1);
            }
            for what in told {
                if changed.send(what).await.is_err() {
                    return StoreError::Closed;
                }
            }
        }
    }

    fn reached(&self, revision: Revision) {
        let (mut arrivals, now) = self.arrivals();
        arrivals.note(revision, now);
        drop(arrivals);
        self.revision.send_replace(Some(revision));
    }

    /// Everything that is decided on: the rollout itself, its nodes, and who is not to run.
    fn concerns_rollouts(&self, changed: &ViewChange) -> bool {
        let ViewChange::Env(env, effects) = changed else { return true };
        let goes_on = || {
            let fleets = self.fleets();
            let rollout = fleets.get(env).and_then(Fleet::deciding_rollout);
            rollout.is_some_and(|(record, _)| record.phase == RolloutPhase::Running)
        };
        effects.rollouts || ((effects.desired || !effects.nodes.is_empty()) && goes_on())
    }

    fn take(&self, revision: Revision, changes: &[WatchChange]) -> Vec<ViewChange> {
        let mut by_env: BTreeMap<EnvName, Vec<(KeyChange<'_>, Key)>> = BTreeMap::new();
        for change in changes {
            let (key, value, revision) = match change {
                WatchChange::Put(kv) => (kv.key.as_str(), Some(&kv.value[..]), kv.revision),
                WatchChange::Delete { key } => (key.as_str(), None, revision),
            };
            if let Some((env, parsed)) = keys::parse(key) {
                by_env.entry(env).or_default().push((KeyChange { key, value, revision }, parsed));
            }
        }
        let mut fleets = self.fleets.write().unwrap_or_else(PoisonError::into_inner);
        let mut told = Vec::new();
        for (env, changes) in by_env {
            let fleet = fleets.entry(env.clone()).or_insert_with(|| Fleet::new(env.clone()));
            let effects = fleet.apply(revision, changes);
            if !effects.lookups.is_empty() || !effects.roles.is_empty() {
                // Under the lock: whoever reads the fleet as it is now finds no text of before.
                self.snapshots.forget(&env);
            }
            told.push(ViewChange::Env(env, effects));
        }
        all_at(&mut fleets, revision);
        told
    }
}

/// A reader asks a fleet for its revision: all of them have reached this one.
fn all_at(fleets: &mut BTreeMap<EnvName, Fleet>, revision: Revision) {
    fleets.values_mut().for_each(|fleet| fleet.revision = revision);
}

fn concerns_servers(changed: &ViewChange) -> bool {
    match changed {
        ViewChange::Everything => true,
        ViewChange::Env(_, effects) => effects.servers || effects.design,
    }
}

fn concerns_records(changed: &ViewChange) -> bool {
    match changed {
        ViewChange::Everything => true,
        ViewChange::Env(_, effects) => effects.records,
    }
}

fn concerns_leading(changed: &ViewChange) -> bool {
    match changed {
        ViewChange::Everything => true,
        ViewChange::Env(_, effects) => {
            let serving = || effects.lookups.iter().any(|key| key.starts_with("active_roles::"));
            effects.leaders || effects.desired || effects.records || serving()
        }
    }
}

fn take_snapshot(building: &mut BTreeMap<EnvName, Fleet>, kvs: &[KeyValue]) {
    for kv in kvs {
        if let Some((env, parsed)) = keys::parse(&kv.key) {
            let fleet = building.entry(env.clone()).or_insert_with(|| Fleet::new(env));
            let change = KeyChange { key: &kv.key, value: Some(&kv.value), revision: kv.revision };
            fleet.apply(kv.revision, [(change, parsed)]);
        }
    }
}
