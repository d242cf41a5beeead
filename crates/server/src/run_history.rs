//! Reads the history of runs from the store. The view has only the keys of the runs: their values would be most of its memory,
//! and no decision depends on them.

use std::sync::Arc;

use futures::{StreamExt, stream};
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName, RunId};
use muster_core::report::history::HISTORY_LENGTH;
use muster_core::report::record::PastRun;
use muster_store::{KeyValue, Store, StoreError};

/// Values that are read at the same time.
const CONCURRENT_READS: usize = 16;

/// Runs of a node that the view knows: the open one, and those in the value of an earlier version.
#[derive(Clone, Debug, Default)]
pub(crate) struct ViewedRuns {
    pub(crate) open: Option<PastRun>,
    pub(crate) listed: Vec<PastRun>,
}

impl ViewedRuns {
    pub(crate) fn of(fleet: &Fleet, node: &NodeName) -> Self {
        let node = fleet.get(node);
        let listed = node.map(|node| node.history.listed().0).unwrap_or_default();
        Self { open: node.and_then(|node| node.open_run()), listed }
    }

    fn find(self, run: &RunId) -> Option<PastRun> {
        self.open.into_iter().chain(self.listed).find(|past| past.run == *run)
    }
}

/// The history in the store.
#[derive(Clone, Debug)]
pub struct RunHistory {
    store: Arc<dyn Store>,
}

impl RunHistory {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Runs of a node, the newest first. The store may be ahead of the view: a run that has ended since is read from there.
    pub(crate) async fn runs(
        &self,
        env: &EnvName,
        node: &NodeName,
        viewed: ViewedRuns,
    ) -> Result<Vec<PastRun>, StoreError> {
        let ended = self.ended(env, node).await?;
        let is_new = |past: &PastRun| ended.iter().all(|ended| ended.run != past.run);
        let open = viewed.open.filter(is_new);
        let listed: Vec<PastRun> = viewed.listed.into_iter().filter(is_new).collect();
        Ok(open.into_iter().chain(ended).chain(listed).take(HISTORY_LENGTH).collect())
    }

    /// One run of a node. None if it is not in the history.
    pub(crate) async fn run(
        &self,
        env: &EnvName,
        node: &NodeName,
        run: &RunId,
        viewed: ViewedRuns,
    ) -> Result<Option<PastRun>, StoreError> {
        let found = self.store.get(&Keys::new(env).past_run(node, run)).await?;
        Ok(found.as_ref().and_then(read).or_else(|| viewed.find(run)))
    }

    /// Values of keys, in their order. None for a run that was deleted meanwhile.
    pub(crate) async fn values(
        &self,
        env: &EnvName,
        keys: Vec<(NodeName, RunId)>,
    ) -> Result<Vec<Option<PastRun>>, StoreError> {
        let env = Keys::new(env);
        let value = async |(node, run)| Ok(self.store.get(&env.past_run(&node, &run)).await?.as_ref().and_then(read));
        let values: Vec<Result<_, StoreError>> =
            stream::iter(keys).map(value).buffered(CONCURRENT_READS).collect().await;
        values.into_iter().collect()
    }

    /// Runs under keys of their own, the newest first.
    pub(crate) async fn ended(&self, env: &EnvName, node: &NodeName) -> Result<Vec<PastRun>, StoreError> {
        let range = self.store.range(&Keys::new(env).past_runs(node), None).await?;
        let mut runs: Vec<_> = range.kvs.iter().filter_map(|kv| Some((kv.revision, read(kv)?))).collect();
        runs.sort_by(|(at, past), (of, other)| (of, other.ended, &other.run).cmp(&(at, past.ended, &past.run)));
        Ok(runs.into_iter().map(|(_, past)| past).collect())
    }
}

/// A run that cannot be read is left out. The view lists its key as unreadable.
fn read(kv: &KeyValue) -> Option<PastRun> {
    serde_json::from_slice(&kv.value).ok()
}
