//! Rules of controllers: at most one holder, which is alive; only the holder writes; no healthy node loses its role.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::keys::Key;
use muster_core::names::{NodeName, ReplicaId, Version};
use muster_core::replica::{ControllerName, ControllerRecord};

use super::{ChangedKey, Violations};

#[derive(Debug, Default)]
pub(super) struct ControllerRules {
    pub(super) settled: bool,
    replicas: BTreeSet<ReplicaId>,
    holders: BTreeMap<ControllerName, ReplicaId>,
    active: BTreeMap<NodeName, BTreeSet<Version>>,
}

impl ControllerRules {
    #[expect(clippy::wildcard_enum_match_arm, reason = "other rules check the other keys")]
    pub(super) fn read(&mut self, changed: &[ChangedKey<'_>], violations: &mut Violations<'_>) {
        // A controller's guard holds for the state before its write.
        for changed_key in changed {
            self.check_writer(changed_key, changed, violations);
        }
        // Deletes come first: a lease deletes a replica and its controllers in one transaction.
        let (gone, written): (Vec<_>, Vec<_>) = changed.iter().partition(|changed| changed.value.is_none());
        for changed in gone {
            match &changed.key {
                Key::Replica { replica } => {
                    self.replicas.remove(replica);
                }
                Key::Controller { name } => {
                    self.holders.remove(name);
                }
                Key::ActiveRole { version, node } => {
                    self.active.entry(node.clone()).or_default().remove(version);
                }
                _ => {}
            }
        }
        for changed in written {
            match &changed.key {
                Key::Replica { replica } => {
                    self.replicas.insert(replica.clone());
                    if changed.lease == 0 {
                        violations.push(format_args!("replicas/{replica} has no lease: it would outlive its server"));
                    }
                }
                Key::Controller { name } => self.check_holder(*name, changed, violations),
                Key::Presence { node } if changed.lease != 0 => {
                    violations.push(format_args!("presence/{node} has a lease: thousands of them would stall etcd"));
                }
                Key::ActiveRole { version, node } => {
                    self.active.entry(node.clone()).or_default().insert(version.clone());
                }
                _ => {}
            }
        }
        if self.settled {
            for changed in changed {
                if let Key::ActiveRole { node, .. } = &changed.key
                    && self.active.get(node).is_none_or(BTreeSet::is_empty)
                {
                    violations.push(format_args!("{node} was healthy and was removed from its role"));
                }
            }
        }
    }

    fn check_holder(&mut self, name: ControllerName, changed: &ChangedKey<'_>, violations: &mut Violations<'_>) {
        let what = format!("controllers/{name}");
        let Some(value) = changed.value else { return };
        let Some(record) = violations.json::<ControllerRecord>(&what, value) else { return };
        if changed.lease == 0 {
            violations.push(format_args!("{what} has no lease: it would outlive its holder"));
        }
        if !self.replicas.contains(&record.replica) {
            violations.push(format_args!("{what} is held by {}, which does not exist", record.replica));
        }
        let before = self.holders.insert(name, record.replica.clone()).filter(|before| *before != record.replica);
        if let Some(before) = before.filter(|before| self.replicas.contains(before)) {
            violations.push(format_args!("{what} was taken by {} while {before} held it", record.replica));
        }
    }

    /// Checks the writer of a key: a controller, unless the same transaction is a report, a hello or a change of the
    /// design.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other rules check the other keys")]
    fn check_writer(&self, one: &ChangedKey<'_>, all: &[ChangedKey<'_>], violations: &mut Violations<'_>) {
        let controller = match &one.key {
            Key::ActiveRole { .. } => ControllerName::Liveness,
            Key::Machine { .. } | Key::Provisioned { .. } => ControllerName::Provision,
            _ => return,
        };
        let by_another = all
            .iter()
            .any(|other| other.node() == one.node() && matches!(other.key, Key::Observed { .. } | Key::Node { .. }));
        if by_another {
            return;
        }
        if !self.holders.contains_key(&controller) {
            violations.push(format_args!("{:?} was written for {controller}, which had no holder", one.key));
        }
        if all.iter().any(|other| matches!(other.key, Key::Controller { name } if name == controller)) {
            violations.push(format_args!("{:?} was written while {controller} changed its holder", one.key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::HistoryChecker;
    use super::super::testing::{delete, history, leased, put, violations};

    const A: &str = r#"{"replica":"a-1","since":"2026-11-15T10:00:00Z"}"#;
    const B: &str = r#"{"replica":"b-2","since":"2026-11-15T10:00:00Z"}"#;

    fn replicas() -> Vec<muster_etcd_rig::RawChange> {
        vec![leased("replicas/a-1", "{}"), leased("replicas/b-2", "{}")]
    }

    #[test]
    fn controller_is_taken_only_after_its_holder_left() {
        let gone = vec![delete("replicas/a-1"), delete("controllers/liveness")];
        let right =
            vec![replicas(), vec![leased("controllers/liveness", A)], gone, vec![leased("controllers/liveness", B)]];
        assert_eq!(violations(&right), [] as [&str; 0]);

        let stolen = vec![replicas(), vec![leased("controllers/liveness", A)], vec![leased("controllers/liveness", B)]];
        assert_eq!(violations(&stolen), ["revision 4: controllers/liveness was taken by b-2 while a-1 held it"]);
    }

    #[test]
    fn holder_needs_a_lease_and_a_replica() {
        let found = violations(&[replicas(), vec![put("controllers/liveness", A)]]);
        assert_eq!(found, ["revision 3: controllers/liveness has no lease: it would outlive its holder"]);
        let found = violations(&[vec![leased("controllers/liveness", A)]]);
        assert_eq!(found, ["revision 2: controllers/liveness is held by a-1, which does not exist"]);
    }

    #[test]
    fn only_a_holder_removes_a_role() {
        let role = || vec![put("active_roles/v1/web1/address", "{}")];
        let held = vec![replicas(), vec![leased("controllers/liveness", A)], role()];
        assert_eq!(violations(&held), [] as [&str; 0]);
        let found = violations(&[replicas(), role()]);
        assert!(found[0].contains("was written for liveness, which had no holder"), "{found:?}");
    }

    #[test]
    fn healthy_node_keeps_its_role() {
        let mut checker = HistoryChecker::default();
        let begin =
            [replicas(), vec![leased("controllers/liveness", A)], vec![put("active_roles/v1/web1/address", "{}")]];
        checker.read(&history(&begin));
        checker.has_settled();
        let lost = vec![delete("active_roles/v1/web1/address")];
        checker.read(&[muster_etcd_rig::RevisionChanges { revision: 9, changes: lost }]);
        assert_eq!(checker.violations(), ["revision 9: web1 was healthy and was removed from its role"]);
    }

    #[test]
    fn presence_has_no_lease() {
        let found = violations(&[vec![leased("presence/web1", A)]]);
        assert!(found[0].contains("presence/web1 has a lease"), "{found:?}");
    }
}
