//! Reports that are duplicate, late, of an earlier incarnation, invalid, of an unknown node, or alike on many nodes.

use muster_e2e::agent::SandboxNode;
use muster_e2e::http::Events;
use muster_e2e::sandbox::{Sandbox, TestProject};
use muster_e2e::server::{Api, SandboxServer};
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::TIMEOUT;
use serde_json::{Value, json};

/// A report as an agent makes it.
fn report(incarnation: u64, seq: u64, phase: &str, result: &str) -> Value {
    json!({
        "node": "web1", "incarnation": incarnation, "seq": seq, "run": format!("run-{incarnation}-{}", seq.div_ceil(2)),
        "phase": phase, "result": result, "version": "v1", "digest": "d", "generation": {"epoch": 1, "number": 1},
        "causes": [{"kind": "agent_started"}], "started": "2026-01-01T00:00:00Z", "ended": "2026-01-01T00:00:01Z",
        "facts": {"interfaces": {"eth0": "127.0.0.9"}},
    })
}

/// Sends a report and returns its result, when it is visible.
fn taken(api: &Api, report: &Value) -> String {
    let answer = api.report("web1", report);
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    let visible = |seen: &Value| seen["revision"].as_u64() >= answer["revision"].as_u64();
    api.wait_node("web1", "is seen as of its last report", visible);
    answer["taken"].as_str().unwrap().to_owned()
}

/// Opens a stream as a new agent, and returns the incarnation. The stream ends, as if the agent had been killed.
fn hello(api: &Api) -> u64 {
    api.sync("web1", &json!({})).next("hello")["incarnation"].as_u64().unwrap()
}

/// The visible status of a node, without its connection.
fn status(api: &Api) -> Value {
    let mut node = api.node("web1");
    for of_the_connection in ["link", "activity", "state", "since", "why", "revision", "lookups"] {
        node.as_object_mut().unwrap().remove(of_the_connection);
    }
    node
}

#[test]
fn stale_and_duplicate_reports_are_no_ops() {
    let sandbox = Sandbox::new();
    let project = TestProject::new(&sandbox, &[("web", 1)]).release("v1", &ScriptRelease::new("exit 0"));
    let server = SandboxServer::start(&sandbox, &project);
    let api = &server.api;

    let first = hello(api);
    assert_eq!(taken(api, &report(first, 1, "configured", "changed")), "applied");
    assert_eq!(taken(api, &report(first, 2, "validated", "passed")), "applied");
    let validated = status(api);
    assert_eq!((&validated["version"], &validated["active"]), (&json!("v1"), &json!(true)));

    // A duplicate, as after a lost response.
    assert_eq!(taken(api, &report(first, 2, "validated", "passed")), "already_applied");
    // Late, with the opposite result.
    assert_eq!(taken(api, &report(first, 1, "configured", "failed")), "outdated");
    assert_eq!(status(api), validated);

    // The agent has lost its state: it gets a new incarnation, and its earlier reports are outdated.
    let second = hello(api);
    assert!(second > first);
    assert_eq!(taken(api, &report(first, 3, "validated", "failed")), "outdated");
    assert_eq!(status(api)["version"], "v1");
    // Sequence numbers may have holes, as after an interrupted run.
    assert_eq!(taken(api, &report(second, 4, "validated", "failed")), "applied");
    let failed = status(api);
    assert_eq!((&failed["version"], &failed["active"]), (&Value::Null, &json!(false)));
    assert_eq!(taken(api, &report(second, 3, "validated", "passed")), "outdated");
    assert_eq!(status(api), failed);

    // The state survives the server.
    server.kill();
    let server = SandboxServer::start(&sandbox, &project);
    let api = &server.api;
    assert_eq!(status(api), failed);
    assert_eq!(taken(api, &report(second, 4, "validated", "failed")), "already_applied");
    assert_eq!(taken(api, &report(first, 9, "validated", "passed")), "outdated");
    assert_eq!(status(api), failed);
    let runs: Vec<_> = api.runs("web1").iter().map(|run| run["run"].clone()).collect();
    assert_eq!(runs, ["run-1-1", "run-2-2"]);
}

