//! Watches: a snapshot of a prefix, then every change, and a gap when changes were missed.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::{BoxStream, Stream, StreamExt};
use muster_core::txn::Revision;

use crate::store::{KeyValue, StoreError};

/// Start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// With a snapshot, followed by all later changes.
    Now,
    /// With the changes after this revision, for a reader that has the state at it.
    After(Revision),
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchChange {
    Put(KeyValue),
    Delete { key: String },
}

impl WatchChange {
    pub fn key(&self) -> &str {
        match self {
            WatchChange::Put(kv) => &kv.key,
            WatchChange::Delete { key } => key,
        }
    }
}

/// Reason for a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapCause {
    /// The next changes have been compacted.
    Compacted { oldest: Revision },
    /// The reader's revision is later than the store's: the store was restored from a backup or replaced.
    Ahead { head: Revision },
    /// The connection was lost and could not be resumed.
    Lost,
}

/// WatchEvent of a watch.
///
/// The order is always `Snapshot* SnapshotEnd (Changes | Progress)* [Gap, and from the start]`. A watch that starts
/// [`After`](WatchFrom::After) a revision has no first snapshot. Revisions only grow until a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// Some of the keys, in order. A snapshot consists of any number of these, or of none.
    Snapshot(Vec<KeyValue>),
    /// The snapshot is complete at this revision: keys that are not in it do not exist.
    SnapshotEnd { revision: Revision },
    /// *All* changes that one transaction made under the prefix. Never empty.
    Changes { revision: Revision, changes: Vec<WatchChange> },
    /// Everything under the prefix up to this revision has been delivered; later transactions changed other keys. A
    /// reader that waits for a minimum revision needs this.
    ///
    /// The keys are the same as after the previous event. A key that was put and deleted in between may be missing: old
    /// versions of etcd have no request for that.
    Progress { revision: Revision },
    /// Changes after this revision may have been missed. The reader discards its state; a complete snapshot follows.
    Gap { after: Revision, cause: GapCause },
}

/// A running watch. See [`WatchEvent`] for its events.
///
/// The stream has no end. After an error it can be polled again and continues where it was, except after
/// [`StoreError::Closed`], which is final. It has no queue of its own: a slow reader continues from the history, and
/// gets a [`Gap`](WatchEvent::Gap) when that was compacted.
pub struct Watch(BoxStream<'static, Result<WatchEvent, StoreError>>);

impl Watch {
    /// Wraps the stream of a backend.
    pub fn new(events: impl Stream<Item = Result<WatchEvent, StoreError>> + Send + 'static) -> Self {
        Self(events.boxed())
    }

    /// The next event. Cancel safe: no event is lost when this future is dropped.
    pub async fn next(&mut self) -> Result<WatchEvent, StoreError> {
        self.0.next().await.unwrap_or(Err(StoreError::Closed))
    }
}

impl Stream for Watch {
    type Item = Result<WatchEvent, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}
