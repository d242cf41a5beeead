//! Publishes the status of the queue to the other tasks: the state for a new stream, and the agent's activity.

use muster_core::node::status::Activity;
use muster_core::txn::Generation;

use crate::clock::EventTime;
use crate::queue::io::{Effect, QueueStatus};
use crate::queue::state_machine::RunQueue;
use crate::state::ledger::{Ledger, RunPhase, Work};
use crate::sync::handshake::SyncState;

impl RunQueue {
    /// Publishes the current status if it has changed.
    pub(super) fn publish(&mut self, now: EventTime) {
        let sync_state = SyncState::new(&self.ledger, self.snapshot.as_deref());
        let mut activity = self.activity(now);
        // The time of the same retry, computed again from two clocks, may differ a little.
        if let (Activity::Retrying { attempt: a, .. }, Activity::Retrying { attempt: b, .. }) =
            (&self.published.activity, &activity)
            && a == b
        {
            activity = self.published.activity.clone();
        }
        let status = QueueStatus { sync_state, activity, awaited: awaited(&self.ledger) };
        if self.published != status {
            self.published = status.clone();
            self.effects.push(Effect::Publish(Box::new(status)));
        }
    }

    fn activity(&self, now: EventTime) -> Activity {
        if let Some(running) = &self.ledger.running {
            let (run, version, since) = (running.run.clone(), running.version.clone(), running.started);
            match (running.work, running.phase) {
                // A periodic validation is no activity: only a changed result is reported.
                (Work::Validation, _) => {}
                (Work::Run | Work::Preview | Work::Hooks, RunPhase::Applying) => {
                    return Activity::Applying { run, version, since };
                }
                (Work::Run | Work::Preview | Work::Hooks, RunPhase::Validating) => {
                    return Activity::Validating { run, version, since };
                }
            }
        }
        match self.schedule.retry {
            None => Activity::Idle,
            Some(retry) => {
                let left = retry.due.saturating_duration_since(now.instant);
                let at = now.clock.saturating_add(jiff::SignedDuration::try_from(left).unwrap_or_default());
                Activity::Retrying { attempt: retry.attempt, at: at.unwrap_or(now.clock) }
            }
        }
    }
}

/// The generation whose next accepted report the queue must store; see [`super::auto_rollback`].
pub(super) fn awaited(ledger: &Ledger) -> Option<Generation> {
    ledger.current_rollback().filter(|rollback| rollback.is_open()).map(|rollback| rollback.generation)
}
