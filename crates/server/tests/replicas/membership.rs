//! Membership: replicas join, leave, lose the store, and share their blobs.

use muster_core::replica::ControllerName;
use muster_server::replica::MembershipState;
use muster_server::{BlobPlace, ServerStartError};

use crate::cluster::{Cluster, env, keys, registration, until};
use crate::consistency::passed;

const LIVENESS: ControllerName = ControllerName::Liveness;

#[tokio::test(flavor = "multi_thread")]
async fn stopped_replica_leaves_the_membership_at_once() {
    let cluster = Cluster::patient().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    assert_ne!(a.id(), b.id());
    let record = a.fleet().replicas()[b.id()].0.clone();
    assert_eq!((record.url.as_str(), record.pid), (b.client.base(), std::process::id()));
    let key = cluster.store.get(&keys().replica(a.id())).await.unwrap().unwrap();
    assert!(key.lease.is_some(), "it goes with a lease");

    let gone = a.id().clone();
    a.stop().await;
    // The stop deletes the key. It does not wait for the lease to expire.
    assert!(cluster.store.get(&keys().replica(&gone)).await.unwrap().is_none());
    b.sees("b alone", |fleet| fleet.replicas().len() == 1).await;
    b.stop().await;
    let left = cluster.store.range(&format!("{}replicas/", keys().prefix()), None).await.unwrap();
    assert!(left.kvs.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_key_is_put_again_and_idle_replicas_write_nothing() {
    let cluster = Cluster::patient().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    let key = keys().replica(b.id());
    let first = cluster.store.get(&key).await.unwrap().unwrap();
    cluster.store.commit(muster_store::Txn::new().op(muster_store::Op::delete(key.clone()))).await.unwrap();
    let id = b.id().clone();
    let again =
        |fleet: &muster_core::fleet::Fleet| fleet.replicas().get(&id).is_some_and(|(_, at)| *at > first.revision);
    b.sees("its key again", again).await;

    // After three keep-alives the store still has the same revision.
    let before = cluster.store.revision().await.unwrap();
    let kept = [&a, &b].map(|replica| (replica, replica.way.keep_alives()));
    until("three keep-alives", || kept.iter().all(|(replica, kept)| replica.way.keep_alives() >= kept + 3)).await;
    assert_eq!(cluster.store.revision().await.unwrap(), before);
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_off_replica_drops_its_locks_and_rejoins() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    until("a holds liveness", || a.app.replica.controller_locks.held(&env(), LIVENESS).is_some()).await;
    assert_eq!(a.app.replica.membership.state(), MembershipState::Member);

    a.way.cut(true);
    until("a is cut off", || a.app.replica.membership.state() == MembershipState::CutOff).await;
    assert!(a.app.replica.controller_locks.held(&env(), LIVENESS).is_none(), "it does nothing more");
    assert!(a.app.replica.membership.store_unreachable_since().is_some());
    until("b holds liveness", || b.app.replica.controller_locks.held(&env(), LIVENESS).is_some()).await;
    assert_eq!(b.fleet().replicas().keys().collect::<Vec<_>>(), [b.id()]);

    a.way.cut(false);
    b.sees("a again", |fleet| fleet.replicas().contains_key(a.id())).await;
    until("a is a member", || a.app.replica.membership.state() == MembershipState::Member).await;
    assert_eq!(a.app.replica.membership.store_unreachable_since(), None);
    a.sees("that b holds it", |fleet| fleet.controllers()[&LIVENESS].0.replica == *b.id()).await;
    assert!(a.app.replica.controller_locks.held(&env(), LIVENESS).is_none());
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_store_has_one_replica() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    let (gone_a, gone_b) = (a.id().clone(), b.id().clone());
    a.kill().await;
    b.kill().await;
    // Directly on the embedded store, which no other process can open.
    let config = muster_server::ServerConfig {
        tls: None,
        listen: "127.0.0.1:0".parse().unwrap(),
        socket: None,
        token: crate::cluster::token(),
        limits: muster_server::ConnectionLimits::default(),
        blobs: cluster.blobs().into(),
        secrets_key: cluster.blobs().with_file_name("secrets.key"),
        liveness_timeouts: muster_core::node::liveness::LivenessTimeouts::default(),
        lease: muster_server::LeasePace::default(),
        gate_commands: None,
        oidc: None,
        clock: muster_server::Clock::system(),
    };
    let stop = tokio_util::sync::CancellationToken::new();
    let server = muster_server::Server::start(config, cluster.store.clone(), stop).await.unwrap();
    let left = cluster.store.range(&format!("{}replicas/", keys().prefix()), None).await.unwrap();
    let left: Vec<&str> = left.kvs.iter().map(|kv| kv.key.as_str()).collect();
    assert!(!left.contains(&keys().replica(&gone_a).as_str()) && !left.contains(&keys().replica(&gone_b).as_str()));
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_stored_by_one_replica_is_readable_at_another() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    let taken = a.client.report(&env(), &passed(&a, "web1", 1)).await.unwrap();
    let shown = b.client.clone().at_least(taken.revision).node(&env(), "web1").await.unwrap();
    assert_eq!(shown.log.as_deref(), Some("log of web1 1"));
    a.stop().await;
    b.stop().await;
    let marks: Vec<_> = std::fs::read_dir(cluster.blobs().join(".replicas")).unwrap().collect();
    assert!(marks.is_empty(), "a stopped replica removes its mark: {marks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn log_in_a_bucket_is_served_by_another_replica() {
    let etcd = muster_etcd_rig::Cluster::start(muster_etcd_rig::ClusterOptions::members(1)).await;
    let store = muster_store::open(&etcd.spec(), &muster_store::StoreAccess::default()).await.unwrap();
    let cluster = Cluster::on(store, tempfile::tempdir().unwrap());
    let bucket = muster_s3_rig::S3Server::start().unwrap();
    let place = |name: &str, prefix: &str| {
        let text = format!("s3://{}/{prefix}", muster_s3_rig::BUCKET);
        let place = BlobPlace::parse(text.as_ref(), &cluster.dir.path().join(name), bucket.variables()).unwrap();
        let BlobPlace::S3(mut place) = place else { panic!("a directory") };
        (place.timing.retries, place.timing.backoff) = (1, std::time::Duration::from_millis(1));
        BlobPlace::S3(place)
    };
    let a = cluster.start(place("one", "fleet")).await.unwrap();
    muster_server::register(&a.app, &crate::cluster::registration(&[("web1", "web")])).await.unwrap();
    let b = cluster.start(place("other", "fleet")).await.unwrap();
    let taken = a.client.report(&env(), &passed(&a, "web1", 1)).await.unwrap();
    let shown = b.client.clone().at_least(taken.revision).node(&env(), "web1").await.unwrap();
    assert_eq!(shown.log.as_deref(), Some("log of web1 1"));

    let Err(error) = cluster.start(place("third", "another")).await else { panic!("it would miss the logs") };
    assert!(matches!(&error, ServerStartError::BlobsNotShared { .. }), "{error}");
    assert!(error.to_string().contains("s3://blobs/another"), "{error}");

    // Without the bucket no report is acknowledged, and the agent sends it again.
    bucket.inject("PUT", "", muster_s3_rig::Fault::SlowDown, usize::MAX);
    let refused = a.client.report(&env(), &passed(&a, "web1", 2)).await.unwrap_err();
    assert!(refused.to_string().contains("503"), "{refused}");
    bucket.heal();
    a.client.report(&env(), &passed(&a, "web1", 2)).await.unwrap();
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_with_a_different_blob_directory_does_not_start() {
    let cluster = Cluster::new().await;
    let a = cluster.replica().await;
    muster_server::register(&a.app, &crate::cluster::registration(&[("web1", "web")])).await.unwrap();
    a.sees("itself", |fleet| fleet.replicas().len() == 1).await;
    let own = cluster.dir.path().join("own");
    let Err(error) = cluster.start(own.clone()).await else { panic!("it would miss the logs of the other") };
    let ServerStartError::BlobsNotShared { replica, theirs, ours, .. } = &error else { panic!("{error}") };
    assert_eq!(
        (replica, theirs.as_str(), ours),
        (a.id(), cluster.blobs().to_str().unwrap(), &Box::new(own.clone().into()))
    );
    assert!(error.to_string().contains("--blobs"), "{error}");
    a.sees("no other replica", |fleet| fleet.replicas().len() == 1).await;

    // A dead replica whose lease has not expired yet does not prevent the start.
    a.kill().await;
    let b = cluster.start(own).await.unwrap();
    b.sees("b alone", |fleet| fleet.replicas().keys().collect::<Vec<_>>() == [b.id()]).await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_replicas_with_different_directories_one_stops() {
    let cluster = Cluster::new().await;
    // There is no environment yet, and therefore no key by which the replicas could find each other.
    let (one, other) = (cluster.dir.path().join("one"), cluster.dir.path().join("other"));
    let (a, b) = (cluster.start(one).await.unwrap(), cluster.start(other).await.unwrap());
    muster_server::register(&a.app, &crate::cluster::registration(&[("web1", "web")])).await.unwrap();
    a.sees("both", |fleet| fleet.replicas().len() == 2).await;

    // Both joined at the same time: the lower id stays.
    let (stays, mut goes) = if a.id() < b.id() { (a, b) } else { (b, a) };
    let reason = goes.ends().await.to_string();
    assert!(reason.contains(stays.id().as_str()) && reason.contains("--blobs"), "{reason}");
    stays.sees("itself alone", |fleet| fleet.replicas().keys().collect::<Vec<_>>() == [stays.id()]).await;

    // A replica with the directory of the one that stayed may join.
    let directory = stays.app.replica.membership.record().blobs.directory.clone();
    let c = cluster.start(std::path::PathBuf::from(directory)).await.unwrap();
    stays.sees("both", |fleet| fleet.replicas().len() == 2).await;
    c.stop().await;
    stays.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_with_another_token_is_reported() {
    let cluster = Cluster::patient().await;
    let a = cluster.replica().await;
    muster_server::register(&a.app, &registration(&[("web1", "web")])).await.unwrap();
    let other = muster_wire::token::Token::new("x".repeat(32)).unwrap();
    let b = cluster.start_with_token(cluster.store.clone(), cluster.blobs(), other).await.unwrap();
    a.sees("both", |fleet| fleet.replicas().len() == 2).await;
    let report = a.client.doctor().await.unwrap();
    let refused = report.findings.iter().find(|finding| finding.detail.ends_with("refuses the token of this replica"));
    let advice = refused.and_then(|finding| finding.advice.as_deref()).unwrap_or_default();
    assert!(advice.starts_with("give all replicas the same token"), "{report:?}");
    a.stop().await;
    b.stop().await;
}
