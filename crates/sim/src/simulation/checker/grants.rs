//! Checks which nodes a rollout may grant, when and how often (I4, I7, I8, I10, I12, I16). Disconnected, paused and
//! cordoned nodes are not granted.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use muster_core::keys;
use muster_core::keys::Key;
use muster_core::names::NodeName;
use muster_core::node::pause::PauseScope;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::record::{DesiredRecord, RolloutPhase, RolloutRecord};
use muster_core::rollout::strategy::Window;
use muster_core::txn::Revision;
use muster_store::WatchChange;

use crate::simulation::coverage::observe;
use crate::simulation::event::{MachineNumber, SimTime};
use crate::simulation::store::Writer;

use super::budget::Decision;
use super::facts::{NodeFacts, ReportedState};
use super::{Checker, CommittedTxn, Plans, Rule, Violation, facts};

/// The largest age of a view between reading the store's revision and deciding.
const OLD: SimTime = SimTime::from_millis(500);

#[derive(Clone, Debug, Default)]
pub(super) struct Grants {
    requests: BTreeMap<String, RolloutId>,
    rolled_back: BTreeSet<RolloutId>,
}

/// The rollout records and grants of a transaction.
struct RolloutWrites {
    records: Vec<RolloutRecord>,
    granted: Vec<(NodeName, DesiredRecord)>,
}

fn read(changes: &[WatchChange]) -> RolloutWrites {
    let mut writes = RolloutWrites { records: Vec::new(), granted: Vec::new() };
    for change in changes {
        let WatchChange::Put(kv) = change else { continue };
        match keys::parse(&kv.key) {
            Some((_, Key::Rollout { .. })) => writes.records.extend(serde_json::from_slice::<RolloutRecord>(&kv.value)),
            Some((_, Key::Desired { node })) => {
                writes.granted.extend(serde_json::from_slice(&kv.value).map(|desired| (node, desired)));
            }
            Some(_) | None => {}
        }
    }
    writes
}

impl Checker {
    pub(super) fn check_rollouts(&mut self, seen: &CommittedTxn<'_>, plans: &Plans) -> Vec<Violation> {
        let is_concerned = |change: &WatchChange| match change {
            WatchChange::Put(kv) => kv.key.contains("/rollouts/") || kv.key.contains("/desired/"),
            WatchChange::Delete { .. } => false,
        };
        if !seen.changes.iter().any(is_concerned) {
            return Vec::new();
        }
        let writes = read(seen.changes);
        let grants: Vec<&(NodeName, DesiredRecord)> =
            writes.granted.iter().filter(|(_, desired)| desired.kept.is_none()).collect();
        let mut found = Vec::new();
        for after in &writes.records {
            let before = self.fleet.rollouts().get(&after.id).map(|(record, _)| record.clone());
            match &before {
                None => found.extend(self.check_start(after)),
                Some(before) => {
                    self.arms.record(observe::of_change(before, after, &grants, seen.writer));
                    found.extend(self.check_promotion(before, after, seen.writer));
                    found.extend(self.check_completeness(before, after));
                    if (&before.request, &before.plan) != (&after.request, &after.plan) {
                        let what = format!(
                            "rollout {} changes to request {:?}: its request and plan must not change",
                            after.id, after.request
                        );
                        found.push(Violation { rule: Rule::Idempotence, what });
                    }
                    if let Some(plan) = plans.get(&after.plan).filter(|_| !after.at_once) {
                        found.extend(self.check_passed_waves(plan.plan(), before, after, seen));
                    }
                }
            }
        }
        for (name, desired) in writes.granted.iter().filter(|(_, desired)| desired.kept.is_some()) {
            if *seen.writer != Writer::Operator {
                let what = format!("{name} is skipped in rollout {} without a request of an operator", desired.rollout);
                found.push(Violation { rule: Rule::SingleGrant, what });
            }
        }
        if grants.is_empty() {
            return found;
        }
        let id = grants[0].1.rollout;
        let after = writes.records.iter().find(|record| record.id == id);
        let before = self.fleet.rollouts().get(&id).map(|(record, _)| record.clone());
        let (Some(after), Some(before)) = (after, before) else {
            let what = format!("rollout {id} grants nodes without an update of its record");
            found.push(Violation { rule: Rule::StopMeansStop, what });
            return found;
        };
        if before.phase != RolloutPhase::Running {
            let what = format!("rollout {id} is {}, but grants {}", before.phase.word(), grants[0].0);
            found.push(Violation { rule: Rule::StopMeansStop, what });
        }
        let Some(plan) = plans.get(&after.plan) else { return found };
        let plan = plan.plan();
        for (name, desired) in &grants {
            found.extend(self.check_grant(plan, &before, after, name, desired));
            found.extend(self.check_reachable(&before, name, desired, after.steps.seen));
        }
        found.extend(self.check_threshold(plan, &before, after));
        let names: Vec<NodeName> = grants.iter().map(|(name, _)| name.clone()).collect();
        found.extend(self.check_view(after.steps.seen, grants[0].1.granted, seen.at));
        let decision = Decision { names: &names, seen: after.steps.seen, at: grants[0].1.granted };
        found.extend(self.check_budget(&plan.strategy, &before, decision));
        found
    }

