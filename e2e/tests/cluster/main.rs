//! Muster on etcd under faults: three members, two replicas, twenty agents, all real processes. After each fault a
//! checker verifies the history of the store; `muster_e2e::cluster` lists the rules.
//!
//! A fleet of this size takes long to start, so faults of one kind share one.

use std::time::Duration;

use muster_e2e::cluster::fault::{ClusterFault, FaultyMember, FaultyReplica, pause_for};
use muster_e2e::cluster::fleet::{ClusterFleet, PREFIX};
use muster_e2e::cluster::plan::{FaultStep, Pace};
use muster_e2e::cluster::rollouts::check::FleetHistory;
use muster_e2e::cluster::rollouts::fleet::FleetSize;
use muster_e2e::cluster::{execute, rollouts, soak};
use muster_e2e::http::PendingResponse;
use muster_e2e::server::ENV;
use muster_testkit::wait::{TIMEOUT, eventually};
use serde_json::json;

const AWAY: Duration = Pace::SHORT.away;
/// Longer than the 10 seconds of a replica's lease. `make soak` uses 30 seconds.
const STOPPED: Duration = Pace::SHORT.stopped;

/// Injects faults one after the other into one fleet, with a check after each.
fn inject_each(faults: &[(ClusterFault, Duration)]) {
    let mut fleet = ClusterFleet::start(1);
    for (fault, lasts) in faults {
        // During the runs of a version change.
        let before = Duration::from_millis(300);
        execute(&mut fleet, &FaultStep { before, fault: *fault, lasts: *lasts, second: None, quiet: false });
        fleet.check(&fault.to_string());
    }
}

#[test]
fn etcd_members_are_killed() {
    let members = [FaultyMember::Leader, FaultyMember::Number(0), FaultyMember::Number(1), FaultyMember::Number(2)];
    inject_each(&members.map(|member| (ClusterFault::KillMember(member), AWAY)));
}

#[test]
fn etcd_members_are_stopped() {
    // Each member, so that the leader is among them.
    inject_each(&[0, 1, 2].map(|number| (ClusterFault::StopMember(FaultyMember::Number(number)), STOPPED)));
}

#[test]
fn member_rejoins_with_an_empty_disk() {
    inject_each(&[
        (ClusterFault::WipeMember(FaultyMember::Leader), AWAY),
        (ClusterFault::WipeMember(FaultyMember::Number(1)), AWAY),
    ]);
}

#[test]
fn replicas_are_killed() {
    inject_each(&[
        // Restarted before its lease expires, and long after.
        (ClusterFault::KillReplica(FaultyReplica::Number(1)), AWAY),
        (ClusterFault::KillReplica(FaultyReplica::LivenessHolder), Pace::SHORT.long_away),
    ]);
}

#[test]
fn replicas_are_stopped() {
    let replicas = [FaultyReplica::LivenessHolder, FaultyReplica::Number(0)];
    inject_each(&replicas.map(|replica| (ClusterFault::StopReplica(replica), STOPPED)));
}

#[test]
fn all_etcd_members_then_all_replicas_are_killed() {
    inject_each(&[
        (ClusterFault::KillEtcd, Pace::SHORT.long_away),
        (ClusterFault::KillReplicas, Pace::SHORT.long_away),
        (ClusterFault::KillEtcd, AWAY),
    ]);
}

/// Without reports, agents detect a stopped replica only by missing pings, which takes longer than the lease. Meanwhile
/// the store has half of the fleet as not connected.
#[test]
fn replica_is_stopped_while_the_fleet_is_idle() {
    let mut fleet = ClusterFleet::start(1);
    let lasts = Pace::LONG.stopped;
    let fault = ClusterFault::StopReplica(FaultyReplica::LivenessHolder);
    execute(&mut fleet, &FaultStep { before: Duration::ZERO, fault, lasts, second: None, quiet: true });
    fleet.check(&fault.to_string());
}

#[test]
fn etcd_is_compacted_under_a_lagging_watch() {
    inject_each(&[(ClusterFault::CompactUnder(FaultyReplica::Number(1)), AWAY)]);
}

