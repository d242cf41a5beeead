//! The file of an embedded store: creation, locking, format and corruption.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use muster_store::embedded::{EmbeddedOptions, OpenFileError};
use muster_store::{EmbeddedStore, LeaseId, ManualClock, Op, Revision, Store, StoreAccess, StoreError, Txn, WatchFrom};

async fn open(path: &Path) -> Result<EmbeddedStore, OpenFileError> {
    EmbeddedStore::open(path, EmbeddedOptions::default()).await
}

async fn put(store: &EmbeddedStore, key: &str, value: &str) {
    store.commit(Txn::new().op(Op::put(key, value))).await.unwrap();
}

#[tokio::test]
async fn store_is_created_with_its_directory_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("not/yet/there/store");
    let store = open(&path).await.unwrap();
    assert_eq!(store.revision().await.unwrap(), Revision(0));
    assert_eq!(store.name(), format!("embedded:{}", path.display()));
    let files: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["store"]);
    // The store will contain secrets.
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn data_survives_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = open(&path).await.unwrap();
    put(&store, "k", "1").await;
    put(&store, "k", "2").await;
    let before = store.range("", None).await.unwrap();
    drop(store);

    let store = open(&path).await.unwrap();
    assert_eq!(store.range("", None).await.unwrap(), before);
    assert_eq!(store.range("", Some(Revision(1))).await.unwrap().kvs[0].value, "1");
    put(&store, "k", "3").await;
    assert_eq!(store.revision().await.unwrap(), Revision(3));
}

#[tokio::test]
async fn store_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = open(&path).await.unwrap();
    put(&store, "k", "1").await;

    let error = open(&path).await.unwrap_err();
    assert!(matches!(&error, OpenFileError::InUse { path: named } if *named == path));
    assert_eq!(
        error.to_string(),
        format!(
            "the store {} is in use by another process: stop that process, or choose another store",
            path.display()
        )
    );
    put(&store, "k", "2").await;
    drop(store);
    open(&path).await.unwrap();
}

#[tokio::test]
async fn foreign_file_is_refused_and_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    for content in ["", "short", &"a text of another program\n".repeat(1000)] {
        fs::write(&path, content).unwrap();
        let error = open(&path).await.unwrap_err();
        assert!(matches!(error, OpenFileError::Foreign { .. }), "{error:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }

    fs::remove_file(&path).unwrap();
    let table: redb::TableDefinition<'_, u64, u64> = redb::TableDefinition::new("foreign");
    let database = redb::Database::create(&path).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(table).unwrap().insert(1, 1).unwrap();
    txn.commit().unwrap();
    drop(database);
    assert!(matches!(open(&path).await.unwrap_err(), OpenFileError::Foreign { .. }));
}

#[tokio::test]
async fn later_format_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    drop(open(&path).await.unwrap());
    let meta: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("meta");
    let database = redb::Database::create(&path).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(meta).unwrap().insert("format", 77).unwrap();
    txn.commit().unwrap();
    drop(database);
    assert!(matches!(open(&path).await.unwrap_err(), OpenFileError::Format { found: 77, .. }));
}

#[tokio::test]
async fn corrupt_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let intact = directory.path().join("intact");
    let store = open(&intact).await.unwrap();
    for n in 0..50 {
        put(&store, &format!("k/{n}"), &"x".repeat(1000)).await;
    }
    drop(store);
    let content = fs::read(&intact).unwrap();

    let cut = directory.path().join("cut");
    fs::write(&cut, &content[..content.len() / 2]).unwrap();
    assert!(matches!(open(&cut).await.unwrap_err(), OpenFileError::Corrupt { .. }));

    let mut bytes = content;
    bytes[16..600].fill(0xa5);
    let overwritten = directory.path().join("overwritten");
    fs::write(&overwritten, &bytes).unwrap();
    let error = open(&overwritten).await.unwrap_err();
    assert!(matches!(error, OpenFileError::Corrupt { .. }), "{error:?}");
}

#[tokio::test]
async fn io_errors_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(open(directory.path()).await.unwrap_err(), OpenFileError::Io { .. }));
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(open(&file.join("store")).await.unwrap_err(), OpenFileError::Io { .. }));
}

#[tokio::test]
async fn specification_selects_the_backend() {
    let directory = tempfile::tempdir().unwrap();
    let spec = format!("embedded:{}", directory.path().join("store").display());
    let store = muster_store::open(&spec, &StoreAccess::default()).await.unwrap();
    assert_eq!(store.name(), spec);
    for (spec, message) in [
        ("etcd://127.0.0.1:0", "\"0\" is not a port, in 127.0.0.1:0"),
        ("/var/lib/store", "does not name a store: write embedded:PATH"),
        ("embedded:", "names no file: write embedded:PATH"),
    ] {
        let error = muster_store::open(spec, &StoreAccess::default()).await.unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[tokio::test]
async fn closing_a_store_ends_its_watches() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("store")).await.unwrap();
    let mut waiting = store.watch("", WatchFrom::Now);
    waiting.next().await.unwrap();
    let mut fresh = store.watch("", WatchFrom::Now);
    drop(store);
    for watch in [&mut waiting, &mut fresh] {
        assert!(matches!(watch.next().await, Err(StoreError::Closed)));
        assert!(matches!(watch.next().await, Err(StoreError::Closed)));
    }
}

#[tokio::test]
async fn leases_get_their_full_ttl_after_reopening() {
    const TTL: Duration = Duration::from_secs(10);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let clock = Arc::new(ManualClock::new());
    let options = EmbeddedOptions { clock: clock.clone(), ..EmbeddedOptions::default() };
    let store = EmbeddedStore::open(&path, options.clone()).await.unwrap();
    let lease = store.grant(TTL).await.unwrap().id;
    let op = Op::Put { key: "k".into(), value: vec![], lease: Some(lease) };
    store.commit(Txn::new().op(op)).await.unwrap();
    clock.advance(TTL / 2);
    drop(store);

    clock.advance(TTL * 10);
    let store = EmbeddedStore::open(&path, options).await.unwrap();
    clock.advance(TTL * 9 / 10);
    store.keep_alive(lease).await.unwrap();
    assert!(store.get("k").await.unwrap().is_some());
    // A lease id is never granted twice.
    assert_eq!(store.grant(TTL).await.unwrap().id, LeaseId(lease.0 + 1));

    let mut watch = store.watch("", WatchFrom::After(store.revision().await.unwrap()));
    clock.advance(TTL);
    watch.next().await.unwrap();
    assert_eq!(store.get("k").await.unwrap(), None);
}
