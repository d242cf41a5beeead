//! The disk of a node is full: its agent reports it, does nothing that it cannot record, and recovers.

use std::fs;

use muster_e2e::agent::Node;
use muster_e2e::project::Barrier;
use muster_e2e::project::Project;
use muster_e2e::sandbox::Sandbox;
use muster_e2e::server::Server;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};
use muster_testkit::{SmallDisk, passed_in_a_namespace};

#[test]
fn full_node_disk_is_reported_and_loses_no_report() {
    if passed_in_a_namespace() {
        return;
    }
    let sandbox = Sandbox::new();
    let (gate, journal) = (Barrier::new(sandbox.path("gate")), sandbox.path("journal"));
    let script = format!("echo run >> {}\nread line < {}\nexit 2", journal.display(), gate.path().display());
    let project = Project::new(&sandbox, &[("web", 1)])
        .release("v1", &ScriptRelease::new(&script))
        .release("v2", &ScriptRelease::new(&script));
    let server = Server::start(&sandbox, &project);
    let disk = SmallDisk::mount("1m");
    let node = Node::new(&sandbox, "web1", 1).state(disk.path().join("agent"));
    let _agent = node.start();
    let begun = |many: usize| {
        eventually(&format!("{many} runs have begun"), TIMEOUT, || {
            let text = fs::read_to_string(&journal).unwrap_or_default();
            if text.lines().count() == many { Ok(()) } else { Err(text) }
        });
    };

    // Full during a run: its report cannot be stored, so it is not sent either.
    begun(1);
    disk.fill();
    gate.release(1);
    let seen = server.api.wait_node_state("web1", "blocked");
    assert!(seen["why"]["problem"].as_str().unwrap().contains("No space left on device"), "{seen:#}");
    let shown = sandbox.run_muster(&["status"]).stdout;
    assert!(shown.contains("blocked") && shown.contains("No space left on device"), "{shown}");
    assert_eq!(seen["running"], serde_json::Value::Null, "{seen:#}");

    disk.make_space();
    sandbox.wait_validated("v1", &["web1"]);
    assert_eq!(server.api.reports("web1").len(), 2);

    // Full before an update: the desired state cannot be stored, so it is not executed.
    disk.fill();
    assert_eq!(server.api.trigger_update("v2").status, 200);
    server.api.wait_node_state("web1", "blocked");
    begun(1);
    disk.make_space();
    begun(2);
    gate.release(1);
    sandbox.wait_validated("v2", &["web1"]);
    assert_eq!(server.api.runs("web1").len(), 2, "one run for each cause");
}
