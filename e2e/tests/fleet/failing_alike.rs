//! Fifty nodes with the same broken manifest are one problem, and are shown as one.
//!
//! Two of them are real, with the real Puppet; the others report what those have reported.

use serde_json::{Value, json};

use muster_e2e::agent::Node;
use muster_e2e::http::Events;
use muster_e2e::project::Project;
use muster_e2e::server::{Api, Server};
use muster_e2e::stage::Stage;

const NODES: u32 = 50;
const REAL: u32 = 2;
const SITE: &str = "# All nodes have the same.\nnode default {\n  include nova\n}\n";

/// Says of a node what another one said of itself, and stays connected as it would.
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
fn fifty_nodes_with_one_broken_manifest_are_one_group_with_file_and_line() {
    let stage = Stage::new();
    let project = Project::new(&stage, &[("web", NODES)]).puppet_release("v1", SITE);
    let server = Server::start(&stage, &project);
    let real: Vec<String> = (1..=REAL).map(|number| format!("web{number}")).collect();
    let numbered = real.iter().zip(1..);
    let nodes = numbered.map(|(name, number)| Node::new(&stage, name, number).never_retries());
    let _agents: Vec<_> = nodes.map(|node| node.start()).collect();
    for name in &real {
        server.api.until_node_is(name, "failed");
    }
    let report = &server.api.reports("web1")[0];
    let others = (REAL + 1..=NODES).map(|number| format!("web{number}"));
    let _streams: Vec<_> = others.map(|name| repeat(&server.api, report, "web1", &name)).collect();
    server.api.until_node_is(&format!("web{NODES}"), "failed");

    let shown = stage.ask(&["runs", "--failed"]);
    assert_eq!(shown.code(), 1, "{shown:?}");
    let first = shown.stdout.lines().next().unwrap();
    assert!(first.starts_with("50 nodes: ") && first.ends_with("(site.pp:3)"), "{shown:?}");
    assert_eq!(shown.stdout.matches("site.pp").count(), 1, "there is one group: {shown:?}");
}
