//! The designs under `examples/` that a reader is told to learn from: nothing may be found in them.

use std::path::Path;

use muster_design::bundle::{Directory, Origin};
use muster_design::{Checked, Design, Options};

/// Compiles an example that is free of findings.
fn example(name: &str) -> Design {
    let path = Path::new("../../examples").join(name);
    let (bundle, unreadable) = Directory { name: name.to_owned(), path }.read();
    assert_eq!(unreadable.to_string(), "");
    let Checked { design, findings } = Design::compile(vec![bundle], &Options::default());
    assert_eq!(findings.to_string(), "", "examples/{name}");
    design
}

/// What a path's value is, and each step to it: `profile: file:line what it did`.
fn told(design: &Design, node: &str, path: &str) -> String {
    let why = design.why("Node", node, &path.parse().unwrap()).unwrap();
    let steps = why.steps.iter().map(|step| {
        let (file, line) = (step.place.file.rsplit('/').next().unwrap(), step.place.span.unwrap().start.line);
        format!("{}: {file}:{line} {}\n", step.name, serde_json::to_string(&step.action).unwrap())
    });
    format!("{}{}", steps.collect::<String>(), serde_json::to_string(&why.value).unwrap())
}

#[test]
fn the_site_is_free_of_findings_and_says_what_its_readme_says() {
    let site = example("site");
    let names: Vec<&str> = site.nodes().iter().map(|node| node.name.as_str()).collect();
    assert_eq!(
        names.join(" "),
        "controller1 controller2 controller3 storage1 storage2 storage3 compute1 compute2 compute3 compute4"
    );
    insta::assert_snapshot!(told(&site, "compute1", "interfaces.bond0.networks"), @r#"
    base: base.yaml:32 {"action":"set","value":["mgmt"]}
    rack-server: rack-server.yaml:12 {"action":"members","written":["tenant","public"],"value":["tenant","public","mgmt"]}
    hypervisor: compute.yaml:9 {"action":"members","written":["!public"],"value":["tenant","mgmt"]}
    compute-pinned: compute.yaml:29 {"action":"members","written":["migration"],"value":["migration","tenant","mgmt"]}
    ["migration","tenant","mgmt"]
    "#);
    insta::assert_snapshot!(told(&site, "compute1", "interfaces.bond0.networks.public"), @r#"
    rack-server: rack-server.yaml:12 {"action":"set","value":"public"}
    hypervisor: compute.yaml:9 {"action":"removed"}
    null
    "#);
    insta::assert_snapshot!(told(&site, "compute4", "platform.kernel_params"), @r#"
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
