//! Checks of each replica: its answer, its version and its clock.

use std::collections::BTreeMap;

use muster_core::names::ReplicaId;
use muster_wire::doctor::{DoctorCheck, DoctorFinding, DoctorVerdict};

use super::clocks::clock;
use super::facts::ReplicaFacts;

pub(super) fn judge(me: &ReplicaId, replicas: &[ReplicaFacts]) -> Vec<DoctorFinding> {
    let mut findings: Vec<DoctorFinding> = replicas.iter().map(|replica| one(me, replica)).collect();
    findings.extend(versions(replicas));
    for replica in replicas.iter().filter(|replica| replica.id != *me) {
        if let Ok(answer) = &replica.answer {
            findings.push(clock(replica.id.as_str(), replica.asked, answer.now, replica.answered));
        }
    }
    findings
}

fn one(me: &ReplicaId, replica: &ReplicaFacts) -> DoctorFinding {
    let record = &replica.record;
    let place = format!("{} on {}, process {}", record.url, record.host, record.pid);
    match &replica.answer {
        Ok(answer) => {
            let this = if replica.id == *me { "this one, " } else { "" };
            let agents = if answer.agents == 1 { "1 agent".to_owned() } else { format!("{} agents", answer.agents) };
            let seen = format!("{this}{place}, since {}: {agents}", record.since.strftime("%F %T UTC"));
            DoctorFinding::new(DoctorCheck::Replica, DoctorVerdict::Ok, seen).of(replica.id.as_str())
        }
        Err(why) => {
            let finding = DoctorFinding::new(
                DoctorCheck::Replica,
                DoctorVerdict::Failed,
                format!("{place} does not answer: {why}"),
            );
            finding.of(replica.id.as_str()).advise(
                "its lease is still valid: it stopped a moment ago, is frozen, or is not reachable from here; check its \
                 machine and the network",
            )
        }
    }
}

fn versions(replicas: &[ReplicaFacts]) -> Option<DoctorFinding> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for replica in replicas {
        versions.entry(&replica.record.version).or_default().push(replica.id.as_str());
    }
    if versions.len() < 2 {
        let (version, _) = versions.first_key_value()?;
        return Some(DoctorFinding::new(
            DoctorCheck::Version,
            DoctorVerdict::Ok,
            format!("the servers run Muster {version}"),
        ));
    }
    let each: Vec<String> = versions.iter().map(|(version, ids)| format!("{version} on {}", ids.join(", "))).collect();
    let finding = DoctorFinding::new(
        DoctorCheck::Version,
        DoctorVerdict::Warning,
        format!("servers differ: {}", each.join("; ")),
    );
    Some(finding.advise("finish the upgrade: different versions may run side by side only while it lasts"))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::facts::tests::{lines, replica};
    use super::*;

    fn me() -> ReplicaId {
        ReplicaId::new("a-1").unwrap()
    }

    #[test]
    fn answering_replicas_are_ok() {
        let seen = lines(judge(&me(), &[replica("a-1", &[]), replica("b-2", &[])]));
        assert_eq!(
            seen,
            [
                "replica a-1 ok: this one, http://a-1:7300 on ctl, process 7, since 1970-01-01 00:00:00 UTC: 10 agents",
                "replica b-2 ok: http://b-2:7300 on ctl, process 7, since 1970-01-01 00:00:00 UTC: 10 agents",
                "version ok: the servers run Muster 0.1.0",
                "clock b-2 ok: within 0.000 s",
            ]
        );
    }

    #[test]
    fn silent_replica_fails() {
        let away = ReplicaFacts { answer: Err("connection refused".into()), ..replica("b-2", &[]) };
        let seen = lines(judge(&me(), &[replica("a-1", &[]), away]));
        assert!(
            seen[1].starts_with("replica b-2 failed: http://b-2:7300 on ctl, process 7 does not answer: connection")
        );
        assert_eq!(seen.len(), 3, "its clock is not known");
    }

    #[test]
    fn different_versions_and_clocks_are_reported() {
        let mut other = replica("b-2", &[]);
        other.record.version = "0.2.0".into();
        other.answer.as_mut().unwrap().now = Timestamp::from_second(20).unwrap();
        let seen = lines(judge(&me(), &[replica("a-1", &[]), other]));
        assert!(seen[2].starts_with("version warning: servers differ: 0.1.0 on a-1; 0.2.0 on b-2 → "), "{}", seen[2]);
        assert!(seen[3].starts_with("clock b-2 failed: 20.000 s ahead → "), "{}", seen[3]);
    }
}
