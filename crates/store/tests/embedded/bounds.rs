//! Bounds of the embedded store: fsyncs, history, file size, and memory of slow readers.

use std::sync::Arc;
use std::time::Duration;

use muster_store::embedded::EmbeddedOptions;
use muster_store::{
    CommitOutcome, EmbeddedStore, GapCause, Guard, Op, Revision, Store, StoreError, Txn, WatchEvent, WatchFrom,
};
use tokio::task::JoinSet;

async fn fresh(options: EmbeddedOptions) -> (Arc<EmbeddedStore>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path().join("store"), options).await.unwrap();
    (Arc::new(store), directory)
}

/// Commits these in order, many to a group.
async fn commit_all(store: &EmbeddedStore, txns: impl IntoIterator<Item = Txn>) {
    let answers = futures::future::join_all(txns.into_iter().map(|txn| store.commit(txn))).await;
    assert!(answers.iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_share_fsyncs() {
    let (store, _directory) = fresh(EmbeddedOptions::default()).await;
    let opened = store.stats().fsyncs;
    let mut writers = JoinSet::new();
    for writer in 0..64 {
        let store = store.clone();
        writers.spawn(async move {
            for n in 0..20 {
                store.commit(Txn::new().op(Op::put(format!("{writer}"), n.to_string()))).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let stats = store.stats();
    assert_eq!(stats.transactions, 64 * 20);
    assert_eq!(store.revision().await.unwrap(), Revision(64 * 20));
    // While one group is written the next one gathers: even a slow start makes far fewer groups than transactions.
    assert!(stats.groups <= 64 * 20 / 4, "{stats:?}");
    // One fsync a group, and one more when the file grows.
    assert!(stats.fsyncs - opened <= stats.groups + 10, "{stats:?}");
}

#[tokio::test]
async fn no_op_transaction_costs_no_fsync() {
    let (store, _directory) = fresh(EmbeddedOptions::default()).await;
    store.commit(Txn::new().op(Op::put("k", "1"))).await.unwrap();
    let lease = store.grant(Duration::from_secs(60)).await.unwrap().id;
    let before = store.stats();

    store.keep_alive(lease).await.unwrap();
    store.commit(Txn::new().op(Op::delete("nothing"))).await.unwrap();
    let refused = Txn::new().guard(Guard::Absent { key: "k".into() }).op(Op::put("k", "2"));
    assert!(matches!(store.commit(refused).await.unwrap(), CommitOutcome::Conflict { .. }));
    store.compact(Revision(0)).await.unwrap();

    let after = store.stats();
    assert_eq!((after.fsyncs, after.groups, after.conflicts), (before.fsyncs, before.groups, 1));
}

#[tokio::test]
async fn old_history_is_compacted() {
    let (store, _directory) = fresh(EmbeddedOptions { keep_revisions: 100, ..EmbeddedOptions::default() }).await;
    for batch in 0..40 {
        let txns = (0..50).map(|n| Txn::new().op(Op::put("k", (batch * 50 + n).to_string())));
        commit_all(&store, txns).await;
    }
    let Err(StoreError::Compacted { oldest, .. }) = store.range("", Some(Revision(1))).await else {
        panic!("the first revision is still readable")
    };
    // The requested history is kept, and at most the slack beyond it.
    assert!((2000 - 100 - 600..=2000 - 100).contains(&oldest.0), "{oldest}");
    assert_eq!(store.range("", Some(Revision(1900))).await.unwrap().kvs[0].value, "1899");
}

#[tokio::test]
async fn file_size_is_bounded() {
    // A few values repeatedly: 32 MiB in total, of which the history may hold 256 KiB.
    let (store, _directory) = fresh(EmbeddedOptions { keep_bytes: 256 * 1024, ..EmbeddedOptions::default() }).await;
    let mut sizes = Vec::new();
    for round in 0..8 {
        for n in 0..64 {
            let value = vec![(round + n) as u8; 4 * 1024];
            let txn = (0..16).fold(Txn::new(), |txn, k| txn.op(Op::put(format!("k/{k}"), value.clone())));
            // One by one: the size of a group sets the size of the file, and must not depend on the number of waiting
            // writers.
            store.commit(txn).await.unwrap();
        }
        sizes.push(store.stats().bytes);
    }
    // The size does not grow with the age of the store.
    assert!(sizes[7] <= sizes[1] && sizes[7] <= 8 * 1024 * 1024, "{sizes:?}");
}

#[tokio::test]
async fn reader_behind_the_history_gets_a_gap() {
    let (store, _directory) = fresh(EmbeddedOptions { keep_revisions: 10, ..EmbeddedOptions::default() }).await;
    let mut watch = store.watch("", WatchFrom::Now);
    assert_eq!(watch.next().await.unwrap(), WatchEvent::SnapshotEnd { revision: Revision(0) });
    // More than is kept in memory or on file.
    let value = vec![0; 16 * 1024];
    commit_all(&store, (0..1100).map(|n| Txn::new().op(Op::put(format!("k/{}", n % 3), value.clone())))).await;
    let event = watch.next().await.unwrap();
    assert!(matches!(event, WatchEvent::Gap { after: Revision(0), cause: GapCause::Compacted { .. } }), "{event:?}");
    let WatchEvent::Snapshot(kvs) = watch.next().await.unwrap() else { panic!("no snapshot") };
    assert_eq!(kvs, store.range("", None).await.unwrap().kvs);
    assert_eq!(watch.next().await.unwrap(), WatchEvent::SnapshotEnd { revision: Revision(1100) });
    store.commit(Txn::new().op(Op::delete("k/0"))).await.unwrap();
    assert!(matches!(watch.next().await.unwrap(), WatchEvent::Changes { revision: Revision(1101), .. }));
}

#[tokio::test]
async fn reader_behind_the_memory_continues_from_the_file() {
    let (store, _directory) = fresh(EmbeddedOptions::default()).await;
    let value = vec![0; 16 * 1024];
    let mut watch = store.watch("", WatchFrom::After(Revision(0)));
    commit_all(&store, (0..700).map(|n| Txn::new().op(Op::put(format!("k/{}", n % 3), value.clone())))).await;
    for n in 1..=700 {
        let event = watch.next().await.unwrap();
        assert!(matches!(event, WatchEvent::Changes { revision: Revision(at), .. } if at == n), "{n}");
    }
}
