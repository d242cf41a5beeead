//! Checks of each replica: its answer, its version, its clock, and its access to the blobs.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use muster_core::authority::AuthorityRecord;
use muster_core::names::ReplicaId;
use muster_wire::doctor::{DoctorCheck, DoctorFinding, DoctorVerdict};

use super::facts::{NoReplicaAnswer, ReplicaFacts};

pub(super) fn check_replicas(me: &ReplicaId, replicas: &[ReplicaFacts]) -> Vec<DoctorFinding> {
    let mut findings: Vec<DoctorFinding> = replicas.iter().map(|replica| check_replica(me, replica)).collect();
    findings.extend(check_replica_versions(replicas));
    for replica in replicas.iter().filter(|replica| replica.id != *me) {
        if let Ok(answer) = &replica.answer {
            findings.push(check_clock(replica.id.as_str(), replica.asked, answer.now, replica.answered));
        }
    }
    findings
}

fn check_replica(me: &ReplicaId, replica: &ReplicaFacts) -> DoctorFinding {
    let record = &replica.record;
    let place = format!("{} on {}, process {}", record.url, record.host, record.pid);
    match &replica.answer {
        Ok(answer) => {
            let this = if replica.id == *me { "this one, " } else { "" };
            let agents = if answer.agents == 1 { "1 agent".to_owned() } else { format!("{} agents", answer.agents) };
            let seen = format!("{this}{place}, since {}: {agents}", record.since.strftime("%F %T UTC"));
            DoctorFinding::new(DoctorCheck::Replica, DoctorVerdict::Ok, seen).on(replica.id.as_str())
        }
        Err(reason) => {
            let (seen, advice) = match reason {
                NoReplicaAnswer::RefusedToken => (
                    format!("{place} refuses the token of this replica"),
                    "give all replicas the same token: copy the token file of one replica to the others, or name it with \
                     --token-file; then restart those, and the agents that have another token",
                ),
                NoReplicaAnswer::Unreachable(why) => (
                    format!("{place} does not answer: {why}"),
                    "its lease is still valid: it stopped a moment ago, is frozen, or is not reachable from here; check its \
                     machine and the network",
                ),
            };
            let finding = DoctorFinding::new(DoctorCheck::Replica, DoctorVerdict::Failed, seen);
            finding.on(replica.id.as_str()).advise(advice)
        }
    }
}

fn check_replica_versions(replicas: &[ReplicaFacts]) -> Option<DoctorFinding> {
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

/// Difference that is visible in the ages on a screen.
const NOTICED: SignedDuration = SignedDuration::from_secs(1);
/// Difference of a lease TTL: decisions on ages become wrong.
const HARMFUL: SignedDuration = SignedDuration::from_secs(10);

/// Checks another clock: servers and clients compute ages from the times in reports.
///
/// The clock is known from a response with its time: `theirs` was read between `asked` and `answered`. The duration of the
/// request is subtracted from the difference.
pub fn check_clock(subject: &str, asked: Timestamp, theirs: Timestamp, answered: Timestamp) -> DoctorFinding {
    let way = answered.duration_since(asked).max(SignedDuration::ZERO);
    let middle = asked.checked_add(way / 2).unwrap_or(asked);
    let apart = theirs.duration_since(middle);
    let certain = (apart.abs() - way / 2).max(SignedDuration::ZERO);
    let by = format!("{}.{:03} s", apart.abs().as_secs(), apart.abs().subsec_millis());
    let side = if apart.is_negative() { "behind" } else { "ahead" };
    if certain <= NOTICED {
        return DoctorFinding::new(DoctorCheck::Clock, DoctorVerdict::Ok, format!("within {by}")).on(subject);
    }
    let verdict = if certain > HARMFUL { DoctorVerdict::Failed } else { DoctorVerdict::Warning };
    let advice = "let a time service (chrony, systemd-timesyncd) set the clocks of both machines";
    DoctorFinding::new(DoctorCheck::Clock, verdict, format!("{by} {side}")).on(subject).advise(advice)
}

/// Checks that each replica has the key of the certificate authority, and that of a rotation.
pub(super) fn check_authority(record: &AuthorityRecord, replicas: &[ReplicaFacts]) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    for replica in replicas {
        let lacks = |pin: &String| !replica.record.authorities.contains(pin);
        let next = record.rotation.as_ref().map(|rotation| &rotation.next.pin);
        let (verdict, pin) = if lacks(&record.issuing().pin) {
            (DoctorVerdict::Failed, &record.issuing().pin)
        } else if let Some(next) = next.filter(|next| lacks(next)) {
            (DoctorVerdict::Warning, next)
        } else {
            continue;
        };
        let detail = format!("{} lacks the key of the certificate authority {pin}", replica.record.host);
        let advice = "copy ca.crt and ca.key of that authority from another server to a directory of any name in its --ca directory";
        let finding = DoctorFinding::new(DoctorCheck::Authority, verdict, detail);
        findings.push(finding.on(replica.id.as_str()).advise(advice));
    }
    if findings.is_empty() {
        let seen = match &record.rotation {
            None => format!("all servers have the key of {}", record.current.pin),
            Some(rotation) => format!("rotation to {}: {}", rotation.next.pin, rotation.phase.as_str()),
        };
        findings.push(DoctorFinding::new(DoctorCheck::Authority, DoctorVerdict::Ok, seen));
    }
    findings
}

