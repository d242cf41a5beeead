//! A version whose manifest fails, with the real Puppet: one node finds out, and everybody who asks is told where.

use std::fs;

use super::{shown, until};
use muster_e2e::agent::Node;
use muster_e2e::project::Project;
use muster_e2e::server::{Api, Server};
use muster_e2e::stage::Stage;
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
/// The third line fails, everywhere and always.
const BAD: &str = "# What all nodes have.\nfile { \"${muster::self()['root']}/motd\": content => \"hello\\n\" }\n\
                   exec { '/bin/false': }\n";
const PLACE: &str = "site.pp:3";

/// The nodes that have ever run a version.
fn ran(api: &Api, version: &str) -> Vec<&'static str> {
    let has_run = |node: &&str| api.runs(node).iter().any(|run| run["version"] == version);
    NODES.into_iter().filter(has_run).collect()
}

#[test]
fn a_manifest_that_fails_on_the_first_node_stops_there_and_goes_back_if_asked_to() {
    let stage = Stage::new();
    let project = Project::with_environment(&stage, ENVIRONMENT)
        .release("v1", &ScriptRelease::new("exit 0"))
        .puppet_release("v2", GOOD)
        .puppet_release("v3", BAD);
    let server = Server::start(&stage, &project);
    let node = |(name, number)| Node::new(&stage, name, number).never_retries().start();
    let _agents: Vec<_> = NODES.into_iter().zip(1..).map(node).collect();
    stage.wait_for("v1", &NODES);
    // What can be gone back to is what a whole rollout has validated.
    let moved = stage.ask(&["rollout", "start", "v2", "--at-once", "--watch"]);
    assert_eq!(moved.code(), 0, "{moved:?}");

    // By itself: the strategy of the environment says so.
    let started = stage.ask(&["rollout", "start", "v3"]);
    assert_eq!(started.code(), 0, "{started:?}");
    let watched = stage.ask(&["rollout", "status", "--watch"]);
    assert_eq!(watched.code(), 1, "{watched:?}");
    let told = &watched.stdout;
    for said in [
        "Exec[/bin/false]",
        PLACE,
        "rollout 2 is rolled back because",
        "rollout 3 takes it back",
        "rollout 3 is completed",
    ] {
        assert!(told.contains(said), "{said:?} is not said:\n{told}");
    }
    let end = told.rfind("rollout 2 was taken back because").unwrap_or_else(|| panic!("{told}"));
    assert!(told[end..].contains(PLACE), "what it was about is said at the end, where it is looked for:\n{told}");
    let canary = ran(&server.api, "v3");
    assert_eq!(canary.len(), 1, "it stopped after one node");
    assert_eq!(shown(&stage, Some("2"))["record"]["phase"], "rolled_back");
    assert_eq!(stage.ask(&["check-single-version", "v2"]).code(), 0, "all of them are where they were");

    // Not by itself: then a person decides.
    let strategy = stage.path("careful.yaml");
    fs::write(&strategy, PAUSES).unwrap();
    let watched = stage.ask(&["rollout", "start", "v3", "--strategy", strategy.to_str().unwrap(), "--watch"]);
    assert_eq!(watched.code(), 1, "{watched:?}");
    assert!(watched.stdout.contains(PLACE), "{watched:?}");
    let halted = until(&stage, "is paused", |shown| shown["record"]["phase"] == "paused");
    assert_eq!(halted["record"]["why"]["because"], "failures", "{halted:#}");
    assert_eq!(halted["record"]["grants"], 1, "{halted:#}");
    let asked = stage.ask(&["rollout", "status"]);
    assert_eq!(asked.code(), 1, "{asked:?}");
    assert!(asked.stdout.contains(PLACE), "{asked:?}");

    let back = stage.ask(&["rollout", "rollback", "--watch"]);
    assert_eq!(back.code(), 0, "{back:?}");
    assert_eq!(stage.ask(&["check-single-version", "v2"]).code(), 0);
    let phases = stage.ask_json(&["rollout", "history"]);
    let phases: Vec<_> = phases["items"].as_array().unwrap().iter().map(|row| row["phase"].clone()).collect();
    assert_eq!(phases, ["completed", "rolled_back", "completed", "rolled_back", "completed"]);
}
