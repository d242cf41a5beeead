//! What the queue tells the other tasks: what a stream is opened with, and what the agent does.

use muster_core::node::status::Activity;

use muster_core::txn::Generation;

use crate::ledger::{Ledger, RunPhase, Work};
use crate::opening::Opening;
use crate::queue::effect::{Effect, Telling};
use crate::queue::mind::Mind;
use crate::queue::moment::Moment;

impl Mind {
    /// Tells the others what there is to know now, if they do not know it already.
    pub(super) fn publish(&mut self, now: Moment) {
        let opening = Opening::new(&self.ledger, self.snapshot.as_deref());
        let mut activity = self.activity(now);
        // The same retry, computed again from two clocks, may differ by a little.
        if let (Activity::Retrying { attempt: a, .. }, Activity::Retrying { attempt: b, .. }) =
            (&self.told.activity, &activity)
            && a == b
        {
            activity = self.told.activity.clone();
        }
        let telling = Telling { opening, activity, awaited: awaited(&self.ledger) };
        if self.told != telling {
            self.told = telling.clone();
            self.effects.push(Effect::Publish(Box::new(telling)));
        }
    }

    fn activity(&self, now: Moment) -> Activity {
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
                let left = retry.due.saturating_duration_since(now.instant);
                let at = now.clock.saturating_add(jiff::SignedDuration::try_from(left).unwrap_or_default());
                Activity::Retrying { attempt: retry.attempt, at: at.unwrap_or(now.clock) }
            }
        }
    }
}

pub(super) fn awaited(ledger: &Ledger) -> Option<Generation> {
    ledger.trial_now().filter(|trial| trial.is_open()).map(|trial| trial.generation)
}
