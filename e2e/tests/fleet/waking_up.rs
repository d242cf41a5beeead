//! Nodes learn about each other and run again when something that they looked up has changed; and only then.

use std::fs;
use std::path::Path;

use muster_testkit::release::ScriptRelease;
use serde_json::json;

use muster_e2e::agent::Node;
use muster_e2e::gate::Gate;
use muster_e2e::project::Project;
use muster_e2e::server::Server;
use muster_e2e::stage::Stage;
use muster_testkit::wait::{TIMEOUT, eventually};

/// `db` waits at the gate, `web` needs a `db`, and `cache` needs nobody.
fn release(gate: &Path) -> ScriptRelease {
    let script = r#"
case $MUSTER_ROLE in
db) read line < GATE; exit 2 ;;
web)
    echo active_roles::db >> "$MUSTER_LOOKUPS_FILE"
    grep -q '"db":{"db1"' "$MUSTER_SNAPSHOT" && exit 2
    echo '{"kind":"role","role":"db","want":1,"have":0}' >> "$MUSTER_PENDING_FILE"
    exit 75 ;;
cache) exit 0 ;;
esac"#;
    ScriptRelease::new(&script.replace("GATE", gate.to_str().unwrap()))
}

#[test]
fn a_node_runs_again_when_what_it_looked_up_has_changed_and_nobody_else_does() {
    let stage = Stage::new();
    let gate = Gate::new(stage.path("gate"));
    let project = Project::new(&stage, &[("db", 1), ("web", 2), ("cache", 1)])
        .release("v1", &release(gate.path()))
        .release("v2", &release(gate.path()));
    let server = Server::start(&stage, &project);
    let nodes = ["db1", "web1", "web2", "cache1"];
    let numbered = nodes.iter().zip(1..);
    let _agents: Vec<_> = numbered.map(|(name, number)| Node::new(&stage, name, number).start()).collect();

    let waiting = server.api.until_node_is("web1", "pending");
    assert_eq!(waiting["why"]["needs"], json!([{"kind": "role", "role": "db", "want": 1, "have": 0}]));
    assert_eq!(waiting["lookups"], json!(["active_roles::db"]));
    server.api.until_node_is("web2", "pending");
    server.api.until_node_is("cache1", "validated");
    let shown = stage.ask(&["status"]).stdout;
    assert!(shown.contains("web1  pending") && shown.contains("waiting for role db: 0 of 1 active"), "{shown}");
    assert_eq!(stage.ask(&["failures"]).code(), 0, "to wait is not to fail");

    gate.let_pass(1);
    stage.wait_for("v1", &nodes);
    let causes = |node: &str| server.api.runs(node).iter().map(|run| run["causes"].clone()).collect::<Vec<_>>();
    for web in ["web1", "web2"] {
        let woken = json!([{"kind": "looked_up", "changes": [{"key": "active_roles::db", "what": "db1 added"}]}]);
        assert_eq!(causes(web)[1..], [woken], "{web} was woken once, by what it waited for");
    }
    assert_eq!((causes("db1").len(), causes("cache1").len()), (1, 1), "nobody asked for these");

    // All of them move to v2. Whom the others see is the same as before, so that wakes nobody.
    gate.let_pass(1);
    assert_eq!(server.api.trigger_update("v2").status, 200);
    stage.wait_for("v2", &nodes);
    for (node, runs) in [("db1", 2), ("web1", 3), ("web2", 3), ("cache1", 2)] {
        let causes = causes(node);
        assert_eq!(causes.len(), runs, "{node}: {causes:?}");
        assert_eq!(causes[runs - 1], json!([{"kind": "version", "version": "v2"}]), "{node}");
    }
}

#[test]
fn content_that_is_not_what_was_registered_is_not_executed() {
    let stage = Stage::new();
    let ran = stage.path("ran");
    let script = ScriptRelease::new(&format!("touch {}; exit 2", ran.display()));
    let project = Project::new(&stage, &[("web", 1)]).release("v1", &script);
    let server = Server::start(&stage, &project);
    // Somebody changes the bundle after the server has registered it.
    let digest = server.api.get("releases/v1")["digest"].as_str().unwrap().replace("sha256:", "");
    let path = stage.path("state/blobs").join(&digest[..2]).join(&digest[2..]);
    let mut bundle = std::fs::read(&path).unwrap();
    let middle = bundle.len() / 2;
    bundle[middle] ^= 1;
    std::fs::write(&path, bundle).unwrap();
    let node = Node::new(&stage, "web1", 1).never_retries();
    let _agent = node.start();

    let seen = server.api.until_node_is("web1", "failed");
    assert_eq!(seen["why"]["reason"]["kind"], "digest_mismatch", "{seen:#}");
    let shown = stage.ask(&["status"]).stdout;
    assert!(shown.contains("a release never changes"), "{shown}");
    assert!(!ran.exists());
}

#[test]
fn many_causes_at_once_make_one_further_run() {
    let stage = Stage::new();
    let (gate, journal) = (Gate::new(stage.path("gate")), stage.path("journal"));
    let script =
        format!("echo $MUSTER_VERSION >> {}; read line < {}; exit 2", journal.display(), gate.path().display());
    let mut project = Project::new(&stage, &[("web", 1)]);
    let versions: Vec<String> = (1..=9).map(|number| format!("v{number}")).collect();
    for version in &versions {
        project = project.release(version, &ScriptRelease::new(&script));
    }
    let server = Server::start(&stage, &project);
    let agent = Node::new(&stage, "web1", 1).start();
    let ran = || fs::read_to_string(&journal).unwrap_or_default();
    eventually("the first run has begun", TIMEOUT, || if ran() == "v1\n" { Ok(()) } else { Err(ran()) });

    // While it runs the operator changes the mind, often.
    for version in &versions[1..] {
        assert_eq!(server.api.trigger_update(version).status, 200);
    }
    agent.says("the node should run version=v9", TIMEOUT);
    gate.let_pass(2);
    stage.wait_for("v9", &["web1"]);
    assert_eq!(ran(), "v1\nv9\n", "one run at a time, and what came meanwhile is one further run");
}

#[test]
fn a_version_that_was_left_and_called_back_is_proved_again() {
    let stage = Stage::new();
    let (gate, journal) = (Gate::new(stage.path("gate")), stage.path("journal"));
    let write = format!("echo $MUSTER_VERSION >> {}", journal.display());
    let waits = format!("{write}; read line < {}; exit 2", gate.path().display());
    let project = Project::new(&stage, &[("web", 1)])
        .release("v1", &ScriptRelease::new(&format!("{write}; exit 2")))
        .release("v2", &ScriptRelease::new(&waits));
    let server = Server::start(&stage, &project);
    let _agent = Node::new(&stage, "web1", 1).start();
    stage.wait_for("v1", &["web1"]);

    assert_eq!(server.api.trigger_update("v2").status, 200);
    eventually("the node is on its way to v2", TIMEOUT, || {
        let ran = fs::read_to_string(&journal).unwrap();
        if ran == "v1\nv2\n" { Ok(()) } else { Err(ran) }
    });
    assert_eq!(server.api.trigger_update("v1").status, 200);
    let asked = stage.ask(&["verify-hosts", "v1", "web1"]);
    assert_eq!(asked.code(), 1, "it is being changed to v2 at this moment: {asked:?}");

    gate.let_pass(1);
    stage.wait_for("v1", &["web1"]);
    assert_eq!(fs::read_to_string(&journal).unwrap(), "v1\nv2\nv1\n");
}
