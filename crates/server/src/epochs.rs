//! New epochs: a store that went back in time begins one in each of its environments.
//!
//! Agents refuse a desired state with an older generation than theirs, and generations are ordered by the epoch first. After a
//! new epoch, agents take the state of the store as newer, run its version and validate. Until a node has reported in the new
//! epoch, its earlier validation does not count.
//!
//! Three observations show that a store went back:
//! - the view: after a gap in the watch, a key has a lower revision than before ([`went_back`]);
//! - an agent that connects with a generation that is later than the store ([`ensure_newer`]); a server believes this only a
//!   few times ([`EpochClaims`]);
//! - the revision that is remembered beside an embedded store. `muster restore` then opens the store ([`begin_epochs`]).
//!
//! An epoch is a time of a server's clock, or one more than the latest epoch of the store. It is never taken from an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use muster_core::fleet::{Fleet, Node};
use muster_core::keys::{Keys, ROOT};
use muster_core::names::EnvName;
use muster_core::txn::{Generation, Guard, Op, Revision, Txn};
use muster_store::{CommitOutcome, Store, StoreError};
use thiserror::Error;

use crate::app::{Reader, Writer};
use crate::transactions::{ConflictRetry, commit_all};
use crate::view::{StaleView, apply_snapshot};

/// Several agents that connect at the same moment begin one epoch: the requests that lose find it at their next attempt.
const EPOCH_ATTEMPTS: usize = 5;
/// Environments in one transaction: half of the operations that a store accepts.
const BATCH: usize = 64;

/// Epochs that one server begins in an environment because of generations of agents.
const CLAIMED_EPOCHS: u32 = 2;

/// Number of epochs that this server has begun because of generations of agents, by environment.
///
/// The view notices a store that goes back while the server runs. The generation of an agent is needed if the store went back
/// before the server was started: for one epoch, and for a second one if the clock of an earlier server was ahead. Without the
/// limit, an agent with false generations could make the whole fleet run again and again.
#[derive(Debug, Default)]
pub(crate) struct EpochClaims(Mutex<BTreeMap<EnvName, u32>>);

impl EpochClaims {
    fn is_exhausted(&self, env: &EnvName) -> bool {
        self.begun().get(env).is_some_and(|begun| *begun >= CLAIMED_EPOCHS)
    }

    fn count(&self, env: &EnvName) {
        *self.begun().entry(env.clone()).or_default() += 1;
    }

