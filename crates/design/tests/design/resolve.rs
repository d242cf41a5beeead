//! Resolved values of nodes, and selection of boot actions.

use muster_design::file_text::FileText;
use muster_design::source::DesignSource;
use muster_design::{CheckedDesign, CompileOptions, Design};
use serde_json::json;

fn compile(text: &str) -> Design {
    let files = vec![FileText::new("site.yaml", text)];
    let CheckedDesign { design, .. } =
        Design::compile(vec![DesignSource { name: "site".into(), files }], &CompileOptions::default());
    design
}

fn resolved(design: &Design, node: &str) -> serde_json::Value {
    serde_json::to_value(design.resolved(node).unwrap()).unwrap()
}

const HARDWARE: &str = "\
kind: HardwareProfile
name: big
spec:
  cpu_sets: {guests: '4-23'}
  hugepages: {guests: {size: 1G, count: 160}}
  device_aliases:
    nic1: {bus_type: pci, address: '0000:3b:00.0', dev_type: E810}
    system: {bus_type: scsi, address: '0:2.0.0', size: 480g}
    sda: {size: 480g}
---
";

#[test]
fn kernel_parameters_are_resolved_and_sorted() {
    let node = "\
kind: Node
name: web1
spec:
  role: web
  hardware_profile: big
  platform:
    kernel_params:
      console: ttyS1
      quiet: true
      splash: false
      panic: 30
      hugepages: hardwareprofile:hugepages.guests.count
      hugepagesz: hardwareprofile:hugepages.guests.size
      isolcpus: hardwareprofile:cpuset.guests
      nohz_full: hardwareprofile:cpuset.others
      dyndbg: file a.c +p
";
    let params = resolved(&compile(&format!("{HARDWARE}{node}")), "web1")["kernel_params"].clone();
    assert_eq!(
        params["command_line"],
        "hugepagesz=1G hugepages=160 console=ttyS1 quiet panic=30 isolcpus=4-23 \
         nohz_full=hardwareprofile:cpuset.others dyndbg=\"file a.c +p\""
    );
    let values = json!({"console": "ttyS1", "quiet": true, "splash": false, "panic": "30", "hugepages": "160",
        "hugepagesz": "1G", "isolcpus": "4-23", "nohz_full": "hardwareprofile:cpuset.others", "dyndbg": "file a.c +p"});
    assert_eq!(params["values"], values);
}

#[test]
fn devices_are_found_by_address_or_by_name() {
    let node = "\
kind: Node
name: web1
spec:
  role: web
  hardware_profile: big
  interfaces: {bond0: {devices: [nic1, eno2]}}
  storage: {disks: {system: {volume_group: v}, sda: {volume_group: v}}, volume_groups: {v: {}}}
";
    let devices = resolved(&compile(&format!("{HARDWARE}{node}")), "web1")["devices"].clone();
    let by_address = |alias: &str, bus: &str, address: &str| json!({"by": "address", "alias": alias, "bus_type": bus, "address": address});
    let by_name = |name: &str| json!({"by": "name", "name": name});
    let mut nic = by_address("nic1", "pci", "0000:3b:00.0");
    nic["dev_type"] = json!("E810");
    let system = by_address("system", "scsi", "0:2.0.0");
    assert_eq!(
        devices,
        json!({"interfaces": {"bond0": [nic, by_name("eno2")]}, "disks": {"sda": by_name("sda"), "system": system}})
    );
}

#[test]
fn empty_node_has_no_resolved_values() {
    let value = resolved(&compile("{kind: Node, name: web1, spec: {role: web}}"), "web1");
    assert_eq!(value["kernel_params"], json!({"values": {}, "command_line": ""}));
    assert_eq!(value["devices"], json!({"interfaces": {}, "disks": {}}));
    assert_eq!(value["boot_actions"], json!([]));
}

const NODES: &str = "\
{kind: Rack, name: r1, labels: {row: a}}
---
{kind: Rack, name: r2, labels: {row: b}}
---
{kind: Node, name: web1, labels: {tier: front}, spec: {role: web, rack: r1, tags: [metal, fast]}}
---
{kind: Node, name: web2, labels: {tier: front}, spec: {role: web, rack: r2, tags: [metal]}}
---
{kind: Node, name: db1, labels: {tier: back}, spec: {role: db, rack: r2, tags: [metal, large]}}
---
";

