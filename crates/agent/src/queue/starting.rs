//! What the mind does about what has happened: it adopts, refuses, and starts.

use std::sync::Arc;

use muster_core::report::Cause;
use muster_wire::sync::DesiredState;

use crate::ledger::{RunPhase, RunningRun, Work};
use crate::queue::decide::{Action, Event, Pauses, decide};
use crate::queue::effect::Effect;
use crate::queue::hooks::{self, HookOn};
use crate::queue::mind::{Habits, Mind};
use crate::queue::moment::Moment;
use crate::run::Order;
use crate::run_id;

impl Mind {
    /// Decides, and has done what was decided.
    pub(super) fn happened(&mut self, event: Event, now: Moment) {
        let asked = matches!(event, Event::RunAsked { .. } | Event::PreviewAsked { .. } | Event::GaveUp { .. });
        let Habits { debounce, retry } = self.habits;
        let pauses = Pauses { debounce, retry, chance: now.chance };
        let (queue, action) = decide(self.queue.clone(), self.known(), event, now.instant, pauses);
        self.queue = queue;
        let waits_longer = self.paused.is_some() && self.ledger.waiting != self.queue.waiting;
        self.ledger.waiting.clone_from(&self.queue.waiting);
        if asked || waits_longer {
            self.save();
        }
        match action {
            Action::Wait | Action::IgnoreKnown => {}
            Action::Adopt(desired) => {
                tracing::info!(version = %desired.version, generation = %desired.generation, "the node should run");
                self.ledger.desired = Some(desired);
                self.save();
            }
            Action::RefuseOlder => {
                tracing::warn!("the server says an older desired state than it said before; it is refused");
            }
            Action::Start { causes, failures } => {
                self.start(Work::Run, self.ledger.target(), causes, failures, Vec::new(), now);
            }
            Action::Preview { causes } => {
                self.start(Work::Preview, self.ledger.target(), causes, 0, Vec::new(), now);
            }
            Action::RunHooks { hooks, causes } => {
                let failures = hooks::failures(&hooks, &self.ledger.hooks);
                self.start(Work::Hooks, self.applied(), causes, failures, hooks, now);
            }
            Action::Validate => {
                let failures = self.ledger.failures();
                self.start(Work::Validation, self.applied(), vec![Cause::Schedule], failures, Vec::new(), now);
            }
        }
    }

    fn applied(&self) -> Option<DesiredState> {
        self.ledger.applied.as_ref().map(|applied| applied.desired.clone())
    }

    fn start(
        &mut self,
        work: Work,
        desired: Option<DesiredState>,
        causes: Vec<Cause>,
        failures: u32,
        hooks: Vec<HookOn>,
        now: Moment,
    ) {
        let (Some(desired), Some(role), Some(snapshot)) = (desired, self.ledger.role.clone(), self.snapshot.clone())
        else {
            // Nothing is decided to start without these; if it were, the slot must not stay taken for ever.
            self.queue.running = None;
            return;
        };
        let started = now.clock;
        let seq = self.ledger.next_seq;
        let first_failure = match work {
            Work::Run | Work::Validation => self.ledger.first_failure().cloned(),
            Work::Preview | Work::Hooks => None,
        };
        let run = RunningRun {
            run: run_id::make(&self.node, seq, started),
            work,
            seq,
            phase: RunPhase::Applying,
            version: desired.version.clone(),
            digest: desired.digest.clone(),
            generation: desired.generation,
            causes,
            failures,
            first_failure,
            hooks,
            started,
            ended: None,
        };
        if work == Work::Run {
            self.begin_trial(&desired);
        }
        self.ledger.running = Some(run.clone());
        // One for each of its reports.
        self.ledger.next_seq = seq + 2;
        self.save();
        self.publish(now);
        self.given = Some(Arc::clone(&snapshot));
        let watched = self.ledger.last.as_ref().map(|last| last.lookups.keys().cloned().collect()).unwrap_or_default();
        let fallback = self.fallback();
        self.effects.push(Effect::Give(Box::new(Order { run, desired, role, snapshot, watched, fallback })));
    }
}
