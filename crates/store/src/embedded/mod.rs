//! The store in one file of this machine, on redb.
//!
//! One thread writes (`writer`): it takes all requests that wait, carries them out in order in one write
//! transaction of redb, and commits that with one fsync (`group`). Then, and not before, it tells the watches and
//! answers the writers. Reads and watches take snapshots of redb and never wait for it.

mod apply;
mod compaction;
mod database;
mod fault;
mod file;
mod follow;
mod group;
mod health;
mod leases;
mod numbers;
mod options;
mod read;
mod recent;
mod record;
mod request;
mod shared;
mod tables;
mod writer;

use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures::future::BoxFuture;
use muster_core::txn::{LeaseId, Revision, Txn};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

pub use self::database::OpenError;
use self::database::Opened;
use self::file::FileLog;
use self::follow::Follower;
use self::leases::LeaseBook;
pub use self::options::Options;
use self::read::Wanted;
use self::recent::Recent;
use self::request::{Request, Waiting};
use self::shared::{Counters, Position, Shared, Slot};
use self::writer::{State, Writer};
use crate::error::StoreError;
use crate::health::{Health, Sharing};
use crate::limits;
use crate::store::{KeyValue, Lease, Outcome, Range, Stats, Store};
use crate::watch::{Watch, WatchFrom};

/// Requests that may wait for the writer before the next ones wait for their place.
const WAITING: usize = 1024;

/// A store in one file. Dropping it lets go of the file, and ends its watches.
#[derive(Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
    /// None only while it is dropped: the writer ends when this is gone.
    requests: Option<mpsc::Sender<Request>>,
    writer: Option<std::thread::JoinHandle<()>>,
    /// Ends leases; it ends itself with the store.
    keeper: JoinSet<()>,
}

impl Embedded {
    /// Opens the store in a file, which is created if there is none. Needs a tokio runtime.
    pub async fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let path = path.as_ref().to_owned();
        let io = |doing, cause| OpenError::Io { doing, path: path.clone(), cause };
        let (opened, cache) = (path.clone(), options.cache_bytes);
        let (log, opened) = tokio::task::spawn_blocking(move || {
            let log = Arc::new(FileLog::default());
            database::open_or_create(&opened, cache, &log).map(|opened| (log, opened))
        })
        .await
        .map_err(|error| io("open", std::io::Error::other(error)))??;
        let Opened { database, numbers, leases } = opened;

        let (requests, receiver) = mpsc::channel(WAITING);
        let (sender, position) = watch::channel(Position { head: numbers.head, compacted: numbers.compacted });
        let shared = Arc::new(Shared {
            name: format!("embedded:{}", path.display()),
            path: path.clone(),
            slot: RwLock::new(Slot::Open { database, generation: 0 }),
            recent: Recent::default(),
            position,
            requests: requests.downgrade(),
            leases: LeaseBook::new(Arc::clone(&options.clock)),
            log,
            counters: Counters::default(),
        });
        shared.leases.agree_with(&leases);
        let writer = Writer {
            shared: Arc::clone(&shared),
            options,
            requests: receiver,
            position: sender,
            numbers,
            state: State::Up { generation: 0 },
        };
        let writer = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|cause| io("start the writer of", cause))?;
        let mut keeper = JoinSet::new();
        keeper.spawn(leases::keep(Arc::clone(&shared)));
        Ok(Self { shared, requests: Some(requests), writer: Some(writer), keeper })
    }

    /// Asks the writer, and waits for the answer.
    async fn ask<T>(&self, request: impl FnOnce(Waiting<T>) -> Request) -> Result<T, StoreError> {
        let (waiting, answer): (_, oneshot::Receiver<_>) = Waiting::new();
        let requests = self.requests.as_ref().ok_or(StoreError::Closed)?;
        requests.send(request(waiting)).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| self.shared.left_alone())?
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.keeper.abort_all();
        self.requests = None;
        // At most one group is still being written. Waiting for it means that the file is free when this returns.
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
        self.shared.close();
    }
}

impl Store for Embedded {
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

    fn range<'a>(&'a self, prefix: &'a str, at: Option<Revision>) -> BoxFuture<'a, Result<Range, StoreError>> {
        let wanted = Wanted { prefix: prefix.to_owned(), at: at.map(|at| at.0), after: None, limit: usize::MAX };
        Box::pin(async move {
            let page = self.shared.read(move |txn| read::page(txn, &wanted)).await?;
            Ok(Range { kvs: page.kvs, revision: Revision(page.revision) })
        })
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, StoreError>> {
        Box::pin(async move {
            limits::check_txn(&txn)?;
            self.ask(|waiting| Request::Commit { txn, waiting }).await
        })
    }

    fn watch(&self, prefix: &str, from: WatchFrom) -> Watch {
        Watch::new(Follower::new(Arc::clone(&self.shared), prefix, from).into_stream())
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<Lease, StoreError>> {
        Box::pin(async move {
            limits::check_ttl(ttl)?;
            self.ask(|waiting| Request::Grant { ttl, waiting }).await
        })
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.shared.leases.keep_alive(lease) })
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.ask(move |waiting| Request::Revoke { lease, waiting }))
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.ask(move |waiting| Request::Compact { revision, waiting }))
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        Box::pin(async move { Ok(Revision(self.shared.read(read::numbers).await?.head)) })
    }

    fn stats(&self) -> Stats {
        self.shared.stats()
    }

    fn sharing(&self) -> Sharing {
        Sharing::Alone
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(health::ask(&self.shared))
    }
}
