//! Fixtures: stores with an environment, and stores that fail.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_core::txn::{LeaseId, Op, Revision, Txn};
use muster_server::Blobs;
use muster_server::backup::{Contents, RestoreError, RestoreTarget, read_environment, restore, verify};
use muster_store::{
    CommitOutcome, KeyRange, KeyValue, Lease, Sharing, Store, StoreAccess, StoreError, StoreHealth, StoreStats, Watch,
    WatchFrom,
};
use muster_wire::backup::RestoreResponse;

pub(crate) fn env() -> EnvName {
    EnvName::new("prod").unwrap()
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// The store and the blobs of one server.
#[derive(Clone, Debug)]
pub(crate) struct BackupFixture {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) dir: Arc<tempfile::TempDir>,
}

impl BackupFixture {
    pub(crate) async fn embedded() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spec = format!("embedded:{}", dir.path().join("store").display());
        Self::on(&spec, dir).await
    }

    pub(crate) async fn on(spec: &str, dir: tempfile::TempDir) -> Self {
        let store = muster_store::open(spec, &StoreAccess::default()).await.unwrap();
        let blobs = Arc::new(Blobs::open_beside_servers(dir.path().join("blobs")).unwrap());
        Self { store, blobs, dir: Arc::new(dir) }
    }

    pub(crate) async fn put(&self, key: &str, value: impl Into<Vec<u8>>) {
        let key = format!("{}{key}", Keys::new(&env()).prefix());
        self.store.commit(Txn::new().op(Op::put(key, value))).await.unwrap();
    }

    /// An environment in use: more keys than one transaction takes, logs, keys of running processes, and an unknown key
    /// whose value is not text.
    pub(crate) async fn found(&self, nodes: usize) {
        let mut ops = Vec::new();
        let mut put =
            |key: String, value: &[u8]| ops.push(Op::put(format!("{}{key}", Keys::new(&env()).prefix()), value));
        put("store_epoch".into(), b"1700000000");
        for number in 1..=nodes {
            let log = self.blobs.put(format!("the log of web{number}\n").repeat(number).as_bytes()).unwrap();
            let past = format!(
                r#"{{"run":"r1","version":"v1","phase":"validated","result":"passed","causes":[],
                "started":"2026-11-15T10:00:00Z","ended":"2026-11-15T10:00:05Z","logs":["{log}"]}}"#
            );
            // Every second node has the list of an earlier version.
            let (key, past) = if number % 2 == 0 { ("", format!("[{past}]")) } else { ("/r1", past) };
            put(format!("nodes/web{number}"), br#"{"role":"web","failure_domain":"a"}"#);
            put(format!("observed/web{number}"), br#"{"incarnation":1,"seq":2}"#);
            put(format!("history/web{number}{key}"), past.as_bytes());
            let leaf = br#"{"since":"2026-11-15T10:00:05Z","run":"r1"}"#;
            put(format!("status/validated/success/v1/web{number}"), leaf);
            put(format!("presence/web{number}"), br#"{"replica":"a-1","since":"2026-11-15T10:00:05Z"}"#);
        }
        put("releases/v1".into(), br#"{"digest":"sha256:1","serial":1}"#);
        put("controllers/liveness".into(), br#"{"replica":"a-1","since":"2026-11-15T10:00:05Z"}"#);
        put("of/tomorrow".into(), &[0xff, 0, 1]);
        put("current_version".into(), b"v1");
        for part in ops.chunks(100) {
            self.store.commit(Txn { guards: Vec::new(), ops: part.to_vec() }).await.unwrap();
        }
        let lease = self.store.grant(Duration::from_secs(60)).await.unwrap();
        let key = format!("{}replicas/a-1", Keys::new(&env()).prefix());
        let leased = Op::Put { key, value: b"{}".to_vec(), lease: Some(lease.id) };
        self.store.commit(Txn::new().op(leased)).await.unwrap();
    }

    /// Keys of the environment, without the keys of processes, the epoch and the permission for an older release. Each
    /// restore writes those two again.
    pub(crate) async fn keys(&self) -> BTreeMap<String, Vec<u8>> {
        let prefix = Keys::new(&env()).prefix().to_owned();
        let kvs = self.store.range(&prefix, None).await.unwrap().kvs;
        let of_process = |key: &str| ["replicas/", "controllers/", "presence/"].iter().any(|of| key.starts_with(of));
        let all = kvs.into_iter().map(|kv| (kv.key[prefix.len()..].to_owned(), kv.value.to_vec()));
        all.filter(|(key, _)| !of_process(key) && key != "store_epoch" && key != "allow_older").collect()
    }

    pub(crate) async fn epoch(&self) -> u64 {
        let kv = self.store.get(&Keys::new(&env()).store_epoch()).await.unwrap().unwrap();
        String::from_utf8(kv.value.to_vec()).unwrap().parse().unwrap()
    }

    pub(crate) async fn backup(&self) -> Vec<u8> {
        let taken = read_environment(self.store.as_ref(), &env(), now()).await.unwrap();
        taken.write(&self.blobs, Vec::new()).unwrap().to
    }

    pub(crate) fn target(&self, replace: bool) -> RestoreTarget {
        RestoreTarget {
            store: self.store.clone(),
            blobs: self.blobs.clone(),
            env: env(),
            replace,
            incomplete: false,
            by: "a test".into(),
            now: now(),
        }
    }

    pub(crate) async fn restore(&self, bytes: &[u8], replace: bool) -> Result<RestoreResponse, RestoreError> {
        let (file, contents) = file(bytes);
        restore(file, &contents, &self.target(replace), |_| {}).await
    }
}

/// A backup that was written to a file and verified.
pub(crate) fn file(bytes: &[u8]) -> (File, Contents) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    (file, verify(bytes).unwrap())
}

/// The files of the blobs.
pub(crate) fn blobs_in(dir: &Path) -> usize {
    let heads = std::fs::read_dir(dir.join("blobs")).unwrap().map(|entry| entry.unwrap().path());
    heads.filter(|head| head.is_dir()).map(|head| std::fs::read_dir(head).unwrap().count()).sum()
}

/// A store that becomes unavailable after a number of transactions.
#[derive(Debug)]
pub(crate) struct CrashingStore {
    inner: Arc<dyn Store>,
    left: AtomicI64,
    /// True if the last transaction is committed and its response is lost.
    carries_out: bool,
    /// Transaction of another client, committed just before the last one.
    meanwhile: Mutex<Option<Txn>>,
}

impl CrashingStore {
    pub(crate) fn after(fixture: &BackupFixture, transactions: i64, carries_out: bool) -> BackupFixture {
        Self::wrap(fixture, transactions, carries_out, None)
    }

    /// A store that stays available. After a number of transactions, another client commits `meanwhile`.
    pub(crate) fn not(fixture: &BackupFixture, transactions: i64, meanwhile: Txn) -> BackupFixture {
        Self::wrap(fixture, transactions, true, Some(meanwhile))
    }

    fn wrap(fixture: &BackupFixture, transactions: i64, carries_out: bool, meanwhile: Option<Txn>) -> BackupFixture {
        let (inner, left) = (fixture.store.clone(), AtomicI64::new(transactions));
        let store = CrashingStore { inner, left, carries_out, meanwhile: Mutex::new(meanwhile) };
        BackupFixture { store: Arc::new(store), ..fixture.clone() }
    }
}

impl Store for CrashingStore {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>> {
        self.inner.get(key)
    }

    fn range<'a>(&'a self, prefix: &'a str, at: Option<Revision>) -> BoxFuture<'a, Result<KeyRange, StoreError>> {
        self.inner.range(prefix, at)
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<CommitOutcome, StoreError>> {
        Box::pin(async move {
            let due = self.left.load(Ordering::SeqCst) == 0;
            let meanwhile = if due { self.meanwhile.lock().unwrap().take() } else { None };
            if let Some(meanwhile) = meanwhile {
                // Its outcome is not checked here.
                self.inner.commit(meanwhile).await?;
                self.left.store(i64::MAX, Ordering::SeqCst);
            }
            match self.left.fetch_sub(1, Ordering::SeqCst) {
                1.. => self.inner.commit(txn).await,
                0 if self.carries_out => self.inner.commit(txn).await.and(Err(StoreError::Closed)),
                _ => Err(StoreError::Closed),
            }
        })
    }

    fn watch(&self, prefix: &str, from: WatchFrom) -> Watch {
        self.inner.watch(prefix, from)
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<Lease, StoreError>> {
        self.inner.grant(ttl)
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.keep_alive(lease)
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.revoke(lease)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.compact(revision)
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.inner.revision()
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }

    fn sharing(&self) -> Sharing {
        self.inner.sharing()
    }

    fn health(&self) -> BoxFuture<'_, StoreHealth> {
        self.inner.health()
    }
}
