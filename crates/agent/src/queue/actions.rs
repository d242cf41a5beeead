//! Carries out decisions of the queue: adopts desired states and starts work.

use std::sync::Arc;

use muster_core::report::Cause;
use muster_wire::sync::DesiredState;

use crate::clock::EventTime;
use crate::queue::decide::{DecisionTimings, QueueAction, QueueEvent, decide};
use crate::queue::hooks::{self, HookTrigger};
use crate::queue::io::Effect;
use crate::queue::state_machine::{RunQueue, Timings};
use crate::run::{WorkOrder, directory};
use crate::state::ledger::{LedgerRunEnd, RunPhase, RunningRun, StoredOrder, Work};

impl RunQueue {
    /// Decides on an event and carries out the decision.
    pub(super) fn apply_event(&mut self, event: QueueEvent, now: EventTime) {
        let must_persist = matches!(
            event,
            QueueEvent::RunRequested(_) | QueueEvent::PreviewRequested(_) | QueueEvent::RolledBack { .. }
        );
        let Timings { debounce, retry, first } = self.timings;
        let timings = DecisionTimings { debounce, retry, chance: now.chance, phase: self.phase, first };
        let (schedule, action) = decide(self.schedule.clone(), self.view(), event, now.instant, timings);
        self.schedule = schedule;
        let waits_in_pause = self.paused.is_some() && self.ledger.waiting != self.schedule.waiting;
        self.ledger.waiting.clone_from(&self.schedule.waiting);
        if must_persist || waits_in_pause {
            self.save();
        }
        match action {
            QueueAction::Wait | QueueAction::IgnoreDuplicate => {}
            QueueAction::Adopt(desired) => {
                tracing::info!(version = %desired.version, generation = %desired.generation, "new desired state");
                self.ledger.desired = Some(desired);
                self.save();
            }
            QueueAction::RefuseOlder => {
                tracing::warn!("refused a desired state that is older than the current one");
            }
            QueueAction::Start { mut causes, failures } => {
                self.drop_tags(&mut causes);
                self.start(Work::Run, self.ledger.target(), causes, failures, Vec::new(), now);
            }
            QueueAction::Preview { causes } => {
                self.start(Work::Preview, self.preview_target(&causes), causes, 0, Vec::new(), now);
            }
            QueueAction::RunHooks { hooks, causes } => {
                let failures = hooks::failures(&hooks, &self.ledger.hooks);
                self.start(Work::Hooks, self.applied(), causes, failures, hooks, now);
            }
            QueueAction::Validate => {
                let failures = self.ledger.failures();
                self.start(Work::Validation, self.applied(), vec![Cause::Schedule], failures, Vec::new(), now);
            }
        }
    }

    /// The release of a preview: that of the next run, or the requested one.
    fn preview_target(&self, causes: &[Cause]) -> Option<DesiredState> {
        let target = self.ledger.target()?;
        let Some(version) = &Cause::options(causes).version else { return Some(target) };
        let release = self.ledger.preview_releases.iter().find(|release| release.version == *version)?;
        Some(DesiredState { generation: target.generation, ..release.clone() })
    }

    /// Drops the tags of a requested run unless it can be a partial one: the node has applied the whole release before, and
    /// there is no other cause.
    fn drop_tags(&self, causes: &mut [Cause]) {
        let tags = &Cause::options(causes).tags;
        let same = causes.iter().all(|cause| cause.own_options().is_some_and(|options| options.tags == *tags));
        let digest = |desired: &DesiredState| desired.digest.clone();
        let applied = self.applied().as_ref().map(digest);
        let is_complete = self.ledger.last.as_ref().is_some_and(|last| {
            let desired = self.ledger.desired.as_ref();
            last.end == LedgerRunEnd::Validated
                && !last.lost
                && desired.is_some_and(|desired| desired.generation == last.generation)
                && self.ledger.target().as_ref().map(digest) == applied
        });
        if same && is_complete {
            return;
        }
        for cause in causes {
            if let Cause::Operator { options, .. } = cause {
                options.tags.clear();
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
        hooks: Vec<HookTrigger>,
        now: EventTime,
    ) {
        let (Some(desired), Some(role), Some(snapshot)) = (desired, self.ledger.role.clone(), self.snapshot.clone())
        else {
            // `decide` starts nothing without these. If it did, the slot must not stay taken.
            self.schedule.running = None;
            return;
        };
        let started = now.clock;
        let seq = self.ledger.next_seq;
        let first_failure = match work {
            Work::Run | Work::Validation => self.ledger.first_failure().cloned(),
            Work::Preview | Work::Hooks => None,
        };
        let run = RunningRun {
            run: directory::new_run_id(&self.node, seq, started),
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
            unchanged: false,
            started,
            order: Some(Box::new(StoredOrder { desired: desired.clone(), role: role.clone() })),
        };
        if work == Work::Run {
            self.open_confirmation(&desired);
        }
        self.ledger.running = Some(run.clone());
        // A run makes at most two reports.
        self.ledger.next_seq = seq + 2;
        self.save();
        self.publish(now);
        self.running_snapshot = Some(Arc::clone(&snapshot));
        let (watched, fallback) = (self.watched_keys(), self.fallback());
        let names = self.node.names(self.ledger.host_name.as_ref());
        let order = WorkOrder { run, desired, role, names, snapshot, watched, fallback, adopted: false };
        self.effects.push(Effect::StartWork(Box::new(order)));
    }

    /// Keys that the last run looked up.
    pub(super) fn watched_keys(&self) -> Vec<String> {
        self.ledger.last.as_ref().map(|last| last.lookups.keys().cloned().collect()).unwrap_or_default()
    }
}
