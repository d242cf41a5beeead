//! A server is killed, its disk is full, or a backup is restored: agents continue, and nothing acknowledged is lost.

use std::collections::BTreeSet;
use std::fs;

use muster_e2e::agent::SandboxNode;
use muster_e2e::process::ChildProcess;
use muster_e2e::sandbox::{Barrier, Sandbox, TestProject};
use muster_e2e::server::{Api, ENV, SandboxServer, UpProcess};
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};
use muster_testkit::{SmallDisk, passed_in_a_namespace};
use serde_json::{Value, json};

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
    let project = TestProject::new(&sandbox, &[("web", 5)])
        .release("v1", &ScriptRelease::new(&script))
        .release("v2", &ScriptRelease::new(&script));
    let server = SandboxServer::start(&sandbox, &project);
    let numbered = NODES.iter().zip(1..);
    let agents: Vec<_> = numbered.map(|(name, number)| SandboxNode::new(&sandbox, name, number).start()).collect();
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
    let server = SandboxServer::start(&sandbox, &project);
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
    SandboxServer::start(&sandbox, &project).kill();
    let server = SandboxServer::start(&sandbox, &project);
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

#[test]
fn full_server_disk_refuses_writes_and_recovers() {
    if passed_in_a_namespace() {
        return;
    }
    let sandbox = Sandbox::new();
    let gate = Barrier::new(sandbox.path("gate"));
    let script = format!("read line < {}; exit 2", gate.path().display());
    let project = TestProject::new(&sandbox, &[("web", 1)])
        .release("v1", &ScriptRelease::new(&script))
        .release("v2", &ScriptRelease::new("exit 2"));
    let disk = SmallDisk::mount("24m");
    let state = disk.path().join("state");
    let server = SandboxServer::start_at(&sandbox, &project.dir, &state);
    let api = server.api.clone();
    let agent = SandboxNode::new(&sandbox, "web1", 1).start();
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
    assert_eq!((&node["history"], &node["version"]), (&json!([]), &json!(null)), "{node:#}");

    // Even a server that is killed now loses nothing.
    server.kill();
    disk.make_space();
    let server = SandboxServer::start_at(&sandbox, &project.dir, &state);
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

const RESTORED_NODES: [&str; 3] = ["db1", "web1", "web2"];

/// Records the applied version, so that its check detects another one.
fn release(version: &str) -> ScriptRelease {
    ScriptRelease::new(&format!("echo {version} > \"$MUSTER_ROOT/version\"; exit 2"))
        .program("is-there", &format!("grep -qx {version} \"$MUSTER_ROOT/version\""))
        .check("{name: version, exec: is-there, deadline: 10s}")
}

fn generation(seen: &Value) -> (u64, u64) {
    let generation = &seen["generation"];
    (generation["epoch"].as_u64().unwrap(), generation["number"].as_u64().unwrap())
}

#[test]
fn agents_roll_back_to_a_restored_backup() {
    let sandbox = Sandbox::new();
    let project = TestProject::new(&sandbox, &[("db", 1), ("web", 2)])
        .release("v1", &release("v1"))
        .release("v2", &release("v2"));
    let up = UpProcess::start(&sandbox, &project.dir, &[]);
    let api = up.api(&sandbox, ENV);
    sandbox.wait_validated("v1", &RESTORED_NODES);
    let file = sandbox.path("test.backup");
    let file = file.to_str().unwrap();
    let saved = sandbox.muster_json(&["backup", file]);
    assert_eq!((saved["nodes"].as_u64(), saved["missing_blobs"].as_u64()), (Some(3), Some(0)), "{saved:#}");

    assert_eq!(api.trigger_update("v2").status, 200);
    sandbox.wait_validated("v2", &RESTORED_NODES);
    let later = generation(&api.get("current-version"));
    let runs: Vec<usize> = RESTORED_NODES.iter().map(|node| api.runs(node).len()).collect();

    let refused = sandbox.run_muster(&["restore", file]);
    assert_eq!(refused.code(), 1, "{refused:?}");
    let restored = sandbox.muster_json(&["restore", file, "--replace", "--yes"]);
    assert_eq!((&restored["env"], &restored["resumed"]), (&Value::from(ENV), &Value::from(false)), "{restored:#}");

    sandbox.wait_validated("v1", &RESTORED_NODES);
    for node in RESTORED_NODES {
        let seen = api.wait_node_state(node, "validated");
        assert_eq!(seen["version"], "v1", "{seen:#}");
    }
    let now = generation(&api.get("current-version"));
    assert!(now > later && now.0 > later.0, "the desired generation is newer than all before: {later:?} {now:?}");
    for (node, before) in RESTORED_NODES.iter().zip(runs) {
        // The history is that of the backup and one more run: no run without a cause, and none twice.
        let runs = api.runs(node);
        assert_eq!(runs.last().unwrap()["version"], "v1", "{runs:#?}");
        assert_eq!(runs.len(), before, "{node}: {runs:#?}");
        let version = sandbox.path("state").join("nodes").join(node).join("root/version");
        let version =
            std::fs::read_to_string(&version).unwrap_or_else(|error| panic!("{}: {error}", version.display()));
        assert_eq!(version, "v1\n", "{node}");
    }
    // Updates continue from there.
    assert_eq!(api.trigger_update("v2").status, 200);
    sandbox.wait_validated("v2", &RESTORED_NODES);
}
