//! Nodes that break when nobody runs anything on them: their checks are made again and again, also while they are paused.

use std::fs;
use std::path::Path;

use muster_testkit::release::ScriptRelease;
use serde_json::{Value, json};

use muster_e2e::agent::Node;
use muster_e2e::gate::Gate;
use muster_e2e::process::{Process, Signal};
use muster_e2e::project::Project;
use muster_e2e::server::Server;
use muster_e2e::stage::Stage;

/// `db` is a process that the run starts if it is not there; `web` looks it up. With a gate that is shut, `db` waits
/// before it starts anything.
fn release(gate: &Gate, shut: &Path) -> ScriptRelease {
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
    // The shortest pause that a release may ask for.
    ScriptRelease::new(&script)
        .check("{name: alive, process: {pidfile: \"{root}/db.pid\"}, roles: [db], deadline: 1s}")
        .validate_every("10s")
}

/// `kill -9` to what the node's content has started.
fn kill_service(node: &Node<'_>) {
    let pid = fs::read_to_string(node.root().join("db.pid")).unwrap().trim().parse().unwrap();
    Process::open(pid).unwrap().expect("the service runs").signal(Signal::KILL).unwrap();
}

/// What was reported of each run of a node, and why it was made, the oldest first.
fn story(server: &Server, node: &str) -> Vec<(String, String, Value)> {
    let word = |report: &Value, name: &str| report[name].as_str().unwrap().to_owned();
    let told = |report: &Value| (word(report, "phase"), word(report, "result"), report["causes"].clone());
    server.api.reports(node).iter().map(told).collect()
}

fn told(phase: &str, result: &str, causes: &Value) -> (String, String, Value) {
    (phase.to_owned(), result.to_owned(), causes.clone())
}

#[test]
fn a_node_whose_service_dies_leaves_service_and_comes_back_after_the_run_that_follows() {
    let stage = Stage::new();
    let (gate, shut) = (Gate::new(stage.path("gate")), stage.path("shut"));
    let project = Project::new(&stage, &[("db", 1), ("web", 1)]).release("v1", &release(&gate, &shut));
    let server = Server::start(&stage, &project);
    let (db1, web1) = (Node::new(&stage, "db1", 1), Node::new(&stage, "web1", 2));
    let _db1 = db1.start();
    server.api.until_node("db1", "is in service", |db1| db1["active"] == true);
    let _web1 = web1.start();
    stage.wait_for("v1", &["web1"]);

    fs::write(&shut, "").unwrap();
    kill_service(&db1);
    let broken = server.api.until_node("db1", "has left service", |db1| db1["active"] == false);
    assert_eq!(broken["running"], Value::Null, "{broken:#}");
    assert_eq!(stage.ask(&["verify-hosts", "v1", "db1"]).code(), 1);
    server.api.until_node("web1", "runs without db1", |web1| saw(web1, "db1 gone"));

    // The run that follows has waited until now.
    fs::remove_file(&shut).unwrap();
    gate.let_pass(1);
    stage.wait_for("v1", &["db1"]);
    server.api.until_node("db1", "is in service", |db1| db1["active"] == true);
    let story = story(&server, "db1");
    let schedule = json!([{"kind": "schedule"}]);
    assert_eq!(story[2], told("validated", "failed", &schedule), "{story:#?}");
    let (phase, result, causes) = &story[3];
    assert_eq!((phase.as_str(), result.as_str()), ("configured", "changed"), "{story:#?}");
    assert_eq!(causes[0]["kind"], "retry", "{story:#?}");
    assert_eq!(story.len(), 5, "what is as it was is not told: {story:#?}");
}

/// Whether the last run of a node was made because of this.
fn saw(node: &Value, what: &str) -> bool {
    node["history"][0]["causes"].to_string().contains(what)
}

#[test]
fn a_paused_node_stays_where_it_is_and_is_still_validated() {
    let stage = Stage::new();
    let (gate, shut) = (Gate::new(stage.path("gate")), stage.path("shut"));
    let project = Project::new(&stage, &[("db", 1), ("web", 1)])
        .release("v1", &release(&gate, &shut))
        .release("v2", &release(&gate, &shut));
    let server = Server::start(&stage, &project);
    let (db1, web1) = (Node::new(&stage, "db1", 1), Node::new(&stage, "web1", 2));
    let _agents = [db1.start(), web1.start()];
    stage.wait_for("v1", &["db1", "web1"]);

    let paused = stage.ask(&["pause", "--role", "db", "--reason", "disk swap", "--for", "2h"]);
    assert_eq!(paused.code(), 0, "{paused:?}");
    assert_eq!(server.api.trigger_update("v2").status, 200);
    stage.wait_for("v2", &["web1"]);
    let waiting = server.api.until_node("db1", "is known to be paused", |db1| db1.to_string().contains("disk swap"));
    assert_eq!((&waiting["running"], &waiting["active"]), (&json!("v1"), &json!(true)), "{waiting:#}");
    assert!(stage.ask(&["status"]).stdout.contains("disk swap"), "{}", stage.ask(&["status"]).stdout);

    // Nobody repairs it, but nobody counts on it any more either.
    kill_service(&db1);
    let broken = server.api.until_node("db1", "has left service", |db1| db1["active"] == false);
    assert_eq!(broken["running"], Value::Null, "{broken:#}");
    let asked = stage.ask(&["node", "run", "db1"]);
    assert_eq!(asked.code(), 1, "{asked:?}");
    assert!(format!("{}{}", asked.stdout, asked.stderr).contains("disk swap"), "{asked:?}");
    assert_eq!(story(&server, "db1").len(), 3, "{:#?}", story(&server, "db1"));

    let resumed = stage.ask(&["resume", "--role", "db"]);
    assert_eq!(resumed.code(), 0, "{resumed:?}");
    stage.wait_for("v2", &["db1"]);
    server.api.until_node("db1", "is in service", |db1| db1["active"] == true);
    let story = story(&server, "db1");
    let outcomes: Vec<_> = story.iter().map(|(phase, result, _)| format!("{phase} {result}")).collect();
    let expected =
        ["configured changed", "validated passed", "validated failed", "configured changed", "validated passed"];
    assert_eq!(outcomes, expected, "{story:#?}");
    assert!(story[3].2.to_string().contains("\"version\":\"v2\""), "{story:#?}");
}
