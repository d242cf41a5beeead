//! Checks liveness after the faults end: rollouts end, and views converge (L1, L2, L5, L6).

use std::time::Duration;

use muster_core::names::NodeName;
use muster_core::report::reason::Need;
use muster_core::rollout::progress::RolloutNodeState;
use muster_core::rollout::record::RolloutPhase;
use muster_rollout::executor::unsaved_outcome;
use muster_rollout::progress::progress;
use muster_rollout::step::{KeptSurvey, step};

use super::checker::{MissedDeadline, Rule};
use super::coverage::observe;
use super::world::World;

/// The largest delay of a watch without faults.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

impl World {
    pub(crate) fn check_end(&mut self) {
        if self.violation().is_some() {
            return;
        }
        self.check_views();
        self.check_desired();
        self.check_pending();
        self.check_reasons();
        self.check_outboxes();
        self.check_outcomes();
    }

    /// Every view equals the store as it was a moment ago. Younger changes may still be on their way.
    fn check_views(&mut self) {
        let settled = self.checker.revision_at(self.now.saturating_sub(ON_ITS_WAY));
        let truth = self.read_view();
        for replica in 0..self.replicas.len() {
            let server = &self.replicas[replica];
            let Some(view) = server.view.as_ref().filter(|_| server.up) else { continue };
            let is_true = view.revision < truth.revision || *view == truth;
            if view.revision < settled || !is_true {
                let what = format!(
                    "the view of {} at revision {} differs from the store (revision {settled})",
                    server.id, view.revision
                );
                self.checker.report(Rule::Converges, what);
            }
        }
    }

    /// Every reachable agent has its current desired version.
    fn check_desired(&mut self) {
        for machine in 0..self.machines.len() {
            let machine = &self.machines[machine];
            let received = machine.disk.ledger.desired.as_ref().map(|desired| &desired.version);
            let desired = self.checker.desired_version(&machine.name);
            if machine.up && !machine.is_cut_off(self.now) && desired.is_some() && received != desired.as_ref() {
                let what =
                    format!("the desired version of {} is {desired:?}, but its agent has {received:?}", machine.name);
                self.checker.report(Rule::Converges, what);
                return;
            }
        }
    }

    /// No node waits for something that exists.
    fn check_pending(&mut self) {
        let truth = self.checker.fleet().clone();
        let snapshot = truth.snapshot();
        for machine in 0..self.machines.len() {
            let ledger = &self.machines[machine].disk.ledger;
            let Some(last) = &ledger.last else { continue };
            let lacking = last.needs.iter().any(|need: &Need| snapshot.still_lacks(need));
            let name = &self.machines[machine].name;
            let node = truth.get(name).filter(|node| node.is_designed());
            let designed = node.is_some();
            let role = node.and_then(|node| node.record.as_ref()).map(|record| &record.role);
            // A paused node runs when its pause ends.
            let now = self.timestamp(self.now);
            if role.is_some_and(|role| truth.pause_of(name, role, now).is_some()) {
                continue;
            }
            let busy = ledger.running.is_some() || !self.machines[machine].up;
            if !last.needs.is_empty() && !lacking && designed && !busy {
                let what = format!("{} waits for {:?}, which exists", self.machines[machine].name, last.needs);
                self.checker.report(Rule::Wakes, what);
            }
        }
    }

    /// A rollout that does not progress has a reason, and so has each of its nodes. No node is waited for past its
    /// deadline. Checked at any server and any time: the reasons must match the server's own view.
    pub(crate) fn check_reasons(&mut self) {
        let replica = self.any_replica();
        let shown = self.with_input(replica, |input, world| {
            let (record, _) = input.fleet.active_rollout_record().filter(|(record, _)| record.phase.is_open())?;
            Some(observe::of_progress(&progress(world.blobs.plans.get(&record.plan)?, record, input)))
        });
        self.record_arms(shown.flatten().unwrap_or_default());
        let found = self.with_input(replica, |input, world| {
            let (record, _) = input.fleet.active_rollout_record()?;
            if let RolloutPhase::Paused { why } = &record.phase
                && why.to_string().is_empty()
            {
                return Some((Rule::Explained, format!("rollout {} is paused without a reason", record.id)));
            }
            let plan = world
                .blobs
                .plans
                .get(&record.plan)
                .filter(|_| record.phase == RolloutPhase::Running && !record.at_once)?;
            let step = step(&mut KeptSurvey::default(), plan, record, input);
            if step.change.is_some() || step.roll_back.is_some() {
                // It is about to move.
                return None;
            }
            let progress = progress(plan, record, input);
            let begun = || progress.waves.iter().take(record.waves.len()).flat_map(|wave| &wave.nodes);
            let mut silent = begun().filter(|node| node.state == RolloutNodeState::Waiting && node.hold.is_none());
            if let Some(unexplained) = silent.next().filter(|_| progress.holds.is_empty()) {
                let what = format!("rollout {}: {} waits without a reason", record.id, unexplained.node);
                return Some((Rule::Explained, what));
            }
            let overdue = world.checker.overdue(plan.plan(), record, world.now);
            let is_waited_for = |(name, what): &&(NodeName, MissedDeadline)| {
                let state = begun().find(|node| node.node == *name).map(|node| &node.state);
                match what {
                    MissedDeadline::Answer => state == Some(&RolloutNodeState::Granted),
                    MissedDeadline::Others => matches!(state, Some(RolloutNodeState::Pending { .. })),
                }
            };
            let (late, what) = overdue.iter().find(is_waited_for)?;
            let what = match what {
                MissedDeadline::Answer => "has not reported within its deadline, and keeps its slot",
                MissedDeadline::Others => "is pending past its deadline, and the rollout still waits for it",
            };
            Some((Rule::Ends, format!("rollout {}: {late} {what}", record.id)))
        });
        if let Some((rule, what)) = found.flatten() {
            self.checker.report(rule, what);
        }
    }

    /// The outcome of every ended rollout is stored, under a name that exists.
    fn check_outcomes(&mut self) {
        let truth = self.checker.fleet();
        let lost =
            unsaved_outcome(truth).map(|(record, _)| format!("the outcome of rollout {} was not stored", record.id));
        let records = truth.rollouts().values().map(|(record, _)| record);
        let named = records.filter_map(|record| Some((record.id, record.outcome.as_ref()?)));
        let mut missing = named.filter(|(_, name)| !self.blobs.outcomes.contains(*name));
        let missing = missing.next().map(|(id, name)| format!("the outcome of rollout {id} is missing: {name}"));
        if let Some(what) = lost.or(missing) {
            self.checker.report(Rule::Ends, what);
        }
    }

    /// With all servers up, no agent keeps more than two unsent reports.
    fn check_outboxes(&mut self) {
        let truth = self.checker.fleet().clone();
        for machine in 0..self.machines.len() {
            let machine = &self.machines[machine];
            let designed = truth.get(&machine.name).is_some_and(|node| node.is_designed());
            if designed && machine.up && machine.disk.outbox.len() > 2 {
                let what =
                    format!("{} has {} reports that no server accepted", machine.name, machine.disk.outbox.len());
                self.checker.report(Rule::Ends, what);
            }
        }
    }
}
