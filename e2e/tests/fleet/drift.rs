//! Drift: a managed file is spoilt, and a timed run finds it.

use std::fs;

use serde_json::{Value, json};

use muster_e2e::agent::SandboxNode;
use muster_e2e::sandbox::{Sandbox, TestProject};
use muster_e2e::server::SandboxServer;
use muster_testkit::wait::{TIMEOUT, eventually};

/// Manages one file. Each compilation adds a line to `compiled`, which is no change of a resource.
const SITE: &str = "$root = muster::self()['root']
generate('/bin/sh', '-c', \"echo x >> ${root}/compiled\")
file { \"${root}/motd\": content => \"welcome\\n\" }
";

/// A project with one node, whose timed runs are a second apart.
fn project(sandbox: &Sandbox, spec: &str) -> TestProject {
    let project = TestProject::new(sandbox, &[("web", 1)]).puppet_release("v1", SITE);
    let text = format!("applier: puppet\nmanifest: site.pp\nrun_every: 1s\n{spec}");
    fs::write(sandbox.path("project/releases/v1/release.yaml"), text).unwrap();
    project
}

/// Waits until this many further runs have compiled.
fn wait_compiled(node: &SandboxNode<'_>, further: usize) {
    let compiled = || fs::read_to_string(node.root().join("compiled")).unwrap_or_default().lines().count();
    let before = compiled();
    eventually("timed runs", TIMEOUT * 3, || match compiled() {
        count if count >= before + further => Ok(()),
        count => Err(format!("{count} runs have compiled, {before} before")),
    });
}

/// The runs of a node with repaired drift.
fn repairs(server: &SandboxServer) -> Vec<Value> {
    server.api.runs("web1").into_iter().filter(|run| run["repaired"] != Value::Null).collect()
}

#[test]
fn spoilt_file_is_repaired_by_a_timed_run() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox, "");
    let server = SandboxServer::start(&sandbox, &project);
    let node = SandboxNode::new(&sandbox, "web1", 1);
    let _agent = node.start();
    sandbox.wait_validated("v1", &["web1"]);
    let motd = node.root().join("motd");

    // Runs that change nothing write nothing to the store.
    wait_compiled(&node, 1);
    let before = server.api.node("web1");
    wait_compiled(&node, 2);
    assert_eq!(server.api.node("web1"), before);

    fs::write(&motd, "hacked\n").unwrap();
    let repaired = server.api.wait_node("web1", "is repaired", |_| !repairs(&server).is_empty());
    assert_eq!(fs::read_to_string(&motd).unwrap(), "welcome\n");
    assert!(repaired["history"].as_array().unwrap().len() <= 2, "{repaired:#}");
    sandbox.wait_validated("v1", &["web1"]);
    let repairs = repairs(&server);
    let file = format!("File[{}]", motd.display());
    assert_eq!(repairs[0]["repaired"], json!({"count": 1, "resources": [file]}), "{repairs:#?}");
    assert_eq!(repairs[0]["causes"], json!([{"kind": "schedule"}]));
    let runs = sandbox.run_muster(&["runs"]);
    assert!(runs.stdout.contains(&format!("schedule → repaired drift: {file}")), "{runs:?}");
}

#[test]
fn spoilt_file_is_shown_where_drift_is_reported() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox, "drift: report\n");
    let server = SandboxServer::start(&sandbox, &project);
    let node = SandboxNode::new(&sandbox, "web1", 1);
    let unknown = sandbox.run_muster(&["drift"]);
    assert_eq!(unknown.code(), 2, "{unknown:?}");
    let agent = node.start();
    sandbox.wait_validated("v1", &["web1"]);
    let none = sandbox.run_muster(&["drift"]);
    assert_eq!((none.code(), none.stdout.as_str()), (0, ""), "{none:?}");
    let motd = node.root().join("motd");
    fs::write(&motd, "hacked\n").unwrap();

    let shown = eventually("the drift is shown", TIMEOUT * 3, || {
        let shown = sandbox.run_muster(&["drift", "role=web"]);
        if shown.code() == 1 { Ok(shown.stdout) } else { Err(format!("{shown:?}")) }
    });
    let file = format!("File[{}]: content is ", motd.display());
    for text in ["web1 differs in 1 resource, for ", &file, "    -hacked\n    +welcome\n"] {
        assert!(shown.contains(text), "{text:?} is not in {shown}");
    }
    assert_eq!(server.api.node("web1")["state"], "validated", "a preview changes no state");
    assert_eq!(fs::read_to_string(&motd).unwrap(), "hacked\n");

    // The same drift causes no write.
    let before = server.api.node("web1");
    wait_compiled(&node, 2);
    assert_eq!(server.api.node("web1"), before);

    let run = sandbox.run_muster(&["node", "run", "web1"]);
    assert_eq!(run.code(), 0, "{run:?}");
    assert_eq!(fs::read_to_string(&motd).unwrap(), "welcome\n");
    assert_eq!(sandbox.run_muster(&["drift"]).code(), 0);
    drop(agent);
    server.api.wait_node_state("web1", "silent");
    let silent = sandbox.run_muster(&["drift"]);
    assert_eq!((silent.code(), silent.stdout.as_str()), (2, "web1: unknown: its agent is not connected\n"));
}
