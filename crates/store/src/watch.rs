//! Following a prefix: a snapshot, then every change, and a word when changes were missed.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::{BoxStream, Stream, StreamExt};
use muster_core::txn::Revision;

use crate::error::StoreError;
use crate::store::KeyValue;

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// With a snapshot of what is there, and then everything after it.
    Now,
    /// With what happened after this revision, for a reader that knows the state at it.
    After(Revision),
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put(KeyValue),
    Delete { key: String },
}

impl Change {
    pub fn key(&self) -> &str {
        match self {
            Change::Put(kv) => &kv.key,
            Change::Delete { key } => key,
        }
    }
}

/// Why changes were missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapCause {
    /// What came next has been compacted.
    Compacted { oldest: Revision },
    /// The reader knows a revision that this store has not reached: it was restored from a backup, or is another one.
    Ahead { head: Revision },
    /// The connection was lost and could not be taken up where it was.
    Lost,
}

/// What a watch says.
///
/// The order is always `Snapshot* SnapshotEnd (Changes | Progress)* [Gap, and from the start]`; a watch that starts
/// [`After`](WatchFrom::After) a revision leaves out the first snapshot. Revisions only grow until a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Some of the keys, in order. There may be several of these, or none when nothing is there.
    Snapshot(Vec<KeyValue>),
    /// The snapshot is complete: this is what the store held at this revision, and what is not in it does not exist.
    SnapshotEnd { revision: Revision },
    /// *All* changes that one transaction made under the prefix. Never empty.
    Changes { revision: Revision, changes: Vec<Change> },
    /// Everything under the prefix up to this revision has been said: what came since was elsewhere. A reader that
    /// was asked for a minimum revision needs this, or a change of another environment would leave it waiting.
    ///
    /// What is there at this revision is what was there at the last word. A key that was put and deleted again in
    /// between may go unmentioned: old versions of etcd cannot be asked for more.
    Progress { revision: Revision },
    /// Changes after this revision may have been missed. Forget everything: a whole snapshot follows.
    Gap { after: Revision, cause: GapCause },
}

/// A watch that is running; see [`Event`] for what it says.
///
/// It is a stream without an end. After an error it may be polled again and goes on where it was, except after
/// [`StoreError::Closed`], which it then says for ever. It holds no queue of its own: a reader that falls behind
/// reads on from the history, and gets a [`Gap`](Event::Gap) when that has been compacted.
pub struct Watch(BoxStream<'static, Result<Event, StoreError>>);

impl Watch {
    /// Wraps the stream of a backend.
    pub fn new(events: impl Stream<Item = Result<Event, StoreError>> + Send + 'static) -> Self {
        Self(events.boxed())
    }

    /// The next event. Safe to cancel: nothing is lost when this future is dropped.
    pub async fn next(&mut self) -> Result<Event, StoreError> {
        self.0.next().await.unwrap_or(Err(StoreError::Closed))
    }
}

impl Stream for Watch {
    type Item = Result<Event, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}
