//! A staged rollout of fifty nodes under faults of the servers and etcd. The simulator's checker verifies the history
//! of etcd and the appliers' journal.

use std::time::Duration;

use muster_e2e::cluster::fault::{Fault, Member, Replica, pause_for};
use muster_e2e::cluster::fleet::Fleet;
use muster_e2e::cluster::rollouts::check::FleetHistory;
use muster_e2e::cluster::rollouts::fleet::Size;
use muster_e2e::cluster::rollouts::soak::soak;

/// Time that a server is stopped.
const STOPPED: Duration = Duration::from_secs(30);

#[test]
fn rollout_survives_etcd_leader_and_server_loss() {
    let mut fleet = Fleet::start_for_rollouts(Size::FIFTY);
    let started = fleet.start_rollout("v2");
    let id = started.id;
    assert_eq!(started.plan.node_count(), Size::FIFTY.nodes());

    // The canary of the first role is running.
    fleet.wait_for_grants(id, 2);
    let leader = fleet.begin(Fault::KillMember(Member::Leader));
    fleet.wait_for_grants(id, 6);
    fleet.end(leader);

    fleet.wait_for_grants(id, 9);
    let went = fleet.rollout_holder();
    let killed = fleet.begin(Fault::KillReplica(Replica::RolloutHolder));
    fleet.wait_for_grants(id, 13);
    fleet.end(killed);
    fleet.compact();

    // Stopped within a step, and resumed long after another server has taken over.
    fleet.wait_for_grants(id, 18);
    let also_went = fleet.rollout_holder();
    let stopped = fleet.begin(Fault::StopReplica(Replica::RolloutHolder));
    pause_for(STOPPED);
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
    soak();
}
