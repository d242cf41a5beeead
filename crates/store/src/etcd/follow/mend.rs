//! What a watch does when its stream ends, breaks, or says nothing.

use std::time::Duration;

use etcd_client::{Error, WatchResponse};
use muster_core::txn::Revision;
use tokio::time::Instant;

use super::super::connection::Place;
use super::super::pool::some_of;
use super::super::probe::{self, Difference};
use super::super::shared::revision;
use super::super::verdict::{Answer, Next, Verdict, verdict};
use super::super::words::words;
use super::{Follower, Live, Phase};
use crate::error::{StoreError, said};
use crate::watch::GapCause;

/// A watch whose stream broke comes back after some of this, by chance, and later the more often it broke.
const COME_BACK: Duration = Duration::from_millis(100);

impl Follower {
    /// etcd has ended the watch.
    pub(super) async fn canceled(&mut self, answer: &WatchResponse, place: Place) -> Result<(), StoreError> {
        let compacted = revision(answer.compact_revision());
        if compacted > 0 {
            self.shared.note_compacted(compacted);
            if compacted <= self.told {
                // etcd was still catching up with what a read has told the reader long ago: nothing is missing.
                self.phase = Phase::Open;
            } else {
                self.gap(GapCause::Compacted { oldest: Revision(compacted) });
            }
            return Ok(());
        }
        // For a token that has expired etcd says "permission denied" here, so the first time means: log in again.
        self.phase = Phase::Open;
        self.shared.pool.disconnect(place).await;
        self.broken += 1;
        if self.broken > 1 && self.shared.pool.credentials.login.is_some() || self.broken > 3 {
            let cause = said(format!("etcd has ended the watch: {}", answer.cancel_reason()));
            return Err(StoreError::Unavailable { store: self.shared.name.clone(), cause });
        }
        Ok(())
    }

    /// The stream broke: take it up where it was, at another member if this one is to blame.
    pub(super) async fn broke(&mut self, place: Place, error: &Error) {
        tracing::debug!(error = words(error), "a watch of etcd broke");
        let next = match verdict(error) {
            Verdict::NotDone(next) | Verdict::Unclear(next) => next,
            Verdict::Answer(
                Answer::Compacted
                | Answer::Future
                | Answer::NoLease
                | Answer::NoSpace
                | Answer::Corrupt
                | Answer::Denied,
            ) => Next::Disconnect,
        };
        self.shared.turn_away(place.member, Some(place), next).await;
        self.phase = Phase::Open;
        self.broken = (self.broken + 1).min(5);
        tokio::time::sleep(some_of(COME_BACK * 2u32.pow(self.broken - 1))).await;
    }

    /// An event that must come does not: its member is frozen, or cut off, and has not noticed.
    pub(super) async fn stuck(&mut self) {
        if let Phase::Live(Live { place, .. }) = &self.phase {
            let place = *place;
            tracing::info!(
                endpoint = self.shared.pool.endpoint(place.member),
                "a watch of etcd is stuck, reopening it"
            );
            self.shared.turn_away(place.member, Some(place), Next::Disconnect).await;
        }
        self.owed = None;
        self.phase = Phase::Open;
    }

    /// Somebody has heard of a newer revision, and the watch says nothing: find out whether it concerns us.
    pub(super) async fn probe(&mut self) -> Result<(), StoreError> {
        let asked = Instant::now();
        let found = probe::difference(&self.shared, &self.span, self.told).await;
        // etcd looks through the whole prefix for this. Whatever that costs, it is little of its time.
        let pause = (asked.elapsed() * 20).clamp(Duration::from_millis(5), Duration::from_secs(5));
        self.next_probe = Instant::now() + pause;
        match found {
            Ok(Difference::None { head }) if head > self.told => self.progress(head),
            Ok(Difference::None { .. }) => {}
            Ok(Difference::Some) => {
                self.next_probe = Instant::now() + pause.max(Duration::from_millis(200));
                let since = *self.owed.get_or_insert_with(Instant::now);
                if since.elapsed() > self.shared.options.patience.overdue {
                    self.stuck().await;
                }
            }
            Ok(Difference::Behind { head }) => self.gap(GapCause::Ahead { head: Revision(head) }),
            // Reopening finds out what has been compacted, and says so.
            Err(failure) if failure.is(Answer::Compacted) => self.phase = Phase::Open,
            Err(failure) => return Err(self.shared.error(failure)),
        }
        Ok(())
    }
}
