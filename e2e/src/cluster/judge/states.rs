//! No node is in two states, and the keys of a node agree with each other, at every revision.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::keys::Key;
use muster_core::names::{NodeName, Version};
use muster_core::node::service_state::ServiceState;
use muster_core::report::record::ObservedRecord;

use super::{Complaints, Touched};

#[derive(Debug, Default)]
pub(super) struct States {
    nodes: BTreeMap<NodeName, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    leaves: BTreeSet<ServiceState>,
    running: BTreeSet<Version>,
    active: BTreeSet<Version>,
    observed: Option<ObservedRecord>,
}

impl States {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other keys are the concern of other judges")]
    pub(super) fn read(&mut self, touched: &[Touched<'_>], complaints: &mut Complaints<'_>) {
        for touched in touched {
            let (there, Some(node)) = (touched.value.is_some(), touched.node()) else { continue };
            let seen = self.nodes.entry(node.clone()).or_default();
            match &touched.key {
                Key::Status { state, .. } => set(&mut seen.leaves, state, there),
                Key::RunningVersion { version, .. } => set(&mut seen.running, version, there),
                Key::ActiveRole { version, .. } => set(&mut seen.active, version, there),
                Key::Observed { .. } => {
                    seen.observed = touched.value.and_then(|value| complaints.json(&format!("observed/{node}"), value));
                }
                _ => {}
            }
        }
        // Judged when the whole transaction has been read: in between there is nothing to see.
        let nodes: BTreeSet<&NodeName> = touched.iter().filter_map(Touched::node).collect();
        for node in nodes {
            if let Some(seen) = self.nodes.get(node) {
                seen.judge(node, complaints);
            }
        }
    }
}

impl Seen {
    fn judge(&self, node: &NodeName, complaints: &mut Complaints<'_>) {
        if self.leaves.len() > 1 {
            complaints.push(format_args!("{node} is in {} states at once: {:?}", self.leaves.len(), self.leaves));
        }
        if self.running.len() > 1 {
            complaints.push(format_args!("{node} runs several versions at once: {:?}", self.running));
        }
        if self.active.len() > 1 {
            complaints.push(format_args!("{node} has its role at several versions at once: {:?}", self.active));
        }
        let Some(observed) = &self.observed else { return };
        if self.leaves.first() != observed.state.as_ref() {
            let (leaf, state) = (self.leaves.first(), &observed.state);
            complaints.push(format_args!("the status of {node} says {leaf:?}, its last report {state:?}"));
        }
        if self.running.first() != observed.running.as_ref() {
            let (key, report) = (self.running.first(), &observed.running);
            complaints.push(format_args!("running_version of {node} is {key:?}, by its last report it is {report:?}"));
        }
        // What was applied is not what was proved, and a validation that failed proves nothing.
        if let (Some(state), Some(running)) = (&observed.state, &observed.running)
            && (state.is_failure() && matches!(state, ServiceState::Validated { .. })
                || state.is_validated() && state.version() != running)
        {
            complaints.push(format_args!("{node} is {state:?}, and yet counts as running {running}"));
        }
    }
}

fn set<T: Ord + Clone>(all: &mut BTreeSet<T>, one: &T, there: bool) {
    if there {
        all.insert(one.clone());
    } else {
        all.remove(one);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{complaints, configured, delete, observed, put, validated};

    #[test]
    fn a_move_in_one_transaction_is_right_and_the_same_in_two_is_not() {
        let first =
            vec![observed("web1", 1, 1, configured("r1", "v1")), put("status/configured/success/v1/web1", "{}")];
        let to_validated = observed("web1", 1, 2, validated("r1", "v1"));
        let new_leaf = put("status/validated/success/v1/web1", "{}");
        let running = put("running_version/v1/web1", "{}");
        let old_leaf = delete("status/configured/success/v1/web1");

        let right =
            vec![first.clone(), vec![to_validated.clone(), new_leaf.clone(), running.clone(), old_leaf.clone()]];
        assert_eq!(complaints(&right), [] as [&str; 0]);

        let torn = vec![first, vec![to_validated, new_leaf, running], vec![old_leaf]];
        let told = complaints(&torn);
        assert!(told.iter().any(|told| told.contains("revision 3: web1 is in 2 states at once")), "{told:?}");
    }

    #[test]
    fn a_version_that_was_not_proved_does_not_run() {
        let report = observed("web1", 1, 1, configured("r1", "v1"));
        let history =
            vec![vec![report, put("status/configured/success/v1/web1", "{}"), put("running_version/v1/web1", "{}")]];
        let told = complaints(&history);
        assert!(told.iter().any(|told| told.contains("running_version of web1 is Some(Version(\"v1\"))")), "{told:?}");
    }
}
