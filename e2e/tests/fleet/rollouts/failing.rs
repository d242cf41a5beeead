//! A version with a failing manifest on the real Puppet: the rollout stops at the first node and shows the position.

use std::fs;

use super::{shown, wait_rollout};
use muster_e2e::agent::Node;
use muster_e2e::project::Project;
use muster_e2e::sandbox::Sandbox;
use muster_e2e::server::{Api, Server};
use muster_testkit::release::ScriptRelease;

const NODES: [&str; 3] = ["web1", "web2", "web3"];
const ENVIRONMENT: &str = "
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
    NODES.into_iter().filter(has_run).collect()
}

#[test]
fn failing_manifest_stops_the_rollout_and_rolls_back() {
    let sandbox = Sandbox::new();
    let project = Project::with_environment(&sandbox, ENVIRONMENT)
        .release("v1", &ScriptRelease::new("exit 0"))
        .puppet_release("v2", GOOD)
        .puppet_release("v3", BAD);
    let server = Server::start(&sandbox, &project);
    let node = |(name, number)| Node::new(&sandbox, name, number).without_retries().start();
    let _agents: Vec<_> = NODES.into_iter().zip(1..).map(node).collect();
    sandbox.wait_validated("v1", &NODES);
    // A rollback needs a version that a complete rollout has validated.
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