#[test]
fn invalid_report_is_refused_with_a_reason() {
    let sandbox = Sandbox::new();
    let project = TestProject::new(&sandbox, &[("web", 1)]).release("v1", &ScriptRelease::new("exit 0"));
    let server = SandboxServer::start(&sandbox, &project);
    let api = &server.api;
    // Not the revision of the store: the server writes its own records too.
    let known = || {
        let web1 = api.node("web1");
        (
            api.get("nodes")["items"].clone(),
            web1["incarnation"].clone(),
            web1["states"].clone(),
            web1["history"].clone(),
        )
    };
    let before = known();

    let mut of_another = report(1, 1, "configured", "changed");
    of_another["node"] = "web7".into();
    for (node, report, status, code, says) in [
        ("web7", &of_another, 404, "unknown_node", "web7 is not in the design of test"),
        ("web1", &of_another, 400, "invalid_request", "web1 cannot report for web7"),
        ("web1", &report(0, 1, "configured", "changed"), 400, "invalid_request", "count from 1"),
        ("web1", &report(1, 1, "configured", "splendid"), 400, "invalid_request", "splendid"),
        ("web1", &json!({"node": "web1"}), 400, "invalid_request", "missing field"),
    ] {
        let answer = api.report(node, report);
        let problem = answer.json();
        assert_eq!((answer.status, problem["code"].as_str()), (status, Some(code)), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
    }
    assert_eq!(known(), before, "nothing was written");
}

#[test]
fn agent_of_an_unknown_node_is_refused() {
    let sandbox = Sandbox::new();
    let ran = sandbox.path("ran");
    let script = format!("touch {}", ran.display());
    let project = TestProject::new(&sandbox, &[("web", 1)]).release("v1", &ScriptRelease::new(&script));
    let server = SandboxServer::start(&sandbox, &project);

    let stranger = SandboxNode::new(&sandbox, "web7", 7).start();
    let said = stranger.wait_for_output("the server refuses this node", TIMEOUT);
    assert!(said.contains("web7 is not in the design of test"), "{said}");

    let nodes = server.api.get("nodes");
    assert_eq!(nodes["items"].as_array().unwrap().len(), 1, "{nodes}");
    assert!(stranger.is_running(), "it retries: the node may be added to the design");
    assert!(!ran.exists());
}

/// Nodes with the same broken manifest. The first [`REAL`] run the real Puppet; the others send the same reports.
const NODES: u32 = 50;
const REAL: u32 = 2;
const SITE: &str = "# All nodes have the same.\nnode default {\n  include nova\n}\n";

/// Sends the report of another node, and stays connected.
fn repeat(api: &Api, report: &Value, from: &str, node: &str) -> Events {
    let text = report.to_string().replace(from, node);
    let mut report: Value = serde_json::from_str(&text).unwrap();
    let mut stream = api.sync(node, &json!({}));
    let hello = stream.next("hello");
    report["incarnation"] = hello["incarnation"].clone();
    report["seq"] = 1.into();
    let answer = api.report(node, &report);
    assert_eq!((answer.status, &answer.json()["taken"]), (200, &json!("applied")), "{answer:?}");
    stream
}

#[test]
fn one_broken_manifest_on_fifty_nodes_is_one_group() {
    let sandbox = Sandbox::new();
    let project = TestProject::new(&sandbox, &[("web", NODES)]).puppet_release("v1", SITE);
    let server = SandboxServer::start(&sandbox, &project);
    let real: Vec<String> = (1..=REAL).map(|number| format!("web{number}")).collect();
    let numbered = real.iter().zip(1..);
    let nodes = numbered.map(|(name, number)| SandboxNode::new(&sandbox, name, number).without_retries());
    let _agents: Vec<_> = nodes.map(|node| node.start()).collect();
    for name in &real {
        server.api.wait_node_state(name, "failed");
    }
    let report = &server.api.reports("web1")[0];
    let others = (REAL + 1..=NODES).map(|number| format!("web{number}"));
    let _streams: Vec<_> = others.map(|name| repeat(&server.api, report, "web1", &name)).collect();
    server.api.wait_node_state(&format!("web{NODES}"), "failed");

    let shown = sandbox.run_muster(&["runs", "--failed"]);
    assert_eq!(shown.code(), 1, "{shown:?}");
    let first = shown.stdout.lines().next().unwrap();
    assert!(first.starts_with("50 nodes: ") && first.ends_with("(site.pp:3)"), "{shown:?}");
    assert_eq!(shown.stdout.matches("site.pp").count(), 1, "there is one group: {shown:?}");
}
