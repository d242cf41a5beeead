//! The model keeps the store contract, its injected faults take effect as scripted, and clients that follow the contract
//! lose nothing.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_sim::{Faults, Model, RequestFate, Rng, StoreFaultRates};
use muster_store::contract::{ContractSubject, Mirror};
use muster_store::{
    CommitOutcome, GapCause, Guard, ManualClock, Op, Revision, Store, StoreError, Txn, Watch, WatchEvent, WatchFrom,
};
use tokio::task::JoinSet;

fn model(faults: &Faults) -> Model {
    Model::new(Arc::new(ManualClock::new()), faults.clone())
}

fn put(key: &str, value: &str) -> Txn {
    Txn::new().op(Op::put(key, value))
}

async fn value(store: &Model, key: &str) -> Option<String> {
    store.get(key).await.unwrap().map(|kv| String::from_utf8(kv.value.to_vec()).unwrap())
}

#[tokio::test]
async fn scripted_fate_applies_to_the_next_commit() {
    let faults = Faults::none();
    let store = model(&faults);
    for (fate, done) in [
        (RequestFate::Answered, true),
        (RequestFate::NotReached, false),
        (RequestFate::Full, false),
        (RequestFate::RequestLost, false),
        (RequestFate::AnswerLost, true),
    ] {
        faults.next_commit(fate);
        let key = format!("{fate:?}");
        let answer = store.commit(put(&key, "1")).await;
        match fate {
            RequestFate::Answered => assert!(matches!(answer, Ok(CommitOutcome::Committed { .. }))),
            RequestFate::NotReached => assert!(matches!(answer, Err(StoreError::Unavailable { .. }))),
            RequestFate::Full => assert!(matches!(answer, Err(StoreError::Full { .. }))),
            RequestFate::RequestLost | RequestFate::AnswerLost | RequestFate::CommittedLate => {
                assert!(matches!(answer, Err(StoreError::Unknown { .. })));
            }
        }
        assert_eq!(value(&store, &key).await.is_some(), done, "{fate:?}");
    }
    // Only the scripted commits are affected.
    store.commit(put("k", "1")).await.unwrap();
}

#[tokio::test]
async fn delayed_commit_may_follow_a_read_that_found_nothing() {
    let faults = Faults::none();
    let store = model(&faults);
    let absent = || Guard::Absent { key: "k".into() };
    faults.next_commit(RequestFate::CommittedLate);
    assert!(store.commit(put("k", "first").guard(absent())).await.is_err());

    // A second attempt under the same guard: exactly one of the two commits.
    let again = store.commit(put("k", "second").guard(absent())).await.unwrap();
    store.settle();
    match again {
        CommitOutcome::Committed { .. } => assert_eq!(value(&store, "k").await.unwrap(), "second"),
        CommitOutcome::Conflict { .. } => assert_eq!(value(&store, "k").await.unwrap(), "first"),
    }
    assert_eq!(store.revision().await.unwrap(), Revision(1));
}

#[tokio::test]
async fn cut_off_client_catches_up_after_reconnecting() {
    let store = model(&Faults::none());
    let faults = Faults::none();
    let client = store.client(faults.clone());
    let mut watch = client.watch("", WatchFrom::Now);
    assert_eq!(watch.next().await.unwrap(), WatchEvent::SnapshotEnd { revision: Revision(0) });

    faults.cut_off(true);
    store.commit(put("k", "1")).await.unwrap();
    assert!(matches!(client.commit(put("k", "2")).await, Err(StoreError::Unavailable { .. })));
    assert!(matches!(client.get("k").await, Err(StoreError::Unavailable { .. })));
    assert!(is_silent(&mut watch).await);

    faults.cut_off(false);
    assert!(matches!(watch.next().await.unwrap(), WatchEvent::Changes { revision: Revision(1), .. }));
    assert_eq!(value(&client, "k").await.unwrap(), "1");
}

/// Nothing else runs here: without an event after a few polls there is none.
async fn is_silent(watch: &mut Watch) -> bool {
    for _ in 0..50 {
        tokio::select! {
            biased;
            _ = watch.next() => return false,
            () = tokio::task::yield_now() => {}
        }
    }
    true
}

#[tokio::test]
async fn interrupted_watch_continues_and_lost_one_restarts() {
    let faults = Faults::none();
    let store = model(&faults);
    let mut watch = store.watch("", WatchFrom::Now);
    assert_eq!(watch.next().await.unwrap(), WatchEvent::SnapshotEnd { revision: Revision(0) });
    store.commit(put("k", "1")).await.unwrap();

    faults.set(StoreFaultRates { watch_interrupted: 1.0, ..StoreFaultRates::default() });
    assert!(matches!(watch.next().await, Err(StoreError::Unavailable { .. })));
    faults.set(StoreFaultRates::default());
    assert!(matches!(watch.next().await.unwrap(), WatchEvent::Changes { revision: Revision(1), .. }));

    store.commit(put("k", "2")).await.unwrap();
    faults.set(StoreFaultRates { watch_lost: 1.0, ..StoreFaultRates::default() });
    assert_eq!(watch.next().await.unwrap(), WatchEvent::Gap { after: Revision(1), cause: GapCause::Lost });
    faults.set(StoreFaultRates::default());
    assert!(matches!(watch.next().await.unwrap(), WatchEvent::Snapshot(kvs) if kvs.len() == 1));
    assert_eq!(watch.next().await.unwrap(), WatchEvent::SnapshotEnd { revision: Revision(2) });
}

