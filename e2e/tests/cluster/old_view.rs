//! A replica that was stopped wakes up with a view of yesterday, and with questions that came meanwhile.

use serde_json::json;

use muster_e2e::cluster::fault::Fault;
use muster_e2e::cluster::fleet::{Fleet, PREFIX};
use muster_e2e::http::Asked;
use muster_e2e::server::ENV;
use muster_testkit::wait::{TIMEOUT, eventually};

const SLEEPER: usize = 1;

#[test]
fn a_replica_that_wakes_up_verifies_nothing_from_its_old_view() {
    let mut fleet = Fleet::start(1);
    fleet.load.pause();
    let nodes: Vec<String> = fleet.nodes().map(str::to_owned).collect();
    let old = fleet.version();
    let sleeper = &fleet.replicas[SLEEPER];

    // It knows that all of them run the old version. Then it sleeps, its connections to etcd end, with nothing in them
    // that it could read later, and the fleet moves on.
    let to = sleeper.api.to.clone();
    let path = format!("/v1/envs/{ENV}/verify-hosts");
    let question = json!({"version": old, "hosts": nodes});
    let ask = || Asked::send("POST", &to, &path, Some(&question), &[], TIMEOUT).unwrap();
    assert_eq!(ask().answer().unwrap().json()["verified"], true);
    sleeper.program.stop();
    let gone = fleet.begin(Fault::KillEtcd);
    fleet.end(gone);
    fleet.load.trigger();
    eventually("somebody does not run the old version any more", TIMEOUT, || {
        let dump = fleet.wait(fleet.etcd.dump(PREFIX));
        let running =
            dump.entries.iter().filter(|entry| entry.key.contains(&format!("/running_version/{old}/"))).count();
        if running < nodes.len() { Ok(()) } else { Err(format!("{running} still do")) }
    });

    // The question is there when it opens its eyes: nothing can have told it before.
    let asked = ask();
    fleet.replicas[SLEEPER].program.cont();
    let answer = asked.answer().unwrap();

    // "Cannot tell" would be right as well.
    assert!(answer.status != 200 || answer.json()["verified"] == false, "{answer:?}");
    fleet.judge("the sleep of replica2");
}
