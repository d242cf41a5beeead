//! Muster on etcd under faults: three members, two replicas, twenty agents, all real processes. After each fault a
//! checker verifies the history of the store; `muster_e2e::cluster` lists the rules.
//!
//! A fleet of this size takes long to start, so faults of one kind share one.

mod old_view;
mod rollouts;

use std::time::Duration;

use muster_e2e::cluster::fault::{Fault, Member, Replica};
use muster_e2e::cluster::fleet::Fleet;
use muster_e2e::cluster::plan::{Pace, Step};
use muster_e2e::cluster::soak::{execute, soak};

const AWAY: Duration = Pace::SHORT.away;
/// Longer than the 10 seconds of a replica's lease. `make soak` uses 30 seconds.
const STOPPED: Duration = Pace::SHORT.stopped;

/// Injects faults one after the other into one fleet, with a check after each.
fn inject_each(faults: &[(Fault, Duration)]) {
    let mut fleet = Fleet::start(1);
    for (fault, lasts) in faults {
        // During the runs of a version change.
        let before = Duration::from_millis(300);
        execute(&mut fleet, &Step { before, fault: *fault, lasts: *lasts, second: None, quiet: false });
        fleet.check(&fault.to_string());
    }
}

#[test]
fn etcd_members_are_killed() {
    let members = [Member::Leader, Member::Number(0), Member::Number(1), Member::Number(2)];
    inject_each(&members.map(|member| (Fault::KillMember(member), AWAY)));
}

#[test]
fn etcd_members_are_stopped() {
    // Each member, so that the leader is among them.
    inject_each(&[0, 1, 2].map(|number| (Fault::StopMember(Member::Number(number)), STOPPED)));
}

#[test]
fn member_rejoins_with_an_empty_disk() {
    inject_each(&[(Fault::WipeMember(Member::Leader), AWAY), (Fault::WipeMember(Member::Number(1)), AWAY)]);
}

#[test]
fn replicas_are_killed() {
    inject_each(&[
        // Restarted before its lease expires, and long after.
        (Fault::KillReplica(Replica::Number(1)), AWAY),
        (Fault::KillReplica(Replica::LivenessHolder), Pace::SHORT.long_away),
    ]);
}

#[test]
fn replicas_are_stopped() {
    let replicas = [Replica::LivenessHolder, Replica::Number(0)];
    inject_each(&replicas.map(|replica| (Fault::StopReplica(replica), STOPPED)));
}

#[test]
fn all_etcd_members_then_all_replicas_are_killed() {
    inject_each(&[
        (Fault::KillEtcd, Pace::SHORT.long_away),
        (Fault::KillReplicas, Pace::SHORT.long_away),
        (Fault::KillEtcd, AWAY),
    ]);
}

/// Without reports, agents detect a stopped replica only by missing pings, which takes longer than the lease. Meanwhile
/// the store has half of the fleet as not connected.
#[test]
fn replica_is_stopped_while_the_fleet_is_idle() {
    let mut fleet = Fleet::start(1);
    let lasts = Pace::LONG.stopped;
    let fault = Fault::StopReplica(Replica::LivenessHolder);
    execute(&mut fleet, &Step { before: Duration::ZERO, fault, lasts, second: None, quiet: true });
    fleet.check(&fault.to_string());
}

#[test]
fn etcd_is_compacted_under_a_lagging_watch() {
    inject_each(&[(Fault::CompactUnder(Replica::Number(1)), AWAY)]);
}

#[test]
fn quota_is_exhausted_and_freed() {
    inject_each(&[(Fault::ExhaustQuota, AWAY)]);
}

#[test]
fn all_streams_are_cut() {
    inject_each(&[(Fault::CutStreams, AWAY), (Fault::CutStreams, AWAY)]);
}

#[test]
fn faults_in_random_order() {
    soak();
}