    /// A decision is based on the state of the store at its time, within the clock error. It may commit much later:
    /// then its guards are compared.
    fn check_view(&self, seen: Revision, granted: Timestamp, now: SimTime) -> Option<Violation> {
        let decided = facts::decided(granted, now);
        let newest = self.revision_at(decided.saturating_sub(self.apart / 2 + OLD));
        let what = || format!("nodes are granted on a stale view at revision {seen}: the store had revision {newest}");
        (self.is_inside && seen < newest).then(|| Violation { rule: Rule::FreshView, what: what() })
    }

    fn check_start(&mut self, record: &RolloutRecord) -> Option<Violation> {
        if let Some(known) = self.grants.requests.insert(record.request.clone(), record.id) {
            let what = format!(
                "request {:?} has started rollout {known}, and now starts rollout {}",
                record.request, record.id
            );
            return Some(Violation { rule: Rule::Idempotence, what });
        }
        let back = record.rolls_back?;
        let again = !self.grants.rolled_back.insert(back);
        let what = || format!("rollout {back} is rolled back a second time, by rollout {}", record.id);
        again.then(|| Violation { rule: Rule::Threshold, what: what() })
    }

    /// The version of a complete rollout is a later rollback target.
    fn check_completeness(&self, before: &RolloutRecord, after: &RolloutRecord) -> Option<Violation> {
        if !after.all_nodes_at_target || before.all_nodes_at_target {
            return None;
        }
        let base = self.facts.base(after.steps.seen);
        let is_there = |facts: &NodeFacts| {
            let proved = facts.shows == ReportedState::Validated && facts.version.as_ref() == Some(&after.to);
            // A node that another rollout gave the target was not moved, and may run at any time.
            let granted = facts.granted_by(after.id, &after.to).is_some();
            facts.new || proved || (!granted && facts.desired(&base).is_some_and(|(version, _)| version == after.to))
        };
        let (name, facts) = self.facts.designed(after.steps.seen).find(|(_, facts)| !is_there(facts))?;
        let what = format!(
            "rollout {} is recorded as complete at {}, but {name} is {:?} at {:?}",
            after.id, after.to, facts.shows, facts.version
        );
        Some(Violation { rule: Rule::VersionTruth, what })
    }

    fn check_passed_waves(
        &self,
        plan: &RolloutPlan,
        before: &RolloutRecord,
        after: &RolloutRecord,
        seen: &CommittedTxn<'_>,
    ) -> Vec<Violation> {
        let passed =
            |record: &RolloutRecord, wave: usize| record.waves.get(wave).is_some_and(|state| state.passed.is_some());
        let new = (0..after.waves.len()).filter(|wave| passed(after, *wave) && !passed(before, *wave));
        new.flat_map(|wave| self.check_passed_wave(plan, (before, after), wave, seen.at)).collect()
    }

