//! The disk of a node is full: its agent says so, does nothing that it cannot write down, and goes on by itself.

use std::fs;

use muster_e2e::agent::Node;
use muster_e2e::gate::Gate;
use muster_e2e::project::Project;
use muster_e2e::server::Server;
use muster_e2e::stage::Stage;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};
use muster_testkit::{SmallDisk, passed_in_a_namespace};

#[test]
fn a_full_disk_of_a_node_is_told_and_loses_no_report() {
    if passed_in_a_namespace() {
        return;
    }
    let stage = Stage::new();
    let (gate, journal) = (Gate::new(stage.path("gate")), stage.path("journal"));
    let script = format!("echo run >> {}\nread line < {}\nexit 2", journal.display(), gate.path().display());
    let project = Project::new(&stage, &[("web", 1)])
        .release("v1", &ScriptRelease::new(&script))
        .release("v2", &ScriptRelease::new(&script));
    let server = Server::start(&stage, &project);
    let disk = SmallDisk::mount("1m");
    let node = Node::new(&stage, "web1", 1).state(disk.path().join("agent"));
    let _agent = node.start();
    let begun = |many: usize| {
        eventually(&format!("{many} runs have begun"), TIMEOUT, || {
            let text = fs::read_to_string(&journal).unwrap_or_default();
            if text.lines().count() == many { Ok(()) } else { Err(text) }
        });
    };

    // The space goes during a run: its report cannot be written down, so it is not said either.
    begun(1);
    disk.fill();
    gate.let_pass(1);
    let seen = server.api.until_node_is("web1", "blocked");
    assert!(seen["why"]["problem"].as_str().unwrap().contains("No space left on device"), "{seen:#}");
    let shown = stage.ask(&["status"]).stdout;
    assert!(shown.contains("blocked") && shown.contains("No space left on device"), "{shown}");
    assert_eq!(seen["running"], serde_json::Value::Null, "{seen:#}");

    disk.make_space();
    stage.wait_for("v1", &["web1"]);
    assert_eq!(server.api.reports("web1").len(), 2);

    // The space is gone before there is anything to do: what the server says cannot be written down, so it is not done.
    disk.fill();
    assert_eq!(server.api.trigger_update("v2").status, 200);
    server.api.until_node_is("web1", "blocked");
    begun(1);
    disk.make_space();
    begun(2);
    gate.let_pass(1);
    stage.wait_for("v2", &["web1"]);
    assert_eq!(server.api.runs("web1").len(), 2, "one run for each cause");
}
