//! What the queue tells the other tasks: what a stream is opened with, and what the agent does.

use tokio::time::Instant;

use muster_core::standing::Activity;

use crate::clock;
use crate::ledger::{RunPhase, Work};
use crate::opening::Opening;
use crate::queue::task::Keeper;

impl Keeper {
    /// Tells the others what there is to know now; who knows it already is not woken.
    pub(super) fn publish(&self) {
        let opening = Opening::new(&self.ledger, self.snapshot.as_deref());
        self.outlets.opening.send_if_modified(|known| std::mem::replace(known, opening.clone()) != opening);
        let activity = self.activity();
        self.outlets.activity.send_if_modified(|known| {
            // The same retry, computed again from two clocks, may differ by a little.
            if let (Activity::Retrying { attempt: a, .. }, Activity::Retrying { attempt: b, .. }) = (&*known, &activity)
                && a == b
            {
                return false;
            }
            std::mem::replace(known, activity.clone()) != activity
        });
    }

    fn activity(&self) -> Activity {
        if let Some(running) = &self.ledger.running {
            let (run, version, since) = (running.run.clone(), running.version.clone(), running.started);
            match (running.work, running.phase) {
                // A look in passing is nothing to tell, as long as it sees what it saw before.
                (Work::Validation, _) => {}
                (Work::Run | Work::Preview | Work::Hooks, RunPhase::Applying) => {
                    return Activity::Applying { run, version, since };
                }
                (Work::Run | Work::Preview | Work::Hooks, RunPhase::Validating) => {
                    return Activity::Validating { run, version, since };
                }
            }
        }
        match self.queue.retry {
            None => Activity::Idle,
            Some(retry) => {
                let left = retry.due.saturating_duration_since(Instant::now());
                let at = clock::now().saturating_add(jiff::SignedDuration::try_from(left).unwrap_or_default());
                Activity::Retrying { attempt: retry.attempt, at: at.unwrap_or_else(|_| clock::now()) }
            }
        }
    }
}
