//! A disk that is really full: transactions stay atomic, and the store recovers when there is space.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use muster_store::embedded::EmbeddedOptions;
use muster_store::{CommitOutcome, EmbeddedStore, Op, Revision, Store, StoreError, Txn, WatchEvent, WatchFrom};
use muster_testkit::{SmallDisk, passed_in_a_namespace};
use tokio::task::JoinSet;

fn fill(path: &Path, bytes: usize) {
    fs::write(path, vec![1; bytes]).unwrap();
}

/// Writes until the disk is full. Returns the acknowledged keys and the errors.
async fn write_until_full(
    store: &Arc<EmbeddedStore>,
    writers: usize,
    round: usize,
) -> (BTreeMap<String, Revision>, Vec<StoreError>) {
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        let store = store.clone();
        tasks.spawn(async move {
            let mut acknowledged = BTreeMap::new();
            for n in 0.. {
                // Two keys: a half-written transaction would show.
                let (key, twin) = (format!("k/{round}/{writer}/{n}"), format!("twin/{round}/{writer}/{n}"));
                let txn = Txn::new().op(Op::put(&key, vec![7; 8000])).op(Op::put(&twin, vec![7; 8000]));
                match store.commit(txn).await {
                    Ok(CommitOutcome::Committed { revision }) => {
                        acknowledged.insert(key, revision);
                        acknowledged.insert(twin, revision);
                    }
                    Ok(CommitOutcome::Conflict { .. }) => unreachable!("there are no guards"),
                    Err(error) => return (acknowledged, error),
                }
            }
            unreachable!("the disk is full before the numbers end")
        });
    }
    let mut all = BTreeMap::new();
    let mut errors = Vec::new();
    for (acknowledged, error) in tasks.join_all().await {
        all.extend(acknowledged);
        errors.push(error);
    }
    (all, errors)
}

async fn state(store: &EmbeddedStore) -> BTreeMap<String, Revision> {
    store.range("", None).await.unwrap().kvs.into_iter().map(|kv| (kv.key, kv.revision)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_loses_nothing_and_recovers() {
    if passed_in_a_namespace() {
        return;
    }
    let disk = SmallDisk::mount("12m");
    fill(&disk.path().join("ballast"), 4 * 1024 * 1024);
    let store = Arc::new(EmbeddedStore::open(disk.path().join("store"), EmbeddedOptions::default()).await.unwrap());
    let mut watch = store.watch("", WatchFrom::Now);
    assert_eq!(watch.next().await.unwrap(), WatchEvent::SnapshotEnd { revision: Revision(0) });

    let (mut acknowledged, errors) = write_until_full(&store, 4, 0).await;
    assert!(!acknowledged.is_empty());
    for error in &errors {
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    }
    // Exactly the acknowledged keys are there, and readable while the disk is full.
    assert_eq!(state(&store).await, acknowledged);
    // Still full: refused again, without damage.
    let (more, errors) = write_until_full(&store, 1, 1).await;
    assert!(matches!(&errors[..], [StoreError::Full { .. }]), "{errors:?}");
    acknowledged.extend(more);
    assert_eq!(state(&store).await, acknowledged);

    fs::remove_file(disk.path().join("ballast")).unwrap();
    let after = store.commit(Txn::new().op(Op::put("after", "1"))).await.unwrap();
    let CommitOutcome::Committed { revision } = after else { panic!("{after:?}") };
    acknowledged.insert("after".into(), revision);
    assert_eq!(state(&store).await, acknowledged);

    // The earlier watch has seen each change once.
    let mut seen = BTreeMap::new();
    while !seen.contains_key("after") {
        match watch.next().await.unwrap() {
            WatchEvent::Changes { revision, changes } => {
                for change in changes {
                    assert_eq!(seen.insert(change.key().to_owned(), revision), None);
                }
            }
            WatchEvent::Progress { .. } => {}
            event @ (WatchEvent::Snapshot(_) | WatchEvent::SnapshotEnd { .. } | WatchEvent::Gap { .. }) => {
                panic!("{event:?}")
            }
        }
    }
    assert_eq!(seen, acknowledged);

    drop((store, watch));
    let store = EmbeddedStore::open(disk.path().join("store"), EmbeddedOptions::default()).await.unwrap();
    assert_eq!(state(&store).await, acknowledged);
}

/// The disk is so full that the file cannot be reopened. The store is unavailable until it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unavailable_store_recovers_by_itself() {
    if passed_in_a_namespace() {
        return;
    }
    let disk = SmallDisk::mount("8m");
    fill(&disk.path().join("ballast"), 4 * 1024 * 1024);
    let store = Arc::new(EmbeddedStore::open(disk.path().join("store"), EmbeddedOptions::default()).await.unwrap());
    fs::rename(disk.path().join("store"), disk.path().join("elsewhere")).unwrap();
    let (acknowledged, errors) = write_until_full(&store, 2, 0).await;
    for error in &errors {
        let known =
            matches!(error, StoreError::Full { .. } | StoreError::Unknown { .. } | StoreError::Unavailable { .. });
        assert!(known, "{error:?}");
    }
    assert!(matches!(store.range("", None).await, Err(StoreError::Unavailable { .. })));
    let refused = store.commit(Txn::new().op(Op::put("refused", "1"))).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");

    fs::remove_file(disk.path().join("ballast")).unwrap();
    fs::rename(disk.path().join("elsewhere"), disk.path().join("store")).unwrap();
    store.commit(Txn::new().op(Op::put("after", "1"))).await.unwrap();

    let mut found = state(&store).await;
    let after = found.remove("after").unwrap();
    assert_eq!(after, store.revision().await.unwrap());
    for (key, revision) in &acknowledged {
        assert_eq!(found.remove(key), Some(*revision), "{key} was acknowledged");
    }
    // The remaining keys had an unknown result, and are complete pairs.
    let twins = found.keys().filter(|key| key.starts_with("twin/")).count();
    assert_eq!(found.len(), 2 * twins, "{found:?}");
}

#[tokio::test]
async fn creating_on_a_full_disk_fails_and_leaves_no_file() {
    if passed_in_a_namespace() {
        return;
    }
    let disk = SmallDisk::mount("1m");
    fill(&disk.path().join("ballast"), 1024 * 1024);
    let error = EmbeddedStore::open(disk.path().join("store"), EmbeddedOptions::default()).await.unwrap_err();
    assert!(matches!(error, muster_store::embedded::OpenFileError::Io { .. }), "{error:?}");
    let left: Vec<_> = fs::read_dir(disk.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["ballast"]);
    fs::remove_file(disk.path().join("ballast")).unwrap();
}
