//! The server is killed while nodes run: agents go on, and every report arrives once after the restart.

use std::collections::BTreeSet;
use std::fs;

use muster_testkit::release::ScriptRelease;
use serde_json::{Value, json};

use muster_e2e::agent::Node;
use muster_e2e::gate::Gate;
use muster_e2e::process::Started;
use muster_e2e::project::Project;
use muster_e2e::server::Server;
use muster_e2e::stage::Stage;
use muster_testkit::wait::{TIMEOUT, eventually};

const NODES: [&str; 5] = ["web1", "web2", "web3", "web4", "web5"];

#[test]
fn a_killed_server_costs_no_report_and_causes_no_run() {
    let stage = Stage::new();
    let (gate, journal) = (Gate::new(stage.path("gate")), stage.path("journal"));
    let script = format!(
        "echo $MUSTER_NODE $MUSTER_RUN_ID >> {}\nread line < {}\nexit 2",
        journal.display(),
        gate.path().display()
    );
    let project = Project::new(&stage, &[("web", 5)])
        .release("v1", &ScriptRelease::new(&script))
        .release("v2", &ScriptRelease::new(&script));
    let server = Server::start(&stage, &project);
    let numbered = NODES.iter().zip(1..);
    let agents: Vec<_> = numbered.map(|(name, number)| Node::new(&stage, name, number).start()).collect();
    let started = |many: usize| {
        eventually(&format!("{many} runs have begun"), TIMEOUT, || {
            let text = fs::read_to_string(&journal).unwrap_or_default();
            if text.lines().count() >= many { Ok(text) } else { Err(text) }
        })
    };

    // All five are in the middle of their first run when the server dies. They end it on their own.
    started(5);
    server.kill();
    gate.let_pass(5);
    for agent in &agents {
        agent.says("validated", TIMEOUT);
    }
    let server = Server::start(&stage, &project);
    stage.wait_for("v1", &NODES);

    // The same once more, with a version that was triggered; and again while there is nothing to do.
    assert_eq!(server.api.trigger_update("v2").status, 200);
    started(10);
    server.kill();
    let said: Vec<usize> = agents.iter().map(Started::lines).collect();
    gate.let_pass(5);
    for (agent, said) in agents.iter().zip(said) {
        agent.says_after(said, "validated", TIMEOUT);
    }
    Server::start(&stage, &project).kill();
    let server = Server::start(&stage, &project);
    stage.wait_for("v2", &NODES);
    let api = &server.api;
    for node in NODES {
        api.until_node(node, "is connected", |seen| seen["link"]["state"] == "connected");
    }

    // Exactly the runs that the appliers themselves have written down, each with both of its reports, in order.
    let runs = started(10);
    assert_eq!(runs.lines().count(), 10, "nobody ran without a cause:\n{runs}");
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