    fn check_grant(
        &self,
        plan: &RolloutPlan,
        before: &RolloutRecord,
        after: &RolloutRecord,
        name: &NodeName,
        desired: &DesiredRecord,
    ) -> Vec<Violation> {
        let mut found = self.check_turn(plan, after, name);
        let mut report = |rule, what: String| found.push(Violation { rule, what });
        let facts = self.facts.state_at(name, self.fleet.revision);
        // The transaction is guarded by the policy: no later cordon may be overlooked.
        if let Some(cordon) = self.fleet.get(name).and_then(|node| node.cordon()) {
            report(Rule::Pause, format!("{name} is granted, but is {cordon}"));
        }
        if facts.is_none_or(|facts| !facts.designed) {
            report(Rule::Pause, format!("{name} is granted, but is not in the design"));
        }
        if let Some(facts) = facts {
            let earlier = facts.granted_by(after.id, &after.to);
            let again = before.operator.retry.contains(name)
                || before
                    .operator
                    .retry_before
                    .is_some_and(|before| earlier.is_some_and(|earlier| earlier.revision.0 < before.before.number));
            if let Some(earlier) = earlier.filter(|_| !again) {
                let what =
                    format!("{name} is granted {} again after the grant at revision {}", after.to, earlier.revision);
                report(Rule::SingleGrant, what);
            }
            if let Some(current) = facts.desired(&self.facts.base(self.fleet.revision)) {
                let serial = |version| self.fleet.releases().get(version).map(|release| release.serial);
                if serial(&desired.version) < serial(&current.0) && !(desired.allow_older && plan.allow_older) {
                    report(
                        Rule::Downgrade,
                        format!("{name} is downgraded from {} to {} without permission", current.0, desired.version),
                    );
                }
            }
        }
        // The decision's clock may be wrong by this much.
        let bound = self.apart / 2;
        let span = jiff::SignedDuration::try_from(bound).unwrap_or_default();
        let around = [desired.granted.saturating_sub(span), desired.granted.saturating_add(span)];
        let around = around.into_iter().flatten().chain([desired.granted]);
        if !around.into_iter().any(|at| is_window_open(&plan.strategy.windows, at)) {
            report(Rule::Window, format!("{name} is granted at {}, outside all windows", desired.granted));
        }
        found
    }

    /// Failures visible to the decision: above the limit nothing may be granted.
    fn check_threshold(&self, plan: &RolloutPlan, before: &RolloutRecord, after: &RolloutRecord) -> Option<Violation> {
        let seen = after.steps.seen;
        let base = self.facts.base(seen);
        let has_failed = |name: &NodeName, repair: bool| {
            let grant = || {
                let facts = self.facts.state_at(name, seen).filter(|facts| facts.designed)?;
                let grant = facts.granted_by(before.id, &before.to)?;
                // The decision knows the grants of the steps before it, which its view may not show yet.
                let now = self.facts.state_at(name, self.fleet.revision)?.granted_by(before.id, &before.to);
                if now.is_some_and(|now| now.revision > seen) {
                    return None;
                }
                // An operator who resumes has reviewed the failures up to that time, and no later ones.
                let forgiven = before.operator.reviewed.is_some_and(|reviewed| {
                    let upto = facts::decided(reviewed.at, SimTime::MAX) + self.apart;
                    grant.revision.0 < reviewed.before.number && (facts.went_back || facts.since <= upto)
                });
                let again = before.operator.retry.contains(name)
                    || before.operator.retry_before.is_some_and(|before| grant.revision.0 < before.before.number);
                (facts.has_failed(grant, base.epoch) && !forgiven && !again).then_some(())
            };
            !repair && !before.operator.skipped.contains(name) && grant().is_some()
        };
        let all: usize = plan.waves.iter().map(|wave| wave.nodes.len()).sum();
        let limit = |amount: muster_core::rollout::strategy::Amount| match amount {
            muster_core::rollout::strategy::Amount::Nodes(count) => usize::try_from(count).unwrap_or(usize::MAX),
            muster_core::rollout::strategy::Amount::Percent(percent) => all * usize::from(percent) / 100,
        };
        let failures = &plan.strategy.failures;
        let mut total = 0;
        for (number, wave) in plan.waves.iter().enumerate().take(before.waves.len()) {
            let failed = wave.nodes.iter().filter(|node| has_failed(&node.node, node.repair)).count();
            total += failed;
            let most = limit(if wave.canary { failures.canary } else { failures.wave });
            if failed > most {
                let what = format!(
                    "rollout {} grants at revision {seen} although {} of wave {} failed (limit {most})",
                    before.id,
                    nodes_text(failed),
                    number + 1
                );
                return Some(Violation { rule: Rule::Threshold, what });
            }
        }
        let most = limit(failures.total);
        let what = || format!("rollout {} grants although {} failed (limit {most})", before.id, nodes_text(total));
        (total > most).then(|| Violation { rule: Rule::Threshold, what: what() })
    }
}

