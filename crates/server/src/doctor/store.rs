//! Whether the store answers, how fast, and what it complains about.

use std::time::Duration;

use muster_store::{AlarmKind, Sharing};
use muster_wire::doctor::{DoctorCheck, DoctorFinding, DoctorVerdict};

use super::facts::StoreFacts;

/// A read that every member of a quorum on a sound disk and network confirms takes some milliseconds. From here on,
/// people notice: every report waits for several of these.
const SLOW: Duration = Duration::from_millis(250);

pub(super) fn judge(facts: &StoreFacts) -> Vec<DoctorFinding> {
    let StoreFacts { name, sharing, health } = facts;
    let mut findings = Vec::new();
    let alone = match sharing {
        Sharing::Exclusive => "for one server alone",
        Sharing::Shared => "shared by all who know it",
    };
    match health.latency {
        Some(latency) => {
            let at = health.revision.map(|revision| format!(", at revision {revision}")).unwrap_or_default();
            findings.push(DoctorFinding::new(
                DoctorCheck::Store,
                DoctorVerdict::Ok,
                format!("{name} answers; {alone}{at}"),
            ));
            let seen = format!("a read takes {}", millis(latency));
            findings.push(if latency > SLOW {
                DoctorFinding::new(DoctorCheck::Latency, DoctorVerdict::Warning, seen).advise(
                    "look for a busy or slow disk, or a slow network between the members; etcd wants a disk of its own",
                )
            } else {
                DoctorFinding::new(DoctorCheck::Latency, DoctorVerdict::Ok, seen)
            });
        }
        None => findings.push(
            DoctorFinding::new(
                DoctorCheck::Store,
                DoctorVerdict::Failed,
                format!("{name} answers no read that can be relied on"),
            )
            .advise(match sharing {
                Sharing::Exclusive => "look at the disk of the store: is it there, and has it room?",
                Sharing::Shared => {
                    "more than half of its members must be up and reach each other: start those that are not"
                }
            }),
        ),
    }
    for alarm in &health.alarms {
        let (seen, advice) = match alarm.kind {
            AlarmKind::NoSpace => (
                "its quota is exhausted: nothing can be written until the alarm is taken back",
                "compact and defragment each member, raise --quota-backend-bytes if it really holds so much, then run \
                 `etcdctl alarm disarm`",
            ),
            AlarmKind::Corrupt => (
                "it found its data to differ from the other members'",
                "remove this member, and add it again with an empty directory: it gets its data from the others",
            ),
        };
        findings
            .push(DoctorFinding::new(DoctorCheck::Alarm, DoctorVerdict::Failed, seen).of(&alarm.member).advise(advice));
    }
    if health.latency.is_some() && health.alarms.is_empty() && *sharing == Sharing::Shared {
        findings.push(DoctorFinding::new(DoctorCheck::Alarm, DoctorVerdict::Ok, "none is raised"));
    }
    findings
}

pub(super) fn millis(time: Duration) -> String {
    let micros = time.as_micros();
    if micros < 10_000 {
        format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100)
    } else {
        format!("{} ms", micros / 1_000)
    }
}

#[cfg(test)]
mod tests {
    use muster_store::{Alarm, StoreHealth};

    use super::super::facts::tests::{health, member, told};
    use super::*;

    fn findings(sharing: Sharing, health: StoreHealth) -> Vec<String> {
        told(judge(&StoreFacts { name: "etcd://a:2379".into(), sharing, health }))
    }

    #[test]
    fn a_store_that_answers_is_well() {
        let seen = findings(Sharing::Shared, health(vec![member("etcd1")]));
        assert_eq!(
            seen,
            [
                "store ok: etcd://a:2379 answers; shared by all who know it, at revision 1000",
                "latency ok: a read takes 3.0 ms",
                "alarm ok: none is raised",
            ]
        );
    }

    #[test]
    fn a_slow_one_is_a_warning_and_a_dead_one_a_failure() {
        let slow = StoreHealth { latency: Some(Duration::from_millis(251)), ..health(vec![member("etcd1")]) };
        assert!(findings(Sharing::Shared, slow)[1].starts_with("latency warning: a read takes 251 ms → look for"));
        let dead = StoreHealth { latency: None, ..health(vec![member("etcd1")]) };
        let seen = findings(Sharing::Shared, dead.clone());
        assert_eq!(seen.len(), 1);
        assert!(seen[0].starts_with("store failed: etcd://a:2379 answers no read") && seen[0].contains("half"));
        assert!(findings(Sharing::Exclusive, dead)[0].contains("disk"));
    }

    #[test]
    fn every_alarm_fails_and_names_the_member() {
        let alarm = |kind| Alarm { member: "etcd1".into(), kind };
        let alarms = vec![alarm(AlarmKind::NoSpace), alarm(AlarmKind::Corrupt)];
        let seen = findings(Sharing::Shared, StoreHealth { alarms, ..health(vec![member("etcd1")]) });
        assert!(seen[2].starts_with("alarm etcd1 failed: its quota is exhausted") && seen[2].contains("alarm disarm"));
        assert!(seen[3].starts_with("alarm etcd1 failed: it found its data to differ"), "{}", seen[3]);
    }
}