#[test]
fn quota_is_exhausted_and_freed() {
    inject_each(&[
        (ClusterFault::ExhaustQuota, AWAY),
        // The new member replays what has exhausted the quota.
        (ClusterFault::WipeMember(FaultyMember::Leader), AWAY),
    ]);
}

#[test]
fn all_streams_are_cut() {
    inject_each(&[(ClusterFault::CutStreams, AWAY), (ClusterFault::CutStreams, AWAY)]);
}

#[test]
fn faults_in_random_order() {
    soak();
}

const SLEEPER: usize = 1;

/// A stopped replica resumes with a stale view and pending requests.
#[test]
fn resumed_replica_verifies_nothing_from_a_stale_view() {
    let mut fleet = ClusterFleet::start(1);
    fleet.load.pause();
    let nodes: Vec<String> = fleet.nodes().map(str::to_owned).collect();
    let old = fleet.version();
    let sleeper = &fleet.replicas[SLEEPER];

    // Its view has all nodes at the old version. It is stopped, its connections to etcd are cut with no data left in
    // them, and the fleet moves on.
    let to = sleeper.api.to.clone();
    let path = format!("/v1/envs/{ENV}/verify-hosts");
    let question = json!({"version": old, "hosts": nodes});
    let ask = || PendingResponse::send("POST", &to, &path, Some(&question), &[], TIMEOUT).unwrap();
    assert_eq!(ask().wait().unwrap().json()["verified"], true);
    sleeper.program.stop();
    let gone = fleet.begin(ClusterFault::KillEtcd);
    fleet.end(gone);
    fleet.load.trigger();
    eventually("a node no longer runs the old version", TIMEOUT, || {
        let dump = fleet.wait(fleet.etcd.dump(PREFIX));
        let running =
            dump.entries.iter().filter(|entry| entry.key.contains(&format!("/running_version/{old}/"))).count();
        if running < nodes.len() { Ok(()) } else { Err(format!("{running} still do")) }
    });

    // The request is pending when it resumes, before it can update its view.
    let asked = ask();
    fleet.replicas[SLEEPER].program.cont();
    let answer = asked.wait().unwrap();

    // "Cannot tell" is also correct.
    assert!(answer.status != 200 || answer.json()["verified"] == false, "{answer:?}");
    fleet.check("the sleep of replica2");
}

/// Time that a server is stopped.
const SERVER_STOPPED: Duration = Duration::from_secs(30);

/// A staged rollout of fifty nodes. The simulator's checker verifies the history of etcd and the appliers' journal.
#[test]
fn rollout_survives_etcd_leader_and_server_loss() {
    let mut fleet = ClusterFleet::start_for_rollouts(FleetSize::FIFTY);
    let started = fleet.start_rollout("v2");
    let id = started.id;
    assert_eq!(started.plan.node_count(), FleetSize::FIFTY.nodes());

    // The canary of the first role is running.
    fleet.wait_for_grants(id, 2);
    let leader = fleet.begin(ClusterFault::KillMember(FaultyMember::Leader));
    fleet.wait_for_grants(id, 6);
    fleet.end(leader);

    fleet.wait_for_grants(id, 9);
    let went = fleet.rollout_holder();
    let killed = fleet.begin(ClusterFault::KillReplica(FaultyReplica::RolloutHolder));
    fleet.wait_for_grants(id, 13);
    fleet.end(killed);
    fleet.compact();

    // Stopped within a step, and resumed long after another server has taken over.
    fleet.wait_for_grants(id, 18);
    let also_went = fleet.rollout_holder();
    let stopped = fleet.begin(ClusterFault::StopReplica(FaultyReplica::RolloutHolder));
    pause_for(SERVER_STOPPED);
    // The revisions that it has not seen are compacted.
    fleet.compact();
    fleet.end(stopped);
    fleet.wait_completed(id);

    let mut past =
        FleetHistory { went: vec![went, also_went], commands: vec![started.command], ..FleetHistory::default() };
    let counts = fleet.check_rollouts(&mut past);
    assert_eq!(counts.grants, started.plan.node_count(), "each node was granted once");
    assert!(counts.gates >= started.plan.waves.len(), "{counts:?}");
    past.prove_checker(&fleet);
}

#[test]
fn rollouts_and_faults_in_random_order() {
    rollouts::soak::soak();
}
