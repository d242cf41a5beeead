//! One watch: a small state machine that pulls. It has no task and no queue of its own; what etcd sends and nobody
//! reads waits in etcd, because a stream takes no more than its window.

mod mend;

use std::collections::VecDeque;
use std::sync::Arc;

use etcd_client::{Error, WatchOptions, WatchResponse, WatchStream};
use futures::StreamExt;
use futures::stream::{self, Stream};
use muster_core::txn::Revision;
use tokio::time::Instant;

use super::ask::Sending;
use super::assemble::Assembly;
use super::connection::Place;
use super::head::Expectation;
use super::keys::Span;
use super::quiet::{Quiet, quiet};
use super::read;
use super::shared::{Shared, for_etcd, revision};
use crate::error::StoreError;
use crate::watch::{Event, GapCause, WatchFrom};

/// What the watch has to do next.
enum Phase {
    /// Say all keys of this span; at the latest revision if none is chosen yet.
    Snapshot { at: Option<Revision>, rest: Span },
    /// Ask etcd for what came after the position.
    Open,
    /// Say what it tells.
    Live(Live),
}

struct Live {
    answers: WatchStream,
    place: Place,
}

pub(super) struct Follower {
    shared: Arc<Shared>,
    span: Span,
    phase: Phase,
    /// Events that are known already: at most those of one answer.
    ready: VecDeque<Event>,
    assembly: Assembly,
    /// The position: up to where the reader has been told.
    told: u64,
    expectation: Arc<Expectation>,
    /// The cluster that the position is one of; none until some answer has said so.
    cluster: Option<u64>,
    /// How often in a row a stream broke, or was refused, before it said anything.
    broken: u32,
    /// When it may be asked again whether anything has happened.
    next_probe: Instant,
    /// Since when it is known that something has happened of which the stream has not told.
    owed: Option<Instant>,
}

impl Follower {
    pub(super) fn new(shared: Arc<Shared>, prefix: &str, from: WatchFrom) -> Self {
        let span = Span::of(prefix);
        let (phase, told) = match from {
            WatchFrom::Now => (Phase::Snapshot { at: None, rest: span.clone() }, 0),
            WatchFrom::After(Revision(after)) => (Phase::Open, after),
        };
        let expectation = shared.head.expect(prefix);
        Self {
            shared,
            span,
            phase,
            ready: VecDeque::new(),
            assembly: Assembly::default(),
            told,
            expectation,
            cluster: None,
            broken: 0,
            next_probe: Instant::now(),
            owed: None,
        }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Result<Event, StoreError>> + Send {
        stream::unfold(self, |mut follower| async {
            let mut closed = follower.shared.closed.subscribe();
            let event = tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => Err(StoreError::Closed),
                event = follower.next() => event,
            };
            Some((event, follower))
        })
    }