    fn begun(&self) -> std::sync::MutexGuard<'_, BTreeMap<EnvName, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Error)]
pub(crate) enum EpochError {
    #[error("the new epoch cannot be committed")]
    Store(#[from] StoreError),
    #[error(transparent)]
    StaleView(#[from] StaleView),
    #[error("another server changes the epoch of {env} at the same time")]
    Contended { env: EnvName },
    #[error("invalid generation: its epoch {epoch} is later than the clock of this server ({now})")]
    Future { epoch: u64, now: u64 },
    #[error(
        "invalid generation: {known} is later than the store ({newest}), and since its start this server has begun \
        {CLAIMED_EPOCHS} epochs of {env} for such generations"
    )]
    ClaimLimit { env: EnvName, known: Generation, newest: Generation },
}

/// Begins a new epoch if an agent's generation cannot come from this store: the store went back.
///
/// Reads the store only when the generation is newer than the view: another replica may have sent it before it arrived here.
pub(crate) async fn ensure_newer(writer: &Writer, env: &EnvName, known: Generation) -> Result<(), EpochError> {
    let mut view_is_fresh = false;
    let mut retry = ConflictRetry::new(EPOCH_ATTEMPTS);
    while retry.begin_attempt() {
        let newest = newest_generation(writer, env);
        if known <= newest {
            return Ok(());
        }
        if !view_is_fresh {
            writer.view.reach(writer.latest_revision.read().await?).await?;
            view_is_fresh = true;
            continue;
        }
        let now = writer.clock.now();
        // Every epoch was a time of some server's clock. A later one would have to be adopted, and there might be no end.
        if !is_plausible(known.epoch, newest.epoch, now) {
            return Err(EpochError::Future { epoch: known.epoch, now: seconds(now) });
        }
        if writer.epoch_claims.is_exhausted(env) {
            return Err(EpochError::ClaimLimit { env: env.clone(), known, newest });
        }
        // The clock of the server that began the agent's epoch may be ahead.
        let at_least = if known.epoch > seconds(now) { latest_plausible(now) } else { seconds(now) };
        let txn = {
            let (fleets, none) = (writer.view.fleets(), Fleet::new(env.clone()));
            new_epoch(fleets.get(env).unwrap_or(&none), at_least)
        };
        let committed = commit_all(writer, vec![txn]).await?;
        writer.view.reach(committed.revision).await?;
        if committed.complete {
            writer.epoch_claims.count(env);
            tracing::warn!(%env, agent = %known, store = %newest, "an agent has a newer generation than the store: the \
                store went back, and a new epoch begins");
            return Ok(());
        }
    }
    Err(EpochError::Contended { env: env.clone() })
}

/// The latest generation that the environment can have sent.
fn newest_generation(reader: &Reader, env: &EnvName) -> Generation {
    let fleets = reader.view.fleets();
    let view = reader.view.revision().unwrap_or_default();
    let (epoch, revision) = fleets.get(env).map_or((0, view), |fleet| (fleet.epoch(), fleet.revision.max(view)));
    Generation { epoch, number: revision.0 }
}

/// Begins a new epoch in all environments of a store.
pub async fn begin_epochs(store: &dyn Store, now: Timestamp) -> Result<(), StoreError> {
    let mut fleets = BTreeMap::new();
    apply_snapshot(&mut fleets, &store.range(ROOT, None).await?.kvs);
    begin(store, fleets.values(), now).await
}

/// Begins a new epoch in these environments, unless another server does.
pub(crate) async fn begin(
    store: &dyn Store,
    fleets: impl Iterator<Item = &Fleet>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let founded: Vec<&Fleet> = fleets.filter(|fleet| fleet.is_founded()).collect();
    for batch in founded.chunks(BATCH) {
        let mut txn = Txn::new();
        batch.iter().for_each(|fleet| txn.merge(new_epoch(fleet, seconds(now))));
        let envs: Vec<&str> = batch.iter().map(|fleet| fleet.env.as_str()).collect();
        match store.commit(txn).await? {
            CommitOutcome::Committed { .. } => tracing::warn!(?envs, "the store went back: a new epoch begins"),
            CommitOutcome::Conflict { .. } => tracing::info!(?envs, "another server has begun a new epoch"),
        }
    }
    Ok(())
}

/// Transaction that begins an epoch after all that agents of the environment can know: of the store, and of leaders, whose
/// epochs start at the store's and grow.
fn new_epoch(fleet: &Fleet, at_least: u64) -> Txn {
    let leaders = fleet.leaders().values().map(|(leader, _)| leader.epoch);
    let known = leaders.chain([fleet.epoch(), at_least]).max().unwrap_or(0);
    let key = Keys::new(&fleet.env).store_epoch();
    let guard = Guard::observed(key.clone(), fleet.epoch_at());
    Txn::new().guard(guard).op(Op::put(key, known.saturating_add(1).to_string()))
}

/// Returns false for the epoch of an agent that no server can have begun. A node with a report of such an epoch would count as
/// having answered all later desired states.
pub(crate) fn is_plausible(epoch: u64, of_store: u64, now: Timestamp) -> bool {
    epoch <= of_store.max(latest_plausible(now))
}

/// The latest epoch that another server can have begun: clocks of servers differ by less than a day.
fn latest_plausible(now: Timestamp) -> u64 {
    const DAY: u64 = 24 * 60 * 60;
    seconds(now).saturating_add(DAY)
}

fn seconds(now: Timestamp) -> u64 {
    u64::try_from(now.as_second()).unwrap_or(0)
}

/// The environments that went back between two states of the view, and have no new epoch yet. A state is its environments and
/// its revision. Those in `begun` are known to have one.
pub(crate) fn went_back<'a>(
    before: (&BTreeMap<EnvName, Fleet>, Revision),
    after: (&'a BTreeMap<EnvName, Fleet>, Revision),
    begun: &BTreeSet<EnvName>,
) -> Vec<&'a Fleet> {
    let ((old, old_at), (new, new_at)) = (before, after);
    let is_older = |fleet: &Fleet| old.get(&fleet.env).is_some_and(|old| has_older_key(old, fleet));
    // After a restore with `--bump-revision` only the keys show it.
    if new_at >= old_at && !new.values().any(is_older) {
        return Vec::new();
    }
    let has_new_epoch = |fleet: &&Fleet| {
        begun.contains(&fleet.env) || old.get(&fleet.env).is_some_and(|old| fleet.epoch() > old.epoch())
    };
    new.values().filter(|fleet| fleet.is_founded() && !has_new_epoch(fleet)).collect()
}

