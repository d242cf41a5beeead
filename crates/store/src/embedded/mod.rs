//! Store in one file, on redb.
//!
//! One thread writes (`writer`). It takes all waiting requests, applies them in order in one write transaction of redb,
//! and commits that with one fsync (`group_commit`). After that it publishes the changes to the watches and sends the
//! replies. Reads and watches use snapshots of redb and never wait for the writer.

mod apply;
mod database;
mod file;
mod format;
mod group_commit;
mod head_file;
mod leases;
mod read;
mod shared;
mod verification;
mod watch;
mod writer;

use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures::future::BoxFuture;
use muster_core::txn::{LeaseId, Revision, Txn};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use self::database::OpenDatabase;
pub use self::database::OpenFileError;
use self::file::FileLog;
use self::head_file::HeadFile;
use self::leases::LeaseDeadlines;
use self::read::PageRequest;
use self::shared::{ActivityCounters, CommitPosition, DatabaseSlot, EmbeddedShared};
use self::verification::Verifications;
use self::watch::EmbeddedWatch;
use self::writer::{WriterState, WriterThread};
use crate::clock::{LeaseClock, SystemClock};
use crate::limits;
use crate::store::{
    CommitOutcome, KeyRange, KeyValue, Lease, Sharing, Store, StoreError, StoreHealth, StoreStats, Verification,
};
use crate::watch::{Watch, WatchFrom};
use watch::RecentTxns;
use writer::{PendingReply, WriteRequest};

/// Retention, memory and clock of an embedded store.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// Revisions that stay readable. A replica that reconnects is seconds behind, and a busy fleet makes some hundred
    /// revisions a second.
    pub keep_revisions: u64,
    /// Maximum bytes of history, whatever the number of revisions. It limits the file.
    pub keep_bytes: u64,
    /// Size of the page cache. redb's default is one gigabyte.
    pub cache_bytes: usize,
    /// The clock of leases.
    pub clock: Arc<dyn LeaseClock>,
    /// Open a file that went back: a restore replaces its content.
    pub accept_older: bool,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            keep_revisions: 10_000,
            keep_bytes: 64 * 1024 * 1024,
            cache_bytes: 32 * 1024 * 1024,
            clock: Arc::new(SystemClock::new()),
            accept_older: false,
        }
    }
}

/// Requests that can wait for the writer. Further callers wait for a free place.
const MAX_WAITING: usize = 1024;

/// A store in one file. Dropping it closes the file and ends its watches.
#[derive(Debug)]
pub struct EmbeddedStore {
    shared: Arc<EmbeddedShared>,
    /// None only during the drop. The writer ends when all senders are gone.
    requests: Option<mpsc::Sender<WriteRequest>>,
    writer: Option<std::thread::JoinHandle<()>>,
    /// Remembers the revision until the store is dropped.
    revision_writer: Option<std::thread::JoinHandle<()>>,
    /// Expires leases until the store is dropped.
    expiry: JoinSet<()>,
}

