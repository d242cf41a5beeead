//! Rollouts at the command line with real agents: planned, started, paused, promoted, rolled back and watched.
//!
//! The invariants of rollouts are checked by the simulator and by the tests on a cluster. These tests are about the
//! output: a shown plan is what happens, and failures are shown where an operator looks.

mod server_killed;

use std::{fs, thread};

use jiff::Timestamp;
use muster_e2e::agent::SandboxNode;
use muster_e2e::sandbox::{Sandbox, TestProject};
use muster_e2e::server::{Api, SandboxServer};
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};
use serde_json::Value;

/// A rollout as JSON; the last one if `id` is None.
fn shown(sandbox: &Sandbox, id: Option<&str>) -> Value {
    sandbox.muster_json(&[&["rollout", "show"][..], id.as_slice()].concat())
}

/// Waits until a condition holds for the last rollout.
fn wait_rollout(sandbox: &Sandbox, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("the rollout {what}"), TIMEOUT, || {
        let shown = shown(sandbox, None);
        if condition(&shown) { Ok(shown) } else { Err(format!("{shown:#}")) }
    })
}

fn nodes_of(waves: &Value) -> impl Iterator<Item = &Value> {
    waves.as_array().unwrap().iter().flat_map(|wave| wave["nodes"].as_array().unwrap())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn time(value: &Value) -> Timestamp {
    text(value).parse().unwrap()
}

const WEBS: [&str; 3] = ["web1", "web2", "web3"];
const WITH_ROLLBACK: &str = "
roles:
  web: {cardinality: 3, flavor: local}
rollout:
  waves: [{nodes: 1, soak: 0s}, {percent: 100}]
  soak: 0s
  on_failure: rollback
";
const PAUSES: &str = "
waves: [{nodes: 1, soak: 0s}, {percent: 100}]
soak: 0s
on_failure: pause
";
const GOOD: &str = "# What all nodes have.\nfile { \"${muster::self()['root']}/motd\": content => \"welcome\\n\" }\n";
/// The third line fails on every node.
const BAD: &str = "# What all nodes have.\nfile { \"${muster::self()['root']}/motd\": content => \"hello\\n\" }\n\
                   exec { '/bin/false': }\n";
const PLACE: &str = "site.pp:3";

/// The nodes that have run a version.
fn ran(api: &Api, version: &str) -> Vec<&'static str> {
    let has_run = |node: &&str| api.runs(node).iter().any(|run| run["version"] == version);
    WEBS.into_iter().filter(has_run).collect()
}

