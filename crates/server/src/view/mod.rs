//! The view: all environments in memory, kept up to date by one watch. Reads never reach the store.
//!
//! One task ([`View::follow`]) writes; all other tasks read, under a lock that is held for microseconds. A transaction is
//! applied as one change. After a gap in the watch a new view is built, and then replaces the old one.

pub(crate) mod event_cache;
pub mod node_rows;
pub(crate) mod server_records;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use bytes::Bytes;
use muster_core::fleet::{DesiredVersion, Effects, Fleet, KeyChange, Node};
use muster_core::keys::{self, Key, ROOT, ServerKey};
use muster_core::names::{EnvName, NodeName};
use muster_core::rollout::record::RolloutPhase;
use muster_core::txn::Revision;
use muster_rollout::decision::ObservationAge;
use muster_store::{KeyValue, Sharing, Store, StoreError, WatchChange, WatchEvent, WatchFrom};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use crate::app::Clock;
use crate::epochs;
use crate::secrets::Secrets;

use event_cache::{DesiredCache, SnapshotCache, SnapshotText};
use server_records::ServerRecords;

/// Time that a reader waits for a revision. A healthy watch is milliseconds behind the store.
const REACH_TIMEOUT: Duration = Duration::from_secs(5);

/// Change of the view, for its subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewChange {
    /// One transaction, for one environment.
    Env(EnvName, Effects),
    /// The view was built again: everything may have changed.
    Everything,
}

/// Error: the view did not reach a revision in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this server is at revision {at} and has not reached revision {demanded}; try again")]
pub struct StaleView {
    pub at: Revision,
    pub demanded: Revision,
}

/// All environments, as of one revision.
#[derive(Debug)]
pub struct View {
    fleets: RwLock<BTreeMap<EnvName, Fleet>>,
    server_records: RwLock<ServerRecords>,
    /// None until the first snapshot is complete.
    revision: watch::Sender<Option<Revision>>,
    /// Changes with replicas, controller locks, presence and environments.
    servers: watch::Sender<u64>,
    /// Changes with certificates of nodes, and with the authority.
    identities: watch::Sender<u64>,
    /// Changes with the design records of nodes.
    records: watch::Sender<u64>,
    /// Changes with leaders, the nodes that can lead, and pauses.
    leading: watch::Sender<u64>,
    /// Changes when a running rollout may have work.
    rollouts: watch::Sender<u64>,
    snapshots: SnapshotCache,
    /// Keys that open the secrets of snapshots.
    pub(crate) secrets: Secrets,
    desired: DesiredCache,
    builds: AtomicU64,
    observation_ages: Mutex<ObservationAge>,
    /// Start of the times in `observation_ages`.
    began: Instant,
}

impl Default for View {
    fn default() -> Self {
        Self {
            fleets: RwLock::default(),
            server_records: RwLock::default(),
            revision: watch::Sender::new(None),
            servers: watch::Sender::new(0),
            identities: watch::Sender::new(0),
            records: watch::Sender::new(0),
            leading: watch::Sender::new(0),
            rollouts: watch::Sender::new(0),
            snapshots: SnapshotCache::default(),
            secrets: Secrets::default(),
            desired: DesiredCache::default(),
            builds: AtomicU64::new(0),
            observation_ages: Mutex::default(),
            began: Instant::now(),
        }
    }
}

impl View {
    /// The environments, locked for reading.
    pub fn fleets(&self) -> RwLockReadGuard<'_, BTreeMap<EnvName, Fleet>> {
        self.fleets.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Users and the audit, locked for reading.
    pub fn server_records(&self) -> RwLockReadGuard<'_, ServerRecords> {
        self.server_records.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revision that the view has reached; none before it is ready.
    pub fn revision(&self) -> Option<Revision> {
        *self.revision.borrow()
    }

    /// Number of builds from a full read of the store: one at the start, and one after each gap.
    pub fn builds(&self) -> u64 {
        self.builds.load(Ordering::Relaxed)
    }

    /// Arrival times of the revisions, and the current time by the same clock.
    pub(crate) fn observation_ages(&self) -> (MutexGuard<'_, ObservationAge>, Duration) {
        (self.observation_ages.lock().unwrap_or_else(PoisonError::into_inner), self.began.elapsed())
    }

