//! A watch of an etcd prefix: a state machine that is polled. It has no task and no queue of its own. Events that are
//! not read yet wait in etcd, because a stream is limited by its window.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Error, WatchOptions, WatchResponse, WatchStream};
use futures::stream::Stream;
use futures::{StreamExt, stream};
use muster_core::txn::Revision;
use tokio::time::Instant;

use super::errors::{EtcdRejection, FailureClass, RetryAt, classify, describe};
use super::event_assembly::EventAssembly;
use super::pool::{ConnectionId, jitter};
use super::progress::{ExpectedEvents, PrefixDifference, WatchCheck, difference, next_check};
use super::read;
use super::read::KeySpan;
use super::request::{EtcdShared, RetryPolicy, for_etcd, revision};
use crate::store::{StoreError, text_cause};
use crate::watch::{GapCause, WatchEvent, WatchFrom};

/// The next step of the watch.
enum EtcdWatchPhase {
    /// Reads the keys of this span, at the latest revision if none is set yet.
    Snapshot { at: Option<Revision>, rest: KeySpan },
    /// Opens an etcd stream after the delivered revision.
    Open,
    /// Reads the stream.
    Live(Live),
}

struct Live {
    responses: WatchStream,
    id: ConnectionId,
}

pub(super) struct EtcdWatch {
    shared: Arc<EtcdShared>,
    span: KeySpan,
    phase: EtcdWatchPhase,
    /// Events that are ready to deliver: at most those of one response.
    ready: VecDeque<WatchEvent>,
    assembly: EventAssembly,
    /// The revision up to which the reader has received everything.
    delivered: u64,
    expected: Arc<ExpectedEvents>,
    /// The cluster of that revision; none until a response has named it.
    cluster: Option<u64>,
    /// Failures in a row, of streams that broke or were refused before their first event.
    failures: u32,
    /// The earliest time of the next probe for missed events.
    next_probe: Instant,
    /// Time since which the stream owes an event that is known to exist.
    undelivered_since: Option<Instant>,
}

impl EtcdWatch {
    pub(super) fn new(shared: Arc<EtcdShared>, prefix: &str, from: WatchFrom) -> Self {
        let span = KeySpan::with_prefix(prefix);
        let (phase, delivered) = match from {
            WatchFrom::Now => (EtcdWatchPhase::Snapshot { at: None, rest: span.clone() }, 0),
            WatchFrom::After(Revision(after)) => (EtcdWatchPhase::Open, after),
        };
        let expected = shared.head.register_watch(prefix);
        Self {
            shared,
            span,
            phase,
            ready: VecDeque::new(),
            assembly: EventAssembly::default(),
            delivered,
            expected,
            cluster: None,
            failures: 0,
            next_probe: Instant::now(),
            undelivered_since: None,
        }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Result<WatchEvent, StoreError>> + Send {
        stream::unfold(self, |mut state| async {
            let mut closed = state.shared.closed.subscribe();
            let event = tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => Err(StoreError::Closed),
                event = state.next() => event,
            };
            Some((event, state))
        })
    }

