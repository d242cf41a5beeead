//! The server is killed while nodes run: agents continue, and every report arrives once after the restart.

use std::collections::BTreeSet;
use std::fs;

use muster_testkit::release::ScriptRelease;
use serde_json::{Value, json};

use muster_e2e::agent::Node;
use muster_e2e::process::ChildProcess;
use muster_e2e::project::Barrier;
use muster_e2e::project::Project;
use muster_e2e::sandbox::Sandbox;
use muster_e2e::server::Server;
use muster_testkit::wait::{TIMEOUT, eventually};

const NODES: [&str; 5] = ["web1", "web2", "web3", "web4", "web5"];

#[test]
fn killed_server_loses_no_report_and_causes_no_run() {
    let sandbox = Sandbox::new();
    let (gate, journal) = (Barrier::new(sandbox.path("gate")), sandbox.path("journal"));
    let script = format!(
        "echo $MUSTER_NODE $MUSTER_RUN_ID >> {}\nread line < {}\nexit 2",
        journal.display(),
        gate.path().display()
    );
    let project = Project::new(&sandbox, &[("web", 5)])
        .release("v1", &ScriptRelease::new(&script))
        .release("v2", &ScriptRelease::new(&script));
    let server = Server::start(&sandbox, &project);
    let numbered = NODES.iter().zip(1..);
    let agents: Vec<_> = numbered.map(|(name, number)| Node::new(&sandbox, name, number).start()).collect();
    let started = |many: usize| {
        eventually(&format!("{many} runs have begun"), TIMEOUT, || {
            let text = fs::read_to_string(&journal).unwrap_or_default();
            if text.lines().count() >= many { Ok(text) } else { Err(text) }
        })
    };

    // All five are in their first run when the server is killed. They finish it.
    started(5);
    server.kill();
    gate.release(5);
    for agent in &agents {
        agent.wait_for_output("validated", TIMEOUT);
    }
    let server = Server::start(&sandbox, &project);
    sandbox.wait_validated("v1", &NODES);

    // Again with an update, and again while the fleet is idle.
    assert_eq!(server.api.trigger_update("v2").status, 200);
    started(10);
    server.kill();
    let said: Vec<usize> = agents.iter().map(ChildProcess::lines).collect();
    gate.release(5);
    for (agent, said) in agents.iter().zip(said) {
        agent.wait_for_output_after(said, "validated", TIMEOUT);
    }
    Server::start(&sandbox, &project).kill();
    let server = Server::start(&sandbox, &project);
    sandbox.wait_validated("v2", &NODES);
    let api = &server.api;
    for node in NODES {
        api.wait_node(node, "is connected", |seen| seen["link"]["state"] == "connected");
    }

    // Exactly the runs in the appliers' journals, each with both reports, in order.
    let runs = started(10);
    assert_eq!(runs.lines().count(), 10, "a run has no cause:\n{runs}");
    let in_journal: BTreeSet<String> = runs.lines().map(str::to_owned).collect();
    let mut in_history = BTreeSet::new();
    for node in NODES {
        let causes: Vec<Value> = api.runs(node).iter().map(|run| run["causes"].clone()).collect();
        let version = |version: &str| json!({"kind": "version", "version": version});
        assert!(causes[0].as_array().unwrap().contains(&version("v1")), "{causes:?}");
        assert_eq!(causes[1], json!([version("v2")]));
        let reports = api.reports(node);
        let places: Vec<_> = reports
            .iter()
            .map(|report| (report["incarnation"].as_u64(), report["seq"].as_u64(), report["phase"].as_str().unwrap()))
            .collect();
        let one = Some(1);
        assert_eq!(
            places,
            [
                (one, Some(1), "configured"),
                (one, Some(2), "validated"),
                (one, Some(3), "configured"),
                (one, Some(4), "validated")
            ]
        );
        in_history.extend(reports.iter().map(|report| format!("{node} {}", report["run"].as_str().unwrap())));
    }
    assert_eq!(in_history, in_journal);
}
