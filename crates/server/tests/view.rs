//! The view after a gap in the watch: it is rebuilt and equals the store.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName, Role, Version};
use muster_core::txn::{Op, Revision, Txn};
use muster_server::{Clock, View, ViewChange};
use muster_store::{
    CommitOutcome, GapCause, KeyRange, KeyValue, Lease, LeaseId, Sharing, Store, StoreError, StoreHealth, StoreStats,
    Watch, WatchEvent, WatchFrom,
};
use muster_testkit::records::node_record;
use tokio::sync::{mpsc, watch};

async fn put(store: &dyn Store, op: Op) -> Revision {
    match store.commit(Txn::new().op(op)).await.unwrap() {
        CommitOutcome::Committed { revision } => revision,
        CommitOutcome::Conflict { .. } => panic!("nothing guards it"),
    }
}

fn follow(store: &Arc<dyn Store>, queue: usize) -> (Arc<View>, mpsc::Receiver<ViewChange>) {
    let (changed, changes) = mpsc::channel(queue);
    let view = Arc::new(View::default());
    let (following, from) = (view.clone(), store.clone());
    tokio::spawn(async move { following.follow(from.as_ref(), changed, &Clock::system()).await });
    (view, changes)
}

/// A store that is replaced by another one while a view follows it, as etcd is when it is restored from a snapshot.
#[derive(Debug)]
struct ReplacedStore(watch::Sender<Arc<dyn Store>>);

impl ReplacedStore {
    fn now(&self) -> Arc<dyn Store> {
        self.0.borrow().clone()
    }
}

impl Store for ReplacedStore {
    fn name(&self) -> &str {
        "replaced"
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>> {
        Box::pin(async move { self.now().get(key).await })
    }

    fn range<'a>(&'a self, prefix: &'a str, at: Option<Revision>) -> BoxFuture<'a, Result<KeyRange, StoreError>> {
        Box::pin(async move { self.now().range(prefix, at).await })
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<CommitOutcome, StoreError>> {
        Box::pin(async move { self.now().commit(txn).await })
    }

    fn watch(&self, prefix: &str, from: WatchFrom) -> Watch {
        let (stores, prefix) = (self.0.subscribe(), prefix.to_owned());
        let watch = self.now().watch(&prefix, from);
        Watch::new(futures::stream::unfold((stores, watch, prefix), |(mut stores, mut watch, prefix)| async {
            let event = tokio::select! {
                biased;
                Ok(()) = stores.changed() => {
                    watch = stores.borrow_and_update().watch(&prefix, WatchFrom::Now);
                    Ok(WatchEvent::Gap { after: Revision(0), cause: GapCause::Lost })
                }
                event = watch.next() => event,
            };
            Some((event, (stores, watch, prefix)))
        }))
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<Lease, StoreError>> {
        Box::pin(async move { self.now().grant(ttl).await })
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.now().keep_alive(lease).await })
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.now().revoke(lease).await })
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.now().compact(revision).await })
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        Box::pin(async move { self.now().revision().await })
    }

    fn stats(&self) -> StoreStats {
        self.now().stats()
    }

    fn sharing(&self) -> Sharing {
        Sharing::Shared
    }

    fn health(&self) -> BoxFuture<'_, StoreHealth> {
        Box::pin(async move { self.now().health().await })
    }
}

