//! A controller has one holder at a time, who lives, and nobody else does its work; no node that is well loses its role.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::keys::Key;
use muster_core::names::{NodeName, ReplicaId, Version};
use muster_core::replica::{ControllerName, ControllerRecord};

use super::{Complaints, Touched};

#[derive(Debug, Default)]
pub(super) struct Controllers {
    pub(super) settled: bool,
    replicas: BTreeSet<ReplicaId>,
    holders: BTreeMap<ControllerName, ReplicaId>,
    active: BTreeMap<NodeName, BTreeSet<Version>>,
}

impl Controllers {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other keys are the concern of other judges")]
    pub(super) fn read(&mut self, touched: &[Touched<'_>], complaints: &mut Complaints<'_>) {
        // The guard of a controller's write is about the moment before it.
        for touched_one in touched {
            self.judge_writer(touched_one, touched, complaints);
        }
        // What goes, goes first: a lease takes replica and controllers with it in one transaction.
        let (gone, written): (Vec<_>, Vec<_>) = touched.iter().partition(|touched| touched.value.is_none());
        for touched in gone {
            match &touched.key {
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
        for touched in written {
            match &touched.key {
                Key::Replica { replica } => {
                    self.replicas.insert(replica.clone());
                    if touched.lease == 0 {
                        complaints.push(format_args!("replicas/{replica} has no lease: it would outlive its server"));
                    }
                }
                Key::Controller { name } => self.judge_holder(*name, touched, complaints),
                Key::Presence { node } if touched.lease != 0 => {
                    complaints.push(format_args!("presence/{node} has a lease: thousands of them would stall etcd"));
                }
                Key::ActiveRole { version, node } => {
                    self.active.entry(node.clone()).or_default().insert(version.clone());
                }
                _ => {}
            }
        }
        if self.settled {
            for touched in touched {
                if let Key::ActiveRole { node, .. } = &touched.key
                    && self.active.get(node).is_none_or(BTreeSet::is_empty)
                {
                    complaints.push(format_args!("{node} was well all the time, and was taken out of its role"));
                }
            }
        }
    }

    fn judge_holder(&mut self, name: ControllerName, touched: &Touched<'_>, complaints: &mut Complaints<'_>) {
        let what = format!("controllers/{name}");
        let Some(value) = touched.value else { return };
        let Some(record) = complaints.json::<ControllerRecord>(&what, value) else { return };
        if touched.lease == 0 {
            complaints.push(format_args!("{what} has no lease: it would outlive its holder"));
        }
        if !self.replicas.contains(&record.replica) {
            complaints.push(format_args!("{what} is held by {}, which is not there", record.replica));
        }
        let before = self.holders.insert(name, record.replica.clone()).filter(|before| *before != record.replica);
        if let Some(before) = before.filter(|before| self.replicas.contains(before)) {
            complaints.push(format_args!("{what} was taken by {} while {before} held it", record.replica));
        }
    }

    /// Whose work a write is: a controller's, unless the same transaction is a report, a hello, or the design's.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other keys are the concern of other judges")]
    fn judge_writer(&self, one: &Touched<'_>, all: &[Touched<'_>], complaints: &mut Complaints<'_>) {
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
            complaints.push(format_args!("{:?} was written for {controller}, which nobody held", one.key));
        }
        if all.iter().any(|other| matches!(other.key, Key::Controller { name } if name == controller)) {
            complaints.push(format_args!("{:?} was written while {controller} changed hands", one.key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Judge;
    use super::super::testing::{complaints, delete, history, leased, put};

    const A: &str = r#"{"replica":"a-1","since":"2026-11-15T10:00:00Z"}"#;
    const B: &str = r#"{"replica":"b-2","since":"2026-11-15T10:00:00Z"}"#;

    fn replicas() -> Vec<muster_etcd_rig::RawChange> {
        vec![leased("replicas/a-1", "{}"), leased("replicas/b-2", "{}")]
    }

    #[test]
    fn a_controller_may_be_taken_when_its_holder_has_gone_and_not_before() {
        let gone = vec![delete("replicas/a-1"), delete("controllers/liveness")];
        let right =
            vec![replicas(), vec![leased("controllers/liveness", A)], gone, vec![leased("controllers/liveness", B)]];
        assert_eq!(complaints(&right), [] as [&str; 0]);

        let stolen = vec![replicas(), vec![leased("controllers/liveness", A)], vec![leased("controllers/liveness", B)]];
        assert_eq!(complaints(&stolen), ["revision 4: controllers/liveness was taken by b-2 while a-1 held it"]);
    }

    #[test]
    fn a_holder_has_a_lease_and_is_there() {
        let told = complaints(&[replicas(), vec![put("controllers/liveness", A)]]);
        assert_eq!(told, ["revision 3: controllers/liveness has no lease: it would outlive its holder"]);
        let told = complaints(&[vec![leased("controllers/liveness", A)]]);
        assert_eq!(told, ["revision 2: controllers/liveness is held by a-1, which is not there"]);
    }

    #[test]
    fn a_role_is_given_back_by_a_holder_alone() {
        let role = || vec![put("active_roles/v1/web1/address", "{}")];
        let held = vec![replicas(), vec![leased("controllers/liveness", A)], role()];
        assert_eq!(complaints(&held), [] as [&str; 0]);
        let told = complaints(&[replicas(), role()]);
        assert!(told[0].contains("was written for liveness, which nobody held"), "{told:?}");
    }

    #[test]
    fn nobody_who_is_well_loses_its_role() {
        let mut judge = Judge::default();
        let begin =
            [replicas(), vec![leased("controllers/liveness", A)], vec![put("active_roles/v1/web1/address", "{}")]];
        judge.read(&history(&begin));
        judge.has_settled();
        let lost = vec![delete("active_roles/v1/web1/address")];
        judge.read(&[muster_etcd_rig::RevisionChanges { revision: 9, changes: lost }]);
        assert_eq!(judge.complaints(), ["revision 9: web1 was well all the time, and was taken out of its role"]);
    }

    #[test]
    fn presence_has_no_lease() {
        let told = complaints(&[vec![leased("presence/web1", A)]]);
        assert!(told[0].contains("presence/web1 has a lease"), "{told:?}");
    }
}
