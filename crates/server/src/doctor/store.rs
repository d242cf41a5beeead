//! Checks of the store: its answer, latency, alarms, history and versions.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_store::{AlarmKind, Integrity, Sharing, StoreFault, StoreHealth, Verification};
use muster_wire::doctor::{DoctorCheck, DoctorFinding, DoctorVerdict};

use super::facts::{IntegrityFacts, StoreFacts};

/// Latency of a slow store. A linearizable read takes some milliseconds on a healthy disk and network. Above this, operators
/// notice: every report waits for several requests.
const SLOW: Duration = Duration::from_millis(250);

pub(super) fn check_store(facts: &StoreFacts) -> Vec<DoctorFinding> {
    let StoreFacts { name, sharing, health, integrity } = facts;
    let mut findings = Vec::new();
    let alone = match sharing {
        Sharing::Exclusive => "exclusive to this server",
        Sharing::Shared => "shared by all replicas",
    };
    let file = health.faults.first();
    if let Some(fault) = file {
        findings.push(file_fault(name, *fault));
    }
    match health.latency {
        Some(latency) => {
            let at = health.revision.map(|revision| format!(", at revision {revision}")).unwrap_or_default();
            if file.is_none() {
                let seen = format!("{name} answers; {alone}{at}");
                findings.push(DoctorFinding::new(DoctorCheck::Store, DoctorVerdict::Ok, seen));
            }
            let seen = format!("a read takes {}", millis(latency));
            findings.push(if latency > SLOW {
                DoctorFinding::new(DoctorCheck::Latency, DoctorVerdict::Warning, seen).advise(
                    "check for a busy or slow disk, or a slow network between the members; etcd needs its own disk",
                )
            } else {
                DoctorFinding::new(DoctorCheck::Latency, DoctorVerdict::Ok, seen)
            });
        }
        None if health.verifying.is_some() => {}
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
    findings.extend(check_integrity(name, health.verifying, integrity));
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
            .push(DoctorFinding::new(DoctorCheck::Alarm, DoctorVerdict::Failed, seen).on(&alarm.member).advise(advice));
    }
    if health.latency.is_some() && health.alarms.is_empty() && *sharing == Sharing::Shared {
        findings.push(DoctorFinding::new(DoctorCheck::Alarm, DoctorVerdict::Ok, "no alarm is raised"));
    }
    findings
}

/// A store whose file is gone or another one. It answers, and loses everything when the server stops.
fn file_fault(name: &str, fault: StoreFault) -> DoctorFinding {
    let seen = match fault {
        StoreFault::FileDeleted => {
            format!("the file of {name} was deleted: its content is lost when the server stops")
        }
        StoreFault::FileReplaced => {
            format!("the file of {name} was replaced by another one: the content of this server is lost when it stops")
        }
    };
    DoctorFinding::new(DoctorCheck::Store, DoctorVerdict::Failed, seen).advise(
        "make backups with `muster backup` while the server runs; then stop it, and restore them with `muster restore`",
    )
}

fn check_integrity(name: &str, verifying: Option<Duration>, integrity: &IntegrityFacts) -> Option<DoctorFinding> {
    let finding = |verdict, seen| DoctorFinding::new(DoctorCheck::Store, verdict, seen);
    let in_progress = |time: Duration| {
        let seen = format!("the file of {name} is being verified, for {} s so far", time.as_secs());
        finding(DoctorVerdict::CannotTell, seen).advise(
            "requests to the store wait until the verification has ended, which takes long for a large file: run `muster doctor` \
             again later, which shows its result",
        )
    };
    if let Some(elapsed) = verifying {
        return Some(in_progress(elapsed));
    }
    match integrity {
        IntegrityFacts::Skipped | IntegrityFacts::Verified(Verification { integrity: Integrity::Unchecked, .. }) => None,
        IntegrityFacts::InProgress { waited } => Some(in_progress(*waited)),
        IntegrityFacts::Verified(Verification { integrity: Integrity::Intact, age }) => {
            Some(finding(DoctorVerdict::Ok, format!("all checksums of its file match{}", verified_ago(*age))))
        }
        IntegrityFacts::Verified(Verification { integrity: Integrity::Repaired, age }) => {
            let seen = format!("the file of {name} was damaged and has been repaired{}", verified_ago(*age));
            Some(finding(DoctorVerdict::Warning, seen).advise("make a backup, and check the disk of the store"))
        }
        IntegrityFacts::Failed(error) => Some(finding(DoctorVerdict::Failed, format!("{name} cannot be verified: {error}")).advise(
            "make a backup if that still works, check the disk, and restore the latest backup with `muster restore`",
        )),
    }
}

