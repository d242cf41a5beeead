//! Checks the order of waves and roles: each starts after its predecessor, gate and soak (I6).

use std::time::Duration;

use muster_core::names::NodeName;
use muster_core::rollout::plan::{PlannedNode, RolloutPlan};
use muster_core::rollout::record::RolloutRecord;
use muster_core::rollout::strategy::Promote;
use muster_core::txn::{Generation, Revision};

use super::facts::ReportedState;
use super::{Checker, Rule, Violation};
use crate::simulation::event::SimTime;
use crate::simulation::store::Writer;

fn time(span: jiff::SignedDuration) -> Duration {
    Duration::try_from(span).unwrap_or_default()
}

/// State of a node when its wave passes.
enum NodeOutcome {
    /// The earliest real time at which it counts as healthy.
    Healthy(SimTime),
    /// The wave need not wait for it: skipped, removed, or failed.
    Excused,
    No(String),
}

impl Checker {
    fn done(
        &self,
        plan: &RolloutPlan,
        record: &RolloutRecord,
        name: &NodeName,
        seen: Revision,
        now: SimTime,
    ) -> NodeOutcome {
        let Some(facts) = self.facts.state_at(name, seen).filter(|facts| facts.designed) else {
            return NodeOutcome::Excused;
        };
        let base = self.facts.base(seen);
        if record.operator.skipped.contains(name) || facts.new {
            return NodeOutcome::Excused;
        }
        let deadlines = &plan.strategy.deadlines;
        // In the view of the decision, or now: the deciding server knows the end of its own streams before the store does.
        let disconnected = || {
            let latest = self.fleet.revision;
            self.facts.is_disconnected(facts, seen)
                || self.facts.state_at(name, latest).is_some_and(|now| self.facts.is_disconnected(now, latest))
        };
        let Some(grant) = facts.granted_by(record.id, &record.to) else {
            let at_target = facts.desired(&base).is_some_and(|(version, _)| version == record.to);
            return if at_target || disconnected() {
                NodeOutcome::Excused
            } else {
                NodeOutcome::No("was not granted".into())
            };
        };
        if facts.has_failed(grant, base.epoch) {
            return NodeOutcome::Excused;
        }
        let answered = facts.answered >= Generation { epoch: base.epoch, number: grant.revision.0 };
        let at_target = facts.version.as_ref() == Some(&record.to);
        if answered && at_target && facts.shows == ReportedState::Validated && !facts.rebooted {
            let soak = time(plan.strategy.soak);
            return NodeOutcome::Healthy(facts.there_since.max(grant.there_at) + soak);
        }
        // Pending time does not count.
        let began = match facts.shows {
            ReportedState::Pending | ReportedState::Configured if answered && at_target => facts.since.max(grant.at),
            // Reports of the previous version, or of an earlier grant of this version, do not answer the grant.
            ReportedState::Pending
            | ReportedState::Configured
            | ReportedState::Nothing
            | ReportedState::Validated
            | ReportedState::Failed
            | ReportedState::Invalid => grant.at,
        };
        let waited = now.saturating_sub(began) + self.apart;
        let deadline = match facts.shows {
            ReportedState::Pending if answered && at_target => time(deadlines.pending),
            ReportedState::Pending
            | ReportedState::Nothing
            | ReportedState::Configured
            | ReportedState::Validated
            | ReportedState::Failed
            | ReportedState::Invalid => time(deadlines.node),
        };
        if waited >= deadline || (disconnected() && waited >= time(deadlines.pending).min(deadline)) {
            return NodeOutcome::Excused;
        }
        NodeOutcome::No(format!("is {:?} at {:?}", facts.shows, facts.version))
    }

    /// Checks a wave that is recorded as passed.
    pub(super) fn check_passed_wave(
        &self,
        plan: &RolloutPlan,
        (before, after): (&RolloutRecord, &RolloutRecord),
        wave: usize,
        now: SimTime,
    ) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut report = |what: String| found.push(Violation { rule: Rule::GateOrder, what });
        let (Some(planned), Some(state)) = (plan.waves.get(wave), after.waves.get(wave)) else { return found };
        let mut healthy_since = SimTime::ZERO;
        for node in &planned.nodes {
            match self.done(plan, before, &node.node, after.steps.seen, now) {
                NodeOutcome::Healthy(since) => healthy_since = healthy_since.max(since),
                NodeOutcome::Excused => {}
                NodeOutcome::No(why) => report(format!("wave {} passes, but {} {why}", wave + 1, node.node)),
            }
        }
        let soaked = (healthy_since + time(planned.soak)).saturating_sub(self.slack);
        if now < soaked {
            report(format!("wave {} passes {} ms before its soak is over", wave + 1, (soaked - now).as_millis()));
        }
        let checks = !plan.strategy.gate.checks.is_empty();
        if checks && state.promoted.is_none() && !self.passed_gates.contains(&(after.id, wave)) {
            report(format!("wave {} passes, but its gate has not passed", wave + 1));
        }
        let manual = planned.promote == Promote::Manual && wave + 1 < plan.waves.len();
        if manual && state.promoted.is_none() && !after.operator.promotes_all {
            report(format!("wave {} passes without the manual promotion", wave + 1));
        }
        found
    }

    /// Only an operator may promote.
    pub(super) fn check_promotion(
        &self,
        before: &RolloutRecord,
        after: &RolloutRecord,
        writer: &Writer,
    ) -> Option<Violation> {
        let promoted = |record: &RolloutRecord| record.waves.iter().filter(|wave| wave.promoted.is_some()).count();
        let more = promoted(after) > promoted(before) || (after.operator.promotes_all && !before.operator.promotes_all);
        let what = || "a wave is promoted without a request of an operator".to_owned();
        (more && *writer != Writer::Operator).then(|| Violation { rule: Rule::GateOrder, what: what() })
    }

    /// Checks a granted node: its wave has started, and the roles before it have passed.
    pub(super) fn check_turn(&self, plan: &RolloutPlan, after: &RolloutRecord, name: &NodeName) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut report = |what: String| found.push(Violation { rule: Rule::GateOrder, what });
        let wave = plan.waves.iter().position(|wave| wave.nodes.iter().any(|node| node.node == *name));
        if let Some(wave) = wave {
            let passed = after.waves.iter().take(wave).filter(|state| state.passed.is_some()).count();
            if passed < wave || after.waves.len() <= wave {
                report(format!("{name} of wave {} is granted after only {passed} waves have passed", wave + 1));
            }
        }
        // Waves are checked when they pass. A node that breaks later blocks nothing.
        let Some(role) = self.facts.state_at(name, after.steps.seen).map(|facts| &facts.role) else { return found };
        for parent in plan.after.get(role).into_iter().flatten() {
            let has_parents = |nodes: &[PlannedNode]| nodes.iter().any(|node| node.role == *parent);
            for (wave, _) in plan.waves.iter().enumerate().filter(|(_, wave)| has_parents(&wave.nodes)) {
                if after.waves.get(wave).is_none_or(|state| state.passed.is_none()) {
                    report(format!(
                        "{name} is granted, but wave {} with nodes of role {parent} has not passed",
                        wave + 1
                    ));
                }
            }
        }
        found
    }
}
