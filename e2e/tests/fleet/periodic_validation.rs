//! Nodes that break between runs: periodic validation detects it, also while a node is paused.

use std::fs;
use std::path::Path;

use muster_testkit::release::ScriptRelease;
use serde_json::{Value, json};

use muster_e2e::agent::SandboxNode;
use muster_e2e::process::{Process, Signal};
use muster_e2e::sandbox::{Barrier, Sandbox, TestProject};
use muster_e2e::server::SandboxServer;

/// `db` is a process that the run starts if it does not exist; `web` looks it up. While the barrier is on, `db` waits
/// before it starts.
fn release(gate: &Barrier, shut: &Path) -> ScriptRelease {
    let script = r#"
case $MUSTER_ROLE in
web) echo active_roles::db >> "$MUSTER_LOOKUPS_FILE"; exit 2 ;;
esac
[ -e SHUT ] && read line < GATE
kill -0 "$(cat "$MUSTER_ROOT/db.pid" 2> /dev/null)" 2> /dev/null && exit 0
env -u MUSTER_RUN_ID setsid sleep 100000 > /dev/null 2>&1 &
echo $! > "$MUSTER_ROOT/db.pid"
exit 2"#;
    let script = script.replace("SHUT", shut.to_str().unwrap()).replace("GATE", gate.path().to_str().unwrap());
    // The shortest interval that a release may set.
    ScriptRelease::new(&script)
        .check("{name: alive, process: {pidfile: \"{root}/db.pid\"}, roles: [db], deadline: 1s}")
        .validate_every("10s")
}

/// `kill -9` of the process that the release has started.
fn kill_service(node: &SandboxNode<'_>) {
    let pid = fs::read_to_string(node.root().join("db.pid")).unwrap().trim().parse().unwrap();
    Process::open(pid).unwrap().expect("the service runs").signal(Signal::KILL).unwrap();
}

/// Outcomes and causes of each run of a node, oldest first.
fn outcomes_of(server: &SandboxServer, node: &str) -> Vec<(String, String, Value)> {
    let word = |report: &Value, name: &str| report[name].as_str().unwrap().to_owned();
    let entry = |report: &Value| (word(report, "phase"), word(report, "result"), report["causes"].clone());
    server.api.reports(node).iter().map(entry).collect()
}

fn outcome(phase: &str, result: &str, causes: &Value) -> (String, String, Value) {
    (phase.to_owned(), result.to_owned(), causes.clone())
}

#[test]
fn node_with_a_dead_service_is_repaired_by_a_run() {
    let sandbox = Sandbox::new();
    let (gate, shut) = (Barrier::new(sandbox.path("gate")), sandbox.path("shut"));
    let project = TestProject::new(&sandbox, &[("db", 1), ("web", 1)]).release("v1", &release(&gate, &shut));
    let server = SandboxServer::start(&sandbox, &project);
    let (db1, web1) = (SandboxNode::new(&sandbox, "db1", 1), SandboxNode::new(&sandbox, "web1", 2));
    let _db1 = db1.start();
    server.api.wait_node("db1", "is in service", |db1| db1["active"] == true);
    let _web1 = web1.start();
    sandbox.wait_validated("v1", &["web1"]);

    fs::write(&shut, "").unwrap();
    kill_service(&db1);
    let broken = server.api.wait_node("db1", "has left service", |db1| db1["active"] == false);
    assert_eq!(broken["version"], Value::Null, "{broken:#}");
    assert_eq!(sandbox.run_muster(&["verify-hosts", "v1", "db1"]).code(), 1);
    server.api.wait_node("web1", "runs without db1", |web1| saw(web1, "db1 gone"));

    // The next run has waited until now.
    fs::remove_file(&shut).unwrap();
    gate.release(1);
    sandbox.wait_validated("v1", &["db1"]);
    server.api.wait_node("db1", "is in service", |db1| db1["active"] == true);
    let outcomes_seen = outcomes_of(&server, "db1");
    let schedule = json!([{"kind": "schedule"}]);
    assert_eq!(outcomes_seen[2], outcome("validated", "failed", &schedule), "{outcomes_seen:#?}");
    let (phase, result, causes) = &outcomes_seen[3];
    assert_eq!((phase.as_str(), result.as_str()), ("configured", "changed"), "{outcomes_seen:#?}");
    assert_eq!(causes[0]["kind"], "retry", "{outcomes_seen:#?}");
    assert_eq!(outcomes_seen.len(), 5, "unchanged validations are not reported: {outcomes_seen:#?}");
}

/// True if the last run of a node has this cause.
fn saw(node: &Value, what: &str) -> bool {
    node["history"][0]["causes"].to_string().contains(what)
}

#[test]
fn paused_node_is_validated_and_not_repaired() {
    let sandbox = Sandbox::new();
    let (gate, shut) = (Barrier::new(sandbox.path("gate")), sandbox.path("shut"));
    let project = TestProject::new(&sandbox, &[("db", 1), ("web", 1)])
        .release("v1", &release(&gate, &shut))
        .release("v2", &release(&gate, &shut));
    let server = SandboxServer::start(&sandbox, &project);
    let (db1, web1) = (SandboxNode::new(&sandbox, "db1", 1), SandboxNode::new(&sandbox, "web1", 2));
    let _agents = [db1.start(), web1.start()];
    sandbox.wait_validated("v1", &["db1", "web1"]);

    let paused = sandbox.run_muster(&["pause", "--role", "db", "--reason", "disk swap", "--for", "2h"]);
    assert_eq!(paused.code(), 0, "{paused:?}");
    assert_eq!(server.api.trigger_update("v2").status, 200);
    sandbox.wait_validated("v2", &["web1"]);
    let waiting = server.api.wait_node("db1", "is known to be paused", |db1| db1.to_string().contains("disk swap"));
    assert_eq!((&waiting["version"], &waiting["active"]), (&json!("v1"), &json!(true)), "{waiting:#}");
    assert!(sandbox.run_muster(&["status"]).stdout.contains("disk swap"), "{}", sandbox.run_muster(&["status"]).stdout);

    // The node stays broken, and leaves its role.
    kill_service(&db1);
    let broken = server.api.wait_node("db1", "has left service", |db1| db1["active"] == false);
    assert_eq!(broken["version"], Value::Null, "{broken:#}");
    let asked = sandbox.run_muster(&["node", "run", "db1"]);
    assert_eq!(asked.code(), 1, "{asked:?}");
    assert!(format!("{}{}", asked.stdout, asked.stderr).contains("disk swap"), "{asked:?}");
    assert_eq!(outcomes_of(&server, "db1").len(), 3, "{:#?}", outcomes_of(&server, "db1"));

    let resumed = sandbox.run_muster(&["resume", "--role", "db"]);
    assert_eq!(resumed.code(), 0, "{resumed:?}");
    sandbox.wait_validated("v2", &["db1"]);
    server.api.wait_node("db1", "is in service", |db1| db1["active"] == true);
    let outcomes_seen = outcomes_of(&server, "db1");
    let outcomes: Vec<_> = outcomes_seen.iter().map(|(phase, result, _)| format!("{phase} {result}")).collect();
    let expected =
        ["configured changed", "validated passed", "validated failed", "configured changed", "validated passed"];
    assert_eq!(outcomes, expected, "{outcomes_seen:#?}");
    assert!(outcomes_seen[3].2.to_string().contains("\"version\":\"v2\""), "{outcomes_seen:#?}");
}