    /// Subscribes to the revision of the view.
    pub fn subscribe(&self) -> watch::Receiver<Option<Revision>> {
        self.revision.subscribe()
    }

    /// Subscribes to changes of replicas, controller locks, presence and environments. Reports do not wake the subscriber.
    pub fn subscribe_servers(&self) -> watch::Receiver<u64> {
        self.servers.subscribe()
    }

    /// Subscribes to changes of certificates.
    pub(crate) fn subscribe_identities(&self) -> watch::Receiver<u64> {
        self.identities.subscribe()
    }

    /// Subscribes to changes of nodes' design records, for the provisioning of machines.
    pub fn subscribe_records(&self) -> watch::Receiver<u64> {
        self.records.subscribe()
    }

    /// Subscribes to changes that may need other leaders, or end a pause.
    pub fn subscribe_leading(&self) -> watch::Receiver<u64> {
        self.leading.subscribe()
    }

    /// Subscribes to changes that a running rollout may act on. Silent while no rollout runs.
    pub fn subscribe_rollouts(&self) -> watch::Receiver<u64> {
        self.rollouts.subscribe()
    }

    /// Waits until the view is complete for the first time, without a limit.
    pub async fn ready(&self) {
        // The sender lives as long as the view: waiting does not fail.
        let _ = self.subscribe().wait_for(Option::is_some).await;
    }

    /// Waits until the view has reached a revision.
    pub async fn reach(&self, demanded: Revision) -> Result<(), StaleView> {
        let mut steps = self.subscribe();
        let reached = steps.wait_for(|at| at.is_some_and(|at| at >= demanded));
        match timeout(REACH_TIMEOUT, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(StaleView { at: self.revision().unwrap_or_default(), demanded }),
        }
    }

    /// The encoded snapshot of a node. The fleet must be from this view.
    pub(crate) fn snapshot(
        &self,
        fleet: &Fleet,
        name: &NodeName,
        node: Option<&Node>,
    ) -> Result<SnapshotText, serde_json::Error> {
        self.snapshots.snapshot(fleet, name, node, self.secrets.keys())
    }

    /// The encoded event with the desired state of a node. The fleet must be from this view.
    pub(crate) fn desired_text(
        &self,
        fleet: &Fleet,
        node: &NodeName,
        desired: &DesiredVersion,
    ) -> Result<Option<Bytes>, serde_json::Error> {
        self.desired.event(fleet, node, desired)
    }

