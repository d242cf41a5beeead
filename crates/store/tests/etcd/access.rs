//! TLS, users and permissions of etcd, and the errors when access fails.

use std::error::Error;
use std::time::Duration;

use muster_etcd_rig::{Certificates, Cluster, ClusterOptions as Rig, Tls};
use muster_store::etcd::EtcdOptions;
use muster_store::{CommitOutcome, EtcdStore, Op, Store, StoreAccess, Txn, Watch, WatchChange, WatchEvent, WatchFrom};

/// The defaults, with shorter timeouts for unreachable members.
fn short_timeouts() -> EtcdOptions {
    let mut options = EtcdOptions::default();
    options.timeouts.connect = Duration::from_secs(1);
    options.timeouts.total = Duration::from_secs(2);
    options
}

async fn put(store: &EtcdStore, key: &str) -> u64 {
    match store.commit(Txn::new().op(Op::put(key, "1"))).await.unwrap() {
        CommitOutcome::Committed { revision } => revision.0,
        refused @ CommitOutcome::Conflict { .. } => panic!("{refused:?}"),
    }
}

/// The key of the next change.
async fn changed(watch: &mut Watch) -> String {
    loop {
        if let WatchEvent::Changes { changes, .. } = watch.next().await.unwrap() {
            return changes.first().map(WatchChange::key).unwrap().to_owned();
        }
    }
}

/// Uses every request that Muster uses.
async fn use_it(store: &EtcdStore) {
    let mut watch = store.watch("/muster/", WatchFrom::Now);
    assert!(matches!(watch.next().await.unwrap(), WatchEvent::SnapshotEnd { .. }));
    let lease = store.grant(Duration::from_secs(60)).await.unwrap().id;
    let leased = Op::Put { key: "/muster/b".into(), value: b"1".to_vec(), lease: Some(lease) };
    store.commit(Txn::new().op(Op::put("/muster/a", "1")).op(leased)).await.unwrap();
    store.keep_alive(lease).await.unwrap();
    store.revoke(lease).await.unwrap();
    assert_eq!(store.range("/muster/", None).await.unwrap().kvs.len(), 1);
    let last = put(store, "/muster/last").await;
    while changed(&mut watch).await != "/muster/last" {}
    store.compact(store.revision().await.unwrap()).await.unwrap();
    let health = store.health().await;
    assert!(health.members.iter().all(|member| member.state.is_ok()), "{health:?}");
    assert_eq!(health.revision.unwrap().0, last);
}

/// The error chain of a failed open, with addresses and paths replaced.
async fn refusal(spec: &str, access: &StoreAccess) -> String {
    let error = EtcdStore::open(spec, access, short_timeouts()).await.unwrap_err();
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    for endpoint in spec.trim_start_matches("etcd://").split(',') {
        text = text.replace(endpoint, "HOST:PORT");
    }
    for path in [&access.ca, &access.cert, &access.key].into_iter().flatten() {
        text = text.replace(&path.display().to_string(), "FILE");
    }
    text
}

fn with_ca(certificates: &Certificates) -> StoreAccess {
    StoreAccess { ca: Some(certificates.ca.clone()), ..StoreAccess::default() }
}

#[tokio::test]
async fn server_certificate_is_verified_with_the_ca() {
    let cluster = Cluster::start(Rig { tls: Some(Tls::Server), ..Rig::members(1) }).await;
    let files = cluster.certificates().unwrap();
    let store = EtcdStore::open(&cluster.spec(), &with_ca(files), EtcdOptions::default()).await.unwrap();
    use_it(&store).await;

    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = Certificates::make(elsewhere.path(), &[[127, 0, 0, 1].into()]);
    insta::assert_snapshot!(refusal(&cluster.spec(), &with_ca(&stranger)).await, @"cannot reach etcd://HOST:PORT: HOST:PORT: invalid peer certificate: BadSignature (its certificate was not signed by the CA in --store-ca)");
    let said = refusal(&cluster.spec(), &StoreAccess::default()).await;
    assert!(said.contains("(if it requires TLS, give the CA of its certificate with --store-ca)"), "{said}");
}

#[tokio::test]
async fn client_certificate_is_sent_when_required() {
    let cluster = Cluster::start(Rig { tls: Some(Tls::Mutual), ..Rig::members(1) }).await;
    let files = cluster.certificates().unwrap();
    let access =
        StoreAccess { cert: Some(files.client_cert.clone()), key: Some(files.client_key.clone()), ..with_ca(files) };
    let store = EtcdStore::open(&cluster.spec(), &access, EtcdOptions::default()).await.unwrap();
    use_it(&store).await;

    // etcd sends a reason and closes the connection; which one arrives first varies.
    let said = refusal(&cluster.spec(), &with_ca(files)).await;
    assert!(said.contains("give --store-cert and --store-key)"), "{said}");
    let swapped = StoreAccess { cert: access.key.clone(), key: access.cert.clone(), ..access.clone() };
    insta::assert_snapshot!(refusal(&cluster.spec(), &swapped).await, @"FILE (--store-cert) has no CERTIFICATE in PEM format: expected a line -----BEGIN …CERTIFICATE-----");
    insta::assert_snapshot!(refusal(&cluster.spec(), &StoreAccess { key: None, ..access.clone() }).await, @"--store-cert is given without --store-key: etcd needs both");
    insta::assert_snapshot!(refusal(&cluster.spec(), &StoreAccess { ca: None, ..access.clone() }).await, @"--store-cert is given without --store-ca: etcd needs both");
    let missing = StoreAccess { ca: Some("/no/such/file".into()), ..access };
    insta::assert_snapshot!(refusal(&cluster.spec(), &missing).await, @"cannot read FILE (--store-ca): No such file or directory (os error 2)");
}

