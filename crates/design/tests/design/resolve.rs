//! Resolved values of nodes.

use muster_design::bundle::Bundle;
use muster_design::file_text::FileText;
use muster_design::{CheckedDesign, CompileOptions, Design};

fn resolved(text: &str, node: &str) -> serde_json::Value {
    let files = vec![FileText::new("site.yaml", text)];
    let CheckedDesign { design, findings } =
        Design::compile(vec![Bundle { name: "site".into(), files }], &CompileOptions::default());
    assert_eq!(findings.to_string(), "");
    let first = design.resolved(node).unwrap();
    assert_eq!(design.resolved(node).unwrap(), first, "resolving changes nothing");
    serde_json::to_value(first).unwrap()
}

const NETWORKS: &str = "\
kind: Network
name: mgmt
spec:
  cidr: 10.0.1.0/24
  routedomain: inside
  dns: {domain: mgmt.example.org, servers: [10.0.1.9, 'fd00::9']}
  routes: [{subnet: 0.0.0.0/0, gateway: 10.0.1.1, metric: 10}]
  domain_routes: [{routedomain: inside, gateway: 10.0.1.2, metric: 5}]
---
kind: Network
name: storage
spec: {cidr: 10.0.2.0/24, routedomain: inside, domain_routes: [{routedomain: inside, gateway: 10.0.2.1}]}
---
{kind: Network, name: tenant, spec: {cidr: 10.0.3.0/24, routedomain: inside}}
---
{kind: Network, name: tenant6, spec: {cidr: 'fd00:3::/64', routedomain: inside}}
---
{kind: Network, name: elsewhere, spec: {cidr: 10.0.4.0/24}}
---
";

#[test]
fn the_primary_network_gives_the_domain_and_the_name_servers() {
    let node = "{kind: Node, name: web1_blue, spec: {role: web, primary_network: mgmt}}";
    let value = resolved(&format!("{NETWORKS}{node}"), "web1_blue");
    assert_eq!(value["host_name"], "web1-blue");
    assert_eq!(value["fqdn"], "web1-blue.mgmt.example.org");
    assert_eq!(value["dns"], serde_json::json!({"domain": "mgmt.example.org", "servers": ["10.0.1.9", "fd00::9"]}));
}

#[test]
fn without_a_primary_network_the_domain_is_local() {
    let value = resolved("{kind: Node, name: web1, spec: {role: web, host_name: front}}", "web1");
    assert_eq!(value["fqdn"], "front.local");
    assert_eq!(value["dns"], serde_json::json!({"domain": "local", "servers": []}));
    assert_eq!(value["routes"], serde_json::json!([]));
}

#[test]
fn a_routing_domain_reaches_every_other_member() {
    let node = "\
kind: Node
name: web1
spec:
  role: web
  primary_network: mgmt
  interfaces: {eth0: {networks: [mgmt]}, eth1: {networks: [storage, elsewhere]}}
  addresses: [{network: mgmt, address: 10.0.1.10}]
";
    let value = resolved(&format!("{NETWORKS}{node}"), "web1");
    let routes: Vec<String> = value["routes"].as_array().unwrap().iter().map(|route| route.to_string()).collect();
    insta::assert_snapshot!(routes.join("\n"), @r#"
    {"gateway":"10.0.1.1","metric":10,"network":"mgmt","subnet":"0.0.0.0/0"}
    {"gateway":"10.0.1.2","metric":5,"network":"mgmt","routedomain":"inside","subnet":"10.0.2.0/24"}
    {"gateway":"10.0.1.2","metric":5,"network":"mgmt","routedomain":"inside","subnet":"10.0.3.0/24"}
    {"gateway":"10.0.2.1","network":"storage","routedomain":"inside","subnet":"10.0.1.0/24"}
    {"gateway":"10.0.2.1","network":"storage","routedomain":"inside","subnet":"10.0.3.0/24"}
    "#);
}

#[test]
fn a_route_that_is_written_out_wins_over_a_routing_domain() {
    let text = "\
{kind: Network, name: a, spec: {cidr: 10.0.1.0/24, routes: [{subnet: 10.0.2.0/24, gateway: 10.0.1.1}],
  domain_routes: [{routedomain: x, gateway: 10.0.1.2}]}}
---
{kind: Network, name: b, spec: {cidr: 10.0.2.0/24, routedomain: x}}
---
{kind: Node, name: web1, spec: {role: web, interfaces: {eth0: {networks: [a]}}}}
";
    let value = resolved(text, "web1");
    assert_eq!(value["routes"], serde_json::json!([{"network": "a", "subnet": "10.0.2.0/24", "gateway": "10.0.1.1"}]));
}
