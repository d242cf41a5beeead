//! Facts about the store, the replicas and the environments, as they were collected.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::fleet::{DestroyRecord, RestoreRecord};
use muster_core::names::{EnvName, ReplicaId, Version};
use muster_core::replica::{ControllerName, ControllerRecord, ReplicaRecord};
use muster_store::{Sharing, StoreHealth};
use muster_wire::doctor::ReplicaReport;

/// All facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub store: StoreFacts,
    /// The replica that collects them.
    pub me: ReplicaId,
    pub replicas: Vec<ReplicaFacts>,
    pub environments: Vec<EnvironmentFacts>,
    /// Error if the blob directory is not writable.
    pub blobs: Result<(), String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFacts {
    pub name: String,
    pub sharing: Sharing,
    pub health: StoreHealth,
}

/// A replica and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFacts {
    pub id: ReplicaId,
    pub record: ReplicaRecord,
    /// Times of the collecting replica, just before and after the request.
    pub asked: Timestamp,
    pub answered: Timestamp,
    /// The answer, or the reason why there is none.
    pub answer: Result<ReplicaReport, String>,
}

/// An environment in the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentFacts {
    pub env: EnvName,
    pub nodes: usize,
    /// True if Muster has made machines for its nodes.
    pub has_machines: bool,
    /// True if its nodes follow a design, or if it is being destroyed.
    pub needs_design_controller: bool,
    pub destroying: Option<DestroyRecord>,
    pub controllers: BTreeMap<ControllerName, ControllerRecord>,
    pub restoring: Option<RestoreRecord>,
    /// Keys whose value cannot be read, and why.
    pub unreadable: BTreeMap<String, String>,
    /// The releases whose bundles are missing.
    pub without_bundle: Vec<Version>,
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use muster_core::replica::BlobsMark;
    use muster_core::txn::Revision;
    use muster_store::{Member, MemberState};
    use muster_wire::doctor::BlobVisibility;

    use super::*;

    pub(crate) const MIB: u64 = 1024 * 1024;

    /// A healthy member.
    pub(crate) fn member(name: &str) -> Member {
        let state = MemberState {
            latency: Duration::from_millis(2),
            version: "etcd 3.6.4".into(),
            is_leader: name == "etcd1",
            learner: false,
            bytes: 20 * MIB,
            bytes_in_use: 15 * MIB,
            quota: Some(2048 * MIB),
            behind: 0,
            errors: Vec::new(),
        };
        Member { name: name.into(), endpoints: vec![format!("http://{name}:2379")], state: Ok(state) }
    }

    /// A healthy member with one change.
    pub(crate) fn but(name: &str, change: impl FnOnce(&mut MemberState)) -> Member {
        let mut member = member(name);
        if let Ok(state) = &mut member.state {
            change(state);
        }
        member
    }

    pub(crate) fn dead(name: &str) -> Member {
        Member { state: Err("connection refused".into()), ..member(name) }
    }

    /// A store with these members, otherwise healthy.
    pub(crate) fn health(members: Vec<Member>) -> StoreHealth {
        StoreHealth {
            members,
            latency: Some(Duration::from_millis(3)),
            alarms: Vec::new(),
            oldest: Some(Revision(1)),
            revision: Some(Revision(1_000)),
        }
    }

    /// A healthy replica that sees the blobs of `others`.
    pub(crate) fn replica(name: &str, others: &[&str]) -> ReplicaFacts {
        let id = |name: &str| ReplicaId::new(name).unwrap();
        let record = ReplicaRecord {
            url: format!("http://{name}:7300"),
            host: "ctl".into(),
            pid: 7,
            version: "0.1.0".into(),
            since: Timestamp::UNIX_EPOCH,
            blobs: BlobsMark { directory: "/blobs".into(), nonce: "n".into() },
        };
        let answer = ReplicaReport {
            replica: id(name),
            version: "0.1.0".into(),
            now: Timestamp::UNIX_EPOCH,
            agents: 10,
            sees_blobs_of: others.iter().map(|other| BlobVisibility { replica: id(other), sees: true }).collect(),
        };
        let (asked, answered) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        ReplicaFacts { id: id(name), record, asked, answered, answer: Ok(answer) }
    }

    /// Findings as lines, for tables in tests.
    pub(crate) fn lines(findings: impl IntoIterator<Item = muster_wire::doctor::DoctorFinding>) -> Vec<String> {
        let line = |finding: muster_wire::doctor::DoctorFinding| {
            let subject = finding.subject.map(|subject| format!(" {subject}")).unwrap_or_default();
            let advice = finding.advice.map(|advice| format!(" → {advice}")).unwrap_or_default();
            format!("{}{subject} {}: {}{advice}", finding.check.word(), finding.verdict.word(), finding.seen)
        };
        findings.into_iter().map(line).collect()
    }
}