/// A cluster with the user `muster`, who has exactly the permissions that the book requires.
async fn guarded() -> (Cluster, StoreAccess) {
    let cluster = Cluster::start(Rig { root_password: Some("root".into()), ..Rig::members(1) }).await;
    cluster.etcdctl(&["role", "add", "muster"]).await;
    cluster.etcdctl(&["role", "grant-permission", "muster", "--prefix=true", "readwrite", "/muster/"]).await;
    cluster.etcdctl(&["user", "add", "muster:s3cret"]).await;
    cluster.etcdctl(&["user", "grant-role", "muster", "muster"]).await;
    let access = StoreAccess { user: Some("muster".into()), password: Some("s3cret".into()), ..StoreAccess::default() };
    (cluster, access)
}

#[tokio::test]
async fn user_with_access_to_the_prefix_is_enough() {
    let (cluster, access) = guarded().await;
    let store = EtcdStore::open(&cluster.spec(), &access, EtcdOptions::default()).await.unwrap();
    use_it(&store).await;
    assert!(!format!("{store:?}").contains("s3cret"));

    let error = store.commit(Txn::new().op(Op::put("/elsewhere", "1"))).await.unwrap_err();
    insta::assert_snapshot!(error.source().unwrap(), @"etcd refused the request: permission denied (the user needs a role with read and write permission on the prefix /muster/)");
    let mut watch = store.watch("/elsewhere/", WatchFrom::Now);
    insta::assert_snapshot!(watch.next().await.unwrap_err().source().unwrap(), @"etcd refused the request: permission denied (the user needs a role with read and write permission on the prefix /muster/)");

    let wrong = StoreAccess { password: Some("guess".into()), ..access.clone() };
    insta::assert_snapshot!(refusal(&cluster.spec(), &wrong).await, @"etcd://HOST:PORT refuses access: authentication failed, invalid user ID or password (check --store-user and the password)");
    insta::assert_snapshot!(refusal(&cluster.spec(), &StoreAccess::default()).await, @"etcd://HOST:PORT refuses access: user name is empty (it requires a user: give --store-user and a password)");
    insta::assert_snapshot!(refusal(&cluster.spec(), &StoreAccess { password: None, ..access.clone() }).await, @"the user muster has no password: give a file that contains it with --store-password-file, or set MUSTER_STORE_PASSWORD");
    insta::assert_snapshot!(refusal(&cluster.spec(), &StoreAccess { user: None, ..access }).await, @"a password is given without --store-user: etcd needs both");
}

#[tokio::test]
async fn expired_login_is_renewed() {
    let (cluster, access) = guarded().await;
    let store = EtcdStore::open(&cluster.spec(), &access, EtcdOptions::default()).await.unwrap();
    let mut watch = store.watch("/muster/", WatchFrom::Now);
    assert!(matches!(watch.next().await.unwrap(), WatchEvent::SnapshotEnd { .. }));
    // Tokens are only in its memory.
    cluster.member(0).kill();
    cluster.member(0).start();
    cluster.wait_healthy().await;
    put(&store, "/muster/after").await;
    assert_eq!(changed(&mut watch).await, "/muster/after");
    let mut fresh = store.watch("/muster/", WatchFrom::Now);
    assert!(matches!(fresh.next().await.unwrap(), WatchEvent::Snapshot(_)));
}

#[tokio::test]
async fn authentication_can_be_enabled_later() {
    let cluster = Cluster::start(Rig::members(1)).await;
    let access = StoreAccess { user: Some("root".into()), password: Some("s3cret".into()), ..StoreAccess::default() };
    let store = EtcdStore::open(&cluster.spec(), &access, EtcdOptions::default()).await.unwrap();
    put(&store, "/muster/before").await;
    cluster.etcdctl(&["user", "add", "root:s3cret"]).await;
    cluster.etcdctl(&["user", "grant-role", "root", "root"]).await;
    cluster.etcdctl(&["auth", "enable"]).await;
    put(&store, "/muster/after").await;
}

#[tokio::test]
async fn unreachable_members_are_named_with_a_hint() {
    let cluster = Cluster::start(Rig { tls: Some(Tls::Server), ..Rig::members(1) }).await;
    let unreachable = "127.0.0.1:1,127.0.0.2:1";
    insta::assert_snapshot!(refusal(&format!("etcd://{unreachable}"), &StoreAccess::default()).await, @"cannot reach etcd://HOST:PORT,HOST:PORT: HOST:PORT: tcp connect error: Connection refused (os error 111) (nothing listens there: check that etcd is running and that this is its client port); HOST:PORT: tcp connect error: Connection refused (os error 111) (nothing listens there: check that etcd is running and that this is its client port)");
    // TLS to a server without TLS.
    let plain = Cluster::start(Rig::members(1)).await;
    let said = refusal(&plain.spec(), &with_ca(cluster.certificates().unwrap())).await;
    // The connection ends with an end of stream or with a reset, depending on unread data.
    let known = [
        "HOST:PORT: tls handshake eof (it does not use TLS: omit --store-ca, or configure TLS in etcd)",
        "HOST:PORT: Connection reset by peer (os error 104) (check that it uses TLS; if it requires a \
         client certificate, give --store-cert and --store-key)",
    ];
    assert!(known.iter().any(|known| said == format!("cannot reach etcd://HOST:PORT: {known}")), "{said}");
    let said = refusal("etcd://no.such.host.invalid:2379", &StoreAccess::default()).await;
    assert!(said.contains("HOST:PORT: dns error: failed to lookup address"), "{said}");
}
