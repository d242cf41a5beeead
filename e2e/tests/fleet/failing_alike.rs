//! Fifty nodes with the same broken manifest are shown as one group.
//!
//! Two of them run the real Puppet; the others send the same reports.

use serde_json::{Value, json};

use muster_e2e::agent::Node;
use muster_e2e::http::Events;
use muster_e2e::project::Project;
use muster_e2e::sandbox::Sandbox;
use muster_e2e::server::{Api, Server};

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
    let project = Project::new(&sandbox, &[("web", NODES)]).puppet_release("v1", SITE);
    let server = Server::start(&sandbox, &project);
    let real: Vec<String> = (1..=REAL).map(|number| format!("web{number}")).collect();
    let numbered = real.iter().zip(1..);
    let nodes = numbered.map(|(name, number)| Node::new(&sandbox, name, number).without_retries());
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