#[test]
fn failing_manifest_stops_the_rollout_and_rolls_back() {
    let sandbox = Sandbox::new();
    let project = TestProject::with_environment(&sandbox, WITH_ROLLBACK)
        .release("v1", &ScriptRelease::new("exit 0"))
        .puppet_release("v2", GOOD)
        .puppet_release("v3", BAD);
    let server = SandboxServer::start(&sandbox, &project);
    let node = |(name, number)| SandboxNode::new(&sandbox, name, number).without_retries().start();
    let _agents: Vec<_> = WEBS.into_iter().zip(1..).map(node).collect();
    sandbox.wait_validated("v1", &WEBS);
    // A rollback needs a version that the whole fleet has validated.
    let moved = sandbox.run_muster(&["rollout", "start", "v2", "--at-once", "--watch"]);
    assert_eq!(moved.code(), 0, "{moved:?}");

    // Automatic, by the strategy of the environment.
    let started = sandbox.run_muster(&["rollout", "start", "v3"]);
    assert_eq!(started.code(), 0, "{started:?}");
    let watched = sandbox.run_muster(&["rollout", "status", "--watch"]);
    assert_eq!(watched.code(), 1, "{watched:?}");
    let output = &watched.stdout;
    for text in [
        "Exec[/bin/false]",
        PLACE,
        "rollout 2 is rolled back because",
        "rollout 3 rolls it back",
        "rollout 3 is completed",
    ] {
        assert!(output.contains(text), "{text:?} is missing:\n{output}");
    }
    let end = output.rfind("rollout 2 was rolled back because").unwrap_or_else(|| panic!("{output}"));
    assert!(output[end..].contains(PLACE), "the end names the position:\n{output}");
    let canary = ran(&server.api, "v3");
    assert_eq!(canary.len(), 1, "it stopped after one node");
    assert_eq!(shown(&sandbox, Some("2"))["record"]["phase"], "rolled_back");
    assert_eq!(sandbox.run_muster(&["check-single-version", "v2"]).code(), 0, "all of them are where they were");

    // Without automatic rollback the operator decides.
    let strategy = sandbox.path("careful.yaml");
    fs::write(&strategy, PAUSES).unwrap();
    let watched = sandbox.run_muster(&["rollout", "start", "v3", "--strategy", strategy.to_str().unwrap(), "--watch"]);
    assert_eq!(watched.code(), 1, "{watched:?}");
    assert!(watched.stdout.contains(PLACE), "{watched:?}");
    let halted = wait_rollout(&sandbox, "is paused", |shown| shown["record"]["phase"] == "paused");
    assert_eq!(halted["record"]["why"]["because"], "failures", "{halted:#}");
    assert_eq!(halted["record"]["grants"], 1, "{halted:#}");
    let asked = sandbox.run_muster(&["rollout", "status"]);
    assert_eq!(asked.code(), 1, "{asked:?}");
    assert!(asked.stdout.contains(PLACE), "{asked:?}");

    let back = sandbox.run_muster(&["rollout", "rollback", "--watch"]);
    assert_eq!(back.code(), 0, "{back:?}");
    assert_eq!(sandbox.run_muster(&["check-single-version", "v2"]).code(), 0);
    let phases = sandbox.muster_json(&["rollout", "history"]);
    let phases: Vec<_> = phases["items"].as_array().unwrap().iter().map(|row| row["phase"].clone()).collect();
    assert_eq!(phases, ["completed", "rolled_back", "completed", "rolled_back", "completed"]);
}

const NODES: [&str; 5] = ["db1", "web1", "web2", "web3", "web4"];
const TWO_ROLES: &str = "
roles:
  db: {cardinality: 1, flavor: local}
  web: {cardinality: 4, flavor: local, after: [db]}
rollout:
  waves: [{nodes: 1, soak: 0s}, {percent: 50, soak: 0s}, {percent: 100}]
  soak: 0s
";

/// The waves of the printed plan, each with its nodes in order.
fn printed(text: &str) -> Vec<Vec<String>> {
    let mut waves: Vec<Vec<String>> = Vec::new();
    for line in text.lines() {
        if line.starts_with("wave ") {
            waves.push(Vec::new());
        } else if let Some(wave) = waves.last_mut() {
            let words = line.split(|c: char| !c.is_ascii_alphanumeric());
            wave.extend(words.filter(|word| NODES.contains(word)).map(str::to_owned));
        }
    }
    waves
}

fn names(waves: &Value) -> Vec<Vec<String>> {
    let wave =
        |wave: &Value| wave["nodes"].as_array().unwrap().iter().map(|node| text(&node["node"]).to_owned()).collect();
    waves.as_array().unwrap().iter().map(wave).collect()
}