#[tokio::test]
async fn watch_behind_a_compaction_has_a_gap() {
    let faults = Faults::none();
    let store = model(&faults);
    let mut watch = store.watch("", WatchFrom::Now);
    assert_eq!(watch.next().await.unwrap(), WatchEvent::SnapshotEnd { revision: Revision(0) });
    for n in 0..10 {
        store.commit(put("k", &n.to_string())).await.unwrap();
    }
    faults.set(StoreFaultRates { compacted: 1.0, ..StoreFaultRates::default() });
    store.commit(put("k", "last")).await.unwrap();
    let gap = watch.next().await.unwrap();
    assert!(
        matches!(gap, WatchEvent::Gap { after: Revision(0), cause: GapCause::Compacted { oldest } } if oldest.0 >= 8)
    );
}

/// The seeds of `make test`; `SEED=` selects one.
fn seeds() -> Vec<u64> {
    match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => (1..=40).collect(),
    }
}

/// Clients as the contract demands: after an unknown outcome they read back, and retry under the same guards. All of
/// them increment one counter: no increment is lost or counted twice.
#[tokio::test]
async fn clients_that_read_back_count_exactly_once() {
    const CLIENTS: u64 = 4;
    const EACH: u64 = 15;
    for seed in seeds() {
        println!("SEED={seed}");
        let store = Arc::new(model(&Faults::none()));
        let mut seeds = Rng::new(seed);
        let mut faulty = || Faults::seeded(seeds.next_u64(), StoreFaultRates::harsh());

        let mut mirrors = JoinSet::new();
        let (finished, end) = tokio::sync::watch::channel(None);
        for _ in 0..2 {
            let (client, end) = (store.client(faulty()), end.clone());
            mirrors.spawn(async move { mirror(&client, end).await });
        }
        let mut counting = JoinSet::new();
        for client in 0..CLIENTS {
            let store = store.client(faulty());
            counting.spawn(async move {
                for n in 1..=EACH {
                    count_one(&store, client, n).await;
                }
            });
        }
        counting.join_all().await;

        finished.send_replace(Some(store.settle()));
        let truth = store.range("", None).await.unwrap();
        assert_eq!(value(&store, "counter").await.unwrap(), (CLIENTS * EACH).to_string(), "SEED={seed}");
        for copy in mirrors.join_all().await {
            assert_eq!(copy, truth.kvs, "SEED={seed}");
        }
    }
}

/// Increments the counter, and records in the same transaction that this was the client's n-th.
async fn count_one(store: &Model, client: u64, n: u64) {
    let mine = format!("done/{client}");
    loop {
        let Ok(seen) = store.range("", None).await else { continue };
        let find = |key: &str| seen.kvs.iter().find(|kv| kv.key == key);
        let number = |key: &str| find(key).map_or(0, |kv| std::str::from_utf8(&kv.value).unwrap().parse().unwrap());
        if number(&mine) == n {
            return;
        }
        let txn = Txn::new()
            .guard(Guard::observed("counter", find("counter").map(|kv| kv.revision)))
            .op(Op::put("counter", (number("counter") + 1).to_string()))
            .op(Op::put(&mine, n.to_string()));
        match store.commit(txn).await {
            Ok(CommitOutcome::Committed { .. }) => return,
            // A conflict or an unknown outcome: the current state decides.
            Ok(CommitOutcome::Conflict { .. })
            | Err(StoreError::Unknown { .. } | StoreError::Unavailable { .. } | StoreError::Full { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Mirrors the store by watching, through every interruption, up to the end.
async fn mirror(
    client: &Model,
    mut end: tokio::sync::watch::Receiver<Option<Revision>>,
) -> Vec<muster_store::KeyValue> {
    let mut mirror = Mirror::new(client, "");
    while !end.borrow().is_some_and(|end| mirror.has_reached(end)) {
        tokio::select! {
            step = mirror.step() => assert!(matches!(step, Ok(()) | Err(StoreError::Unavailable { .. }))),
            changed = end.changed() => changed.unwrap(),
        }
    }
    mirror.copy.into_values().collect()
}

struct InMemory {
    store: Arc<Model>,
    clock: Arc<ManualClock>,
}

impl InMemory {
    /// Delays are no faults: the contract holds with them too.
    async fn fresh() -> Self {
        let clock = Arc::new(ManualClock::new());
        let slow = Faults::seeded(1, StoreFaultRates { delay: 0.2, ..StoreFaultRates::default() });
        Self { store: Arc::new(Model::new(clock.clone(), slow)), clock }
    }
}

impl ContractSubject for InMemory {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(time);
        Box::pin(async {})
    }
}

muster_store::contract_tests!(InMemory::fresh());
