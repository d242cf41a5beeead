//! Faults of an etcd cluster under load. Each result is compared with an independent reader that shares no code with
//! the backend.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use muster_etcd_rig::{Cluster, ClusterOptions as Rig};
use muster_store::etcd::EtcdOptions;
use muster_store::{
    AlarmKind, CommitOutcome, EtcdStore, GapCause, Guard, Op, Revision, Store, StoreAccess, StoreError, Txn, Watch,
    WatchChange, WatchEvent, WatchFrom,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Ends a test whose event never comes.
const TIMEOUT: Duration = Duration::from_secs(90);

async fn open(cluster: &Cluster) -> Arc<EtcdStore> {
    Arc::new(EtcdStore::open(&cluster.spec(), &StoreAccess::default(), EtcdOptions::default()).await.unwrap())
}

async fn put(store: &EtcdStore, key: &str, value: impl Into<Vec<u8>>) -> Result<Revision, StoreError> {
    match store.commit(Txn::new().op(Op::put(key, value))).await? {
        CommitOutcome::Committed { revision } => Ok(revision),
        refused @ CommitOutcome::Conflict { .. } => panic!("{refused:?}"),
    }
}

/// All events of a watch, as (revision, key) of each change.
type ObservedKeys = BTreeSet<(u64, String)>;

/// Follows a watch until it has reached a revision.
async fn follow(watch: &mut Watch, until: Revision, seen: &mut ObservedKeys) {
    let mut at = Revision(0);
    while at < until {
        let event = tokio::time::timeout(TIMEOUT, watch.next()).await;
        at = note(event.unwrap_or_else(|_| panic!("the watch is at {at}, expected {until}")), at, seen);
    }
}

/// Records an event, and returns the revision that the watch has reached. A gap fails the test.
fn note(event: Result<WatchEvent, StoreError>, at: Revision, seen: &mut ObservedKeys) -> Revision {
    match event {
        Ok(WatchEvent::Changes { revision, changes }) => {
            assert!(revision > at, "{revision} after {at}");
            for key in changes.iter().map(WatchChange::key) {
                assert!(seen.insert((revision.0, key.to_owned())), "{key} at {revision} was delivered twice");
            }
            revision
        }
        Ok(WatchEvent::Progress { revision } | WatchEvent::SnapshotEnd { revision }) => revision,
        // Unavailable for a moment: the watch continues.
        Ok(WatchEvent::Snapshot(_)) | Err(StoreError::Unavailable { .. }) => at,
        other => panic!("{other:?}"),
    }
}

/// Creates one key after another until it is stopped. Returns all acknowledged keys, including those that were resolved
/// by reading back, and the number of unknown results.
async fn write(store: Arc<EtcdStore>, writer: usize, mut stop: watch::Receiver<bool>) -> (Vec<String>, usize) {
    let (mut acknowledged, mut unknown) = (Vec::new(), 0);
    for n in 0.. {
        if *stop.borrow_and_update() {
            break;
        }
        let key = format!("/muster/{writer}/{n:05}");
        let before = unknown;
        loop {
            let create = Txn::new().guard(Guard::Absent { key: key.clone() }).op(Op::put(&key, "1"));
            match store.commit(create).await {
                Ok(CommitOutcome::Committed { .. }) => break,
                // An earlier attempt with an unknown result may be applied late, when a frozen member resumes. The
                // guard admits one.
                Ok(CommitOutcome::Conflict { .. }) if unknown > before => break,
                Ok(CommitOutcome::Conflict { .. }) => panic!("{key} exists, but its put was never acknowledged"),
                Err(StoreError::Unavailable { .. }) => {}
                Err(StoreError::Unknown { .. }) => {
                    unknown += 1;
                    if read_back(&store, &key).await {
                        break;
                    }
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        acknowledged.push(key);
    }
    (acknowledged, unknown)
}

async fn read_back(store: &EtcdStore, key: &str) -> bool {
    loop {
        match store.get(key).await {
            Ok(found) => return found.is_some(),
            Err(StoreError::Unavailable { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Writes and watches during a fault, and compares with an independent reader.
async fn under_load(cluster: &Cluster, hurt: impl AsyncFnOnce(&Cluster, &EtcdStore)) {
    let outside = cluster.record_changes("/muster/", 1);
    let store = open(cluster).await;
    let (stop, stopped) = watch::channel(false);
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        writers.spawn(write(store.clone(), writer, stopped.clone()));
    }
    let (end, mut ended) = watch::channel(None);
    let mut watches = JoinSet::new();
    let mut watch = store.watch("/muster/", WatchFrom::After(Revision(1)));
    watches.spawn(async move {
        let (mut seen, mut at) = (ObservedKeys::new(), Revision(1));
        while (*ended.borrow_and_update()).is_none_or(|end: Revision| at < end) {
            tokio::select! {
                changed = ended.changed() => changed.unwrap(),
                event = watch.next() => at = note(event, at, &mut seen),
            }
        }
        seen
    });

    hurt(cluster, &store).await;
    stop.send_replace(true);
    let mut acknowledged = BTreeSet::new();
    let mut unknown = 0;
    for (keys, times) in tokio::time::timeout(TIMEOUT, writers.join_all()).await.expect("the writers end") {
        acknowledged.extend(keys);
        unknown += times;
    }
    // One more change, so that the watch has an event to reach.
    let last = loop {
        match put(&store, "/muster/last", "1").await {
            Ok(last) => break last,
            Err(StoreError::Unavailable { .. } | StoreError::Unknown { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    };
    end.send_replace(Some(last));
    let seen = tokio::time::timeout(TIMEOUT, watches.join_next()).await.expect("the watch ends").unwrap().unwrap();

    outside.catch_up(cluster).await;
    let history: ObservedKeys = outside
        .history()
        .iter()
        .flat_map(|one| {
            one.changes.iter().map(|change| (u64::try_from(one.revision).unwrap(), change.key().to_owned()))
        })
        .filter(|(revision, _)| *revision <= last.0)
        .collect();
    assert_eq!(seen, history, "the watch has delivered each change once");
    let written: BTreeSet<String> = history.iter().map(|(_, key)| key.clone()).collect();
    let lost: Vec<_> = acknowledged.difference(&written).collect();
    assert!(lost.is_empty(), "acknowledged, but lost: {lost:?}");
    assert!(acknowledged.len() > 20, "only {} writes, {unknown} unknown", acknowledged.len());
}

/// Waits until writes succeed again.
async fn wait_writable(store: &EtcdStore) {
    let wait = async { while put(store, "/muster/again", "1").await.is_err() {} };
    tokio::time::timeout(TIMEOUT, wait).await.expect("writes succeed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_is_killed_under_load() {
    let cluster = Cluster::start(Rig::members(3)).await;
    under_load(&cluster, async |cluster, store| {
        wait_writable(store).await;
        let leader = cluster.leader().await;
        cluster.member(leader).kill();
        wait_writable(store).await;
        cluster.member(leader).start();
        cluster.wait_healthy().await;
        wait_writable(store).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_member_is_frozen_in_turn_under_load() {
    let cluster = Cluster::start(Rig::members(3)).await;
    under_load(&cluster, async |cluster, store| {
        for member in cluster.members() {
            wait_writable(store).await;
            member.stop();
            // The store switches to another member.
            wait_writable(store).await;
            store.revision().await.unwrap();
            member.cont();
            cluster.wait_healthy().await;
        }
    })
    .await;
}

/// The holder of a lease waits briefly and retries. The retry must not go to the same frozen member.
#[tokio::test]
async fn lease_is_kept_when_the_used_member_is_frozen() {
    let cluster = Cluster::start(Rig::members(3)).await;
    let mut options = EtcdOptions::default();
    // No other timeout detects the frozen member.
    (options.timeouts.ping_after, options.timeouts.attempt) = (Duration::from_secs(3600), TIMEOUT);
    let leader = cluster.leader().await;
    let frozen = (leader + 1) % 3;
    let spec = format!("etcd://{},{}", cluster.member(frozen).client(), cluster.member(leader).client());
    // Each starts with a random member.
    let mut stores = Vec::new();
    for _ in 0..8 {
        let store = EtcdStore::open(&spec, &StoreAccess::default(), options).await.unwrap();
        let lease = store.grant(Duration::from_secs(600)).await.unwrap();
        stores.push((store, lease.id));
    }
    cluster.member(frozen).stop();
    let keeping = stores.iter().map(|(store, lease)| async move {
        loop {
            // The timeout of a replica.
            if let Ok(kept) = tokio::time::timeout(Duration::from_secs(3), store.keep_alive(*lease)).await {
                break kept.unwrap();
            }
        }
    });
    tokio::time::timeout(TIMEOUT, futures::future::join_all(keeping)).await.expect("all leases are kept");
    cluster.member(frozen).cont();
}

#[tokio::test]
async fn reads_succeed_after_the_leader_is_killed() {
    let cluster = Cluster::start(Rig::members(3)).await;
    let store = open(&cluster).await;
    put(&store, "/muster/a", "1").await.unwrap();
    cluster.member(cluster.leader().await).kill();
    // During the election.
    assert!(store.get("/muster/a").await.unwrap().is_some());
    assert_eq!(store.range("/muster/", None).await.unwrap().kvs.len(), 1);
}

#[tokio::test]
async fn writes_fail_without_a_quorum() {
    let cluster = Cluster::start(Rig::members(3)).await;
    let mut options = EtcdOptions::default();
    options.timeouts.total = Duration::from_secs(3);
    let store = EtcdStore::open(&cluster.spec(), &StoreAccess::default(), options).await.unwrap();
    cluster.member(0).kill();
    cluster.member(1).kill();
    let error = put(&store, "/muster/a", "1").await.unwrap_err();
    assert!(matches!(error, StoreError::Unknown { .. } | StoreError::Unavailable { .. }), "{error:?}");
    let error = store.get("/muster/a").await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    cluster.member(0).start();
    cluster.wait_healthy().await;
    wait_writable(&store).await;
}

#[tokio::test]
async fn watch_behind_a_compaction_gets_a_gap() {
    let cluster = Cluster::start(Rig::members(1)).await;
    let store = open(&cluster).await;
    let first = put(&store, "/muster/a", "1").await.unwrap();
    let mut watch = store.watch("/muster/", WatchFrom::Now);
    let mut seen = ObservedKeys::new();
    follow(&mut watch, first, &mut seen).await;
    // Not read meanwhile. The last change before the compaction is a delete, which etcd 3.4 discards too.
    put(&store, "/muster/b", "1").await.unwrap();
    store.commit(Txn::new().op(Op::delete("/muster/a"))).await.unwrap();
    let head = store.revision().await.unwrap();
    store.compact(head).await.unwrap();
    let gap = watch.next().await.unwrap();
    assert_eq!(gap, WatchEvent::Gap { after: first, cause: GapCause::Compacted { oldest: head } });
    let WatchEvent::Snapshot(kvs) = watch.next().await.unwrap() else { panic!("no snapshot") };
    assert_eq!(kvs.iter().map(|kv| kv.key.as_str()).collect::<Vec<_>>(), ["/muster/b"]);
    assert_eq!(watch.next().await.unwrap(), WatchEvent::SnapshotEnd { revision: head });
    let next = put(&store, "/muster/c", "1").await.unwrap();
    follow(&mut watch, next, &mut seen).await;
    assert!(seen.contains(&(next.0, "/muster/c".to_owned())));
}

#[tokio::test]
async fn replaced_store_is_detected() {
    let cluster = Cluster::start(Rig::members(1)).await;
    let store = open(&cluster).await;
    for n in 0..20 {
        put(&store, "/muster/a", n.to_string()).await.unwrap();
    }
    let head = store.revision().await.unwrap();
    let mut watch = store.watch("/muster/", WatchFrom::After(head));
    let last = put(&store, "/muster/a", "last").await.unwrap();
    follow(&mut watch, last, &mut ObservedKeys::new()).await;
    // The same address, and an empty disk.
    cluster.member(0).kill();
    cluster.member(0).wipe();
    cluster.member(0).start();
    cluster.wait_healthy().await;
    let gap = loop {
        match tokio::time::timeout(TIMEOUT, watch.next()).await.expect("the watch has an event") {
            Err(StoreError::Unavailable { .. }) => {}
            other => break other.unwrap(),
        }
    };
    assert!(matches!(gap, WatchEvent::Gap { cause: GapCause::Lost | GapCause::Ahead { .. }, .. }), "{gap:?}");
    assert!(matches!(watch.next().await.unwrap(), WatchEvent::SnapshotEnd { .. }));
    let mut seen = ObservedKeys::new();
    let next = put(&store, "/muster/b", "1").await.unwrap();
    follow(&mut watch, next, &mut seen).await;
    assert_eq!(seen.len(), 1);
    let elsewhere = put(&store, "/elsewhere", "1").await.unwrap();
    follow(&mut watch, elsewhere, &mut seen).await;
}

#[tokio::test]
async fn exhausted_quota_is_reported_and_reads_succeed() {
    let cluster = Cluster::start(Rig { quota_bytes: Some(16 * 1024 * 1024), ..Rig::members(1) }).await;
    let store = open(&cluster).await;
    put(&store, "/muster/small", "1").await.unwrap();
    let error = loop {
        let ops = (0..60).map(|n| Op::put(format!("/muster/{n}"), vec![b'x'; 16 * 1024]));
        if let Err(error) = store.commit(ops.fold(Txn::new(), Txn::op)).await {
            break error;
        }
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    let said = format!("{error}: {}", std::error::Error::source(&error).unwrap()).replace(store.name(), "STORE");
    insta::assert_snapshot!(said, @"STORE: no space left, nothing was written: free some space and retry: etcd's quota is exhausted (mvcc: database space exceeded): compact it (etcdctl compaction --physical), defragment each member (etcdctl defrag), and disarm the alarm (etcdctl alarm disarm); --quota-backend-bytes sets a larger quota");
    assert!(store.get("/muster/small").await.unwrap().is_some());
    let health = store.health().await;
    assert_eq!(
        health.alarms.iter().map(|alarm| (alarm.member.as_str(), alarm.kind)).collect::<Vec<_>>(),
        [("m1", AlarmKind::NoSpace)]
    );

    // Physical: otherwise etcd still deletes in the background during the defragmentation, and the file stays large.
    let head = store.revision().await.unwrap().0.to_string();
    cluster.etcdctl(&["compaction", "--physical", &head]).await;
    cluster.etcdctl(&["defrag"]).await;
    cluster.etcdctl(&["alarm", "disarm"]).await;
    put(&store, "/muster/small", "2").await.unwrap();
}

/// Unread watches use their windows, and requests on the same connection continue.
#[tokio::test]
async fn unread_watches_block_no_requests() {
    let cluster = Cluster::start(Rig::members(1)).await;
    let store = open(&cluster).await;
    let mut idle = Vec::new();
    for _ in 0..8 {
        let mut watch = store.watch("/muster/", WatchFrom::After(store.revision().await.unwrap()));
        // Opens its stream.
        let first = put(&store, "/muster/first", "1").await.unwrap();
        follow(&mut watch, first, &mut ObservedKeys::new()).await;
        idle.push(watch);
    }
    let mut last = Revision(0);
    for _ in 0..40 {
        let ops = (0..60).map(|n| Op::put(format!("/muster/{n}"), vec![b'x'; 16 * 1024]));
        let CommitOutcome::Committed { revision } = store.commit(ops.fold(Txn::new(), Txn::op)).await.unwrap() else {
            panic!("refused")
        };
        last = revision;
    }
    // They have missed nothing.
    for watch in &mut idle {
        let mut seen = ObservedKeys::new();
        follow(watch, last, &mut seen).await;
        assert!(seen.len() >= 40 * 60, "{}", seen.len());
    }
}
