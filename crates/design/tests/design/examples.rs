//! Designs under `examples/`: they have no findings.

use std::path::Path;

use muster_design::source::SourceDir;
use muster_design::{CheckedDesign, CompileOptions, Design};

/// Compiles an example that is free of findings.
fn example(name: &str) -> Design {
    let path = Path::new("../../examples").join(name);
    let (bundle, unreadable) = SourceDir { name: name.to_owned(), path }.read();
    assert_eq!(unreadable.to_string(), "");
    let CheckedDesign { design, findings } = Design::compile(vec![bundle], &CompileOptions::default());
    assert_eq!(findings.to_string(), "", "examples/{name}");
    design
}

/// A value, and each step that led to it: `profile: file:line step`.
fn provenance_of(design: &Design, node: &str, path: &str) -> String {
    let why = design.provenance("Node", node, &path.parse().unwrap()).unwrap();
    let steps = why.steps.iter().map(|step| {
        let (file, line) = (step.location.file.rsplit('/').next().unwrap(), step.location.span.unwrap().start.line);
        format!("{}: {file}:{line} {}\n", step.name, serde_json::to_string(&step.action).unwrap())
    });
    format!("{}{}", steps.collect::<String>(), serde_json::to_string(&why.value).unwrap())
}

#[test]
fn example_site_has_no_findings_and_matches_its_readme() {
    let site = example("site");
    let names: Vec<&str> = site.nodes().iter().map(|node| node.name.as_str()).collect();
    assert_eq!(
        names.join(" "),
        "controller1 controller2 controller3 storage1 storage2 storage3 compute1 compute2 compute3 compute4"
    );
    insta::assert_snapshot!(provenance_of(&site, "compute1", "interfaces.bond0.networks"), @r#"
    base: base.yaml:32 {"action":"set","value":["mgmt"]}
    rack-server: rack-server.yaml:12 {"action":"members","written":["tenant","public"],"value":["tenant","public","mgmt"]}
    hypervisor: compute.yaml:9 {"action":"members","written":["!public"],"value":["tenant","mgmt"]}
    compute-pinned: compute.yaml:29 {"action":"members","written":["migration"],"value":["migration","tenant","mgmt"]}
    ["migration","tenant","mgmt"]
    "#);
    insta::assert_snapshot!(provenance_of(&site, "compute1", "interfaces.bond0.networks.public"), @r#"
    rack-server: rack-server.yaml:12 {"action":"set","value":"public"}
    hypervisor: compute.yaml:9 {"action":"removed"}
    null
    "#);
    insta::assert_snapshot!(provenance_of(&site, "compute4", "platform.kernel_params"), @r#"
    base: base.yaml:23 {"action":"set","value":{"console":"ttyS1,115200n8","quiet":true}}
    hypervisor: compute.yaml:13 {"action":"set","value":"on"}
    compute-pinned: compute.yaml:32 {"action":"removed"}
    compute-pinned: compute.yaml:33 {"action":"set","value":"1G"}
    compute-pinned: compute.yaml:34 {"action":"set","value":"hardwareprofile:hugepages.guests.size"}
    compute-pinned: compute.yaml:35 {"action":"set","value":"hardwareprofile:hugepages.guests.count"}
    compute-pinned: compute.yaml:36 {"action":"set","value":"hardwareprofile:cpuset.guests"}
    compute4: computes.yaml:48 {"action":"changed","value":320}
    {"console":"ttyS1,115200n8","intel_iommu":"on","default_hugepagesz":"1G","hugepagesz":"hardwareprofile:hugepages.guests.size","hugepages":320,"isolcpus":"hardwareprofile:cpuset.guests"}
    "#);
}

#[test]
fn drydock_sites_are_read_in_both_envelopes() {
    for (name, nodes) in
        [("drydock/deckhand", "rack1-compute-1 rack1-control-1 rack2-compute-1"), ("drydock/plain", "vm-1 vm-2")]
    {
        let site = example(name);
        let names: Vec<&str> = site.nodes().iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names.join(" "), nodes);
    }
    let site = example("drydock/deckhand");
    insta::assert_snapshot!(provenance_of(&site, "rack1-compute-1", "interfaces.data"), @r#"
    defaults: profiles.yaml:46 {"action":"set","value":{"device_link":"data","devices":["port1","port2"],"networks":["calico","public"],"sriov":{"vf_count":16,"trusted_mode":true}}}
    compute: profiles.yaml:74 {"action":"members","written":["!public"],"value":["calico"]}
    rack1-compute-1: nodes.yaml:29 {"action":"members","written":["storage-rack1"],"value":["storage-rack1","calico"]}
    {"device_link":"data","devices":["port1","port2"],"networks":["storage-rack1","calico"],"sriov":{"vf_count":16,"trusted_mode":true}}
    "#);
    insta::assert_snapshot!(provenance_of(&site, "rack1-compute-1", "oob"), @r#"
    defaults: profiles.yaml:14 {"action":"set","value":{"type":"ipmi","network":"bmc","account":"admin","credential":{"secret":"bmc-password"}}}
    {"type":"ipmi","network":"bmc","account":"admin","credential":{"secret":"bmc-password"}}
    "#);
    insta::assert_snapshot!(provenance_of(&site, "rack1-compute-1", "role"), @r#"
    rack1-compute-1: nodes.yaml:18 {"action":"set","value":"compute"}
    "compute"
    "#);
    let link = serde_json::to_string(&site.effective("NetworkLink", "data").unwrap().get("bonding")).unwrap();
    insta::assert_snapshot!(link, @r#"
    {"mon_rate":100,"up_delay":200,"down_delay":200,"hash":"layer3+4","peer_rate":"fast","mode":"802.3ad"}
    "#);
    let kinds: Vec<String> = site.documents().map(|document| format!("{} {}", document.kind, document.name)).collect();
    assert!(kinds.contains(&"promenade/Docker/v1 docker".to_owned()));
    assert!(kinds.contains(&"pegleg/SiteDefinition/v1 harbour".to_owned()));
}

#[test]
fn drydock_node_is_resolved() {
    let site = example("drydock/deckhand");
    let resolved = serde_json::to_string_pretty(&site.resolved("rack1-compute-1").unwrap()).unwrap();
    insta::assert_snapshot!(resolved);
}
