//! Compacts etcd, which keeps every revision until it is compacted, and refuses writes when its quota is full.
//!
//! Every replica does this without coordination. "Already compacted" is a success.

use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Duration;

use muster_core::txn::Revision;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::errors::EtcdRejection;
use super::request::{EtcdShared, RetryPolicy, for_etcd};
use super::{Compaction, read};
use crate::store::StoreError;

/// Discards the history before a revision.
pub(super) async fn compact(shared: &EtcdShared, revision: Revision) -> Result<(), StoreError> {
    let result = shared
        .call(
            RetryPolicy::Idempotent,
            |connection| async move { connection.kv().compact(for_etcd(revision), None).await },
        )
        .await;
    match result {
        Ok(_) => {}
        // By another replica, or by an earlier attempt whose response was lost.
        Err(failure) if failure.is(EtcdRejection::Compacted) => {}
        Err(failure) if failure.is(EtcdRejection::FutureRevision) => {
            let head = read::head(shared).await.map_err(|failure| shared.error(failure))?;
            return Err(StoreError::Ahead { requested: revision, head: Revision(head) });
        }
        Err(failure) => return Err(shared.error(failure)),
    }
    shared.note_compacted(revision.0);
    Ok(())
}

/// Compacts at intervals until the store is dropped.
///
/// The latest revision is taken from other responses. A process without requests and watches has nothing to compact,
/// and an idle fleet causes no reads.
pub(super) async fn compact_periodically(shared: Weak<EtcdShared>, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut samples = HeadSamples::default();
    let mut warned = false;
    loop {
        ticks.tick().await;
        let Some(shared) = shared.upgrade() else { return };
        let head = shared.head.known();
        let Some(target) = samples.plan(Instant::now(), head, &shared.options.compaction) else { continue };
        match compact(&shared, Revision(target)).await {
            Ok(()) => {
                tracing::debug!(target, head, "compacted etcd");
                samples.done(target);
                warned = false;
            }
            Err(error) if !warned => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, cause, "cannot compact etcd: its history will fill the quota");
                warned = true;
            }
            Err(_) => {}
        }
    }
}

/// Latest revisions with the time at which they were recorded.
#[derive(Debug, Default)]
struct HeadSamples {
    samples: VecDeque<(Instant, u64)>,
    compacted: u64,
}

impl HeadSamples {
    /// Records the latest revision, and returns the revision to compact to, if any.
    fn plan(&mut self, now: Instant, head: u64, retention: &Compaction) -> Option<u64> {
        if self.samples.back().is_some_and(|(_, last)| head < *last) {
            // The store was restored or replaced: older samples have no meaning.
            *self = Self::default();
        }
        self.samples.push_back((now, head));
        let old = |(seen, _): &(Instant, u64)| now.duration_since(*seen) >= retention.keep;
        // Of the samples that are old enough only the newest is needed.
        while self.samples.get(1).is_some_and(old) {
            self.samples.pop_front();
        }
        let aged = self.samples.front().filter(|note| old(note)).map_or(0, |(_, head)| *head);
        let target =
            aged.min(head.saturating_sub(retention.keep_at_least)).max(head.saturating_sub(retention.keep_at_most));
        (target > self.compacted).then_some(target)
    }

    fn done(&mut self, target: u64) {
        self.compacted = target;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::HeadSamples;
    use crate::etcd::EtcdOptions;

    const MINUTE: Duration = Duration::from_secs(60);

    /// The compactions of each minute, for the latest revision in each.
    fn run(heads: impl IntoIterator<Item = u64>) -> Vec<Option<u64>> {
        let (retention, start, mut samples) =
            (EtcdOptions::default().compaction, Instant::now(), HeadSamples::default());
        let mut plans = Vec::new();
        for (minute, head) in heads.into_iter().enumerate() {
            let plan = samples.plan(start + MINUTE * u32::try_from(minute).unwrap(), head, &retention);
            plan.inspect(|target| samples.done(*target));
            plans.push(plan);
        }
        plans
    }

    #[test]
    fn only_old_revisions_are_compacted() {
        let plans = run((0..15).map(|minute| 100_000 + minute * 5_000));
        assert!(plans[..10].iter().all(Option::is_none), "{plans:?}");
        // The latest revision ten minutes before.
        assert_eq!(plans[10..], [100_000, 105_000, 110_000, 115_000, 120_000].map(Some));
    }

    #[test]
    fn idle_store_keeps_its_last_revisions() {
        let plans = run((0..60).map(|_| 50_000));
        assert_eq!(plans.iter().flatten().collect::<Vec<_>>(), [&40_000]);
        assert!(run((0..60).map(|_| 9_000)).iter().all(Option::is_none));
    }

    #[test]
    fn busy_store_is_limited_by_revision_count() {
        let plans = run((1..=4).map(|minute| minute * 150_000));
        assert_eq!(plans, [None, Some(100_000), Some(250_000), Some(400_000)]);
    }

    #[test]
    fn restored_store_resets_the_samples() {
        let heads = (0..12).map(|_| 100_000).chain((0..12).map(|_| 30_000));
        let plans = run(heads);
        assert_eq!(plans.iter().flatten().collect::<Vec<_>>(), [&90_000, &20_000]);
    }
}