    async fn next(&mut self) -> Result<WatchEvent, StoreError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            match &mut self.phase {
                EtcdWatchPhase::Snapshot { at, rest } => {
                    let (at, rest) = (*at, rest.clone());
                    self.snapshot(at, rest).await?;
                }
                EtcdWatchPhase::Open => self.open().await?,
                EtcdWatchPhase::Live(live) => {
                    let (shared, expected) = (&self.shared, &self.expected);
                    tokio::select! {
                        biased;
                        response = live.responses.next() => self.handle_response(response).await?,
                        check = next_check(shared, expected, self.delivered, self.next_probe) => match check {
                            WatchCheck::Probe => self.probe().await?,
                            WatchCheck::Overdue => self.reopen_stuck().await,
                        }
                    }
                }
            }
        }
    }

    async fn snapshot(&mut self, at: Option<Revision>, rest: KeySpan) -> Result<(), StoreError> {
        match read::page(&self.shared, &rest, at).await {
            Ok(page) if at.is_some() && self.cluster.is_some_and(|known| known != page.cluster) => {
                self.cluster = None;
                self.gap(GapCause::Lost);
                Ok(())
            }
            Ok(page) => {
                self.cluster = Some(page.cluster);
                if !page.kvs.is_empty() {
                    self.ready.push_back(WatchEvent::Snapshot(page.kvs));
                }
                self.delivered = page.revision;
                let revision = Revision(page.revision);
                match page.rest {
                    Some(rest) => self.phase = EtcdWatchPhase::Snapshot { at: Some(revision), rest },
                    None => {
                        self.ready.push_back(WatchEvent::SnapshotEnd { revision });
                        self.phase = EtcdWatchPhase::Open;
                    }
                }
                Ok(())
            }
            // The reader was slower than the compaction: start again.
            Err(StoreError::Compacted { oldest, .. }) => {
                self.gap(GapCause::Compacted { oldest });
                Ok(())
            }
            Err(StoreError::Ahead { head, .. }) => {
                self.gap(GapCause::Ahead { head });
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    /// Opens an etcd stream for the changes after the delivered revision.
    ///
    /// The stream starts *at* that revision, and its events are skipped. etcd then refuses a revision that was
    /// compacted. A stream that starts one revision later is accepted by etcd before 3.4.34 and 3.5.15 even if exactly
    /// that revision was compacted, and misses its deletes (etcd issue 18089).
    async fn open(&mut self) -> Result<(), StoreError> {
        let options = WatchOptions::new()
            .with_range(self.span.to.clone())
            .with_start_revision(for_etcd(Revision(self.delivered)).max(1))
            .with_progress_notify()
            .with_fragment();
        let (live, first) = self
            .shared
            .call(RetryPolicy::Idempotent, |connection| {
                let (from, options) = (self.span.from.clone(), options.clone());
                async move {
                    let mut responses = connection.watch().watch(from, Some(options)).await?;
                    match responses.next().await {
                        Some(first) => Ok((Live { responses, id: connection.id }, first?)),
                        None => Err(ended()),
                    }
                }
            })
            .await
            .map_err(|failure| self.shared.error(failure))?;

        let (cluster, head) =
            first.header().map_or((0, 0), |header| (header.cluster_id(), revision(header.revision())));
        let known = self.cluster.replace(cluster);
        if first.canceled() {
            self.cluster = known;
            return self.canceled(&first, live.id).await;
        }
        if known.is_some_and(|known| known != cluster) {
            // Restored from a backup, or another cluster at the same address: equal revisions have no meaning.
            self.gap(GapCause::Lost);
            return Ok(());
        }
        // This member may only lag behind. A linearizable read decides.
        if head < self.delivered {
            let head = read::head(&self.shared).await.map_err(|failure| self.shared.error(failure))?;
            if head < self.delivered {
                self.gap(GapCause::Ahead { head: Revision(head) });
                return Ok(());
            }
        }
        self.assembly = EventAssembly::default();
        self.phase = EtcdWatchPhase::Live(live);
        Ok(())
    }

    /// Handles a response of the stream.
    async fn handle_response(&mut self, response: Option<Result<WatchResponse, Error>>) -> Result<(), StoreError> {
        let EtcdWatchPhase::Live(Live { id, .. }) = &self.phase else { return Ok(()) };
        let id = *id;
        let response = match response.unwrap_or_else(|| Err(ended())) {
            Ok(response) => response,
            Err(error) => {
                self.reconnect(id, &error).await;
                return Ok(());
            }
        };
        if response.canceled() || response.compact_revision() > 0 {
            return self.canceled(&response, id).await;
        }
        self.failures = 0;
        self.undelivered_since = None;
        let head = response.header().map_or(0, |header| revision(header.revision()));
        self.shared.head.observe(head);
        let response = response.0;
        if response.events.is_empty() {
            // A progress notification: all earlier events have been sent.
            if !response.created && !response.fragment && head > self.delivered {
                self.progress(head);
            }
            return Ok(());
        }
        let last = response.events.last().and_then(|event| event.kv.as_ref()).map_or(0, |kv| revision(kv.mod_revision));
        self.ready.extend(self.assembly.add(response.events, response.fragment, self.delivered));
        if let Some(WatchEvent::Changes { revision, .. }) = self.ready.back() {
            self.delivered = revision.0;
        }
        // The events were of keys that are not UTF-8: nothing to deliver, but the revision counts.
        if !response.fragment && last > self.delivered {
            self.progress(last);
        }
        Ok(())
    }

    fn progress(&mut self, head: u64) {
        self.delivered = head;
        self.undelivered_since = None;
        // The rest of an incomplete transaction does not follow any more.
        self.assembly = EventAssembly::default();
        self.ready.push_back(WatchEvent::Progress { revision: Revision(head) });
    }

    fn gap(&mut self, cause: GapCause) {
        self.ready.push_back(WatchEvent::Gap { after: Revision(self.delivered), cause });
        self.phase = EtcdWatchPhase::Snapshot { at: None, rest: self.span.clone() };
        // Expected events may be missing from the new snapshot.
        self.expected.reset();
        self.undelivered_since = None;
        self.failures = 0;
    }
}

fn ended() -> Error {
    Error::WatchError("the stream has ended".to_owned())
}

/// Base of the backoff after a broken stream; random, and doubled with each failure.
const RECONNECT_BACKOFF: Duration = Duration::from_millis(100);

impl EtcdWatch {
    /// Handles a stream that etcd has canceled.
    async fn canceled(&mut self, response: &WatchResponse, id: ConnectionId) -> Result<(), StoreError> {
        let compacted = revision(response.compact_revision());
        if compacted > 0 {
            self.shared.note_compacted(compacted);
            if compacted <= self.delivered {
                // etcd was still catching up with revisions that a read has delivered already: nothing is missing.
                self.phase = EtcdWatchPhase::Open;
            } else {
                self.gap(GapCause::Compacted { oldest: Revision(compacted) });
            }
            return Ok(());
        }
        // For an expired token etcd reports "permission denied" here. The first time, log in again.
        self.phase = EtcdWatchPhase::Open;
        self.shared.pool.disconnect(id).await;
        self.failures += 1;
        if self.failures > 1 && self.shared.pool.credentials.login.is_some() || self.failures > 3 {
            let cause = text_cause(format!("etcd has canceled the watch: {}", response.cancel_reason()));
            return Err(StoreError::Unavailable { store: self.shared.name.clone(), cause });
        }
        Ok(())
    }

    /// Handles a broken stream: it is reopened where it was, at another member if this one has failed.
    async fn reconnect(&mut self, id: ConnectionId, error: &Error) {
        tracing::debug!(error = describe(error), "an etcd watch broke");
        let next = match classify(error) {
            FailureClass::NotApplied(next) | FailureClass::MaybeApplied(next) => next,
            FailureClass::Rejected(
                EtcdRejection::Compacted
                | EtcdRejection::FutureRevision
                | EtcdRejection::LeaseNotFound
                | EtcdRejection::NoSpace
                | EtcdRejection::Corrupt
                | EtcdRejection::Denied,
            ) => RetryAt::NewConnection,
        };
        self.shared.switch_member(id.member, Some(id), next).await;
        self.phase = EtcdWatchPhase::Open;
        self.failures = (self.failures + 1).min(5);
        tokio::time::sleep(jitter(RECONNECT_BACKOFF * 2u32.pow(self.failures - 1))).await;
    }

    /// Reopens a stream that does not deliver an expected event: its member is frozen or partitioned.
    async fn reopen_stuck(&mut self) {
        if let EtcdWatchPhase::Live(Live { id, .. }) = &self.phase {
            let id = *id;
            tracing::info!(endpoint = self.shared.pool.endpoint(id.member), "an etcd watch is stuck, reopening it");
            self.shared.switch_member(id.member, Some(id), RetryAt::NewConnection).await;
        }
        self.undelivered_since = None;
        self.phase = EtcdWatchPhase::Open;
    }

    /// A newer revision is known, and the stream is quiet: checks whether it missed something.
    async fn probe(&mut self) -> Result<(), StoreError> {
        let result = Instant::now();
        let found = difference(&self.shared, &self.span, self.delivered).await;
        // etcd scans the prefix for this. The pause limits that to a twentieth of its time.
        let pause = (result.elapsed() * 20).clamp(Duration::from_millis(5), Duration::from_secs(5));
        self.next_probe = Instant::now() + pause;
        match found {
            Ok(PrefixDifference::Unchanged { head }) if head > self.delivered => self.progress(head),
            Ok(PrefixDifference::Unchanged { .. }) => {}
            Ok(PrefixDifference::Changed) => {
                self.next_probe = Instant::now() + pause.max(Duration::from_millis(200));
                let since = *self.undelivered_since.get_or_insert_with(Instant::now);
                if since.elapsed() > self.shared.options.timeouts.overdue_event {
                    self.reopen_stuck().await;
                }
            }
            Ok(PrefixDifference::StoreBehind { head }) => self.gap(GapCause::Ahead { head: Revision(head) }),
            // Reopening finds the compaction, and reports the gap.
            Err(failure) if failure.is(EtcdRejection::Compacted) => self.phase = EtcdWatchPhase::Open,
            Err(failure) => return Err(self.shared.error(failure)),
        }
        Ok(())
    }
}