/// Age of a verification, if it was not made for this request.
fn verified_ago(age: Duration) -> String {
    match age.as_secs() {
        0 => String::new(),
        seconds @ ..120 => format!(", verified {seconds} s ago"),
        seconds => format!(", verified {} min ago", seconds / 60),
    }
}

pub(super) fn millis(time: Duration) -> String {
    let micros = time.as_micros();
    if micros < 10_000 {
        format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100)
    } else {
        format!("{} ms", micros / 1_000)
    }
}

/// Servers keep about ten thousand revisions. This many mean that compaction does not run.
const UNBOUNDED: u64 = 500_000;

/// Checks how many revisions the store keeps. Without compaction it fills up.
pub(super) fn check_history(health: &StoreHealth) -> Option<DoctorFinding> {
    let revision = health.revision?;
    let Some(oldest) = health.oldest else {
        return Some(DoctorFinding::new(
            DoctorCheck::History,
            DoctorVerdict::Ok,
            format!("up to revision {revision}; the oldest revision is not known"),
        ));
    };
    let kept = revision.0.saturating_sub(oldest.0);
    let seen = format!("{kept} revisions can be read, from {oldest} to {revision}");
    Some(if kept > UNBOUNDED {
        DoctorFinding::new(DoctorCheck::History, DoctorVerdict::Warning, seen).advise(
            "the store is not compacted: running servers do that, so check their logs; or run etcd with \
             --auto-compaction-retention",
        )
    } else {
        DoctorFinding::new(DoctorCheck::History, DoctorVerdict::Ok, seen)
    })
}

/// Checks the versions of the store's members.
pub(super) fn check_versions(health: &StoreHealth) -> Vec<DoctorFinding> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for member in &health.members {
        if let Ok(state) = &member.state {
            versions.entry(&state.version).or_default().push(&member.name);
        }
    }
    let mut findings = Vec::new();
    for (version, members) in &versions {
        if let Some((why, least)) = too_old(version) {
            let finding = DoctorFinding::new(DoctorCheck::Version, DoctorVerdict::Warning, format!("{version}: {why}"));
            findings.push(
                finding.on(members.join(", ")).advise(format!("upgrade to {least} or newer, one member at a time")),
            );
        }
    }
    if versions.len() > 1 {
        let each = versions.iter().map(|(version, members)| format!("{version} on {}", members.join(", ")));
        let each: Vec<String> = each.collect();
        let finding = DoctorFinding::new(
            DoctorCheck::Version,
            DoctorVerdict::Warning,
            format!("members differ: {}", each.join("; ")),
        );
        findings.push(finding.advise("finish the upgrade"));
    }
    if findings.is_empty()
        && let Some((version, _)) = versions.first_key_value()
    {
        let everywhere = if health.members.len() > 1 { " everywhere" } else { "" };
        findings.push(DoctorFinding::new(
            DoctorCheck::Version,
            DoctorVerdict::Ok,
            format!("the store runs {version}{everywhere}"),
        ));
    }
    findings
}