impl EmbeddedStore {
    /// Opens the store in a file. Creates the file if it does not exist. Needs a tokio runtime.
    pub async fn open(path: impl AsRef<Path>, options: EmbeddedOptions) -> Result<Self, OpenFileError> {
        let path = path.as_ref().to_owned();
        let io = |doing, cause| OpenFileError::Io { doing, path: path.clone(), cause };
        let (opened, settings) = (path.clone(), options.clone());
        let (log, head_file, opened) = tokio::task::spawn_blocking(move || {
            let (log, head_file) = (Arc::new(FileLog::default()), HeadFile::new(&opened));
            let opened = database::open_or_create(&opened, &settings, &log, &head_file)?;
            head_file.opened(opened.counters.head);
            Ok::<_, OpenFileError>((log, head_file, opened))
        })
        .await
        .map_err(|error| io("open", std::io::Error::other(error)))??;
        let OpenDatabase { database, counters, leases, id, .. } = opened;

        let (requests, receiver) = mpsc::channel(MAX_WAITING);
        let (sender, position) =
            tokio::sync::watch::channel(CommitPosition { head: counters.head, compacted: counters.compacted });
        let shared = Arc::new(EmbeddedShared {
            name: format!("embedded:{}", path.display()),
            path: path.clone(),
            slot: RwLock::new(DatabaseSlot::Open { database, generation: 0, id }),
            head_file,
            recent: RecentTxns::default(),
            position,
            requests: requests.downgrade(),
            leases: LeaseDeadlines::new(Arc::clone(&options.clock)),
            log,
            activity: ActivityCounters::default(),
            verifications: Verifications::new(Arc::clone(&options.clock)),
        });
        shared.leases.sync_with(&leases);
        let writer = WriterThread {
            shared: Arc::clone(&shared),
            options,
            requests: receiver,
            position: sender,
            counters,
            state: WriterState::Up { generation: 0 },
        };
        let writer = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|cause| io("start the writer of", cause))?;
        let kept = Arc::clone(&shared);
        let revision_writer = std::thread::Builder::new()
            .name("store-revision".to_owned())
            .spawn(move || kept.keep_head_file())
            .map_err(|cause| io("start the thread that remembers the revision of", cause))?;
        let mut expiry = JoinSet::new();
        expiry.spawn(leases::expire(Arc::clone(&shared)));
        Ok(Self {
            shared,
            requests: Some(requests),
            writer: Some(writer),
            revision_writer: Some(revision_writer),
            expiry,
        })
    }

    /// Sends a request to the writer and waits for the reply.
    async fn send_request<T>(&self, request: impl FnOnce(PendingReply<T>) -> WriteRequest) -> Result<T, StoreError> {
        let (reply, answer): (_, oneshot::Receiver<_>) = PendingReply::new();
        let requests = self.requests.as_ref().ok_or(StoreError::Closed)?;
        requests.send(request(reply)).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| self.shared.writer_panicked())?
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.expiry.abort_all();
        self.requests = None;
        // At most one group is still being written. After the join the file can be opened again.
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
        self.shared.close();
        if let Some(revision_writer) = self.revision_writer.take() {
            revision_writer.thread().unpark();
            let _ = revision_writer.join();
        }
    }
}

/// Operations, and guards, of one transaction. The limit of bytes is reached before.
const MAX_OPS: usize = 512;

impl Store for EmbeddedStore {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>> {
        Box::pin(async move {
            limits::check_key(key)?;
            let key = key.to_owned();
            self.shared.read(move |txn| read::get(txn, &key)).await
        })
    }

    fn get_all<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<Vec<Option<KeyValue>>, StoreError>> {
        Box::pin(async move {
            keys.iter().try_for_each(|key| limits::check_key(key))?;
            let keys = keys.to_vec();
            self.shared.read(move |txn| keys.iter().map(|key| read::get(txn, key)).collect()).await
        })
    }

    fn range<'a>(&'a self, prefix: &'a str, at: Option<Revision>) -> BoxFuture<'a, Result<KeyRange, StoreError>> {
        let request = PageRequest { prefix: prefix.to_owned(), at: at.map(|at| at.0), after: None, limit: usize::MAX };
        Box::pin(async move {
            let page = self.shared.read(move |txn| read::page(txn, &request)).await?;
            Ok(KeyRange { kvs: page.kvs, revision: Revision(page.revision) })
        })
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<CommitOutcome, StoreError>> {
        Box::pin(async move {
            limits::check_txn(&txn, MAX_OPS)?;
            self.send_request(|reply| WriteRequest::Commit { txn, reply }).await
        })
    }

    fn max_ops(&self) -> usize {
        MAX_OPS
    }

    fn watch(&self, prefix: &str, from: WatchFrom) -> Watch {
        Watch::new(EmbeddedWatch::new(Arc::clone(&self.shared), prefix, from).into_stream())
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<Lease, StoreError>> {
        Box::pin(async move {
            limits::check_ttl(ttl)?;
            self.send_request(|reply| WriteRequest::Grant { ttl, reply }).await
        })
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.shared.leases.keep_alive(lease) })
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.send_request(move |reply| WriteRequest::Revoke { lease, reply }))
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.send_request(move |reply| WriteRequest::Compact { revision, reply }))
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        Box::pin(async move { Ok(Revision(self.shared.read(read::counters).await?.head)) })
    }

    fn stats(&self) -> StoreStats {
        self.shared.stats()
    }

    fn sharing(&self) -> Sharing {
        Sharing::Exclusive
    }

    fn health(&self) -> BoxFuture<'_, StoreHealth> {
        Box::pin(shared::check_health(&self.shared))
    }

    fn verify(&self) -> BoxFuture<'_, Result<Verification, StoreError>> {
        Box::pin(self.send_request(|reply| WriteRequest::Verify { reply }))
    }
}
