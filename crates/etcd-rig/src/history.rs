//! Reads etcd from outside: all keys at one revision, and all changes since a revision. Shares no code with Muster's
//! backend.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_client::{Error, Event, EventType, GetOptions, GetResponse, KeyValue, WatchOptions};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::{ClientAccess, PAUSE, TIMEOUT};
use crate::cluster::Cluster;

/// All keys with a prefix at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// RevisionChanges of the store.
    pub revision: i64,
    /// Sorted by key.
    pub entries: Vec<DumpEntry>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpEntry {
    pub key: String,
    pub value: Vec<u8>,
    /// The revision of its last put.
    pub mod_revision: i64,
    /// 0 means no lease.
    pub lease: i64,
}

impl Cluster {
    /// Reads all keys with a prefix. The read is linearizable.
    pub async fn dump(&self, prefix: &str) -> Dump {
        let mut attempts = self.attempts("read all keys");
        loop {
            let asked = async {
                let prefixed = GetOptions::new().with_prefix();
                attempts.client().await?.get(prefix, Some(prefixed)).await
            };
            match asked.await {
                Ok(answer) => return Dump::from_response(&answer),
                Err(error) => attempts.failed(error).await,
            }
        }
    }

    /// RevisionChanges of the store.
    pub async fn revision(&self) -> i64 {
        self.dump("/no such key/").await.revision
    }
}

impl Dump {
    fn from_response(answer: &GetResponse) -> Self {
        let entry = |kv: &KeyValue| DumpEntry {
            key: String::from_utf8_lossy(kv.key()).into_owned(),
            value: kv.value().to_vec(),
            mod_revision: kv.mod_revision(),
            lease: kv.lease(),
        };
        let revision = answer.header().map_or(0, |header| header.revision());
        Self { revision, entries: answer.kvs().iter().map(entry).collect() }
    }
}

/// A key of the rig itself.
pub(crate) const MARKER: &str = "/etcd-rig/marker";

/// Changes of one transaction under the prefix. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionChanges {
    pub revision: i64,
    pub changes: Vec<RawChange>,
}

/// A change of one key, as etcd reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawChange {
    Put {
        key: String,
        value: Vec<u8>,
        /// 0 means no lease.
        lease: i64,
    },
    Delete {
        key: String,
    },
}

impl RawChange {
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// Records every change under a prefix. It switches members when one fails, and misses nothing unless etcd is compacted
/// before it has caught up.
#[derive(Debug)]
pub struct ChangeRecorder {
    recorded: Arc<Mutex<Recorded>>,
    /// The revision up to which all changes are recorded.
    reached: watch::Receiver<i64>,
    _task: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Recorded {
    history: Vec<RevisionChanges>,
    lost: Option<String>,
}

impl Cluster {
    /// Records all changes under a prefix, from a revision on (1: from the beginning).
    pub fn record_changes(&self, prefix: &str, from: i64) -> ChangeRecorder {
        let recorded = Arc::new(Mutex::new(Recorded::default()));
        let (reach, reached) = watch::channel(from - 1);
        let urls = self.members().iter().map(|member| member.client_url().to_owned()).collect();
        let recorder = Recorder {
            access: self.access.clone(),
            urls,
            prefix: prefix.to_owned(),
            recorded: recorded.clone(),
            reach,
        };
        let mut task = JoinSet::new();
        task.spawn(recorder.run());
        ChangeRecorder { recorded, reached, _task: task }
    }
}

impl ChangeRecorder {
    /// Waits until all changes that were acknowledged before this call are recorded. Returns the revision.
    ///
    /// It puts a key of the rig and waits for its event. Progress notifications of etcd 3.4 cannot be used, because
    /// they may overtake events.
    pub async fn catch_up(&self, cluster: &Cluster) -> i64 {
        let mut attempts = cluster.attempts("write a marker");
        let revision = loop {
            let asked = async { attempts.client().await?.put(MARKER, "", None).await };
            match asked.await {
                Ok(answer) => break answer.header().map_or(0, |header| header.revision()),
                Err(error) => attempts.failed(error).await,
            }
        };
        self.wait_for(revision).await;
        revision
    }

    /// Waits until all changes up to a revision are recorded. That revision must have changed some key.
    pub async fn wait_for(&self, revision: i64) {
        let mut reached = self.reached.clone();
        let waited = timeout(TIMEOUT, reached.wait_for(|reached| *reached >= revision)).await;
        if !matches!(waited, Ok(Ok(_))) {
            let lost = self.recorded.lock().unwrap_or_else(PoisonError::into_inner).lost.clone();
            panic!("revision {revision} was not recorded: {}", lost.unwrap_or_default());
        }
    }

    /// All recorded changes, by revision.
    pub fn history(&self) -> Vec<RevisionChanges> {
        self.recorded().history.clone()
    }

    /// The changes recorded since the last call.
    pub fn drain(&self) -> Vec<RevisionChanges> {
        std::mem::take(&mut self.recorded().history)
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        let recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lost) = &recorded.lost {
            panic!("{lost}");
        }
        recorded
    }
}

struct Recorder {
    access: ClientAccess,
    urls: Vec<String>,
    prefix: String,
    recorded: Arc<Mutex<Recorded>>,
    reach: watch::Sender<i64>,
}

impl Recorder {
    async fn run(self) {
        for url in self.urls.iter().cycle() {
            // A failed member is detected by an error or a timeout; the next one continues.
            if let Ok(()) = self.record(url).await {
                return;
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns Ok only if a retry is useless.
    async fn record(&self, url: &str) -> Result<(), Error> {
        let mut client = self.access.connect_for_stream(url).await?;
        let from = *self.reach.borrow() + 1;
        // All keys, because of the marker. Events of one revision come together.
        let options = WatchOptions::new().with_all_keys().with_start_revision(from);
        let mut stream = timeout(TIMEOUT, client.watch("", Some(options)))
            .await
            .map_err(|_| Error::WatchError("no response".to_owned()))??;
        while let Some(answer) = stream.message().await? {
            if answer.compact_revision() > 0 {
                let lost = format!("etcd was compacted at {} before {from} was recorded", answer.compact_revision());
                self.recorded.lock().unwrap_or_else(PoisonError::into_inner).lost = Some(lost);
                return Ok(());
            }
            if answer.canceled() {
                return Err(Error::WatchError(answer.cancel_reason().to_owned()));
            }
            self.note(answer.events());
        }
        Err(Error::WatchError("the stream has ended".to_owned()))
    }

    fn note(&self, events: &[Event]) {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            let Some(kv) = event.kv() else { continue };
            let (key, revision) = (String::from_utf8_lossy(kv.key()).into_owned(), kv.mod_revision());
            self.reach.send_replace(revision);
            if !key.starts_with(&self.prefix) {
                continue;
            }
            let change = match event.event_type() {
                EventType::Put => RawChange::Put { key, value: kv.value().to_vec(), lease: kv.lease() },
                EventType::Delete => RawChange::Delete { key },
            };
            match recorded.history.last_mut().filter(|last| last.revision == revision) {
                Some(last) => last.changes.push(change),
                None => recorded.history.push(RevisionChanges { revision, changes: vec![change] }),
            }
        }
    }
}