/// The fault of a version of etcd, and the version that fixes it. None for other kinds of stores.
fn too_old(version: &str) -> Option<(&'static str, &'static str)> {
    const WATCHES: &str = "its watches can deliver old changes as new ones";
    const DIFFER: &str = "its members can diverge after one was killed under load";
    let mut numbers = version.strip_prefix("etcd ")?.split(['.', '-', '+']).map_while(|part| part.parse::<u32>().ok());
    let (major, minor, patch) = (numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0));
    match (major, minor, patch) {
        (0..=2, ..) | (3, 0..=3, _) => Some(("it is no longer maintained", "3.5.15")),
        (3, 4, 0..=24) => Some((WATCHES, "3.4.34")),
        (3, 5, 0..=2) => Some((DIFFER, "3.5.15")),
        (3, 5, 3..=7) => Some((WATCHES, "3.5.15")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use muster_core::txn::Revision;
    use muster_store::{Alarm, StoreHealth};

    use super::*;
    use crate::doctor::facts::tests::{dead, health, lines, member, member_with};

    fn verified(integrity: Integrity, age: u64) -> IntegrityFacts {
        IntegrityFacts::Verified(Verification { integrity, age: Duration::from_secs(age) })
    }

    fn store_lines(sharing: Sharing, health: StoreHealth) -> Vec<String> {
        let integrity = verified(Integrity::Unchecked, 0);
        lines(check_store(&StoreFacts { name: "etcd://a:2379".into(), sharing, health, integrity }))
    }

    #[test]
    fn deleted_or_damaged_store_file_fails() {
        let check = |faults, integrity| {
            let health = StoreHealth { faults, ..health(vec![member("store")]) };
            let (name, sharing) = ("embedded:/store".into(), Sharing::Exclusive);
            lines(check_store(&StoreFacts { name, sharing, health, integrity }))
        };
        let seen = check(vec![StoreFault::FileDeleted], verified(Integrity::Intact, 0));
        assert!(seen[0].starts_with("store failed: the file of embedded:/store was deleted"), "{seen:?}");
        assert!(seen[0].contains("muster backup") && !seen.concat().contains("answers"), "{seen:?}");
        let seen = check(vec![StoreFault::FileReplaced], verified(Integrity::Intact, 0));
        assert!(seen[0].starts_with("store failed: the file of embedded:/store was replaced"), "{seen:?}");
        let seen = check(Vec::new(), verified(Integrity::Intact, 0));
        assert_eq!(seen[2], "store ok: all checksums of its file match");
        let seen = check(Vec::new(), IntegrityFacts::Failed("the content is corrupt".into()));
        assert!(
            seen[2].starts_with("store failed: embedded:/store cannot be verified: the content is corrupt"),
            "{seen:?}"
        );
        let seen = check(Vec::new(), verified(Integrity::Repaired, 0));
        assert!(seen[2].starts_with("store warning: the file of embedded:/store was damaged"), "{seen:?}");
    }

    #[test]
    fn verification_in_progress_is_not_a_failure() {
        let check = |health, integrity| {
            let (name, sharing) = ("embedded:/store".into(), Sharing::Exclusive);
            lines(check_store(&StoreFacts { name, sharing, health, integrity }))
        };
        let healthy = || health(vec![member("store")]);
        let waited = IntegrityFacts::InProgress { waited: Duration::from_secs(10) };
        let seen = check(healthy(), waited);
        let expected = "store cannot tell: the file of embedded:/store is being verified, for 10 s so far";
        assert!(seen[2].starts_with(expected) && !seen.concat().contains("restore"), "{seen:?}");
        let elapsed = Some(Duration::from_secs(40));
        let seen = check(StoreHealth { verifying: elapsed, ..StoreHealth::default() }, IntegrityFacts::Skipped);
        let expected = "store cannot tell: the file of embedded:/store is being verified, for 40 s so far";
        assert!(seen[0].starts_with(expected) && seen.len() == 1, "{seen:?}");
        for (age, expected) in [(0, ""), (119, ", verified 119 s ago"), (599, ", verified 9 min ago")] {
            let seen = check(healthy(), verified(Integrity::Intact, age));
            assert_eq!(seen[2], format!("store ok: all checksums of its file match{expected}"));
        }
    }

    #[test]
    fn answering_store_is_ok() {
        let seen = store_lines(Sharing::Shared, health(vec![member("etcd1")]));
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
        assert!(store_lines(Sharing::Shared, slow)[1].starts_with("latency warning: a read takes 251 ms → check for"));
        let dead = StoreHealth { latency: None, ..health(vec![member("etcd1")]) };
        let seen = store_lines(Sharing::Shared, dead.clone());
        assert_eq!(seen.len(), 1);
        assert!(seen[0].starts_with("store failed: etcd://a:2379 does not answer reads") && seen[0].contains("half"));
        assert!(store_lines(Sharing::Exclusive, dead)[0].contains("disk"));
    }

    #[test]
    fn alarms_fail_and_name_the_member() {
        let alarm = |kind| Alarm { member: "etcd1".into(), kind };
        let alarms = vec![alarm(AlarmKind::NoSpace), alarm(AlarmKind::Corrupt)];
        let seen = store_lines(Sharing::Shared, StoreHealth { alarms, ..health(vec![member("etcd1")]) });
        assert!(seen[2].starts_with("alarm etcd1 failed: its quota is exhausted") && seen[2].contains("alarm disarm"));
        assert!(seen[3].starts_with("alarm etcd1 failed: its data differ"), "{}", seen[3]);
    }

    #[test]
    fn unbounded_history_is_a_warning() {
        let table = [
            (Some(1), Some(1_000), "history ok: 999 revisions can be read, from 1 to 1000"),
            (Some(10), Some(600_000), "history warning: 599990 revisions can be read, from 10 to 600000 → the store"),
            (None, Some(7), "history ok: up to revision 7; the oldest revision is not known"),
        ];
        for (oldest, newest, expected) in table {
            let health =
                StoreHealth { oldest: oldest.map(Revision), revision: newest.map(Revision), ..health(Vec::new()) };
            assert!(lines(check_history(&health))[0].starts_with(expected), "{:?}", lines(check_history(&health)));
        }
        assert_eq!(check_history(&StoreHealth::default()), None);
    }

    #[test]
    fn versions_with_known_faults_are_reported() {
        let table = [
            ("etcd 3.3.25", true),
            ("etcd 3.4.23", true),
            ("etcd 3.4.25", false),
            ("etcd 3.4.30", false),
            ("etcd 3.5.0", true),
            ("etcd 3.5.2", true),
            ("etcd 3.5.7", true),
            ("etcd 3.5.8", false),
            ("etcd 3.6.0-rc.1", false),
            ("etcd 4.0.0", false),
            ("redb, Muster 0.1.0", false),
            ("", false),
        ];
        for (version, old) in table {
            assert_eq!(too_old(version).is_some(), old, "{version}");
        }
    }

    #[test]
    fn different_member_versions_are_reported() {
        let at = |name: &str, version: &str| member_with(name, |state| state.version = version.into());
        let same = vec![at("etcd1", "etcd 3.5.9"), at("etcd2", "etcd 3.5.9"), dead("etcd3")];
        assert_eq!(lines(check_versions(&health(same))), ["version ok: the store runs etcd 3.5.9 everywhere"]);
        let differ = vec![at("etcd1", "etcd 3.4.23"), at("etcd2", "etcd 3.5.9"), at("etcd3", "etcd 3.4.23")];
        assert_eq!(
            lines(check_versions(&health(differ))),
            [
                "version etcd1, etcd3 warning: etcd 3.4.23: its watches can deliver old changes as new ones → \
                 upgrade to 3.4.34 or newer, one member at a time",
                "version warning: members differ: etcd 3.4.23 on etcd1, etcd3; etcd 3.5.9 on etcd2 → finish the upgrade",
            ]
        );
        assert_eq!(check_versions(&health(vec![dead("etcd1")])), []);
    }
}
