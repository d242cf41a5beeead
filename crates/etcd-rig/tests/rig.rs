//! Tests of the rig on real etcd.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use etcd_client::{Client, Txn, TxnOp};
use muster_etcd_rig::{Cluster, ClusterOptions, ProcessState, RawChange, Tls};

fn put(key: &str, value: &str) -> RawChange {
    RawChange::Put { key: key.to_owned(), value: value.into(), lease: 0 }
}

#[tokio::test]
async fn recorder_misses_nothing_while_members_fail() {
    let cluster = Cluster::start(ClusterOptions::members(3)).await;
    let changes = cluster.record_changes("/t/", 1);
    let mut expected = Vec::new();
    let write = async |expected: &mut Vec<RawChange>| {
        let value = expected.len().to_string();
        cluster.etcdctl(&["put", "/t/a", &value]).await;
        expected.push(put("/t/a", &value));
    };

    write(&mut expected).await;
    let killed = cluster.leader().await;
    cluster.member(killed).kill();
    assert_eq!(cluster.member(killed).state(), ProcessState::Ended);
    let next = cluster.leader().await;
    assert_ne!(next, killed);
    write(&mut expected).await;
    cluster.member(killed).start();
    cluster.wait_healthy().await;

    cluster.member(next).stop();
    assert_ne!(cluster.leader().await, next);
    write(&mut expected).await;
    cluster.member(next).cont();
    cluster.wait_healthy().await;

    let wiped = cluster.leader().await;
    cluster.wipe_and_rejoin(wiped).await;
    write(&mut expected).await;
    cluster.etcdctl(&["del", "/t/a"]).await;
    expected.push(RawChange::Delete { key: "/t/a".to_owned() });
    cluster.etcdctl(&["put", "/elsewhere", "x"]).await;

    changes.catch_up(&cluster).await;
    let history = changes.history();
    assert!(history.is_sorted_by_key(|revision| revision.revision));
    assert_eq!(history.into_iter().flat_map(|revision| revision.changes).collect::<Vec<_>>(), expected);
    assert_eq!(cluster.dump("/t/").await.entries, []);
}

#[tokio::test]
async fn dump_has_all_keys_of_the_prefix() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    cluster.etcdctl(&["put", "/t/b", "2"]).await;
    cluster.etcdctl(&["put", "/t/a", "1"]).await;
    cluster.etcdctl(&["put", "/u", "3"]).await;

    let dump = cluster.dump("/t/").await;

    let seen: Vec<_> = dump.entries.iter().map(|e| (e.key.as_str(), e.value.as_slice(), e.mod_revision)).collect();
    assert_eq!(seen, [("/t/a", b"1".as_slice(), 3), ("/t/b", b"2".as_slice(), 2)]);
    assert_eq!(dump.revision, 4);
    assert_eq!(cluster.spec(), format!("etcd://{}", cluster.member(0).client()));
}

#[tokio::test]
async fn tls_and_password_are_required() {
    let options = ClusterOptions {
        tls: Some(Tls::Mutual),
        root_password: Some("secret".to_owned()),
        ..ClusterOptions::members(1)
    };
    let cluster = Cluster::start(options).await;
    cluster.etcdctl(&["put", "/t/a", "1"]).await;
    assert_eq!(cluster.dump("/t/").await.entries.len(), 1);

    let stranger = cluster.try_etcdctl(&["--user", "root:wrong", "get", "/t/a"]).await.unwrap_err();
    assert!(stranger.contains("authentication failed"), "{stranger}");
}

#[tokio::test]
async fn compacted_recorder_panics() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    cluster.etcdctl(&["put", "/t/a", "1"]).await;
    cluster.etcdctl(&["put", "/t/a", "2"]).await;
    cluster.etcdctl(&["compact", "3"]).await;

    let changes = cluster.record_changes("/t/", 1);

    let mut task = tokio::task::JoinSet::new();
    task.spawn(async move { changes.catch_up(&cluster).await });
    let message = task.join_next().await.unwrap().unwrap_err().into_panic().downcast::<String>().unwrap();
    assert!(message.contains("compacted at 3"), "{message}");
}

#[tokio::test]
async fn freed_quota_stays_free_after_a_member_rejoins() {
    const QUOTA: u64 = 8 * 1024 * 1024;
    let cluster = Cluster::start(ClusterOptions { quota_bytes: Some(QUOTA), ..ClusterOptions::members(3) }).await;
    let has_room = async || cluster.file_sizes().await.unwrap().iter().all(|size| *size < QUOTA);
    // etcd compacts 1,000 revisions in 100 ms: the ballast, which is younger, stays for seconds.
    write_revisions(&cluster, 25_000).await;
    cluster.exhaust_quota().await;
    cluster.try_etcdctl(&["put", "/t/a", "1"]).await.unwrap_err();

    cluster.relieve_quota().await;
    assert!(has_room().await);
    cluster.etcdctl(&["put", "/t/a", "2"]).await;

    cluster.wipe_and_rejoin(cluster.leader().await).await;
    assert!(has_room().await);
    cluster.etcdctl(&["put", "/t/a", "3"]).await;
}

/// Writes this many revisions of some keys.
async fn write_revisions(cluster: &Cluster, revisions: u32) {
    let mut client = Client::connect([cluster.member(0).client_url()], None).await.unwrap();
    // One transaction may write 128 keys.
    for _ in 0..revisions / 125 {
        let puts: Vec<TxnOp> = (0..125).map(|number| TxnOp::put(format!("/t/{number}"), "", None)).collect();
        client.txn(Txn::new().and_then(puts)).await.unwrap();
    }
}

#[tokio::test]
async fn small_quota_is_exhausted() {
    let cluster = Cluster::start(ClusterOptions { quota_bytes: Some(1024 * 1024), ..ClusterOptions::default() }).await;
    let ballast = "x".repeat(100 * 1024);
    let mut refused = Ok(String::new());
    for number in 0..20 {
        refused = cluster.try_etcdctl(&["put", &format!("/ballast/{number}"), &ballast]).await;
        if refused.is_err() {
            break;
        }
    }
    assert!(refused.unwrap_err().contains("space exceeded"));
}