    /// Keeps the view equal to the store. Ends when the store is closed.
    ///
    /// If the store went back in time, new epochs begin before its state is shown.
    pub async fn follow(&self, store: &dyn Store, changed: mpsc::Sender<ViewChange>, clock: &Clock) -> StoreError {
        let mut watch = store.watch(ROOT, WatchFrom::Now);
        let mut building: BTreeMap<EnvName, Fleet> = BTreeMap::new();
        let mut building_server = ServerRecords::default();
        // Environments whose epoch another server has begun since the view was built.
        let mut begun: BTreeSet<EnvName> = BTreeSet::new();
        loop {
            let changes = match watch.next().await {
                Ok(WatchEvent::Snapshot(kvs)) => {
                    apply_snapshot(&mut building, &kvs);
                    kvs.iter().for_each(|kv| building_server.apply(&kv.key, Some(&kv.value), kv.revision));
                    Vec::new()
                }
                Ok(WatchEvent::SnapshotEnd { revision }) => {
                    let mut fleets = std::mem::take(&mut building);
                    let server_records = std::mem::take(&mut building_server);
                    all_at(&mut fleets, revision);
                    let went_back = self.begin_epochs(store, (&fleets, revision), &begun, clock).await;
                    if !matches!(went_back, Ok(false)) {
                        if let Err(error) = went_back {
                            tracing::error!(error = &error as &dyn std::error::Error, "a new epoch cannot begin");
                            tokio::time::sleep(Duration::from_millis(200)).await;
                        }
                        watch = store.watch(ROOT, WatchFrom::Now);
                        continue;
                    }
                    {
                        let mut known = self.fleets.write().unwrap_or_else(PoisonError::into_inner);
                        *known = fleets;
                        self.snapshots.invalidate_all();
                        *self.server_records.write().unwrap_or_else(PoisonError::into_inner) = server_records;
                    }
                    begun.clear();
                    let is_first = self.builds.fetch_add(1, Ordering::Relaxed) == 0;
                    self.reached(revision);
                    if is_first && store.sharing() == Sharing::Exclusive {
                        // Only this machine has written to the store: its times can be trusted.
                        self.observation_ages().0.trust_all();
                    }
                    vec![ViewChange::Everything]
                }
                Ok(WatchEvent::Changes { revision, changes }) => {
                    let is_epoch = |change: &WatchChange| change.key().ends_with("/store_epoch");
                    let before = if changes.iter().any(is_epoch) { self.epochs() } else { BTreeMap::new() };
                    let applied = self.apply(revision, &changes);
                    self.reached(revision);
                    let now = if before.is_empty() { BTreeMap::new() } else { self.epochs() };
                    let changed =
                        before.into_iter().filter(|(env, before)| now.get(env).is_some_and(|now| now != before));
                    let known = begun.len();
                    begun.extend(changed.map(|(env, _)| env));
                    if begun.len() > known {
                        // Another server may have noticed that the store went back. This watch may have missed that, and
                        // the view may have keys that are gone.
                        tracing::info!("an environment has a new epoch: the view is built again");
                        watch = store.watch(ROOT, WatchFrom::Now);
                    }
                    applied
                }
                Ok(WatchEvent::Progress { revision }) => {
                    all_at(&mut self.fleets.write().unwrap_or_else(PoisonError::into_inner), revision);
                    self.reached(revision);
                    Vec::new()
                }
                Ok(WatchEvent::Gap { after, cause }) => {
                    tracing::warn!(%after, ?cause, "the watch of the store has a gap: the view is built again");
                    building.clear();
                    building_server = ServerRecords::default();
                    Vec::new()
                }
                Err(StoreError::Closed) => return StoreError::Closed,
                Err(error) => {
                    // The watch resumes where it was. Until then readers see the last state, and a reader that demands a
                    // newer revision gets an error.
                    tracing::error!(error = &error as &dyn std::error::Error, "the watch of the store failed");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    Vec::new()
                }
            };
            if changes.iter().any(concerns_servers) {
                self.servers.send_modify(|steps| *steps += 1);
            }
            if changes.iter().any(concerns_identities) {
                self.identities.send_modify(|steps| *steps += 1);
            }
            if changes.iter().any(concerns_records) {
                self.records.send_modify(|steps| *steps += 1);
            }
            if changes.iter().any(concerns_leading) {
                self.leading.send_modify(|steps| *steps += 1);
            }
            if changes.iter().any(|changed| self.concerns_rollouts(changed)) {
                self.rollouts.send_modify(|steps| *steps += 1);
            }
            for change in changes {
                if changed.send(change).await.is_err() {
                    return StoreError::Closed;
                }
            }
        }
    }

    /// Begins new epochs if the store went back since the view was built; false if there is none to begin.
    async fn begin_epochs(
        &self,
        store: &dyn Store,
        (fleets, revision): (&BTreeMap<EnvName, Fleet>, Revision),
        begun: &BTreeSet<EnvName>,
        clock: &Clock,
    ) -> Result<bool, StoreError> {
        let Some(at) = self.revision() else { return Ok(false) };
        let behind = epochs::went_back((&*self.fleets(), at), (fleets, revision), begun);
        if behind.is_empty() {
            return Ok(false);
        }
        tracing::warn!(before = %at, now = %revision, "the store went back in time");
        epochs::begin(store, behind.into_iter(), clock.now()).await?;
        Ok(true)
    }

    /// The epochs of the environments that have one.
    fn epochs(&self) -> BTreeMap<EnvName, u64> {
        let fleets = self.fleets();
        let known = fleets.values().filter(|fleet| fleet.epoch_at().is_some());
        known.map(|fleet| (fleet.env.clone(), fleet.epoch())).collect()
    }

    fn reached(&self, revision: Revision) {
        let (mut observation_ages, now) = self.observation_ages();
        observation_ages.record(revision, now);
        drop(observation_ages);
        self.revision.send_replace(Some(revision));
    }

