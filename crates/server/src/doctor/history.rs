//! Check of the revisions that the store keeps. Without compaction it fills up.

use muster_store::StoreHealth;
use muster_wire::doctor::{DoctorCheck, DoctorFinding, DoctorVerdict};

/// Servers keep about ten thousand revisions. This many mean that compaction does not run.
const UNBOUNDED: u64 = 500_000;

pub(super) fn judge(health: &StoreHealth) -> Option<DoctorFinding> {
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

#[cfg(test)]
mod tests {
    use muster_core::txn::Revision;

    use super::super::facts::tests::{health, lines};
    use super::*;

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
            assert!(lines(judge(&health))[0].starts_with(expected), "{:?}", lines(judge(&health)));
        }
        assert_eq!(judge(&StoreHealth::default()), None);
    }
}