/// Returns true if a key has a lower revision than before. A key that is put again has a higher one.
fn has_older_key(before: &Fleet, after: &Fleet) -> bool {
    let version = |fleet: &Fleet| fleet.current_version().map(|(_, at)| at);
    let rollout = |fleet: &Fleet| fleet.active_rollout_pointer().map(|(_, at)| at);
    let is_lower = |old: Option<Revision>, new: Option<Revision>| old.zip(new).is_some_and(|(old, new)| new < old);
    is_lower(before.epoch_at(), after.epoch_at())
        || is_lower(version(before), version(after))
        || is_lower(rollout(before), rollout(after))
        || before.recorded().any(|(name, node, _)| {
            let Some(now) = after.get(name) else { return false };
            let observed = |node: &Node| node.observed.as_ref().map(|(_, at)| *at);
            let desired = |node: &Node| node.desired.as_ref().map(|(_, at)| *at);
            is_lower(node.record_at, now.record_at)
                || is_lower(observed(node), observed(now))
                || is_lower(desired(node), desired(now))
        })
}

#[cfg(test)]
mod tests {
    use muster_core::fleet::KeyChange;
    use muster_core::keys;

    use super::*;

    /// An environment with these keys, each with its revision.
    fn fleets(epoch: (&str, u64), observed: u64) -> BTreeMap<EnvName, Fleet> {
        let env = EnvName::new("prod").unwrap();
        let mut fleet = Fleet::new(env.clone());
        let keys = [
            ("/muster/prod/store_epoch", epoch.0, epoch.1),
            ("/muster/prod/nodes/web1", r#"{"role":"web","failure_domain":"a"}"#, 5),
            ("/muster/prod/observed/web1", r#"{"incarnation":1,"seq":2}"#, observed),
        ];
        for (key, value, at) in keys {
            let change = KeyChange { key, value: Some(value.as_bytes()), revision: Revision(at) };
            fleet.apply(Revision(at), [(change, keys::parse(key).unwrap().1)]);
        }
        BTreeMap::from([(env, fleet)])
    }

    #[test]
    fn older_revision_or_key_shows_that_the_store_went_back() {
        let old = fleets(("7", 1), 40);
        let table = [
            ("nothing changed", fleets(("7", 1), 40), 50, false),
            ("reports arrived after a gap", fleets(("7", 1), 60), 70, false),
            ("the revision is lower", fleets(("7", 1), 40), 49, true),
            ("a report is lost, the revision was bumped", fleets(("7", 1), 30), 1_000_050, true),
            ("another server has begun an epoch", fleets(("8", 45), 30), 45, false),
            ("the older state has an older epoch", fleets(("6", 1), 30), 45, true),
        ];
        for (case, new, at, expected) in table {
            let found = went_back((&old, Revision(50)), (&new, Revision(at)), &BTreeSet::new());
            assert_eq!(!found.is_empty(), expected, "{case}");
        }
        let (none, env) = (BTreeMap::new(), EnvName::new("prod").unwrap());
        assert!(went_back((&old, Revision(50)), (&none, Revision(1)), &BTreeSet::new()).is_empty(), "an empty store");
        let mut new = fleets(("7", 1), 30);
        new.insert(EnvName::new("test").unwrap(), {
            let mut other = fleets(("7", 1), 30).remove(&env).unwrap();
            other.env = EnvName::new("test").unwrap();
            other
        });
        let found = went_back((&old, Revision(50)), (&new, Revision(40)), &BTreeSet::from([env]));
        let found: Vec<&str> = found.iter().map(|fleet| fleet.env.as_str()).collect();
        assert_eq!(found, ["test"], "another server has begun the epoch of one environment");
    }

    #[test]
    fn new_epoch_is_after_the_clock_and_the_store() {
        let epoch = |fleet: &Fleet, now| {
            let Some(Op::Put { value, .. }) = new_epoch(fleet, now).ops.pop() else { panic!("it puts the epoch") };
            String::from_utf8(value).unwrap()
        };
        let fleets = fleets(("1700000000", 1), 40);
        let fleet = fleets.values().next().unwrap();
        assert_eq!(epoch(fleet, 1_800_000_000), "1800000001");
        assert_eq!(epoch(fleet, 1_600_000_000), "1700000001");
    }
}
