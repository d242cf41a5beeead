//! A node whose agent is started by cron, beside one whose agent runs all the time.

use muster_e2e::agent::SandboxNode;
use muster_e2e::sandbox::{Sandbox, TestProject};
use muster_e2e::server::SandboxServer;
use muster_testkit::release::ScriptRelease;

#[test]
fn node_of_cron_serves_and_is_updated_at_its_next_call() {
    let sandbox = Sandbox::new();
    let release = |name: &str| ScriptRelease::new(&format!("echo {name} > $MUSTER_ROOT/version; exit 2"));
    let project = TestProject::new(&sandbox, &[("db", 1), ("web", 1)]);
    let project = project.release("v1", &release("v1")).release("v2", &release("v2"));
    let server = SandboxServer::start(&sandbox, &project);
    let (db1, web1) = (SandboxNode::new(&sandbox, "db1", 1), SandboxNode::new(&sandbox, "web1", 2));
    let _web1 = web1.start();
    let call = || db1.once(&["--interval", "30m"]);
    assert_eq!(call().code(), 0);
    let is_between = |db1: &serde_json::Value| db1["link"]["state"] == "between_calls";
    let shown = server.api.wait_node("db1", "is between two calls", is_between);
    assert!(shown["active"] == true && shown["state"] == "validated", "{shown:#}");
    assert_eq!(shown["agent"]["every"], "PT30M", "{shown:#}");
    sandbox.wait_validated("v1", &["db1", "web1"]);

    let listed = sandbox.run_muster(&["node", "list"]).stdout;
    assert!(listed.contains("AGENT") && listed.contains("cron, every 30m, next by "), "{listed}");
    let shown = sandbox.run_muster(&["node", "show", "db1"]).stdout;
    assert!(shown.contains("cron, every 30m, next call by "), "{shown}");
    assert!(shown.contains("muster-agent 0."), "{shown}");

    assert_eq!(server.api.trigger_update("v2").status, 200);
    sandbox.wait_validated("v2", &["web1"]);
    let waiting = server.api.wait_node("db1", "is not due", |db1| db1["why"]["why"] == "not_due");
    assert_eq!(waiting["active"], true, "it serves until its next call: {waiting:#}");
    assert_eq!(call().code(), 0);
    sandbox.wait_validated("v2", &["db1"]);
    assert_eq!(std::fs::read_to_string(db1.root().join("version")).unwrap(), "v2\n");

    // Nothing is due: the checks run again, and the node stays.
    let again = call();
    assert!(again.code() == 0 && again.stdout.contains("the node was validated again"), "{}", again.stdout);
    assert_eq!(server.api.wait_node("db1", "is between two calls", is_between)["active"], true);
}
