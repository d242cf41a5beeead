//! The view after a gap in the watch: it is rebuilt and equals the store.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::sync::Arc;

use futures::future::join_all;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName, Role, Version};
use muster_core::txn::{Op, Revision, Txn};
use muster_server::{View, ViewChange};
use muster_store::{CommitOutcome, Store};
use muster_testkit::records::node_record;
use tokio::sync::mpsc;

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
    tokio::spawn(async move { following.follow(from.as_ref(), changed).await });
    (view, changes)
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
