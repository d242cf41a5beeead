//! Reachability and pauses: disconnected and paused nodes are not granted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::names::NodeName;
use muster_core::node::pause::PauseScope;
use muster_core::rollout::record::{DesiredRecord, RolloutRecord};
use muster_core::txn::Revision;

use super::facts::{self, NodeFacts};
use super::{Checker, Rule, Violation};
use crate::simulation::event::MachineNumber;
use crate::simulation::event_queue::SimTime;

/// Since when machines are unreachable: cut off, or without an agent. Unknown for a fleet of real processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Unreachable(BTreeMap<NodeName, SimTime>);

impl Checker {
    /// Records whether a machine is reachable.
    pub(crate) fn set_reachable(&mut self, machine: MachineNumber, is_reached: bool, now: SimTime) {
        let name = &self.names[machine];
        if is_reached {
            self.reach.0.remove(name);
        } else if !self.reach.0.contains_key(name) {
            self.reach.0.insert(name.clone(), now);
        }
    }

    /// Whether a node was certainly disconnected at a decision: by the view of the decision, and for longer than the
    /// clock error.
    pub(super) fn is_silent(&self, name: &NodeName, standing: &NodeFacts, decided: Timestamp) -> bool {
        let at = facts::decided(decided, self.times.last().map(|(at, _)| *at).unwrap_or_default());
        standing.gone && self.reach.0.get(name).is_some_and(|since| *since + self.apart < at)
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
        let Some(standing) = self.facts.of(name, seen) else { return found };
        let at = desired.granted;
        // A pause that ends within the clock error may be over.
        let slack = jiff::SignedDuration::try_from(self.apart).unwrap_or_default();
        let late = at.saturating_add(slack).unwrap_or(at);
        for (scope, pause) in self.facts.pauses(seen) {
            let concerns = match scope {
                PauseScope::Global => true,
                PauseScope::Role { role } => *role == standing.role,
                PauseScope::Host { node } => node == name,
            };
            if concerns && pause.until.is_none_or(|until| late < until) {
                let what = format!("{name} is granted something at revision {seen}, and was paused by {}", pause.by);
                found.push(Violation { rule: Rule::Pause, what });
            }
        }
        if self.is_silent(name, standing, at) {
            let what = format!("{name} is granted something on a view at revision {seen} in which nobody hears of it");
            found.push(Violation { rule: Rule::Pause, what });
        }
        if self.reach.0.is_empty() {
            return found;
        }
        let domain: Vec<(&NodeName, &NodeFacts)> = self
            .facts
            .designed(seen)
            .filter(|(other, there)| there.domain == standing.domain && !there.new && !record.skipped.contains(*other))
            .collect();
        let silent = domain.iter().filter(|(other, there)| self.is_silent(other, there, at)).count();
        if silent >= 2 && 2 * silent > domain.len() {
            let what = format!(
                "{name} is granted something on a view at revision {seen} in which {silent} of {} nodes of {} are silent",
                domain.len(),
                standing.domain
            );
            found.push(Violation { rule: Rule::Brake, what });
        }
        found
    }
}
