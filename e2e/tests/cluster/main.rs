//! Muster on etcd, under the faults that really happen: three members, two replicas, twenty agents, all of them real
//! processes. After each fault everything is judged from outside, by the history of the store; `muster_e2e::cluster`
//! says what must hold.
//!
//! A fleet of this size takes a while to start, so faults of one kind share one, in sequence.

mod old_view;
mod rollouts;

use std::time::Duration;

use muster_e2e::cluster::fault::{Fault, Member, Replica};
use muster_e2e::cluster::fleet::Fleet;
use muster_e2e::cluster::plan::{Pace, Step};
use muster_e2e::cluster::soak::{carry_out, soak};

const AWAY: Duration = Pace::SHORT.away;
/// Longer than the 10 seconds after which a replica's lease ends; another 15 would show nothing new. `make soak` takes
/// 30.
const STOPPED: Duration = Pace::SHORT.stopped;

/// Does each of these to one fleet, with a judgement after each.
fn one_after_the_other(faults: &[(Fault, Duration)]) {
    let mut fleet = Fleet::start(1);
    for (fault, lasts) in faults {
        // In the middle of the runs that a change of the version causes.
        let before = Duration::from_millis(300);
        carry_out(&mut fleet, &Step { before, fault: *fault, lasts: *lasts, second: None, quiet: false });
        fleet.judge(&fault.to_string());
    }
}

#[test]
fn etcd_members_are_killed_the_leader_and_each_in_turn() {
    let members = [Member::Leader, Member::Number(0), Member::Number(1), Member::Number(2)];
    one_after_the_other(&members.map(|member| (Fault::KillMember(member), AWAY)));
}

#[test]
fn etcd_members_hang() {
    // Each of them, so the leader is among them.
    one_after_the_other(&[0, 1, 2].map(|number| (Fault::StopMember(Member::Number(number)), STOPPED)));
}

#[test]
fn a_member_comes_back_with_an_empty_disk() {
    one_after_the_other(&[(Fault::WipeMember(Member::Leader), AWAY), (Fault::WipeMember(Member::Number(1)), AWAY)]);
}

#[test]
fn replicas_are_killed_the_holder_of_the_controllers_too() {
    one_after_the_other(&[
        // Back before its lease has ended, and long after.
        (Fault::KillReplica(Replica::Number(1)), AWAY),
        (Fault::KillReplica(Replica::Holder), Pace::SHORT.long_away),
    ]);
}

#[test]
fn replicas_hang_the_holder_of_the_controllers_too() {
    let replicas = [Replica::Holder, Replica::Number(0)];
    one_after_the_other(&replicas.map(|replica| (Fault::StopReplica(replica), STOPPED)));
}

#[test]
fn there_is_no_etcd_and_then_there_is_no_server() {
    one_after_the_other(&[
        (Fault::KillEtcd, Pace::SHORT.long_away),
        (Fault::KillReplicas, Pace::SHORT.long_away),
        (Fault::KillEtcd, AWAY),
    ]);
}

/// With nothing to report, agents notice only by the pings that do not come, and that takes longer than the lease: for a
/// while the store says of half of the fleet that it is connected to nobody.
#[test]
fn a_replica_hangs_and_nobody_has_anything_to_say() {
    let mut fleet = Fleet::start(1);
    let lasts = Pace::LONG.stopped;
    let fault = Fault::StopReplica(Replica::Holder);
    carry_out(&mut fleet, &Step { before: Duration::ZERO, fault, lasts, second: None, quiet: true });
    fleet.judge(&fault.to_string());
}

#[test]
fn etcd_is_compacted_under_a_lagging_watch() {
    one_after_the_other(&[(Fault::CompactUnder(Replica::Number(1)), AWAY)]);
}

#[test]
fn the_quota_is_exhausted_and_the_operator_brings_that_in_order() {
    one_after_the_other(&[(Fault::ExhaustQuota, AWAY)]);
}

#[test]
fn all_streams_are_cut() {
    one_after_the_other(&[(Fault::CutStreams, AWAY), (Fault::CutStreams, AWAY)]);
}

#[test]
fn faults_in_random_order() {
    soak();
}
