//! A stopped replica resumes with a stale view and pending requests.

use serde_json::json;

use muster_e2e::cluster::fault::Fault;
use muster_e2e::cluster::fleet::{Fleet, PREFIX};
use muster_e2e::http::PendingResponse;
use muster_e2e::server::ENV;
use muster_testkit::wait::{TIMEOUT, eventually};

const SLEEPER: usize = 1;

#[test]
fn resumed_replica_verifies_nothing_from_a_stale_view() {
    let mut fleet = Fleet::start(1);
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
    let gone = fleet.begin(Fault::KillEtcd);
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
