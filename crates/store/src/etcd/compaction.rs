//! Forgetting. etcd keeps every revision until it is told otherwise, and stops when its quota is full.
//!
//! Every replica does this; they need not agree. Who comes second hears "already compacted".

use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Duration;

use muster_core::txn::Revision;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::ask::Sending;
use super::options::Compaction;
use super::read;
use super::shared::{Shared, for_etcd};
use super::verdict::Answer;
use crate::error::StoreError;

/// Tells etcd to forget what was before a revision.
pub(super) async fn compact(shared: &Shared, revision: Revision) -> Result<(), StoreError> {
    let asked = shared
        .ask(Sending::Repeatable, |connection| async move { connection.kv().compact(for_etcd(revision), None).await })
        .await;
    match asked {
        Ok(_) => {}
        // By somebody else, or by us when the answer was lost.
        Err(failure) if failure.is(Answer::Compacted) => {}
        Err(failure) if failure.is(Answer::Future) => {
            let head = read::head(shared).await.map_err(|failure| shared.error(failure))?;
            return Err(StoreError::Ahead { asked: revision, head: Revision(head) });
        }
        Err(failure) => return Err(shared.error(failure)),
    }
    shared.note_compacted(revision.0);
    Ok(())
}

/// Compacts from time to time, until the store is gone.
///
/// Where the head is, it takes from the answers that went by: a process that asked nothing and watched nothing has
/// nothing to forget, and an idle fleet costs no read.
pub(super) async fn keep_small(shared: Weak<Shared>, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut notes = Notes::default();
    let mut complained = false;
    loop {
        ticks.tick().await;
        let Some(shared) = shared.upgrade() else { return };
        let head = shared.head.known();
        let Some(target) = notes.plan(Instant::now(), head, &shared.options.compaction) else { continue };
        match compact(&shared, Revision(target)).await {
            Ok(()) => {
                tracing::debug!(target, head, "compacted etcd");
                notes.done(target);
                complained = false;
            }
            Err(error) if !complained => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, cause, "cannot compact etcd, its history will fill its quota");
                complained = true;
            }
            Err(_) => {}
        }
    }
}

/// Where the head was, and when.
#[derive(Debug, Default)]
struct Notes {
    seen: VecDeque<(Instant, u64)>,
    compacted: u64,
}

impl Notes {
    /// Notes the head, and says what to compact to, if anything.
    fn plan(&mut self, now: Instant, head: u64, rules: &Compaction) -> Option<u64> {
        if self.seen.back().is_some_and(|(_, last)| head < *last) {
            // Another life of the store: what was noted of the last one means nothing.
            *self = Self::default();
        }
        self.seen.push_back((now, head));
        let old = |(seen, _): &(Instant, u64)| now.duration_since(*seen) >= rules.keep;
        // Of those that are old enough the newest counts, and the older ones are of no more use.
        while self.seen.get(1).is_some_and(old) {
            self.seen.pop_front();
        }
        let aged = self.seen.front().filter(|note| old(note)).map_or(0, |(_, head)| *head);
        let target = aged.min(head.saturating_sub(rules.keep_at_least)).max(head.saturating_sub(rules.keep_at_most));
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

    use super::Notes;
    use crate::etcd::options::Options;

    const MINUTE: Duration = Duration::from_secs(60);

    /// What is compacted to at each minute, when the head moves by so much in each.
    fn run(heads: impl IntoIterator<Item = u64>) -> Vec<Option<u64>> {
        let (rules, start, mut notes) = (Options::default().compaction, Instant::now(), Notes::default());
        let mut plans = Vec::new();
        for (minute, head) in heads.into_iter().enumerate() {
            let plan = notes.plan(start + MINUTE * u32::try_from(minute).unwrap(), head, &rules);
            plan.inspect(|target| notes.done(*target));
            plans.push(plan);
        }
        plans
    }

    #[test]
    fn what_is_old_goes_and_what_is_young_stays() {
        let plans = run((0..15).map(|minute| 100_000 + minute * 5_000));
        assert!(plans[..10].iter().all(Option::is_none), "{plans:?}");
        // What was the head ten minutes before.
        assert_eq!(plans[10..], [100_000, 105_000, 110_000, 115_000, 120_000].map(Some));
    }

    #[test]
    fn a_quiet_store_keeps_its_last_revisions_and_is_left_alone() {
        let plans = run((0..60).map(|_| 50_000));
        assert_eq!(plans.iter().flatten().collect::<Vec<_>>(), [&40_000]);
        assert!(run((0..60).map(|_| 9_000)).iter().all(Option::is_none));
    }

    #[test]
    fn a_busy_store_is_kept_small_however_young_its_history_is() {
        let plans = run((1..=4).map(|minute| minute * 150_000));
        assert_eq!(plans, [None, Some(100_000), Some(250_000), Some(400_000)]);
    }

    #[test]
    fn a_restored_store_begins_anew() {
        let heads = (0..12).map(|_| 100_000).chain((0..12).map(|_| 30_000));
        let plans = run(heads);
        assert_eq!(plans.iter().flatten().collect::<Vec<_>>(), [&90_000, &20_000]);
    }
}
