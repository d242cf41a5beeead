//! A staged rollout of fifty nodes, while what carries it out breaks. It goes on, and keeps its promises: the judge is that of
//! the simulator, and is told what etcd has in its history and what the appliers have written down themselves.

use std::time::Duration;

use muster_e2e::cluster::fault::{Fault, Member, Replica, last_for};
use muster_e2e::cluster::fleet::Fleet;
use muster_e2e::cluster::rollouts::fleet::Size;
use muster_e2e::cluster::rollouts::soak::soak;
use muster_e2e::cluster::rollouts::verdict::Past;

/// How long a server is stopped.
const STOPPED: Duration = Duration::from_secs(30);

#[test]
fn a_staged_rollout_outlives_the_leader_of_etcd_and_the_servers_that_carry_it_out() {
    let mut fleet = Fleet::start_for_rollouts(Size::FIFTY);
    let carried = fleet.start_rollout("v2");
    let id = carried.id;
    assert_eq!(carried.plan.node_count(), Size::FIFTY.nodes());

    // The canary of the first role is on its way.
    fleet.until_granted(id, 2);
    let leader = fleet.begin(Fault::KillMember(Member::Leader));
    fleet.until_granted(id, 6);
    fleet.end(leader);

    fleet.until_granted(id, 9);
    let went = fleet.acting();
    let killed = fleet.begin(Fault::KillReplica(Replica::Acting));
    fleet.until_granted(id, 13);
    fleet.end(killed);
    fleet.compact();

    // Stopped in the middle of what it does, and awake again when another has long gone on.
    fleet.until_granted(id, 18);
    let also_went = fleet.acting();
    let stopped = fleet.begin(Fault::StopReplica(Replica::Acting));
    last_for(STOPPED);
    // What it has not seen is not there any more.
    fleet.compact();
    fleet.end(stopped);
    fleet.until_completed(id);

    let mut past = Past { went: vec![went, also_went], spoken: vec![carried.spoken], ..Past::default() };
    let heard = fleet.judge_rollouts(&mut past);
    assert_eq!(heard.grants, carried.plan.node_count(), "each node was granted once");
    assert!(heard.gates >= carried.plan.waves.len(), "{heard:?}");
    past.is_attended_to(&fleet);
}

#[test]
fn rollouts_and_faults_in_random_order() {
    soak();
}
