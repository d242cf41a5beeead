//! Several people at once: one pauses while another promotes, a third wants to start something else.

use std::thread;

use super::{nodes_of, time, until};
use muster_e2e::agent::Node;
use muster_e2e::project::Project;
use muster_e2e::server::Server;
use muster_e2e::stage::Stage;
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
fn pause_and_promote_at_once_and_a_second_start() {
    let stage = Stage::new();
    let release = ScriptRelease::new("exit 2");
    let project = Project::with_environment(&stage, ENVIRONMENT);
    let project = ["v1", "v2", "v3"].into_iter().fold(project, |project, version| project.release(version, &release));
    let _server = Server::start(&stage, &project);
    let _agents: Vec<_> = NODES.iter().zip(1..).map(|(name, number)| Node::new(&stage, name, number).start()).collect();
    stage.wait_for("v1", &NODES);

    let started = stage.ask(&["trigger-update", "v2"]);
    assert_eq!(started.code(), 0, "{started:?}");
    let second = stage.ask(&["rollout", "start", "v3"]);
    assert_eq!(second.code(), 1, "{second:?}");
    assert!(second.stderr.contains("--supersede"), "what can be done about it is said: {second:?}");
    let waiting = until(&stage, "waits for a person", |shown| shown["holds"][0]["hold"] == "promotion");
    assert_eq!(waiting["record"]["grants"], 1);

    let (paused, promoted) = thread::scope(|scope| {
        let pausing = scope.spawn(|| stage.ask(&["rollout", "pause", "--reason", "lunch"]));
        let promoting = scope.spawn(|| stage.ask(&["rollout", "promote"]));
        (pausing.join().unwrap(), promoting.join().unwrap())
    });
    // Whoever was faster: both were heard, and the pause has won.
    assert_eq!((paused.code(), promoted.code()), (0, 0), "{paused:?}\n{promoted:?}");
    let halted = until(&stage, "is paused", |shown| shown["record"]["phase"] == "paused");
    assert_eq!(halted["record"]["why"]["because"], "operator", "{halted:#}");
    assert_eq!(halted["record"]["why"]["reason"], "lunch", "{halted:#}");
    assert!(!halted["record"]["waves"][0]["promoted"].is_null(), "{halted:#}");
    let again = stage.ask(&["rollout", "pause"]);
    assert_eq!(again.code(), 0, "it is paused already, and that is no mistake: {again:?}");

    let paused_at = time(&halted["record"]["phase_since"]);
    let still = super::shown(&stage, None);
    let grants = still["record"]["grants"].clone();
    let resumed = stage.ask(&["rollout", "resume"]);
    assert_eq!(resumed.code(), 0, "{resumed:?}");
    let watched = stage.ask(&["rollout", "status", "--watch"]);
    assert_eq!(watched.code(), 0, "{watched:?}");
    let after = super::shown(&stage, None);
    let granted: Vec<_> = nodes_of(&after["waves"]).map(|node| time(&node["granted"])).collect();
    let before = granted.iter().filter(|at| **at <= paused_at).count();
    assert_eq!(grants, before, "something was granted after the pause at {paused_at}: {granted:?}");
    assert_eq!(granted.len(), NODES.len());

    let late = stage.ask(&["rollout", "promote"]);
    assert_eq!(late.code(), 1, "there is nothing to promote any more: {late:?}");
    let history = stage.ask_json(&["rollout", "history"]);
    let phases: Vec<_> = history["items"].as_array().unwrap().iter().map(|row| row["phase"].clone()).collect();
    assert_eq!(phases, ["completed"], "the second start left nothing behind: {history:#}");
}