    /// Returns whether a change concerns a rollout: its record, its nodes, the pauses, or a replica, whose nodes are silent
    /// without it and connected again when it returns.
    fn concerns_rollouts(&self, changed: &ViewChange) -> bool {
        let ViewChange::Env(env, effects) = changed else { return true };
        let is_running = || {
            let fleets = self.fleets();
            let rollout = fleets.get(env).and_then(Fleet::active_rollout_record);
            rollout.is_some_and(|(record, _)| record.phase == RolloutPhase::Running)
        };
        effects.rollouts || ((effects.desired || effects.servers || !effects.nodes.is_empty()) && is_running())
    }

    fn apply(&self, revision: Revision, changes: &[WatchChange]) -> Vec<ViewChange> {
        let mut by_env: BTreeMap<EnvName, Vec<(KeyChange<'_>, Key)>> = BTreeMap::new();
        for change in changes {
            let (key, value, revision) = match change {
                WatchChange::Put(kv) => (kv.key.as_str(), Some(&kv.value[..]), kv.revision),
                WatchChange::Delete { key } => (key.as_str(), None, revision),
            };
            if let Some((env, parsed)) = keys::parse(key) {
                by_env.entry(env).or_default().push((KeyChange { key, value, revision }, parsed));
            } else {
                self.server_records.write().unwrap_or_else(PoisonError::into_inner).apply(key, value, revision);
                if ServerKey::parse(key) == Some(ServerKey::Authority) {
                    self.identities.send_modify(|steps| *steps += 1);
                }
            }
        }
        let mut fleets = self.fleets.write().unwrap_or_else(PoisonError::into_inner);
        let mut applied = Vec::new();
        for (env, changes) in by_env {
            let fleet = fleets.entry(env.clone()).or_insert_with(|| Fleet::new(env.clone()));
            let effects = fleet.apply(revision, changes);
            if !effects.lookups.is_empty() || !effects.roles.is_empty() {
                // Under the lock: a reader of this fleet must not get an old text.
                self.snapshots.invalidate(&env);
            }
            applied.push(ViewChange::Env(env, effects));
        }
        all_at(&mut fleets, revision);
        applied
    }
}

/// Sets the revision of all fleets: readers take it from the fleet.
fn all_at(fleets: &mut BTreeMap<EnvName, Fleet>, revision: Revision) {
    fleets.values_mut().for_each(|fleet| fleet.revision = revision);
}

fn concerns_servers(changed: &ViewChange) -> bool {
    match changed {
        ViewChange::Everything => true,
        ViewChange::Env(_, effects) => effects.servers || effects.design,
    }
}

fn concerns_identities(changed: &ViewChange) -> bool {
    match changed {
        ViewChange::Everything => true,
        ViewChange::Env(_, effects) => effects.identities,
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

pub(crate) fn apply_snapshot(building: &mut BTreeMap<EnvName, Fleet>, kvs: &[KeyValue]) {
    for kv in kvs {
        if let Some((env, parsed)) = keys::parse(&kv.key) {
            let fleet = building.entry(env.clone()).or_insert_with(|| Fleet::new(env));
            let change = KeyChange { key: &kv.key, value: Some(&kv.value), revision: kv.revision };
            fleet.apply(kv.revision, [(change, parsed)]);
        }
    }
}

/// Reads the latest revision of the store, with concurrent reads merged.
///
/// A caller gets the result of a read that began after its call: a read in progress may be older than a write that the caller
/// knows of. Two reads are therefore enough for any number of concurrent callers.
#[derive(Debug)]
pub struct LatestRevision {
    store: Arc<dyn Store>,
    requests: AtomicU64,
    /// The last read: the number of requests before it began, and its result.
    last: tokio::sync::Mutex<Option<(u64, Result<Revision, StoreError>)>>,
}

impl LatestRevision {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, requests: AtomicU64::new(0), last: tokio::sync::Mutex::new(None) }
    }

    /// Operations, and guards, that the store takes in one transaction.
    pub(crate) fn max_ops(&self) -> usize {
        self.store.max_ops()
    }

    /// Number of requests. Higher than the number of reads when requests are concurrent.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    /// The revision of the last transaction that was answered before this call, or of a later one.
    pub async fn read(&self) -> Result<Revision, StoreError> {
        let mine = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last = self.last.lock().await;
        if let Some((covered, answer)) = last.as_ref()
            && *covered >= mine
        {
            return answer.clone();
        }
        let covered = self.requests.load(Ordering::SeqCst);
        let answer = self.store.revision().await;
        *last = Some((covered, answer.clone()));
        answer
    }
}