/// True if a window is open, by local time. Written from the documentation and not from the code under test. No
/// windows: always.
fn is_window_open(windows: &[Window], at: Timestamp) -> bool {
    windows.is_empty() || windows.iter().any(|window| is_in(window, at))
}

fn is_in(window: &Window, at: Timestamp) -> bool {
    let Ok(zone) = TimeZone::get(&window.tz) else { return false };
    let wall: DateTime = zone.to_datetime(at);
    let ends_next_day = window.to <= window.from;
    let today = window.opens_on(wall.date().weekday())
        && wall.time() >= window.from
        && (ends_next_day || wall.time() < window.to);
    let yesterday = wall.date().yesterday().is_ok_and(|day| window.opens_on(day.weekday()));
    today || (ends_next_day && yesterday && wall.time() < window.to)
}

fn nodes_text(count: usize) -> String {
    if count == 1 { "1 node".into() } else { format!("{count} nodes") }
}

/// The time since which machines are unreachable: cut off, or without an agent. Unknown for a fleet of real processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Unreachable(BTreeMap<NodeName, SimTime>);

impl Checker {
    /// Records the reachability of a machine.
    pub(crate) fn set_reachable(&mut self, machine: MachineNumber, is_reached: bool, now: SimTime) {
        let name = &self.names[machine];
        if is_reached {
            self.reach.0.remove(name);
        } else if !self.reach.0.contains_key(name) {
            self.reach.0.insert(name.clone(), now);
        }
    }

    /// True if a node was certainly disconnected at a decision: by the view of the decision, and for longer than the
    /// clock error.
    pub(super) fn is_silent(&self, name: &NodeName, facts: &NodeFacts, decided: Timestamp) -> bool {
        let at = facts::decided(decided, self.times.last().map(|(at, _)| *at).unwrap_or_default());
        facts.gone && self.reach.0.get(name).is_some_and(|since| *since + self.apart < at)
    }

    /// Checks that a granted node is connected and not paused.
    pub(super) fn check_reachable(
        &self,
        record: &RolloutRecord,
        name: &NodeName,
        desired: &DesiredRecord,
        seen: Revision,
    ) -> Vec<Violation> {
        let mut found = Vec::new();
        let Some(facts) = self.facts.state_at(name, seen) else { return found };
        let at = desired.granted;
        // A pause that ends within the clock error may be over.
        let slack = jiff::SignedDuration::try_from(self.apart).unwrap_or_default();
        let late = at.saturating_add(slack).unwrap_or(at);
        for (scope, pause) in self.facts.pauses(seen) {
            let concerns = match scope {
                PauseScope::Global => true,
                PauseScope::Role { role } => *role == facts.role,
                PauseScope::Host { node } => node == name,
            };
            if concerns && pause.until.is_none_or(|until| late < until) {
                let what = format!("{name} is granted at revision {seen}, but was paused by {}", pause.by);
                found.push(Violation { rule: Rule::Pause, what });
            }
        }
        if self.is_silent(name, facts, at) {
            let what = format!("{name} is granted on a view at revision {seen} in which it is disconnected");
            found.push(Violation { rule: Rule::Pause, what });
        }
        if self.reach.0.is_empty() {
            return found;
        }
        let domain: Vec<(&NodeName, &NodeFacts)> = self
            .facts
            .designed(seen)
            .filter(|(other, there)| {
                there.domain == facts.domain && !there.new && !record.operator.skipped.contains(*other)
            })
            .collect();
        let silent = domain.iter().filter(|(other, there)| self.is_silent(other, there, at)).count();
        if silent >= 2 && 2 * silent > domain.len() {
            let what = format!(
                "{name} is granted on a view at revision {seen} in which {silent} of {} nodes of {} are disconnected",
                domain.len(),
                facts.domain
            );
            found.push(Violation { rule: Rule::Brake, what });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::time;

    use super::*;

    #[test]
    fn window_may_end_on_the_next_day() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let night = Window { days: vec![1], from: time(22, 0, 0, 0), to: time(4, 0, 0, 0), tz: "UTC".into() };
        let open = |text| is_window_open(std::slice::from_ref(&night), at(text));
        assert!(open("2026-11-16T22:00:00Z") && open("2026-11-17T03:59:59Z"));
        assert!(!open("2026-11-16T21:59:59Z") && !open("2026-11-17T04:00:00Z") && !open("2026-11-17T22:00:00Z"));
        assert!(is_window_open(&[], at("2026-11-17T22:00:00Z")));
    }
}