    async fn next(&mut self) -> Result<Event, StoreError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            match &mut self.phase {
                Phase::Snapshot { at, rest } => {
                    let (at, rest) = (*at, rest.clone());
                    self.snapshot(at, rest).await?;
                }
                Phase::Open => self.open().await?,
                Phase::Live(live) => {
                    let (shared, expectation) = (&self.shared, &self.expectation);
                    tokio::select! {
                        biased;
                        answer = live.answers.next() => self.hear(answer).await?,
                        quiet = quiet(shared, expectation, self.told, self.next_probe) => match quiet {
                            Quiet::Ask => self.probe().await?,
                            Quiet::Overdue => self.stuck().await,
                        }
                    }
                }
            }
        }
    }

    async fn snapshot(&mut self, at: Option<Revision>, rest: Span) -> Result<(), StoreError> {
        match read::page(&self.shared, &rest, at).await {
            Ok(page) if at.is_some() && self.cluster.is_some_and(|known| known != page.cluster) => {
                self.cluster = None;
                self.gap(GapCause::Lost);
                Ok(())
            }
            Ok(page) => {
                self.cluster = Some(page.cluster);
                if !page.kvs.is_empty() {
                    self.ready.push_back(Event::Snapshot(page.kvs));
                }
                self.told = page.revision;
                let revision = Revision(page.revision);
                match page.rest {
                    Some(rest) => self.phase = Phase::Snapshot { at: Some(revision), rest },
                    None => {
                        self.ready.push_back(Event::SnapshotEnd { revision });
                        self.phase = Phase::Open;
                    }
                }
                Ok(())
            }
            // The reader was slower than the compaction: from the start.
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

    /// Asks etcd for the changes after the position.
    ///
    /// It is asked for those *at* the position too, and they are left out later. Then a position that was compacted is
    /// refused; asked for what comes right after it, etcd before 3.4.34 and 3.5.15 accepts a compaction at exactly
    /// that revision and has forgotten what was deleted in it (etcd issue 18089).
    async fn open(&mut self) -> Result<(), StoreError> {
        let options = WatchOptions::new()
            .with_range(self.span.to.clone())
            .with_start_revision(for_etcd(Revision(self.told)).max(1))
            .with_progress_notify()
            .with_fragment();
        let (live, first) = self
            .shared
            .ask(Sending::Repeatable, |connection| {
                let (from, options) = (self.span.from.clone(), options.clone());
                async move {
                    let mut answers = connection.watch().watch(from, Some(options)).await?;
                    match answers.next().await {
                        Some(first) => Ok((Live { answers, place: connection.place }, first?)),
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
            return self.canceled(&first, live.place).await;
        }
        if known.is_some_and(|known| known != cluster) {
            // Restored from a backup, or another one at the same address: numbers that look alike mean nothing.
            self.gap(GapCause::Lost);
            return Ok(());
        }
        // This member may only lag behind; a read that all agree on tells.
        if head < self.told {
            let head = read::head(&self.shared).await.map_err(|failure| self.shared.error(failure))?;
            if head < self.told {
                self.gap(GapCause::Ahead { head: Revision(head) });
                return Ok(());
            }
        }
        self.assembly = Assembly::default();
        self.phase = Phase::Live(live);
        Ok(())
    }

    /// Takes what the stream says.
    async fn hear(&mut self, answer: Option<Result<WatchResponse, Error>>) -> Result<(), StoreError> {
        let Phase::Live(Live { place, .. }) = &self.phase else { return Ok(()) };
        let place = *place;
        let answer = match answer.unwrap_or_else(|| Err(ended())) {
            Ok(answer) => answer,
            Err(error) => {
                self.broke(place, &error).await;
                return Ok(());
            }
        };
        if answer.canceled() || answer.compact_revision() > 0 {
            return self.canceled(&answer, place).await;
        }
        self.broken = 0;
        self.owed = None;
        let head = answer.header().map_or(0, |header| revision(header.revision()));
        self.shared.head.heard(head);
        let answer = answer.0;
        if answer.events.is_empty() {
            // Sent from time to time to watchers that have been told everything, in order with the events.
            if !answer.created && !answer.fragment && head > self.told {
                self.progress(head);
            }
            return Ok(());
        }
        let last = answer.events.last().and_then(|event| event.kv.as_ref()).map_or(0, |kv| revision(kv.mod_revision));
        self.ready.extend(self.assembly.take(answer.events, answer.fragment, self.told));
        if let Some(Event::Changes { revision, .. }) = self.ready.back() {
            self.told = revision.0;
        }
        // Of keys that nobody can name there is nothing to tell, but it has been heard.
        if !answer.fragment && last > self.told {
            self.progress(last);
        }
        Ok(())
    }

    fn progress(&mut self, head: u64) {
        self.told = head;
        self.owed = None;
        // The rest of what was begun is not told any more, so neither is the beginning.
        self.assembly = Assembly::default();
        self.ready.push_back(Event::Progress { revision: Revision(head) });
    }

    fn gap(&mut self, cause: GapCause) {
        self.ready.push_back(Event::Gap { after: Revision(self.told), cause });
        self.phase = Phase::Snapshot { at: None, rest: self.span.clone() };
        // What was to come may never come in what follows.
        self.expectation.forget();
        self.owed = None;
        self.broken = 0;
    }
}

fn ended() -> Error {
    Error::WatchError("the stream has ended".to_owned())
}
