//! A plan is executed node by node as shown; a stale plan is refused.

use std::fs;

use muster_testkit::release::ScriptRelease;
use serde_json::Value;

use super::{nodes_of, shown, text, time};
use muster_e2e::agent::Node;
use muster_e2e::project::Project;
use muster_e2e::sandbox::Sandbox;
use muster_e2e::server::Server;

const NODES: [&str; 5] = ["db1", "web1", "web2", "web3", "web4"];
const ENVIRONMENT: &str = "
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
    let project = Project::with_environment(&sandbox, ENVIRONMENT);
    let project = ["v1", "v2", "v3"].into_iter().fold(project, |project, version| project.release(version, &release));
    let server = Server::start(&sandbox, &project);
    let _agents: Vec<_> =
        NODES.iter().zip(1..).map(|(name, number)| Node::new(&sandbox, name, number).start()).collect();
    sandbox.wait_validated("v1", &NODES);

    // For people and for programs, the same.
    let file = sandbox.path("v2.plan");
    let table = sandbox.run_muster(&["rollout", "plan", "v2", "--all", "--seed", "7", "--out", file.to_str().unwrap()]);
    assert_eq!(table.code(), 0, "{table:?}");
    let plan: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let planned = names(&plan["waves"]);
    assert_eq!(printed(&table.stdout), planned, "{}", table.stdout);
    assert_eq!(planned[0], ["db1"], "the others come after it");
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
    let granted: Vec<_> = nodes_of(&after["waves"]).map(|node| time(&node["granted"])).collect();
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
