//! What was found out, before anybody judges it.

use muster_store::{Health, Sharing};

/// Everything that was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub store: StoreFacts,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFacts {
    pub name: String,
    pub sharing: Sharing,
    pub health: Health,
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use muster_core::txn::Revision;
    use muster_store::{Member, MemberState};

    use super::*;

    pub(crate) const MIB: u64 = 1024 * 1024;

    /// A member that is well.
    pub(crate) fn member(name: &str) -> Member {
        let state = MemberState {
            latency: Duration::from_millis(2),
            version: "etcd 3.6.4".into(),
            leads: name == "etcd1",
            learner: false,
            bytes: 20 * MIB,
            bytes_in_use: 15 * MIB,
            quota: Some(2048 * MIB),
            behind: 0,
            errors: Vec::new(),
        };
        Member { name: name.into(), endpoints: vec![format!("http://{name}:2379")], state: Ok(state) }
    }

    /// The same with something changed.
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

    /// A store of these members that is well otherwise.
    pub(crate) fn health(members: Vec<Member>) -> Health {
        Health {
            members,
            latency: Some(Duration::from_millis(3)),
            alarms: Vec::new(),
            oldest: Some(Revision(1)),
            revision: Some(Revision(1_000)),
        }
    }

    /// Findings as lines, for tables in tests.
    pub(crate) fn told(findings: impl IntoIterator<Item = muster_wire::doctor::Finding>) -> Vec<String> {
        let line = |finding: muster_wire::doctor::Finding| {
            let subject = finding.subject.map(|subject| format!(" {subject}")).unwrap_or_default();
            let advice = finding.advice.map(|advice| format!(" → {advice}")).unwrap_or_default();
            format!("{}{subject} {}: {}{advice}", finding.check.word(), finding.verdict.word(), finding.seen)
        };
        findings.into_iter().map(line).collect()
    }
}
