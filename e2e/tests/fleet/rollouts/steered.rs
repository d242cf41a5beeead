//! Concurrent operators: one pauses while another promotes, and a third starts another rollout.

use std::thread;

use super::{nodes_of, time, wait_rollout};
use muster_e2e::agent::Node;
use muster_e2e::project::Project;
use muster_e2e::sandbox::Sandbox;
use muster_e2e::server::Server;
use muster_testkit::release::ScriptRelease;

const NODES: [&str; 3] = ["web1", "web2", "web3"];
const ENVIRONMENT: &str = "
roles:
  web: {cardinality: 3, flavor: local}
rollout:
  waves: [{nodes: 1, soak: 0s, promote: manual}, {percent: 100}]
  soak: 0s
";

#[test]
fn concurrent_pause_promote_and_start() {
    let sandbox = Sandbox::new();
    let release = ScriptRelease::new("exit 2");
    let project = Project::with_environment(&sandbox, ENVIRONMENT);
    let project = ["v1", "v2", "v3"].into_iter().fold(project, |project, version| project.release(version, &release));
    let _server = Server::start(&sandbox, &project);
    let _agents: Vec<_> =
        NODES.iter().zip(1..).map(|(name, number)| Node::new(&sandbox, name, number).start()).collect();
    sandbox.wait_validated("v1", &NODES);

    let started = sandbox.run_muster(&["trigger-update", "v2"]);
    assert_eq!(started.code(), 0, "{started:?}");
    let second = sandbox.run_muster(&["rollout", "start", "v3"]);
    assert_eq!(second.code(), 1, "{second:?}");
    assert!(second.stderr.contains("--supersede"), "what can be done about it is said: {second:?}");
    let waiting = wait_rollout(&sandbox, "waits for a person", |shown| shown["holds"][0]["hold"] == "promotion");
    assert_eq!(waiting["record"]["grants"], 1);

    let (paused, promoted) = thread::scope(|scope| {
        let pausing = scope.spawn(|| sandbox.run_muster(&["rollout", "pause", "--reason", "lunch"]));
        let promoting = scope.spawn(|| sandbox.run_muster(&["rollout", "promote"]));
        (pausing.join().unwrap(), promoting.join().unwrap())
    });
    // Both commands succeed in any order, and the pause wins.
    assert_eq!((paused.code(), promoted.code()), (0, 0), "{paused:?}\n{promoted:?}");
    let halted = wait_rollout(&sandbox, "is paused", |shown| shown["record"]["phase"] == "paused");
    assert_eq!(halted["record"]["why"]["because"], "operator", "{halted:#}");
    assert_eq!(halted["record"]["why"]["reason"], "lunch", "{halted:#}");
    assert!(!halted["record"]["waves"][0]["promoted"].is_null(), "{halted:#}");
    let again = sandbox.run_muster(&["rollout", "pause"]);
    assert_eq!(again.code(), 0, "it is paused already, and that is no mistake: {again:?}");

    let paused_at = time(&halted["record"]["phase_since"]);
    let still = super::shown(&sandbox, None);
    let grants = still["record"]["grants"].clone();
    let resumed = sandbox.run_muster(&["rollout", "resume"]);
    assert_eq!(resumed.code(), 0, "{resumed:?}");
    let watched = sandbox.run_muster(&["rollout", "status", "--watch"]);
    assert_eq!(watched.code(), 0, "{watched:?}");
    let after = super::shown(&sandbox, None);
    let granted: Vec<_> = nodes_of(&after["waves"]).map(|node| time(&node["granted"])).collect();
    let before = granted.iter().filter(|at| **at <= paused_at).count();
    assert_eq!(grants, before, "something was granted after the pause at {paused_at}: {granted:?}");
    assert_eq!(granted.len(), NODES.len());

    let late = sandbox.run_muster(&["rollout", "promote"]);
    assert_eq!(late.code(), 1, "there is nothing to promote any more: {late:?}");
    let history = sandbox.muster_json(&["rollout", "history"]);
    let phases: Vec<_> = history["items"].as_array().unwrap().iter().map(|row| row["phase"].clone()).collect();
    assert_eq!(phases, ["completed"], "the second start left nothing behind: {history:#}");
}
