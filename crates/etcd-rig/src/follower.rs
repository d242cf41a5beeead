//! Everything that happens in the store, as it happens.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_client::{Error, Event, EventType, WatchOptions};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::attempts::{PATIENCE, PAUSE};
use crate::cluster::Cluster;
use crate::connection::Access;

/// A key of the rig's own, which no test and no Muster looks at.
const MARKER: &str = "/etcd-rig/marker";

/// One transaction: all that it changed. Revisions that changed nothing below the prefix are not told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    pub revision: i64,
    pub changes: Vec<Change>,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put {
        key: String,
        value: Vec<u8>,
        /// 0: none.
        lease: i64,
    },
    Delete {
        key: String,
    },
}

impl Change {
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// Writes down every change below a prefix. It goes from member to member when one is lost, and misses nothing, unless
/// etcd is compacted before it has caught up.
#[derive(Debug)]
pub struct Follower {
    seen: Arc<Mutex<Seen>>,
    /// The last revision of which everything was seen.
    reached: watch::Receiver<i64>,
    _task: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Seen {
    history: Vec<Revision>,
    lost: Option<String>,
}

impl Cluster {
    /// Follows all changes below a prefix, from a revision on (1: from the beginning).
    pub fn follow(&self, prefix: &str, from: i64) -> Follower {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (reach, reached) = watch::channel(from - 1);
        let urls = self.members().iter().map(|member| member.client_url().to_owned()).collect();
        let pursuit =
            Pursuit { access: self.access.clone(), urls, prefix: prefix.to_owned(), seen: seen.clone(), reach };
        let mut task = JoinSet::new();
        task.spawn(pursuit.run());
        Follower { seen, reached, _task: task }
    }
}

impl Follower {
    /// Waits until everything has been seen that was acknowledged before this call. Gives the revision.
    ///
    /// It writes a key of the rig's own and waits for it to come by: etcd's progress notifications cannot serve, since
    /// those of 3.4 may overtake changes that are still on their way.
    pub async fn catch_up(&self, cluster: &Cluster) -> i64 {
        let mut attempts = cluster.attempts("write a marker");
        let revision = loop {
            let asked = async { attempts.client().await?.put(MARKER, "", None).await };
            match asked.await {
                Ok(answer) => break answer.header().map_or(0, |header| header.revision()),
                Err(error) => attempts.failed(error).await,
            }
        };
        self.until(revision).await;
        revision
    }

    /// Waits until everything up to a revision has been seen. There has to be one that changed something, anywhere.
    pub async fn until(&self, revision: i64) {
        let mut reached = self.reached.clone();
        let waited = timeout(PATIENCE, reached.wait_for(|reached| *reached >= revision)).await;
        if !matches!(waited, Ok(Ok(_))) {
            let lost = self.seen.lock().unwrap_or_else(PoisonError::into_inner).lost.clone();
            panic!("the follower has not come to revision {revision}: {}", lost.unwrap_or_default());
        }
    }

    /// Everything so far, in the order of revisions.
    pub fn history(&self) -> Vec<Revision> {
        self.seen().history.clone()
    }

    /// The same without what was taken before.
    pub fn take(&self) -> Vec<Revision> {
        std::mem::take(&mut self.seen().history)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lost) = &seen.lost {
            panic!("{lost}");
        }
        seen
    }
}

struct Pursuit {
    access: Access,
    urls: Vec<String>,
    prefix: String,
    seen: Arc<Mutex<Seen>>,
    reach: watch::Sender<i64>,
}

impl Pursuit {
    async fn run(self) {
        for url in self.urls.iter().cycle() {
            // A member that is lost says so by an error, or by its silence; the next one goes on where it was.
            if let Ok(()) = self.follow(url).await {
                return;
            }
            sleep(PAUSE).await;
        }
    }

    /// Ends well only when there is no use in going on.
    async fn follow(&self, url: &str) -> Result<(), Error> {
        let mut client = self.access.connect_for_stream(url).await?;
        let from = *self.reach.borrow() + 1;
        // All keys, for the marker. The events of one revision always come together.
        let options = WatchOptions::new().with_all_keys().with_start_revision(from);
        let mut stream = timeout(PATIENCE, client.watch("", Some(options)))
            .await
            .map_err(|_| Error::WatchError("no answer".to_owned()))??;
        while let Some(answer) = stream.message().await? {
            if answer.compact_revision() > 0 {
                let lost = format!("etcd was compacted at {} before {from} was seen", answer.compact_revision());
                self.seen.lock().unwrap_or_else(PoisonError::into_inner).lost = Some(lost);
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
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            let Some(kv) = event.kv() else { continue };
            let (key, revision) = (String::from_utf8_lossy(kv.key()).into_owned(), kv.mod_revision());
            self.reach.send_replace(revision);
            if !key.starts_with(&self.prefix) {
                continue;
            }
            let change = match event.event_type() {
                EventType::Put => Change::Put { key, value: kv.value().to_vec(), lease: kv.lease() },
                EventType::Delete => Change::Delete { key },
            };
            match seen.history.last_mut().filter(|last| last.revision == revision) {
                Some(last) => last.changes.push(change),
                None => seen.history.push(Revision { revision, changes: vec![change] }),
            }
        }
    }
}