#[test]
fn printed_plan_is_the_order_of_execution() {
    let sandbox = Sandbox::new();
    let release = ScriptRelease::new("exit 2");
    let project = TestProject::with_environment(&sandbox, TWO_ROLES);
    let project = ["v1", "v2", "v3"].into_iter().fold(project, |project, version| project.release(version, &release));
    let server = SandboxServer::start(&sandbox, &project);
    let _agents: Vec<_> =
        NODES.iter().zip(1..).map(|(name, number)| SandboxNode::new(&sandbox, name, number).start()).collect();
    sandbox.wait_validated("v1", &NODES);

    // For people and for programs, the same.
    let file = sandbox.path("v2.plan");
    let table = sandbox.run_muster(&["rollout", "plan", "v2", "--all", "--seed", "7", "--out", file.to_str().unwrap()]);
    assert_eq!(table.code(), 0, "{table:?}");
    let plan: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let planned = names(&plan["waves"]);
    assert_eq!(printed(&table.stdout), planned, "{}", table.stdout);
    assert_eq!(planned[0], ["db1"], "the other nodes come after it");
    assert_eq!(planned.concat().len(), NODES.len());
    let again = sandbox.muster_json(&["rollout", "plan", "v2", "--seed", "7"]);
    assert_eq!(names(&again["waves"]), planned, "the seed decides");
    // Another one, for later.
    let outdated = sandbox.path("v3.plan");
    assert_eq!(sandbox.run_muster(&["rollout", "plan", "v3", "--out", outdated.to_str().unwrap()]).code(), 0);

    let started = sandbox.run_muster(&["rollout", "start", "v2", "--plan", file.to_str().unwrap()]);
    assert_eq!(started.code(), 0, "{started:?}");
    let watched = sandbox.run_muster(&["rollout", "status", "--watch"]);
    assert_eq!(watched.code(), 0, "{watched:?}");

    let after = shown(&sandbox, None);
    assert_eq!(names(&after["waves"]), planned);
    let granted: Vec<_> = nodes_of(&after["waves"]).map(|node| time(&node["started"])).collect();
    assert!(granted.is_sorted(), "nodes went in another order: {granted:?}");
    let table = sandbox.run_muster(&["rollout", "show"]).stdout;
    assert_eq!(printed(&table), planned, "{table}");
    // The nodes went in this order: one of each role at a time.
    let began = |node: &String| text(&server.api.runs(node).last().unwrap()["started"]).to_owned();
    let began: Vec<_> = planned.concat().iter().map(began).collect();
    assert!(began.is_sorted(), "runs began in another order: {began:?}");

    // The plan is stale: v1 is no longer the current version.
    let refused = sandbox.run_muster(&["rollout", "start", "v3", "--plan", outdated.to_str().unwrap()]);
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(refused.stderr.contains("nodes should run v2 now; it was v1"), "{refused:?}");
    assert_eq!(shown(&sandbox, None)["record"]["to"], "v2", "nothing was started");
}

const WITH_PROMOTION: &str = "
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
    let project = TestProject::with_environment(&sandbox, WITH_PROMOTION);
    let project = ["v1", "v2", "v3"].into_iter().fold(project, |project, version| project.release(version, &release));
    let _server = SandboxServer::start(&sandbox, &project);
    let _agents: Vec<_> =
        WEBS.iter().zip(1..).map(|(name, number)| SandboxNode::new(&sandbox, name, number).start()).collect();
    sandbox.wait_validated("v1", &WEBS);

    let started = sandbox.run_muster(&["trigger-update", "v2"]);
    assert_eq!(started.code(), 0, "{started:?}");
    let second = sandbox.run_muster(&["rollout", "start", "v3"]);
    assert_eq!(second.code(), 1, "{second:?}");
    assert!(second.stderr.contains("--supersede"), "the message has the remedy: {second:?}");
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
    let still = shown(&sandbox, None);
    let grants = still["record"]["grants"].clone();
    let resumed = sandbox.run_muster(&["rollout", "resume"]);
    assert_eq!(resumed.code(), 0, "{resumed:?}");
    let watched = sandbox.run_muster(&["rollout", "status", "--watch"]);
    assert_eq!(watched.code(), 0, "{watched:?}");
    let after = shown(&sandbox, None);
    let granted: Vec<_> = nodes_of(&after["waves"]).map(|node| time(&node["started"])).collect();
    let before = granted.iter().filter(|at| **at <= paused_at).count();
    assert_eq!(grants, before, "something was granted after the pause at {paused_at}: {granted:?}");
    assert_eq!(granted.len(), WEBS.len());

    let late = sandbox.run_muster(&["rollout", "promote"]);
    assert_eq!(late.code(), 1, "there is nothing to promote any more: {late:?}");
    let history = sandbox.muster_json(&["rollout", "history"]);
    let phases: Vec<_> = history["items"].as_array().unwrap().iter().map(|row| row["phase"].clone()).collect();
    assert_eq!(phases, ["completed"], "the second start left nothing behind: {history:#}");
}
