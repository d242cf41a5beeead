//! Checks of the space that each member has left. A full member stops all writes of the store.

use muster_store::{MemberState, StoreHealth};
use muster_wire::doctor::{DoctorCheck, DoctorFinding, DoctorVerdict};

/// Default quota of etcd, for members that do not report theirs.
const DEFAULT_QUOTA: u64 = 2 * 1024 * MIB;
const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;
/// Percentages: the first leaves about a day to act, the second hardly an hour.
const FULL_SOON: u64 = 80;
const NEARLY_FULL: u64 = 95;
/// Size below which defragmentation is not worth it.
const WORTH_DEFRAGMENTING: u64 = 256 * MIB;

pub(super) fn judge(health: &StoreHealth) -> impl Iterator<Item = DoctorFinding> {
    let answered = health.members.iter().filter_map(|member| Some((&member.name, member.state.as_ref().ok()?)));
    answered.map(|(name, state)| one(state).of(name))
}

fn one(state: &MemberState) -> DoctorFinding {
    let is_etcd = state.version.starts_with("etcd ");
    let Some(quota) = state.quota.or_else(|| is_etcd.then_some(DEFAULT_QUOTA)).filter(|quota| *quota > 0) else {
        return DoctorFinding::new(DoctorCheck::Space, DoctorVerdict::Ok, size(state.bytes));
    };
    let percent = state.bytes.saturating_mul(100) / quota;
    let assumed = if state.quota.is_none() { ", assuming the default quota" } else { "" };
    let seen = format!(
        "{} of {}, {percent} %{assumed}; {} of it in use",
        size(state.bytes),
        size(quota),
        size(state.bytes_in_use)
    );
    let fragmented = state.bytes_in_use < state.bytes / 2;
    let give_back = "run `etcdctl defrag` on this member to release unused space";
    if percent >= FULL_SOON {
        let verdict = if percent >= NEARLY_FULL { DoctorVerdict::Failed } else { DoctorVerdict::Warning };
        DoctorFinding::new(DoctorCheck::Space, verdict, seen).advise(if fragmented {
            give_back
        } else {
            "raise --quota-backend-bytes (etcd recommends at most 8 GiB), or find out what fills it: a full member \
             refuses all writes"
        })
    } else if fragmented && state.bytes >= WORTH_DEFRAGMENTING {
        DoctorFinding::new(DoctorCheck::Space, DoctorVerdict::Warning, seen).advise(give_back)
    } else {
        DoctorFinding::new(DoctorCheck::Space, DoctorVerdict::Ok, seen)
    }
}

fn size(bytes: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", bytes / unit, bytes % unit * 10 / unit);
    match bytes {
        0..MIB => format!("{} KiB", tenths(1024)),
        MIB..GIB => format!("{} MiB", tenths(MIB)),
        GIB.. => format!("{} GiB", tenths(GIB)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::{but, health, lines};
    use super::*;

    #[test]
    fn space_is_compared_with_the_quota() {
        let table = [
            (20, 15, Some(2048), "ok: 20.0 MiB of 2.0 GiB, 0 %; 15.0 MiB of it in use"),
            (1639, 1500, Some(2048), "warning: 1.6 GiB of 2.0 GiB, 80 %; 1.4 GiB of it in use → raise"),
            (1639, 100, Some(2048), "warning: 1.6 GiB of 2.0 GiB, 80 %; 100.0 MiB of it in use → run `etcdctl defrag`"),
            (1946, 1900, Some(2048), "failed: 1.9 GiB of 2.0 GiB, 95 %"),
            (
                300,
                100,
                Some(2048),
                "warning: 300.0 MiB of 2.0 GiB, 14 %; 100.0 MiB of it in use → run `etcdctl defrag`",
            ),
            (100, 10, Some(2048), "ok: "),
            (100, 90, None, "ok: 100.0 MiB of 2.0 GiB, 4 %, assuming the default quota; "),
        ];
        for (bytes, in_use, quota, expected) in table {
            let member = but("etcd1", |state| {
                state.bytes = bytes * MIB;
                state.bytes_in_use = in_use * MIB;
                state.quota = quota.map(|quota: u64| quota * MIB);
            });
            let seen = lines(judge(&health(vec![member])));
            assert!(seen[0].starts_with(&format!("space etcd1 {expected}")), "{seen:?}");
        }
    }

    #[test]
    fn embedded_store_has_no_quota() {
        let member = but("store", |state| {
            state.version = "redb, Muster 0.1.0".into();
            state.quota = None;
        });
        assert_eq!(lines(judge(&health(vec![member]))), ["space store ok: 20.0 MiB"]);
    }
}
