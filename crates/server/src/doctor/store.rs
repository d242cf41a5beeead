//! Checks of the store: its answer, its latency and its alarms.

use std::time::Duration;

use muster_store::{AlarmKind, Sharing};
use muster_wire::doctor::{DoctorCheck, DoctorFinding, DoctorVerdict};

use super::facts::StoreFacts;

/// Latency of a slow store. A linearizable read takes some milliseconds on a healthy disk and network. Above this, operators
/// notice: every report waits for several requests.
const SLOW: Duration = Duration::from_millis(250);

pub(super) fn judge(facts: &StoreFacts) -> Vec<DoctorFinding> {
    let StoreFacts { name, sharing, health } = facts;
    let mut findings = Vec::new();
    let alone = match sharing {
        Sharing::Exclusive => "exclusive to this server",
        Sharing::Shared => "shared by all replicas",
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
                    "check for a busy or slow disk, or a slow network between the members; etcd needs its own disk",
                )
            } else {
                DoctorFinding::new(DoctorCheck::Latency, DoctorVerdict::Ok, seen)
            });
        }
        None => findings.push(
            DoctorFinding::new(DoctorCheck::Store, DoctorVerdict::Failed, format!("{name} does not answer reads"))
                .advise(match sharing {
                    Sharing::Exclusive => "check the disk of the store: is it present, and does it have space?",
                    Sharing::Shared => {
                        "more than half of its members must be up and reach each other: start those that are not"
                    }
                }),
        ),
    }
    for alarm in &health.alarms {
        let (seen, advice) = match alarm.kind {
            AlarmKind::NoSpace => (
                "its quota is exhausted: nothing can be written until the alarm is disarmed",
                "compact and defragment each member, raise --quota-backend-bytes if it really holds so much, then run \
                 `etcdctl alarm disarm`",
            ),
            AlarmKind::Corrupt => (
                "its data differ from those of the other members",
                "remove this member, and add it again with an empty directory: it copies the data of the other members",
            ),
        };
        findings
            .push(DoctorFinding::new(DoctorCheck::Alarm, DoctorVerdict::Failed, seen).of(&alarm.member).advise(advice));
    }
    if health.latency.is_some() && health.alarms.is_empty() && *sharing == Sharing::Shared {
        findings.push(DoctorFinding::new(DoctorCheck::Alarm, DoctorVerdict::Ok, "no alarm is raised"));
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

    use super::super::facts::tests::{health, lines, member};
    use super::*;

    fn findings(sharing: Sharing, health: StoreHealth) -> Vec<String> {
        lines(judge(&StoreFacts { name: "etcd://a:2379".into(), sharing, health }))
    }

    #[test]
    fn answering_store_is_ok() {
        let seen = findings(Sharing::Shared, health(vec![member("etcd1")]));
        assert_eq!(
            seen,
            [
                "store ok: etcd://a:2379 answers; shared by all replicas, at revision 1000",
                "latency ok: a read takes 3.0 ms",
                "alarm ok: no alarm is raised",
            ]
        );
    }

    #[test]
    fn slow_store_warns_and_dead_store_fails() {
        let slow = StoreHealth { latency: Some(Duration::from_millis(251)), ..health(vec![member("etcd1")]) };
        assert!(findings(Sharing::Shared, slow)[1].starts_with("latency warning: a read takes 251 ms → check for"));
        let dead = StoreHealth { latency: None, ..health(vec![member("etcd1")]) };
        let seen = findings(Sharing::Shared, dead.clone());
        assert_eq!(seen.len(), 1);
        assert!(seen[0].starts_with("store failed: etcd://a:2379 does not answer reads") && seen[0].contains("half"));
        assert!(findings(Sharing::Exclusive, dead)[0].contains("disk"));
    }

    #[test]
    fn alarms_fail_and_name_the_member() {
        let alarm = |kind| Alarm { member: "etcd1".into(), kind };
        let alarms = vec![alarm(AlarmKind::NoSpace), alarm(AlarmKind::Corrupt)];
        let seen = findings(Sharing::Shared, StoreHealth { alarms, ..health(vec![member("etcd1")]) });
        assert!(seen[2].starts_with("alarm etcd1 failed: its quota is exhausted") && seen[2].contains("alarm disarm"));
        assert!(seen[3].starts_with("alarm etcd1 failed: its data differ"), "{}", seen[3]);
    }
}
