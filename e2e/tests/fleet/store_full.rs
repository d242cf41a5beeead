//! The disk of the server is full: writes are refused, and nothing that was acknowledged is lost.

use std::collections::BTreeSet;

use muster_testkit::release::ScriptRelease;
use serde_json::{Value, json};

use muster_e2e::agent::Node;
use muster_e2e::project::Barrier;
use muster_e2e::project::Project;
use muster_e2e::sandbox::Sandbox;
use muster_e2e::server::{Api, Server};
use muster_testkit::wait::TIMEOUT;
use muster_testkit::{SmallDisk, passed_in_a_namespace};

#[test]
fn full_server_disk_refuses_writes_and_recovers() {
    if passed_in_a_namespace() {
        return;
    }
    let sandbox = Sandbox::new();
    let gate = Barrier::new(sandbox.path("gate"));
    let script = format!("read line < {}; exit 2", gate.path().display());
    let project = Project::new(&sandbox, &[("web", 1)])
        .release("v1", &ScriptRelease::new(&script))
        .release("v2", &ScriptRelease::new("exit 2"));
    let disk = SmallDisk::mount("24m");
    let state = disk.path().join("state");
    let server = Server::start_at(&sandbox, &project.dir, &state);
    let api = server.api.clone();
    let agent = Node::new(&sandbox, "web1", 1).start();
    api.wait_node_state("web1", "applying");

    // Full during a run.
    disk.fill();
    let (now, next) = changed_until_refused(&api);
    let refused = sandbox.run_muster(&["trigger-update", &next, "--allow-older", "--at-once"]);
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(
        refused.stderr.contains("no space left") && refused.stderr.contains("hint: free space"),
        "{}",
        refused.stderr
    );
    assert_eq!(sandbox.run_muster(&["current-version"]).stdout.trim(), now, "nothing of it was done");

    // The run ends, its reports are refused, and the agent keeps them.
    gate.release(1);
    agent.wait_for_output("the server did not accept a report; it stays in the outbox", TIMEOUT);
    let node = api.node("web1");
    assert_eq!((&node["history"], &node["running"]), (&json!([]), &json!(null)), "{node:#}");

    // Even a server that is killed now loses nothing.
    server.kill();
    disk.make_space();
    let server = Server::start_at(&sandbox, &project.dir, &state);
    gate.release(100);
    sandbox.wait_validated(&now, &["web1"]);
    let (runs, reports) = (server.api.runs("web1"), server.api.reports("web1"));
    assert!(!runs.is_empty() && reports.len() == 2 * runs.len(), "both reports of each run: {reports:#?}");
    assert_eq!(runs[0]["version"], "v1", "the run that was under way: {runs:#?}");
    assert_eq!(sandbox.run_muster(&["trigger-update", &next, "--allow-older", "--at-once"]).code(), 0);
    sandbox.wait_validated(&next, &["web1"]);

    // The same without the kill.
    disk.fill();
    let (_, next) = changed_until_refused(&server.api);
    disk.make_space();
    assert_eq!(sandbox.run_muster(&["trigger-update", &next, "--allow-older", "--at-once"]).code(), 0);
    sandbox.wait_validated(&next, &["web1"]);
    let mut ids = BTreeSet::new();
    for run in server.api.runs("web1") {
        assert!(ids.insert(run["run"].to_string()), "each run once: {run:#}");
        let valid_cause = |cause: &Value| cause["kind"] == "version" || cause["kind"] == "agent_started";
        assert!(run["causes"].as_array().unwrap().iter().any(valid_cause), "run without a cause: {run:#}");
    }
}

/// Changes the version until the store refuses: its file has free space, even on a full disk. Returns the last accepted
/// version and the refused one.
fn changed_until_refused(api: &Api) -> (String, String) {
    let mut now = api.get("current-version")["version"].as_str().unwrap().to_owned();
    for _ in 0..10_000 {
        let next = if now == "v1" { "v2" } else { "v1" };
        let answer = api.trigger_update(next);
        if answer.status != 200 {
            let problem = answer.json();
            assert_eq!((answer.status, problem["code"].as_str()), (507, Some("store_full")), "{problem}");
            return (now, next.to_owned());
        }
        next.clone_into(&mut now);
    }
    panic!("the disk is full, and nothing is refused");
}
