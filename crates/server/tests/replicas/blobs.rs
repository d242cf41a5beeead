//! All replicas store reports and logs in one blob directory. A replica with another directory does not run.

use muster_server::StartError;

use crate::cluster::{Cluster, env};
use crate::writing::passed;

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_one_replica_has_kept_is_shown_by_the_other() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    let taken = a.client.report(&env(), &passed(&a, "web1", 1)).await.unwrap();
    let shown = b.client.clone().at_least(taken.revision).node(&env(), "web1").await.unwrap();
    assert_eq!(shown.log.as_deref(), Some("log of web1 1"));
    a.stop().await;
    b.stop().await;
    let marks: Vec<_> = std::fs::read_dir(cluster.blobs().join(".replicas")).unwrap().collect();
    assert!(marks.is_empty(), "whoever stops takes its mark away: {marks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_a_directory_of_its_own_does_not_start() {
    let cluster = Cluster::new().await;
    let a = cluster.replica().await;
    muster_server::register(&a.app, &crate::cluster::registration(&[("web1", "web")])).await.unwrap();
    a.sees("itself", |fleet| fleet.replicas().len() == 1).await;
    let own = cluster.dir.path().join("own");
    let Err(error) = cluster.start(own.clone()).await else { panic!("it would miss the logs of the other") };
    let StartError::BlobsNotShared { replica, theirs, ours, .. } = &error else { panic!("{error}") };
    assert_eq!((replica, theirs.as_str(), ours), (a.id(), cluster.blobs().to_str().unwrap(), &own));
    assert!(error.to_string().contains("--blobs"), "{error}");
    a.sees("nobody else", |fleet| fleet.replicas().len() == 1).await;

    // A dead replica whose lease has not expired yet does not prevent the start.
    a.kill().await;
    let b = cluster.start(own).await.unwrap();
    b.sees("b alone", |fleet| fleet.replicas().keys().collect::<Vec<_>>() == [b.id()]).await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_new_replicas_with_different_directories_leave_one() {
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
    let c = cluster.start(directory.into()).await.unwrap();
    stays.sees("both", |fleet| fleet.replicas().len() == 2).await;
    c.stop().await;
    stays.stop().await;
}