/// Names of the nodes that a filter selects.
fn selected(node_filter: &str) -> Vec<String> {
    let design = compile(&format!("{NODES}{{kind: BootAction, name: a, spec: {{node_filter: {node_filter}}}}}"));
    let nodes = design.nodes_of_boot_action("a").unwrap();
    for node in ["db1", "web1", "web2"] {
        let gets = resolved(&design, node)["boot_actions"] == json!(["a"]);
        assert_eq!(gets, nodes.iter().any(|name| name == node), "both ways to ask agree: {node}");
    }
    nodes
}

#[test]
fn filters_select_by_every_condition() {
    let table: &[(&str, &[&str])] = &[
        ("null", &["db1", "web1", "web2"]),
        ("{set: union, filters: []}", &["db1", "web1", "web2"]),
        ("{filters: [{node_names: [web1, db1]}]}", &["db1", "web1"]),
        ("{filters: [{type: union, node_tags: [fast, large]}]}", &["db1", "web1"]),
        ("{filters: [{type: intersection, node_tags: [metal, large]}]}", &["db1"]),
        ("{filters: [{node_labels: {tier: front}}]}", &["web1", "web2"]),
        ("{filters: [{rack_names: [r2]}]}", &["db1", "web2"]),
        ("{filters: [{rack_labels: {row: a}}]}", &["web1"]),
        ("{filters: [{type: intersection, rack_names: [r2], node_labels: {tier: front}}]}", &["web2"]),
        ("{filters: [{type: union, rack_names: [r1], node_names: [db1]}]}", &["db1", "web1"]),
        ("{set: union, filters: [{node_names: [web1]}, {node_tags: [large]}]}", &["db1", "web1"]),
        (
            "{set: intersection, filters: [{node_tags: [metal]}, {node_labels: {tier: front}}, {rack_labels: {row: b}}]}",
            &["web2"],
        ),
        ("{set: intersection, filters: [{node_names: [web1]}, {node_tags: [large]}]}", &[]),
        ("{filters: [{type: union}]}", &[]),
        ("{filters: [{node_names: []}]}", &[]),
    ];
    for (node_filter, nodes) in table {
        assert_eq!(selected(node_filter), *nodes, "{node_filter}");
    }
}

fn resolved_in(text: &str, node: &str) -> serde_json::Value {
    let files = vec![FileText::new("site.yaml", text)];
    let CheckedDesign { design, findings } =
        Design::compile(vec![DesignSource { name: "site".into(), files }], &CompileOptions::default());
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
fn primary_network_sets_domain_and_name_servers() {
    let node = "{kind: Node, name: web1_blue, spec: {role: web, primary_network: mgmt}}";
    let value = resolved_in(&format!("{NETWORKS}{node}"), "web1_blue");
    assert_eq!(value["host_name"], "web1-blue");
    assert_eq!(value["fqdn"], "web1-blue.mgmt.example.org");
    assert_eq!(value["dns"], serde_json::json!({"domain": "mgmt.example.org", "servers": ["10.0.1.9", "fd00::9"]}));
}

#[test]
fn without_a_primary_network_the_domain_is_local() {
    let value = resolved_in("{kind: Node, name: web1, spec: {role: web, host_name: front}}", "web1");
    assert_eq!(value["fqdn"], "front.local");
    assert_eq!(value["dns"], serde_json::json!({"domain": "local", "servers": []}));
    assert_eq!(value["routes"], serde_json::json!([]));
}

#[test]
fn routing_domain_reaches_every_other_member() {
    let node = "\
kind: Node
name: web1
spec:
  role: web
  primary_network: mgmt
  interfaces: {eth0: {networks: [mgmt]}, eth1: {networks: [storage, elsewhere]}}
  addresses: [{network: mgmt, address: 10.0.1.10}]
";
    let value = resolved_in(&format!("{NETWORKS}{node}"), "web1");
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
fn explicit_route_wins_over_a_routing_domain() {
    let text = "\
{kind: Network, name: a, spec: {cidr: 10.0.1.0/24, routes: [{subnet: 10.0.2.0/24, gateway: 10.0.1.1}],
  domain_routes: [{routedomain: x, gateway: 10.0.1.2}]}}
---
{kind: Network, name: b, spec: {cidr: 10.0.2.0/24, routedomain: x}}
---
{kind: Node, name: web1, spec: {role: web, interfaces: {eth0: {networks: [a]}}}}
";
    let value = resolved_in(text, "web1");
    assert_eq!(value["routes"], serde_json::json!([{"network": "a", "subnet": "10.0.2.0/24", "gateway": "10.0.1.1"}]));
}
