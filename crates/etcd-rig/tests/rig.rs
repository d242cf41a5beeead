//! The rig itself, on the real etcd.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use muster_etcd_rig::{Change, Cluster, Condition, Options, Tls};

fn put(key: &str, value: &str) -> Change {
    Change::Put { key: key.to_owned(), value: value.into(), lease: 0 }
}

#[tokio::test]
async fn a_follower_misses_nothing_while_members_are_killed_stopped_and_emptied() {
    let cluster = Cluster::start(Options::members(3)).await;
    let follower = cluster.follow("/t/", 1);
    let mut expected = Vec::new();
    let write = async |expected: &mut Vec<Change>| {
        let value = expected.len().to_string();
        cluster.etcdctl(&["put", "/t/a", &value]).await;
        expected.push(put("/t/a", &value));
    };

    write(&mut expected).await;
    let killed = cluster.leader().await;
    cluster.member(killed).kill();
    assert_eq!(cluster.member(killed).condition(), Condition::Ended);
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
    expected.push(Change::Delete { key: "/t/a".to_owned() });
    cluster.etcdctl(&["put", "/elsewhere", "x"]).await;

    follower.catch_up(&cluster).await;
    let history = follower.history();
    assert!(history.is_sorted_by_key(|revision| revision.revision));
    assert_eq!(history.into_iter().flat_map(|revision| revision.changes).collect::<Vec<_>>(), expected);
    assert_eq!(cluster.dump("/t/").await.entries, []);
}

#[tokio::test]
async fn a_dump_is_what_the_store_holds() {
    let cluster = Cluster::start(Options::default()).await;
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
async fn with_tls_and_a_password_only_those_who_have_both_are_let_in() {
    let options = Options { tls: Some(Tls::Mutual), root_password: Some("secret".to_owned()), ..Options::members(1) };
    let cluster = Cluster::start(options).await;
    cluster.etcdctl(&["put", "/t/a", "1"]).await;
    assert_eq!(cluster.dump("/t/").await.entries.len(), 1);

    let stranger = cluster.try_etcdctl(&["--user", "root:wrong", "get", "/t/a"]).await.unwrap_err();
    assert!(stranger.contains("authentication failed"), "{stranger}");
}

#[tokio::test]
async fn a_follower_that_was_compacted_away_says_so() {
    let cluster = Cluster::start(Options::default()).await;
    cluster.etcdctl(&["put", "/t/a", "1"]).await;
    cluster.etcdctl(&["put", "/t/a", "2"]).await;
    cluster.etcdctl(&["compact", "3"]).await;

    let follower = cluster.follow("/t/", 1);

    let mut task = tokio::task::JoinSet::new();
    task.spawn(async move { follower.catch_up(&cluster).await });
    let told = task.join_next().await.unwrap().unwrap_err().into_panic().downcast::<String>().unwrap();
    assert!(told.contains("compacted at 3"), "{told}");
}

#[tokio::test]
async fn a_quota_that_was_exhausted_and_relieved_does_not_come_back_with_an_empty_disk() {
    let options = Options { quota_bytes: Some(8 * 1024 * 1024), ..Options::members(3) };
    let cluster = Cluster::start(options).await;
    cluster.exhaust_quota().await;
    cluster.try_etcdctl(&["put", "/t/a", "1"]).await.unwrap_err();
    cluster.relieve_quota().await;
    cluster.etcdctl(&["put", "/t/a", "2"]).await;

    cluster.wipe_and_rejoin(cluster.leader().await).await;

    cluster.etcdctl(&["put", "/t/a", "3"]).await;
}

#[tokio::test]
async fn a_small_quota_is_exhausted_soon() {
    let cluster = Cluster::start(Options { quota_bytes: Some(1024 * 1024), ..Options::default() }).await;
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
