//! One backend of the comparison, with its answers in a common form.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use muster_sim::{Faults, Model};
use muster_store::embedded::EmbeddedOptions;
use muster_store::{
    CommitOutcome, EmbeddedStore, KeyValue, LeaseId, ManualClock, Op, Revision, Store, StoreAccess, StoreError, Txn,
};

/// A revision relative to the start of the case. Signed, since a bug may lead before it.
pub(crate) type At = i64;

/// A key with its value. The lease is the number of its grant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kv {
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
    pub(crate) revision: At,
    pub(crate) lease: Option<usize>,
}

/// Short, since failures print many of these: all bytes of a value are the same.
impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, revision, lease } = self;
        write!(f, "{key}={:?}×{} @{revision}", value.first(), value.len())?;
        lease.map_or(Ok(()), |lease| write!(f, " lease {lease}"))
    }
}

/// The answer of a backend.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    Committed {
        revision: At,
    },
    Refused {
        revision: At,
        failed: Vec<String>,
    },
    Found(Option<Kv>),
    Range {
        revision: At,
        kvs: Vec<Kv>,
    },
    Done,
    Compacted {
        requested: At,
        oldest: At,
    },
    Ahead {
        requested: At,
        head: At,
    },
    LeaseEnded {
        lease: Option<usize>,
    },
    /// No backend should return this here.
    Failed(String),
}

type Opener = Box<dyn Fn() -> BoxFuture<'static, Arc<dyn Store>> + Send + Sync>;

pub(crate) struct Side {
    pub(crate) name: &'static str,
    /// True if its watches report every change, also one that was undone before the next event; see [`Event::Progress`].
    ///
    /// [`Event::Progress`]: muster_store::WatchEvent::Progress
    pub(crate) reports_all_changes: bool,
    open: Opener,
    /// None only while it is reopened.
    store: Option<Arc<dyn Store>>,
    base: u64,
    leases: Vec<LeaseId>,
}

impl Side {
    pub(crate) async fn model() -> Self {
        let model = Model::new(Arc::new(ManualClock::new()), Faults::none());
        Self::new("model", move || {
            let client: Arc<dyn Store> = Arc::new(model.client(Faults::none()));
            Box::pin(async { client })
        })
        .await
    }

    pub(crate) async fn embedded() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::new("embedded", move || {
            let path = directory.path().join("store");
            Box::pin(async {
                let store: Arc<dyn Store> =
                    Arc::new(EmbeddedStore::open(path, EmbeddedOptions::default()).await.unwrap());
                store
            })
        })
        .await
    }

    pub(crate) async fn etcd(spec: String) -> Self {
        let open = move || -> BoxFuture<'static, Arc<dyn Store>> {
            let spec = spec.clone();
            Box::pin(async move { muster_store::open(&spec, &StoreAccess::default()).await.unwrap() })
        };
        Self { reports_all_changes: false, ..Self::new("etcd", open).await }
    }

    async fn new(
        name: &'static str,
        open: impl Fn() -> BoxFuture<'static, Arc<dyn Store>> + Send + Sync + 'static,
    ) -> Self {
        let store = open().await;
        wipe(&*store).await;
        let base = store.revision().await.unwrap().0;
        Self { name, reports_all_changes: true, open: Box::new(open), store: Some(store), base, leases: Vec::new() }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &**self.store.as_ref().unwrap()
    }

    /// As after a restart: the old instance is closed first.
    pub(crate) async fn reopen(&mut self) {
        self.store = None;
        self.store = Some((self.open)().await);
    }

    /// Revokes the leases of the case.
    pub(crate) async fn finish(self) {
        for lease in &self.leases {
            // Most of them have expired.
            let _ = self.store().revoke(*lease).await;
        }
    }

    pub(crate) fn revision(&self, at: At) -> Revision {
        Revision(self.base.checked_add_signed(at).unwrap())
    }

    pub(crate) fn at(&self, revision: Revision) -> At {
        revision.0.wrapping_sub(self.base).cast_signed()
    }

    /// The lease of that grant; an unknown one if there were fewer.
    pub(crate) fn lease(&self, grant: usize) -> LeaseId {
        self.leases.get(grant).copied().unwrap_or(LeaseId(i64::MAX - 7))
    }

    pub(crate) fn granted(&mut self, lease: LeaseId) {
        self.leases.push(lease);
    }

    fn grant_of(&self, lease: LeaseId) -> Option<usize> {
        self.leases.iter().position(|known| *known == lease)
    }

    pub(crate) fn kv(&self, kv: KeyValue) -> Kv {
        let lease = kv.lease.map(|lease| self.grant_of(lease).expect("a key has a lease that was granted"));
        Kv { key: kv.key, value: kv.value.to_vec(), revision: self.at(kv.revision), lease }
    }

    pub(crate) fn outcome(&self, answer: Result<CommitOutcome, StoreError>) -> Answer {
        match answer {
            Ok(CommitOutcome::Committed { revision }) => Answer::Committed { revision: self.at(revision) },
            Ok(CommitOutcome::Conflict { revision, failed }) => Answer::Refused { revision: self.at(revision), failed },
            Err(error) => self.failed(error),
        }
    }

    pub(crate) fn done(&self, answer: Result<(), StoreError>) -> Answer {
        answer.map_or_else(|error| self.failed(error), |()| Answer::Done)
    }

    pub(crate) async fn get(&self, key: &str) -> Answer {
        match self.store().get(key).await {
            Ok(found) => Answer::Found(found.map(|kv| self.kv(kv))),
            Err(error) => self.failed(error),
        }
    }

    pub(crate) async fn range(&self, prefix: &str, at: Option<At>) -> Answer {
        match self.store().range(prefix, at.map(|at| self.revision(at))).await {
            Ok(range) => {
                let kvs = range.kvs.into_iter().map(|kv| self.kv(kv)).collect();
                Answer::Range { revision: self.at(range.revision), kvs }
            }
            Err(error) => self.failed(error),
        }
    }

    pub(crate) fn failed(&self, error: StoreError) -> Answer {
        match error {
            StoreError::Compacted { requested, oldest } => {
                Answer::Compacted { requested: self.at(requested), oldest: self.at(oldest) }
            }
            StoreError::Ahead { requested, head } => {
                Answer::Ahead { requested: self.at(requested), head: self.at(head) }
            }
            StoreError::LeaseEnded { lease } => Answer::LeaseEnded { lease: self.grant_of(lease) },
            error @ (StoreError::Invalid(_)
            | StoreError::Full { .. }
            | StoreError::Unavailable { .. }
            | StoreError::Unknown { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Closed) => Answer::Failed(format!("{error:?}")),
        }
    }
}

/// Removes the keys of an earlier case from a shared store.
async fn wipe(store: &dyn Store) {
    let left = store.range("", None).await.unwrap().kvs;
    for some in left.chunks(100) {
        let txn = some.iter().fold(Txn::new(), |txn, kv| txn.op(Op::delete(&kv.key)));
        store.commit(txn).await.unwrap();
    }
}