/// The servers run while etcd is restored from an older snapshot. With `--bump-revision`, its revision is higher than before.
#[tokio::test(flavor = "multi_thread")]
async fn store_that_goes_back_begins_a_new_epoch() {
    for bump in [0, 50] {
        let dir = tempfile::tempdir().unwrap();
        let open = async |name: &str| {
            let spec = format!("embedded:{}", dir.path().join(name).display());
            muster_store::open(&spec, &muster_store::StoreAccess::default()).await.unwrap()
        };
        let env = EnvName::new("test").unwrap();
        let (keys, node) = (Keys::new(&env), NodeName::new("web1").unwrap());
        let validated = |version: &str, seq: u64| {
            let state = format!(r#"{{"incarnation":1,"seq":{seq},"running":"{version}","passed":"{version}"}}"#);
            Op::put(keys.observed(&node), state)
        };
        let store = open("store").await;
        put(store.as_ref(), Op::put(keys.store_epoch(), "7")).await;
        put(store.as_ref(), Op::put_json(keys.node(&node), &node_record("web", "a", 0)).unwrap()).await;
        put(store.as_ref(), Op::put(keys.current_version(), "v1")).await;
        put(store.as_ref(), validated("v1", 2)).await;
        drop(store);
        std::fs::copy(dir.path().join("store"), dir.path().join("snapshot")).unwrap();

        let running = Arc::new(ReplacedStore(watch::Sender::new(open("store").await)));
        let store: Arc<dyn Store> = running.clone();
        put(store.as_ref(), Op::put(keys.current_version(), "v2")).await;
        let last = put(store.as_ref(), validated("v2", 4)).await;
        let (view, mut changes) = follow(&store, 64);
        tokio::spawn(async move { while changes.recv().await.is_some() {} });
        view.reach(last).await.unwrap();
        let sent = view.fleets()[&env].desired().unwrap().generation;

        let older = open("snapshot").await;
        for _ in 0..bump {
            put(older.as_ref(), Op::put("/other/key", "x")).await;
        }
        let mut steps = view.subscribe();
        steps.borrow_and_update();
        running.0.send_replace(older.clone());
        // The first state of the older store that is shown has the new epoch.
        steps.changed().await.unwrap();
        let desired = view.fleets()[&env].desired().unwrap();
        assert_eq!(desired.version, Version::new("v1").unwrap());
        assert!(desired.generation > sent, "agents would refuse {} after {sent}", desired.generation);
        let epoch = older.get(&keys.store_epoch()).await.unwrap().unwrap().value;
        assert_eq!(epoch, desired.generation.epoch.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn view_behind_a_compaction_is_rebuilt_and_equals_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = muster_store::open(
        &format!("embedded:{}", dir.path().join("store").display()),
        &muster_store::StoreAccess::default(),
    )
    .await
    .unwrap();
    let env = EnvName::new("test").unwrap();
    let keys = Keys::new(&env);
    let role = Role::new("web").unwrap();
    let record = node_record("web", "a", 0);
    let node = |number| NodeName::build(&role, number, None).unwrap();

    // The follower blocks: its channel holds one change, and the test does not receive yet.
    let (view, mut changes) = follow(&store, 1);
    view.reach(Revision(0)).await.unwrap();
    let mut last = Revision(0);
    for number in 1..=300 {
        last = put(store.as_ref(), Op::put_json(keys.node(&node(number)), &record).unwrap()).await;
        if number % 3 == 0 {
            last = put(store.as_ref(), Op::delete(keys.node(&node(number)))).await;
        }
    }
    // More transactions than the store buffers in memory for slow watchers.
    let current = keys.current_version();
    let crowd = (0..5000).map(|_| put(store.as_ref(), Op::put(current.clone(), "v0")));
    join_all(crowd).await;
    last = last.max(put(store.as_ref(), Op::put(current, "v1")).await);
    store.compact(last).await.unwrap();

    let mut rebuilt = 0;
    while view.revision() < Some(last) {
        if changes.recv().await.unwrap() == ViewChange::Everything {
            rebuilt += 1;
        }
    }
    assert!(rebuilt >= 2, "the history that it missed is gone, so it was rebuilt");

    let (fresh, mut changes) = follow(&store, 16);
    assert_eq!(changes.recv().await, Some(ViewChange::Everything));
    let (old, new) = (view.fleets().clone(), fresh.fleets().clone());
    assert_eq!(old, new);
    assert_eq!(old[&env].designed().count(), 200);
    assert_eq!(old[&env].desired().unwrap().version, Version::new("v1").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn change_outside_the_environments_advances_the_view() {
    let dir = tempfile::tempdir().unwrap();
    let store = muster_store::open(
        &format!("embedded:{}", dir.path().join("store").display()),
        &muster_store::StoreAccess::default(),
    )
    .await
    .unwrap();
    let env = EnvName::new("test").unwrap();
    put(store.as_ref(), Op::put(Keys::new(&env).current_version(), "v1")).await;
    let (view, mut changes) = follow(&store, 16);
    assert_eq!(changes.recv().await, Some(ViewChange::Everything));
    let elsewhere = put(store.as_ref(), Op::put("/another/program", "x")).await;
    view.reach(elsewhere).await.unwrap();
    // A response to a request with this minimum revision states this revision.
    assert_eq!(view.fleets()[&env].revision, elsewhere);
}
