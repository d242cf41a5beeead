//! Checks that the blob directory is writable and shared by all replicas.

use muster_core::names::ReplicaId;
use muster_wire::doctor::{DoctorCheck, DoctorFinding, DoctorVerdict};

use super::facts::ReplicaFacts;

pub(super) fn judge(can_write: &Result<(), String>, replicas: &[ReplicaFacts]) -> Vec<DoctorFinding> {
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
            .advise("look at the directory that --blobs names: is it there, may the server write to it, is it full?"),
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
            let finding = DoctorFinding::new(DoctorCheck::Blobs, DoctorVerdict::Failed, seen).of(replica.id.as_str());
            findings.push(finding.advise("give all replicas one directory that all of them see with --blobs"));
        } else if !unknown.is_empty() {
            shared = false;
            let seen = format!("did not say whether it sees the blobs of {}", unknown.join(", "));
            let finding =
                DoctorFinding::new(DoctorCheck::Blobs, DoctorVerdict::CannotTell, seen).of(replica.id.as_str());
            findings.push(finding.advise("ask again in a few seconds; then look at the directory that --blobs names"));
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
    use super::super::facts::tests::{lines, replica};
    use super::*;

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
            let seen = lines(judge(&Ok(()), &replicas));
            assert_eq!(seen.len(), expected.len(), "{seen:?}");
            assert!(seen.iter().zip(expected).all(|(seen, expected)| seen.starts_with(expected)), "{seen:?}");
        }
        let mut apart = pair();
        apart[0].answer.as_mut().unwrap().sees_blobs_of[1].sees = false;
        assert_eq!(
            lines(judge(&Ok(()), &apart))[1],
            "blobs a-1 failed: does not see the blobs of b-2 in /blobs → give all replicas one directory that all of \
             them see with --blobs"
        );
        let mut unsure = pair();
        unsure[1].answer.as_mut().unwrap().sees_blobs_of.clear();
        assert!(lines(judge(&Ok(()), &unsure))[1].starts_with("blobs b-2 cannot tell: did not say whether"));
    }

    #[test]
    fn unwritable_directory_fails() {
        let seen = lines(judge(&Err("No space left on device".into()), &[replica("a-1", &["a-1"])]));
        assert!(seen[0].starts_with("blobs failed: reports and logs cannot be kept: No space left on device → look"));
    }
}
