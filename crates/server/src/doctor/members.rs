//! Checks of each member of the store.

use muster_store::{Member, MemberState, StoreHealth};
use muster_wire::doctor::{DoctorCheck, DoctorFinding, DoctorVerdict};

use super::store::millis;

/// Entries that a member may lag behind. etcd refuses writes at 5,000.
const FAR_BEHIND: u64 = 1_000;

pub(super) fn judge(health: &StoreHealth) -> Vec<DoctorFinding> {
    let answered = health.members.iter().filter(|member| member.state.is_ok()).count();
    let mut findings: Vec<DoctorFinding> =
        health.members.iter().map(|member| one(member, answered, health.members.len())).collect();
    let leads = health.members.iter().any(|member| member.state.as_ref().is_ok_and(|state| state.is_leader));
    if answered > 0 && !leads {
        // The leader may be a member that does not answer, or there is none.
        let verdict = if health.latency.is_some() { DoctorVerdict::Warning } else { DoctorVerdict::Failed };
        let finding = DoctorFinding::new(DoctorCheck::Member, verdict, "no member that answers is the leader");
        findings.push(finding.advise("check again in a few seconds: an election takes one or two"));
    }
    findings
}

fn one(member: &Member, answered: usize, all: usize) -> DoctorFinding {
    match &member.state {
        Ok(state) => answering(&member.name, state, all),
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
                .of(&member.name)
                .advise(format!("start it again, or replace it with `etcdctl member remove` and `member add`; {left}"))
        }
    }
}

fn answering(name: &str, state: &MemberState, all: usize) -> DoctorFinding {
    let part = match (state.is_leader, state.learner) {
        // A single member.
        (true, _) if all == 1 => "",
        (true, _) => ", leads",
        (false, true) => ", learner without a vote",
        (false, false) => ", follows",
    };
    let seen = format!("{}{part}, answers in {}", state.version, millis(state.latency));
    let ok = |seen| DoctorFinding::new(DoctorCheck::Member, DoctorVerdict::Ok, seen).of(name);
    let warning = |seen| DoctorFinding::new(DoctorCheck::Member, DoctorVerdict::Warning, seen).of(name);
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

#[cfg(test)]
mod tests {
    use super::super::facts::tests::{but, dead, health, lines, member};
    use super::*;

    #[test]
    fn dead_member_fails() {
        let three = |third: Member| lines(judge(&health(vec![member("etcd1"), member("etcd2"), third])));
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
        let two = lines(judge(&health(vec![member("etcd1"), dead("etcd2"), dead("etcd3")])));
        assert!(two[1].ends_with("1 of 3 answer, and 2 are needed: nothing can be written"), "{}", two[1]);
        let five = vec![member("etcd1"), member("etcd2"), member("etcd3"), member("etcd4"), dead("etcd5")];
        assert!(lines(judge(&health(five)))[4].ends_with("4 of 5 answer, which is enough"));
    }

    #[test]
    fn degraded_member_is_a_warning() {
        let table = [
            (but("etcd1", |state| state.behind = 1_001), "is 1001 entries behind → its disk"),
            (but("etcd2", |state| state.learner = true), "learner without a vote, answers in 2.0 ms → make it a voter"),
            (
                but("etcd1", |state| state.errors = vec!["etcdserver: no leader".into()]),
                "says: etcdserver: no leader → check",
            ),
        ];
        for (member, expected) in table {
            let seen = lines([one(&member, 1, 1)]);
            assert!(seen[0].contains(" warning: ") && seen[0].contains(expected), "{seen:?}");
        }
    }

    #[test]
    fn missing_leader_is_reported() {
        let health = health(vec![member("etcd2"), dead("etcd1")]);
        assert!(lines(judge(&health))[2].starts_with("member warning: no member that answers is the leader"));
        let lost = StoreHealth { latency: None, ..health };
        assert!(lines(judge(&lost))[2].starts_with("member failed: no member that answers is the leader"));
    }
}
