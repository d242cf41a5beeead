//! Checks of each member of the store: its answer, its lag, and the space that it has left.

use muster_store::{MemberState, StoreHealth, StoreMember};
use muster_wire::doctor::{DoctorCheck, DoctorFinding, DoctorVerdict};

use super::store::millis;

/// Entries that a member may lag behind. etcd refuses writes at 5,000.
const FAR_BEHIND: u64 = 1_000;

pub(super) fn check_members(health: &StoreHealth) -> Vec<DoctorFinding> {
    let answered = health.members.iter().filter(|member| member.state.is_ok()).count();
    let mut findings: Vec<DoctorFinding> =
        health.members.iter().map(|member| check_member(member, answered, health.members.len())).collect();
    let leads = health.members.iter().any(|member| member.state.as_ref().is_ok_and(|state| state.is_leader));
    if answered > 0 && !leads {
        // The leader may be a member that does not answer, or there is none.
        let verdict = if health.latency.is_some() { DoctorVerdict::Warning } else { DoctorVerdict::Failed };
        let finding = DoctorFinding::new(DoctorCheck::Member, verdict, "no member that answers is the leader");
        findings.push(finding.advise("check again in a few seconds: an election takes one or two"));
    }
    findings
}

fn check_member(member: &StoreMember, answered: usize, all: usize) -> DoctorFinding {
    match &member.state {
        Ok(state) => check_answering_member(&member.name, state, all),
        Err(why) => {
            let at = member.endpoints.join(", ");
            // The reason may start with the address too.
            let why = why.strip_prefix(&at).map_or(why.as_str(), |why| why.trim_start_matches([':', ' ']));
            let seen = format!("does not answer at {at}: {why}");
            let quorum = all / 2 + 1;
            let left = match answered {
                left if left < quorum => {
                    format!("{left} of {all} answer, and {quorum} are needed: nothing can be written")
                }
                left if left == quorum => format!("{left} of {all} answer, which is just enough"),
                left => format!("{left} of {all} answer, which is enough"),
            };
            DoctorFinding::new(DoctorCheck::Member, DoctorVerdict::Failed, seen)
                .on(&member.name)
                .advise(format!("start it again, or replace it with `etcdctl member remove` and `member add`; {left}"))
        }
    }
}

fn check_answering_member(name: &str, state: &MemberState, all: usize) -> DoctorFinding {
    let part = match (state.is_leader, state.learner) {
        // A single member.
        (true, _) if all == 1 => "",
        (true, _) => ", leads",
        (false, true) => ", learner without a vote",
        (false, false) => ", follows",
    };
    let seen = format!("{}{part}, answers in {}", state.version, millis(state.latency));
    let ok = |seen| DoctorFinding::new(DoctorCheck::Member, DoctorVerdict::Ok, seen).on(name);
    let warning = |seen| DoctorFinding::new(DoctorCheck::Member, DoctorVerdict::Warning, seen).on(name);
    if !state.errors.is_empty() {
        let seen = format!("{seen}, and says: {}", state.errors.join("; "));
        warning(seen).advise("check its log")
    } else if state.behind > FAR_BEHIND {
        let seen = format!("{seen}, is {} entries behind", state.behind);
        warning(seen).advise(
            "its disk or its network is slower than those of the other members: it must catch up, or be replaced",
        )
    } else if state.learner {
        warning(seen).advise("make it a voter with `etcdctl member promote` when it has caught up")
    } else {
        ok(seen)
    }
}

/// Default quota of etcd, for members that do not report theirs.
const DEFAULT_QUOTA: u64 = 2 * 1024 * MIB;
const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;
/// Percentages: the first leaves about a day to act, the second hardly an hour.
const FULL_SOON: u64 = 80;
const NEARLY_FULL: u64 = 95;
/// Size below which defragmentation is not worth it.
const WORTH_DEFRAGMENTING: u64 = 256 * MIB;

/// Checks the space of each member. A full member stops all writes of the store.
pub(super) fn check_space(health: &StoreHealth) -> impl Iterator<Item = DoctorFinding> {
    let answered = health.members.iter().filter_map(|member| Some((&member.name, member.state.as_ref().ok()?)));
    answered.map(|(name, state)| check_space_of(state).on(name))
}

fn check_space_of(state: &MemberState) -> DoctorFinding {
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
    use super::*;
    use crate::doctor::facts::tests::{dead, health, lines, member, member_with};

    #[test]
    fn dead_member_fails() {
        let three = |third: StoreMember| lines(check_members(&health(vec![member("etcd1"), member("etcd2"), third])));
        assert_eq!(
            three(member("etcd3")),
            [
                "member etcd1 ok: etcd 3.6.4, leads, answers in 2.0 ms",
                "member etcd2 ok: etcd 3.6.4, follows, answers in 2.0 ms",
                "member etcd3 ok: etcd 3.6.4, follows, answers in 2.0 ms",
            ]
        );
        assert_eq!(
            three(dead("etcd3"))[2],
            "member etcd3 failed: does not answer at http://etcd3:2379: connection refused → start it again, or replace \
             it with `etcdctl member remove` and `member add`; 2 of 3 answer, which is just enough"
        );
        let two = lines(check_members(&health(vec![member("etcd1"), dead("etcd2"), dead("etcd3")])));
        assert!(two[1].ends_with("1 of 3 answer, and 2 are needed: nothing can be written"), "{}", two[1]);
        let five = vec![member("etcd1"), member("etcd2"), member("etcd3"), member("etcd4"), dead("etcd5")];
        assert!(lines(check_members(&health(five)))[4].ends_with("4 of 5 answer, which is enough"));
    }

    #[test]
    fn degraded_member_is_a_warning() {
        let table = [
            (member_with("etcd1", |state| state.behind = 1_001), "is 1001 entries behind → its disk"),
            (
                member_with("etcd2", |state| state.learner = true),
                "learner without a vote, answers in 2.0 ms → make it a voter",
            ),
            (
                member_with("etcd1", |state| state.errors = vec!["etcdserver: no leader".into()]),
                "says: etcdserver: no leader → check",
            ),
        ];
        for (member, expected) in table {
            let seen = lines([check_member(&member, 1, 1)]);
            assert!(seen[0].contains(" warning: ") && seen[0].contains(expected), "{seen:?}");
        }
    }

    #[test]
    fn missing_leader_is_reported() {
        let health = health(vec![member("etcd2"), dead("etcd1")]);
        assert!(lines(check_members(&health))[2].starts_with("member warning: no member that answers is the leader"));
        let lost = StoreHealth { latency: None, ..health };
        assert!(lines(check_members(&lost))[2].starts_with("member failed: no member that answers is the leader"));
    }

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
            let member = member_with("etcd1", |state| {
                state.bytes = bytes * MIB;
                state.bytes_in_use = in_use * MIB;
                state.quota = quota.map(|quota: u64| quota * MIB);
            });
            let seen = lines(check_space(&health(vec![member])));
            assert!(seen[0].starts_with(&format!("space etcd1 {expected}")), "{seen:?}");
        }
    }

    #[test]
    fn embedded_store_has_no_quota() {
        let member = member_with("store", |state| {
            state.version = "redb, Muster 0.1.0".into();
            state.quota = None;
        });
        assert_eq!(lines(check_space(&health(vec![member]))), ["space store ok: 20.0 MiB"]);
    }
}
