//! The disk of the server is full: what cannot be written is refused, and nothing that was acknowledged is lost.

use serde_json::json;

use muster_e2e::agent::Node;
use muster_e2e::eventually::PATIENCE;
use muster_e2e::gate::Gate;
use muster_e2e::project::{Project, Release};
use muster_e2e::server::Server;
use muster_e2e::stage::Stage;
use muster_small_disk::{SmallDisk, passed_in_a_namespace};

#[test]
fn a_full_disk_of_the_server_refuses_changes_loses_nothing_and_goes_on_when_there_is_space() {
    if passed_in_a_namespace() {
        return;
    }
    let stage = Stage::new();
    let gate = Gate::new(stage.path("gate"));
    let script = format!("read line < {}; exit 2", gate.path().display());
    let project = Project::new(&stage, &[("web", 1)])
        .release("v1", &Release::script(&script))
        .release("v2", &Release::script("exit 2"));
    let disk = SmallDisk::mount("24m");
    let state = disk.path().join("state");
    let server = Server::start_at(&stage, &project.dir, &state);
    let api = server.api.clone();
    let agent = Node::new(&stage, &project, "web1", 1).start();
    api.until_node_is("web1", "applying");

    // The space goes while a run is under way.
    disk.fill();
    let refused = api.trigger_update("v2");
    let problem = refused.json();
    assert_eq!((refused.status, problem["code"].as_str()), (507, Some("store_full")), "{problem}");
    let refused = stage.ask(&["trigger-update", "v2"]);
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(
        refused.stderr.contains("no space left") && refused.stderr.contains("hint: free some space"),
        "{}",
        refused.stderr
    );
    assert_eq!(stage.ask(&["current-version"]).stdout.trim(), "v1", "nothing of it was done");

    // The run ends, its reports cannot be taken, and its agent keeps them.
    gate.let_pass(1);
    agent.says("a report was not taken; it is kept", PATIENCE);
    let node = api.node("web1");
    assert_eq!((&node["history"], &node["running"]), (&json!([]), &json!(null)), "{node:#}");

    // Even a server that dies now loses nothing.
    server.kill();
    disk.make_space();
    let server = Server::start_at(&stage, &project.dir, &state);
    stage.wait_for("v1", &["web1"]);
    assert_eq!(server.api.reports("web1").len(), 2);
    assert_eq!(stage.ask(&["trigger-update", "v2"]).code(), 0);
    stage.wait_for("v2", &["web1"]);

    // The same without the death.
    disk.fill();
    assert_eq!(stage.ask(&["trigger-update", "v1"]).code(), 1);
    disk.make_space();
    gate.let_pass(1);
    assert_eq!(stage.ask(&["trigger-update", "v1"]).code(), 0);
    stage.wait_for("v1", &["web1"]);
    let results: Vec<_> = server.api.runs("web1").iter().map(|run| run["version"].clone()).collect();
    assert_eq!(results, ["v1", "v2", "v1"], "each run once, and none that nobody asked for");
}