/// Checks that the blob directory is writable and shared by all replicas.
pub(super) fn check_blobs(can_write: &Result<(), String>, replicas: &[ReplicaFacts]) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    match can_write {
        Ok(()) => {
            findings.push(DoctorFinding::new(DoctorCheck::Blobs, DoctorVerdict::Ok, "reports and logs can be kept"))
        }
        Err(why) => findings.push(
            DoctorFinding::new(
                DoctorCheck::Blobs,
                DoctorVerdict::Failed,
                format!("reports and logs cannot be kept: {why}"),
            )
            .advise("look at the directory or bucket that --blobs names: is it there, may the server write to it, is it full?"),
        ),
    }
    if replicas.len() < 2 {
        return findings;
    }
    let mut shared = true;
    for replica in replicas {
        let Ok(answer) = &replica.answer else { continue };
        let others = replicas.iter().filter(|other| other.id != replica.id);
        let sees =
            |other: &ReplicaId| answer.sees_blobs_of.iter().find(|seen| seen.replica == *other).map(|seen| seen.sees);
        let (mut unseen, mut unknown) = (Vec::new(), Vec::new());
        for other in others {
            match sees(&other.id) {
                Some(true) => {}
                Some(false) => unseen.push(other.id.as_str()),
                // It does not know that replica yet, or its directory did not answer.
                None => unknown.push(other.id.as_str()),
            }
        }
        if !unseen.is_empty() {
            shared = false;
            let seen = format!("does not see the blobs of {} in {}", unseen.join(", "), replica.record.blobs.directory);
            let finding = DoctorFinding::new(DoctorCheck::Blobs, DoctorVerdict::Failed, seen).on(replica.id.as_str());
            findings.push(
                finding.advise("give all replicas one bucket, or one directory that all of them see, with --blobs"),
            );
        } else if !unknown.is_empty() {
            shared = false;
            let seen = format!("did not say whether it sees the blobs of {}", unknown.join(", "));
            let finding =
                DoctorFinding::new(DoctorCheck::Blobs, DoctorVerdict::CannotTell, seen).on(replica.id.as_str());
            findings.push(
                finding.advise("check again in a few seconds; then look at the directory or bucket that --blobs names"),
            );
        }
    }
    if shared {
        findings.push(DoctorFinding::new(
            DoctorCheck::Blobs,
            DoctorVerdict::Ok,
            "all replicas that answer see the same ones",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use muster_core::authority::AuthorityCertificates;

    use super::*;
    use crate::doctor::facts::tests::{lines, replica};

    fn me() -> ReplicaId {
        ReplicaId::new("a-1").unwrap()
    }

    #[test]
    fn answering_replicas_are_ok() {
        let seen = lines(check_replicas(&me(), &[replica("a-1", &[]), replica("b-2", &[])]));
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
        let refused = NoReplicaAnswer::Unreachable("connection refused".into());
        let away = ReplicaFacts { answer: Err(refused), ..replica("b-2", &[]) };
        let seen = lines(check_replicas(&me(), &[replica("a-1", &[]), away]));
        assert!(
            seen[1].starts_with("replica b-2 failed: http://b-2:7300 on ctl, process 7 does not answer: connection")
        );
        assert_eq!(seen.len(), 3, "its clock is not known");
    }

    #[test]
    fn replica_with_another_token_gets_advice_on_tokens() {
        let other = ReplicaFacts { answer: Err(NoReplicaAnswer::RefusedToken), ..replica("b-2", &[]) };
        let seen = lines(check_replicas(&me(), &[replica("a-1", &[]), other]));
        let expected =
            "replica b-2 failed: http://b-2:7300 on ctl, process 7 refuses the token of this replica → give all";
        assert!(seen[1].starts_with(expected) && !seen[1].contains("network"), "{}", seen[1]);
    }

    #[test]
    fn different_versions_and_clocks_are_reported() {
        let mut other = replica("b-2", &[]);
        other.record.version = "0.2.0".into();
        other.answer.as_mut().unwrap().now = Timestamp::from_second(20).unwrap();
        let seen = lines(check_replicas(&me(), &[replica("a-1", &[]), other]));
        assert!(seen[2].starts_with("version warning: servers differ: 0.1.0 on a-1; 0.2.0 on b-2 → "), "{}", seen[2]);
        assert!(seen[3].starts_with("clock b-2 failed: 20.000 s ahead → "), "{}", seen[3]);
    }

    #[test]
    fn clock_difference_excludes_the_round_trip() {
        let at = |millis: i64| Timestamp::from_millisecond(1_000_000 + millis).unwrap();
        let table = [
            (5, 10, "clock ctl2 ok: within 0.000 s"),
            (900, 10, "clock ctl2 ok: within 0.895 s"),
            (1_005, 10, "clock ctl2 ok: within 1.000 s"),
            (1_100, 10, "clock ctl2 warning: 1.095 s ahead → let"),
            (-1_100, 10, "clock ctl2 warning: 1.105 s behind → let"),
            (11_000, 10, "clock ctl2 failed: 10.995 s ahead → let"),
            (-60_000, 10, "clock ctl2 failed: 60.005 s behind → let"),
            // A slow response proves less.
            (2_900, 4_000, "clock ctl2 ok: within 0.900 s"),
            (5_500, 4_000, "clock ctl2 warning: 3.500 s ahead → let"),
        ];
        for (theirs, way, expected) in table {
            let seen = lines([check_clock("ctl2", at(0), at(theirs), at(way))]);
            assert!(seen[0].starts_with(expected), "{theirs} {way}: {seen:?}");
        }
    }

    #[test]
    fn blobs_are_shared_or_a_replica_is_named() {
        let pair = || [replica("a-1", &["a-1", "b-2"]), replica("b-2", &["a-1", "b-2"])];
        let table: [(_, &[&str]); 2] = [
            (
                Vec::from(pair()),
                &["blobs ok: reports and logs can be kept", "blobs ok: all replicas that answer see the same"],
            ),
            (vec![replica("a-1", &["a-1"])], &["blobs ok: reports and logs can be kept"]),
        ];
        for (replicas, expected) in table {
            let seen = lines(check_blobs(&Ok(()), &replicas));
            assert_eq!(seen.len(), expected.len(), "{seen:?}");
            assert!(seen.iter().zip(expected).all(|(seen, expected)| seen.starts_with(expected)), "{seen:?}");
        }
        let mut apart = pair();
        apart[0].answer.as_mut().unwrap().sees_blobs_of[1].sees = false;
        assert_eq!(
            lines(check_blobs(&Ok(()), &apart))[1],
            "blobs a-1 failed: does not see the blobs of b-2 in /blobs → give all replicas one bucket, or one directory that all of \
             them see, with --blobs"
        );
        let mut unsure = pair();
        unsure[1].answer.as_mut().unwrap().sees_blobs_of.clear();
        assert!(lines(check_blobs(&Ok(()), &unsure))[1].starts_with("blobs b-2 cannot tell: did not say whether"));
    }

    #[test]
    fn replica_without_the_key_of_the_authority_is_named() {
        let authority = |pin: &str| AuthorityCertificates { pin: pin.into(), chain: String::new() };
        let stable = AuthorityRecord::new(authority("a1"));
        let replicas = [replica("a-1", &[]), replica("b-2", &[])];
        assert_eq!(lines(check_authority(&stable, &replicas)), ["authority ok: all servers have the key of a1"]);
        let announced = stable.announce(authority("b2"), None, "ada".into(), Timestamp::UNIX_EPOCH).unwrap();
        let seen = lines(check_authority(&announced, &replicas));
        assert!(seen[0].starts_with("authority a-1 warning: ctl lacks the key of the certificate authority b2 → copy"));
        let issuing = announced.advance(Timestamp::UNIX_EPOCH).unwrap();
        let seen = lines(check_authority(&issuing, &replicas));
        assert!(seen.len() == 2 && seen[1].starts_with("authority b-2 failed: "), "{seen:?}");
    }

    #[test]
    fn unwritable_directory_fails() {
        let seen = lines(check_blobs(&Err("No space left on device".into()), &[replica("a-1", &["a-1"])]));
        assert!(seen[0].starts_with("blobs failed: reports and logs cannot be kept: No space left on device → look"));
    }
}
