//! Causes of runs: a node runs when a looked-up value has changed or an operator requests it, and only then. Logs of runs.

use std::fs;
use std::path::Path;

use muster_e2e::agent::SandboxNode;
use muster_e2e::process::ChildProcess;
use muster_e2e::sandbox::{Barrier, Sandbox, TestProject};
use muster_e2e::server::SandboxServer;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};
use rustix::process::Signal;
use serde_json::json;

/// `db` waits at the barrier, `web` needs a `db`, and `cache` needs none.
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
fn changed_lookup_wakes_only_its_readers() {
    let sandbox = Sandbox::new();
    let gate = Barrier::new(sandbox.path("gate"));
    let project = TestProject::new(&sandbox, &[("db", 1), ("web", 2), ("cache", 1)])
        .release("v1", &release(gate.path()))
        .release("v2", &release(gate.path()));
    let server = SandboxServer::start(&sandbox, &project);
    let nodes = ["db1", "web1", "web2", "cache1"];
    let numbered = nodes.iter().zip(1..);
    let _agents: Vec<_> = numbered.map(|(name, number)| SandboxNode::new(&sandbox, name, number).start()).collect();

    let waiting = server.api.wait_node_state("web1", "pending");
    assert_eq!(waiting["why"]["needs"], json!([{"kind": "role", "role": "db", "want": 1, "have": 0}]));
    assert_eq!(waiting["lookups"], json!(["active_roles::db"]));
    server.api.wait_node_state("web2", "pending");
    server.api.wait_node_state("cache1", "validated");
    let shown = sandbox.run_muster(&["status"]).stdout;
    assert!(shown.contains("web1  pending") && shown.contains("waiting for role db: 0 of 1 active"), "{shown}");
    assert_eq!(sandbox.run_muster(&["failures"]).code(), 0, "to wait is not to fail");

    gate.release(1);
    sandbox.wait_validated("v1", &nodes);
    let causes = |node: &str| server.api.runs(node).iter().map(|run| run["causes"].clone()).collect::<Vec<_>>();
    for web in ["web1", "web2"] {
        let woken = json!([{"kind": "looked_up", "changes": [{"key": "active_roles::db", "what": "db1 added"}]}]);
        assert_eq!(causes(web)[1..], [woken], "{web} was woken once, by the role it waited for");
    }
    assert_eq!((causes("db1").len(), causes("cache1").len()), (1, 1), "runs without a cause");

    // All nodes move to v2. The active nodes stay the same, so no further run is caused.
    gate.release(1);
    assert_eq!(server.api.trigger_update("v2").status, 200);
    sandbox.wait_validated("v2", &nodes);
    for (node, runs) in [("db1", 2), ("web1", 3), ("web2", 3), ("cache1", 2)] {
        let causes = causes(node);
        assert_eq!(causes.len(), runs, "{node}: {causes:?}");
        assert_eq!(causes[runs - 1], json!([{"kind": "version", "version": "v2"}]), "{node}");
    }
}

#[test]
fn modified_bundle_is_not_executed() {
    let sandbox = Sandbox::new();
    let ran = sandbox.path("ran");
    let script = ScriptRelease::new(&format!("touch {}; exit 2", ran.display()));
    let project = TestProject::new(&sandbox, &[("web", 1)]).release("v1", &script);
    let server = SandboxServer::start(&sandbox, &project);
    // The bundle is changed after the server has registered it.
    let digest = server.api.get("releases/v1")["digest"].as_str().unwrap().replace("sha256:", "");
    let path = sandbox.path("state/blobs").join(&digest[..2]).join(&digest[2..]);
    let mut bundle = std::fs::read(&path).unwrap();
    let middle = bundle.len() / 2;
    bundle[middle] ^= 1;
    std::fs::write(&path, bundle).unwrap();
    let node = SandboxNode::new(&sandbox, "web1", 1).without_retries();
    let _agent = node.start();

    let seen = server.api.wait_node_state("web1", "failed");
    assert_eq!(seen["why"]["reason"]["kind"], "digest_mismatch", "{seen:#}");
    let shown = sandbox.run_muster(&["status"]).stdout;
    assert!(shown.contains("a release never changes"), "{shown}");
    assert!(!ran.exists());
}

#[test]
fn concurrent_causes_make_one_further_run() {
    let sandbox = Sandbox::new();
    let (gate, journal) = (Barrier::new(sandbox.path("gate")), sandbox.path("journal"));
    let script =
        format!("echo $MUSTER_VERSION >> {}; read line < {}; exit 2", journal.display(), gate.path().display());
    let mut project = TestProject::new(&sandbox, &[("web", 1)]);
    let versions: Vec<String> = (1..=9).map(|number| format!("v{number}")).collect();
    for version in &versions {
        project = project.release(version, &ScriptRelease::new(&script));
    }
    let server = SandboxServer::start(&sandbox, &project);
    let agent = SandboxNode::new(&sandbox, "web1", 1).start();
    let ran = || fs::read_to_string(&journal).unwrap_or_default();
    eventually("the first run has begun", TIMEOUT, || if ran() == "v1\n" { Ok(()) } else { Err(ran()) });

    // The version changes often during a run.
    for version in &versions[1..] {
        assert_eq!(server.api.trigger_update(version).status, 200);
    }
    agent.wait_for_output("new desired state version=v9", TIMEOUT);
    gate.release(2);
    sandbox.wait_validated("v9", &["web1"]);
    assert_eq!(ran(), "v1\nv9\n", "one run at a time, and the causes of that time make one further run");
}

