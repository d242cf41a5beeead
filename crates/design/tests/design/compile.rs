//! From files to effective values, and who said so.

use muster_design::bundle::Bundle;
use muster_design::file_text::FileText;
use muster_design::inherit::Path;
use muster_design::{Checked, Design, Options};

fn compile(files: &[(&str, &str)]) -> Checked {
    let files = files.iter().map(|(name, text)| FileText::new(*name, *text)).collect();
    Design::compile(vec![Bundle { name: "site".into(), files }], &Options::default())
}

const PROFILES: &str = "\
kind: HostProfile
name: base
spec:
  interfaces:
    bond0: {mtu: 1500, devices: [nic1, nic2], networks: [mgmt, storage]}
---
kind: HostProfile
name: rack
extends: [base]
spec: {interfaces: {bond0: {mtu: 9000}}}
---
kind: HostProfile
name: compute
extends: [rack]
spec: {interfaces: {bond0: {networks: [tenant, '!storage']}}}
---
kind: Node
name: compute1
extends: [compute]
spec: {role: compute, interfaces: {bond0: {mtu: 8900}}}
---
{kind: Network, name: mgmt, spec: {cidr: 10.0.0.0/24}}
---
{kind: Network, name: storage, spec: {cidr: 10.0.1.0/24}}
---
{kind: Network, name: tenant, spec: {cidr: 10.0.2.0/24}}
";

#[test]
fn four_layers_become_one_value_and_each_is_named() {
    let Checked { design, findings } = compile(&[("site.yaml", PROFILES)]);
    assert_eq!(findings.to_string(), "");
    let effective = serde_json::to_string(&design.effective("Node", "compute1").unwrap()).unwrap();
    assert_eq!(
        effective,
        r#"{"interfaces":{"bond0":{"mtu":8900,"devices":["nic1","nic2"],"networks":["tenant","mgmt"]}},"role":"compute"}"#
    );
    let told = |path: &str| {
        let why = design.why("Node", "compute1", &path.parse::<Path>().unwrap()).unwrap();
        let steps = why.steps.iter().map(|step| {
            let line = step.place.span.unwrap().start.line;
            format!("{} {}:{line} {}", step.name, step.place.file, serde_json::to_string(&step.action).unwrap())
        });
        steps.collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(told("interfaces.bond0.mtu"), @r#"
    base site.yaml:5 {"action":"set","value":1500}
    rack site.yaml:10 {"action":"changed","value":9000}
    compute1 site.yaml:20 {"action":"changed","value":8900}
    "#);
    insta::assert_snapshot!(told("interfaces.bond0.networks.storage"), @r#"
    base site.yaml:5 {"action":"set","value":"storage"}
    compute site.yaml:15 {"action":"removed"}
    "#);
    insta::assert_snapshot!(told("interfaces.bond0.networks"), @r#"
    base site.yaml:5 {"action":"set","value":["mgmt","storage"]}
    compute site.yaml:15 {"action":"members","written":["tenant","!storage"],"value":["tenant","mgmt"]}
    "#);
}
