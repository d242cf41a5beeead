//! Rules of states: a node is in one state, and its keys agree at every revision.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::keys::Key;
use muster_core::names::{NodeName, Version};
use muster_core::node::service_state::ServiceState;
use muster_core::report::record::ObservedRecord;

use super::{ChangedKey, Violations};

#[derive(Debug, Default)]
pub(super) struct StateRules {
    nodes: BTreeMap<NodeName, SeenStates>,
}

#[derive(Debug, Default)]
struct SeenStates {
    leaves: BTreeSet<ServiceState>,
    running: BTreeSet<Version>,
    active: BTreeSet<Version>,
    observed: Option<ObservedRecord>,
}

impl StateRules {
    #[expect(clippy::wildcard_enum_match_arm, reason = "other rules check the other keys")]
    pub(super) fn read(&mut self, changed: &[ChangedKey<'_>], violations: &mut Violations<'_>) {
        for changed in changed {
            let (there, Some(node)) = (changed.value.is_some(), changed.node()) else { continue };
            let seen = self.nodes.entry(node.clone()).or_default();
            match &changed.key {
                Key::Status { state, .. } => set(&mut seen.leaves, state, there),
                Key::RunningVersion { version, .. } => set(&mut seen.running, version, there),
                Key::ActiveRole { version, .. } => set(&mut seen.active, version, there),
                Key::Observed { .. } => {
                    seen.observed = changed.value.and_then(|value| violations.json(&format!("observed/{node}"), value));
                }
                _ => {}
            }
        }
        // Checked after the complete transaction.
        let nodes: BTreeSet<&NodeName> = changed.iter().filter_map(ChangedKey::node).collect();
        for node in nodes {
            if let Some(seen) = self.nodes.get(node) {
                seen.check(node, violations);
            }
        }
    }
}

impl SeenStates {
    fn check(&self, node: &NodeName, violations: &mut Violations<'_>) {
        if self.leaves.len() > 1 {
            violations.push(format_args!("{node} is in {} states at once: {:?}", self.leaves.len(), self.leaves));
        }
        if self.running.len() > 1 {
            violations.push(format_args!("{node} runs several versions at once: {:?}", self.running));
        }
        if self.active.len() > 1 {
            violations.push(format_args!("{node} has its role at several versions at once: {:?}", self.active));
        }
        let Some(observed) = &self.observed else { return };
        if self.leaves.first() != observed.state.as_ref() {
            let (leaf, state) = (self.leaves.first(), &observed.state);
            violations.push(format_args!("the status of {node} is {leaf:?}, its last report {state:?}"));
        }
        if self.running.first() != observed.running.as_ref() {
            let (key, report) = (self.running.first(), &observed.running);
            violations.push(format_args!("running_version of {node} is {key:?}, but its last report has {report:?}"));
        }
        // Only a passed validation makes a version the running one.
        if let (Some(state), Some(running)) = (&observed.state, &observed.running)
            && (state.is_failure() && matches!(state, ServiceState::Validated { .. })
                || state.is_validated() && state.version() != running)
        {
            violations.push(format_args!("{node} is {state:?}, but counts as running {running}"));
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
    use super::super::testing::{configured, delete, observed, put, validated, violations};

    #[test]
    fn status_moves_in_one_transaction() {
        let first =
            vec![observed("web1", 1, 1, configured("r1", "v1")), put("status/configured/success/v1/web1", "{}")];
        let to_validated = observed("web1", 1, 2, validated("r1", "v1"));
        let new_leaf = put("status/validated/success/v1/web1", "{}");
        let running = put("running_version/v1/web1", "{}");
        let old_leaf = delete("status/configured/success/v1/web1");

        let right =
            vec![first.clone(), vec![to_validated.clone(), new_leaf.clone(), running.clone(), old_leaf.clone()]];
        assert_eq!(violations(&right), [] as [&str; 0]);

        let torn = vec![first, vec![to_validated, new_leaf, running], vec![old_leaf]];
        let found = violations(&torn);
        assert!(found.iter().any(|found| found.contains("revision 3: web1 is in 2 states at once")), "{found:?}");
    }

    #[test]
    fn only_a_validated_version_is_running() {
        let report = observed("web1", 1, 1, configured("r1", "v1"));
        let history =
            vec![vec![report, put("status/configured/success/v1/web1", "{}"), put("running_version/v1/web1", "{}")]];
        let found = violations(&history);
        assert!(
            found.iter().any(|found| found.contains("running_version of web1 is Some(Version(\"v1\"))")),
            "{found:?}"
        );
    }
}