#[test]
fn reselected_version_is_validated_again() {
    let sandbox = Sandbox::new();
    let (gate, journal) = (Barrier::new(sandbox.path("gate")), sandbox.path("journal"));
    let write = format!("echo $MUSTER_VERSION >> {}", journal.display());
    let waits = format!("{write}; read line < {}; exit 2", gate.path().display());
    let project = TestProject::new(&sandbox, &[("web", 1)])
        .release("v1", &ScriptRelease::new(&format!("{write}; exit 2")))
        .release("v2", &ScriptRelease::new(&waits));
    let server = SandboxServer::start(&sandbox, &project);
    let _agent = SandboxNode::new(&sandbox, "web1", 1).start();
    sandbox.wait_validated("v1", &["web1"]);

    assert_eq!(server.api.trigger_update("v2").status, 200);
    eventually("the node is on its way to v2", TIMEOUT, || {
        let ran = fs::read_to_string(&journal).unwrap();
        if ran == "v1\nv2\n" { Ok(()) } else { Err(ran) }
    });
    assert_eq!(server.api.trigger_update("v1").status, 200);
    let asked = sandbox.run_muster(&["verify-hosts", "v1", "web1"]);
    assert_eq!(asked.code(), 1, "it is being changed to v2 at this moment: {asked:?}");

    gate.release(1);
    sandbox.wait_validated("v1", &["web1"]);
    assert_eq!(fs::read_to_string(&journal).unwrap(), "v1\nv2\nv1\n");
}

/// A command that runs in the background.
fn starts(sandbox: &Sandbox, args: &[&str]) -> ChildProcess {
    ChildProcess::new(format!("muster {}", args.join(" ")), &mut sandbox.muster(args))
}

#[test]
fn log_of_a_puppet_run_is_printed_while_it_runs() {
    let sandbox = Sandbox::new();
    let gate = Barrier::new(sandbox.path("gate"));
    // The run waits at the barrier, so output before the release is printed during the run.
    let manifest = format!(
        "notify {{ 'the first resource speaks': }}\n-> exec {{ 'read line < {}':\n  provider => shell,\n}}\n\
         -> notify {{ 'the last resource speaks': }}\n",
        gate.path().display()
    );
    let project = TestProject::new(&sandbox, &[("web", 1)]).puppet_release("v1", &manifest);
    let server = SandboxServer::start(&sandbox, &project);
    let _agent = SandboxNode::new(&sandbox, "web1", 1).without_retries().start();
    server.api.wait_node_state("web1", "applying");

    let follower = starts(&sandbox, &["node", "logs", "web1", "--follow"]);
    follower.wait_for_output("the first resource speaks", TIMEOUT * 3);
    assert!(!follower.transcript().contains("the last resource speaks"), "{}", follower.transcript());
    server.api.wait_node_state("web1", "applying");
    gate.release(1);
    follower.wait_for_output("the last resource speaks", TIMEOUT * 3);
    sandbox.wait_validated("v1", &["web1"]);
    // Ctrl-C ends the command.
    follower.signal(Signal::INT);
    assert_eq!(follower.wait_exit(TIMEOUT).code(), 0, "{}", follower.transcript());

    let stored = sandbox.run_muster(&["node", "logs", "web1"]);
    assert!(stored.stdout.contains("the last resource speaks"), "{stored:?}");
}

#[test]
fn requested_run_is_executed_and_watched() {
    let sandbox = Sandbox::new();
    let project =
        TestProject::new(&sandbox, &[("web", 1)]).release("v1", &ScriptRelease::new("echo hello from the run; exit 2"));
    let _server = SandboxServer::start(&sandbox, &project);
    let _agent = SandboxNode::new(&sandbox, "web1", 1).start();
    sandbox.wait_validated("v1", &["web1"]);
    let ran = sandbox.run_muster(&["node", "run", "web1"]);
    assert_eq!(ran.code(), 0, "{ran:?}");
    assert!(ran.stdout.contains("hello from the run"), "{ran:?}");
    assert!(ran.stdout.contains("validated (0 checks): "), "{ran:?}");
    let runs = sandbox.run_muster(&["runs", "--node", "web1"]);
    assert!(runs.stdout.contains("operator "), "{runs:?}");
}
