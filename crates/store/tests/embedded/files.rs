//! The file of an embedded store: creation, locking, format and corruption.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use muster_store::embedded::{EmbeddedOptions, OpenFileError};
use muster_store::{
    EmbeddedStore, Integrity, LeaseId, ManualClock, Op, Revision, Store, StoreAccess, StoreError, StoreFault, Txn,
    Verification, WatchFrom,
};

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
    let files = fs::read_dir(path.parent().unwrap()).unwrap().map(|file| file.unwrap().file_name());
    let files: std::collections::BTreeSet<_> = files.collect();
    assert_eq!(files.into_iter().collect::<Vec<_>>(), ["store", "store.revision"]);
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

/// A closed store with these revisions.
async fn closed_at(path: &Path, revisions: std::ops::RangeInclusive<u64>) {
    let store = open(path).await.unwrap();
    for n in revisions {
        put(&store, &format!("k/{n}"), &"x".repeat(1000)).await;
    }
}

#[tokio::test]
async fn store_that_went_back_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("store"), directory.path().join("copy"));
    closed_at(&path, 1..=3).await;
    fs::copy(&path, &copy).unwrap();
    closed_at(&path, 4..=8).await;

    fs::rename(&copy, &path).unwrap();
    let error = open(&path).await.unwrap_err();
    assert!(matches!(error, OpenFileError::WentBack { head: 3, remembered: 8, .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("muster restore FILE --store embedded:{}", path.display())), "{error}");

    fs::remove_file(&path).unwrap();
    let error = open(&path).await.unwrap_err();
    assert!(matches!(error, OpenFileError::WentBack { head: 0, remembered: 8, .. }), "{error:?}");
    assert!(!path.exists(), "no empty store takes its place");

    let accept = || EmbeddedOptions { accept_older: true, ..EmbeddedOptions::default() };
    drop(EmbeddedStore::open(&path, accept()).await.unwrap());
    assert!(matches!(open(&path).await.unwrap_err(), OpenFileError::WentBack { .. }), "nothing was restored");
    let store = EmbeddedStore::open(&path, accept()).await.unwrap();
    put(&store, "restored", "1").await;
    drop(store);
    assert_eq!(open(&path).await.unwrap().revision().await.unwrap(), Revision(1));
}

#[tokio::test]
async fn store_with_a_damaged_revision_file_is_refused_until_a_restore() {
    let directory = tempfile::tempdir().unwrap();
    let (path, remembered) = (directory.path().join("store"), directory.path().join("store.revision"));
    closed_at(&path, 1..=3).await;
    fs::write(&remembered, "\0\0\0").unwrap();
    let error = open(&path).await.unwrap_err();
    assert!(matches!(error, OpenFileError::UnknownHead { .. }), "{error:?}");
    assert!(error.to_string().contains("delete that file if you know"), "{error}");

    let accept = || EmbeddedOptions { accept_older: true, ..EmbeddedOptions::default() };
    drop(EmbeddedStore::open(&path, accept()).await.unwrap());
    assert!(matches!(open(&path).await.unwrap_err(), OpenFileError::UnknownHead { .. }), "nothing was restored");
    let store = EmbeddedStore::open(&path, accept()).await.unwrap();
    put(&store, "restored", "1").await;
    drop(store);
    assert_eq!(fs::read_to_string(&remembered).unwrap(), "4\nclosed\n");
    fs::remove_file(&remembered).unwrap();
    assert_eq!(open(&path).await.unwrap().revision().await.unwrap(), Revision(4));
}

/// Changes one byte in each value, which only a checksum shows.
fn damage_values(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let places: Vec<usize> = (0..bytes.len() - 8).filter(|at| bytes[*at..].starts_with(b"xxxxxxxx")).collect();
    places.into_iter().step_by(500).for_each(|at| bytes[at] = b'y');
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn store_is_verified_after_an_unclean_stop() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let remembered = directory.path().join("store.revision");
    closed_at(&path, 1..=50).await;
    assert_eq!(fs::read_to_string(&remembered).unwrap(), "50\nclosed\n");
    fs::write(&remembered, "50\nopen\n").unwrap();
    drop(open(&path).await.unwrap());
    assert_eq!(fs::read_to_string(&remembered).unwrap(), "50\nclosed\n");

    damage_values(&path);
    fs::write(&remembered, "50\nopen\n").unwrap();
    let error = open(&path).await.unwrap_err();
    assert!(matches!(error, OpenFileError::Corrupt { .. }), "{error:?}");
}

#[tokio::test]
async fn verification_finds_damage_in_an_open_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    closed_at(&path, 1..=50).await;
    let clock = Arc::new(ManualClock::new());
    let options = EmbeddedOptions { clock: clock.clone(), ..EmbeddedOptions::default() };
    let store = EmbeddedStore::open(&path, options).await.unwrap();
    assert_eq!(store.verify().await.unwrap().integrity, Integrity::Intact);
    put(&store, "k/1", "still writable").await;
    let minute = Duration::from_secs(60);
    clock.advance(minute);
    assert_eq!(store.verify().await.unwrap(), Verification { integrity: Integrity::Intact, age: minute });
    clock.advance(10 * minute);
    assert_eq!(store.verify().await.unwrap(), Verification { integrity: Integrity::Intact, age: Duration::ZERO });
    drop(store);
    damage_values(&path);
    let store = open(&path).await.unwrap();
    let error = store.verify().await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
}

#[tokio::test]
async fn replaced_and_deleted_files_are_faults() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    closed_at(&path, 1..=3).await;
    let store = open(&path).await.unwrap();
    assert_eq!(store.health().await.faults, []);
    fs::rename(&path, directory.path().join("moved")).unwrap();
    assert_eq!(store.health().await.faults, [StoreFault::FileDeleted]);
    fs::copy(directory.path().join("moved"), &path).unwrap();
    let health = store.health().await;
    assert_eq!((health.faults, health.revision), (vec![StoreFault::FileReplaced], Some(Revision(3))));
}

/// redb panics on some kinds of damage. Requests get an error, and the store still answers.
#[tokio::test]
async fn damage_never_panics_a_request() {
    let directory = tempfile::tempdir().unwrap();
    let intact = directory.path().join("intact");
    closed_at(&intact, 1..=30).await;
    let content = fs::read(&intact).unwrap();
    for place in (4096..content.len()).step_by(content.len() / 20) {
        let path = directory.path().join(format!("damaged-{place}"));
        let mut bytes = content.clone();
        bytes[place..].iter_mut().take(200).for_each(|byte| *byte = 0xa5);
        fs::write(&path, &bytes).unwrap();
        fs::write(directory.path().join(format!("damaged-{place}.revision")), "30\nclosed\n").unwrap();
        let Ok(store) = open(&path).await else { continue };
        for _ in 0..2 {
            let read = store.range("", None).await.err();
            let written = store.commit(Txn::new().op(Op::put("k/1", "2"))).await.err();
            let verified = store.verify().await.err();
            for error in [read, written, verified].into_iter().flatten() {
                assert!(!matches!(error, StoreError::Closed), "{place}: {error:?}");
            }
        }
    }
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
