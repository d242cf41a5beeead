//! Defects of Drydock, each with a test of Muster's correct behaviour. Most were reproduced in Drydock with these
//! inputs.

use muster_design::file_text::FileText;
use muster_design::finding::Code;
use muster_design::source::DesignSource;
use muster_design::{CheckedDesign, CompileOptions, Design};

fn compile(text: &str) -> CheckedDesign {
    let files = vec![FileText::new("site.yaml", text)];
    Design::compile(vec![DesignSource { name: "site".into(), files }], &CompileOptions::default())
}

/// A profile, and a node that extends it.
fn parent_and_child(parent: &str, child: &str) -> String {
    format!(
        "{{schema: drydock/HostProfile/v1, metadata: {{name: parent}}, data: {{{parent}}}}}\n---\n\
         {{schema: drydock/BaremetalNode/v1, metadata: {{name: child}}, data: {{host_profile: parent, {child}}}}}\n"
    )
}

/// A value of the child as JSON. Findings of the site are ignored.
fn value(text: &str, path: &[&str]) -> String {
    let CheckedDesign { design, .. } = compile(text);
    let child = design.effective("Node", "child").unwrap();
    let value = path.iter().try_fold(child, |value, step| value.get(step));
    serde_json::to_string(&value).unwrap()
}

fn codes(text: &str) -> Vec<Code> {
    compile(text).findings.iter().map(|finding| Code::parse(finding.code.as_str()).unwrap()).collect()
}

#[test]
fn child_keeps_other_devices() {
    let text = parent_and_child(
        "storage: {physical_devices: {sda: {volume_group: a}, sdb: {volume_group: b}, sdc: {volume_group: c}}}",
        "storage: {physical_devices: {sda: {volume_group: z}}}",
    );
    assert_eq!(
        value(&text, &["storage", "disks"]),
        r#"{"sda":{"volume_group":"z"},"sdb":{"volume_group":"b"},"sdc":{"volume_group":"c"}}"#
    );
}

#[test]
fn child_keeps_other_partitions() {
    let text = parent_and_child(
        "storage: {physical_devices: {sda: {partitions: [{name: root, size: 30g}, {name: boot, size: 1g}, {name: var, size: 9g}]}}}",
        "storage: {physical_devices: {sda: {partitions: [{name: root, size: 50g}]}}}",
    );
    assert_eq!(
        value(&text, &["storage", "disks", "sda", "partitions"]),
        r#"[{"name":"root","size":"50g"},{"name":"boot","size":"1g"},{"name":"var","size":"9g"}]"#
    );
}

#[test]
fn storage_may_be_only_in_the_child() {
    let text = parent_and_child("primary_network: '!'", "storage: {physical_devices: {sda: {volume_group: a}}}");
    assert_eq!(value(&text, &["storage"]), r#"{"disks":{"sda":{"volume_group":"a"}}}"#);
}

#[test]
fn logical_volumes_of_both_layers_are_merged() {
    let group = |volume: &str| {
        format!("storage: {{volume_groups: {{vg: {{logical_volumes: [{{name: {volume}, size: 10g}}]}}}}}}")
    };
    let text = parent_and_child(&group("lv1"), &group("lv2"));
    assert_eq!(
        value(&text, &["storage", "volume_groups", "vg", "logical_volumes"]),
        r#"[{"name":"lv1","size":"10g"},{"name":"lv2","size":"10g"}]"#
    );
}

#[test]
fn child_with_other_networks_keeps_sriov() {
    let text = parent_and_child(
        "interfaces: {bond0: {slaves: [a, b], networks: [m, n], sriov: {vf_count: 8, trustedmode: true}}}",
        "interfaces: {bond0: {networks: ['!m']}}",
    );
    assert_eq!(
        value(&text, &["interfaces", "bond0"]),
        r#"{"devices":["a","b"],"networks":["n"],"sriov":{"vf_count":8,"trusted_mode":true}}"#
    );
}

#[test]
fn interface_is_removed_by_null_and_by_exclamation_mark() {
    let parent = "interfaces: {pxe: {slaves: [a]}, bond0: {slaves: [b]}}";
    for child in ["interfaces: {pxe: null}", "interfaces: {'!pxe': {}}"] {
        let text = parent_and_child(parent, child);
        assert_eq!(value(&text, &["interfaces"]), r#"{"bond0":{"devices":["b"]}}"#, "{child}");
    }
}

#[test]
fn partition_names_its_volume_group_by_both_keys() {
    for key in ["volume_group", "vg"] {
        let child =
            format!("storage: {{physical_devices: {{sda: {{partitions: [{{name: pv, size: 9g, {key}: v1}}]}}}}}}");
        let text = parent_and_child("", &child);
        let group = value(&text, &["storage", "disks", "sda", "partitions"]);
        assert_eq!(group, r#"[{"name":"pv","size":"9g","volume_group":"v1"}]"#);
    }
}

#[test]
fn cycle_of_profiles_is_reported() {
    let profile = |name: &str, parent: &str| {
        format!(
            "---\n{{schema: drydock/HostProfile/v1, metadata: {{name: {name}}}, data: {{host_profile: {parent}}}}}\n"
        )
    };
    assert_eq!(codes(&[profile("p", "q"), profile("q", "p")].concat()), [Code::ParentCycle]);
}

#[test]
fn duplicate_document_is_reported() {
    let text = "{schema: drydock/HostProfile/v1, metadata: {name: p}, data: {}}\n---\n\
                {apiVersion: drydock/v1, kind: HostProfile, metadata: {name: p}, spec: {}}\n";
    assert_eq!(codes(text), [Code::DuplicateDocument]);
}

#[test]
fn missing_parent_does_not_hide_other_findings() {
    let text = "{schema: drydock/HostProfile/v1, metadata: {name: p}, data: {host_profile: gone}}\n---\n\
                {schema: drydock/Network/v1, metadata: {name: n}, data: {cidr: 10.0.0.0/99}}\n";
    assert_eq!(codes(text), [Code::UnknownParent, Code::NotACidr]);
}

#[test]
fn compilation_is_deterministic() {
    let text = parent_and_child("interfaces: {bond0: {slaves: [a, b]}}", "metadata: {tags: [t]}");
    let (first, again) = (compile(&text), compile(&text));
    assert_eq!(first.design.effective("Node", "child"), again.design.effective("Node", "child"));
    assert_eq!(first.findings, again.findings);
    let unchanged = first.design.with("site", Vec::new());
    assert_eq!(first.design.effective("Node", "child"), unchanged.design.effective("Node", "child"));
}

/// A root file system of 30 GB, and further disks and volume groups.
fn storage(devices: &str, groups: &str) -> String {
    let root = "sda: {partitions: [{name: root, size: 30g, filesystem: {mountpoint: /, fstype: ext4}}]}";
    let storage = format!("storage: {{physical_devices: {{{root}, {devices}}}, volume_groups: {{{groups}}}}}");
    parent_and_child("", &storage)
}

const VOLUME: &str = "logical_volumes: [{name: lv, size: 90%, filesystem: {mountpoint: /srv, fstype: xfs}}]";

#[test]
fn volume_group_may_consist_of_partitions() {
    let text = storage("sdb: {partitions: [{name: pv, size: 99%, volume_group: v}]}", &format!("v: {{{VOLUME}}}"));
    assert_eq!(compile(&text).findings.to_string(), "");
    let text = storage("sdb: {volume_group: other}", &format!("v: {{{VOLUME}}}, other: {{}}"));
    assert_eq!(codes(&text), [Code::GroupWithoutDisk]);
}

#[test]
fn percentages_over_100_are_reported() {
    let volumes = "v: {logical_volumes: [{name: a, size: 60%, filesystem: {mountpoint: /a, fstype: xfs}}, \
                   {name: b, size: 60%, filesystem: {mountpoint: /b, fstype: xfs}}]}";
    assert_eq!(codes(&storage("sdb: {volume_group: v}", volumes)), [Code::Percents]);
}

#[test]
fn root_may_be_on_lvm_and_take_the_rest() {
    let on_lvm = parent_and_child(
        "",
        "storage: {physical_devices: {sda: {volume_group: v}}, volume_groups: {v: {logical_volumes: \
         [{name: root, size: 50g, filesystem: {mountpoint: /, fstype: ext4}}]}}}",
    );
    assert_eq!(compile(&on_lvm).findings.to_string(), "");
    let rest = parent_and_child(
        "",
        "storage: {physical_devices: {sda: {partitions: \
         [{name: root, size: '>20g', filesystem: {mountpoint: /, fstype: ext4}}]}}}",
    );
    assert_eq!(compile(&rest).findings.to_string(), "");
}

#[test]
fn ipmi_without_an_account_is_reported() {
    let text = parent_and_child("oob: {type: ipmi, credential: {secret: bmc}}", "");
    assert_eq!(codes(&text), [Code::OobIncomplete]);
    assert!(compile(&text).findings.to_string().contains("account"));
}

#[test]
fn every_bond_mode_is_accepted() {
    for mode in ["802.3ad", "active-backup", "balance-rr", "disabled"] {
        let text =
            format!("{{schema: drydock/NetworkLink/v1, metadata: {{name: l}}, data: {{bonding: {{mode: {mode}}}}}}}");
        assert_eq!(compile(&text).findings.to_string(), "", "{mode}");
    }
    // Spelling of Drydock's manual.
    let text = "{schema: drydock/NetworkLink/v1, metadata: {name: l}, data: {bonding: {mode: balanced-rr}}}";
    let found = compile(text).findings.to_string();
    assert!(found.contains("did you mean \"balance-rr\"?"), "{found}");
}

#[test]
fn malformed_cidr_does_not_hide_other_findings() {
    let network = |name: &str, rest: &str| {
        format!("---\n{{schema: drydock/Network/v1, metadata: {{name: {name}}}, data: {{{rest}}}}}\n")
    };
    let range = "ranges: [{type: static, start: 10.0.1.9, end: 10.0.1.1}]";
    let text = [network("a", "cidr: 10.0.0.0/99"), network("b", &format!("cidr: 10.0.1.0/24, {range}"))].concat();
    assert_eq!(codes(&text), [Code::NotACidr, Code::RangeBackwards]);
}

#[test]
fn fields_unchecked_by_drydock_are_checked() {
    let network = "---\n{schema: drydock/Network/v1, metadata: {name: lan}, data: {cidr: 10.0.0.0/24, ranges: [\
                   {type: static, start: 10.0.0.10, end: 10.0.0.50}, {type: dhcp, start: 10.0.0.40, end: 10.0.0.90}]}}\n";
    assert_eq!(codes(network), [Code::RangesOverlap]);
    let dangling = parent_and_child("primary_network: nowhere, metadata: {rack: gone}", "");
    assert_eq!(codes(&dangling), [Code::DanglingReference, Code::DanglingReference]);
    let outside = format!(
        "{}---\n{{schema: drydock/Network/v1, metadata: {{name: lan}}, data: {{cidr: 10.0.0.0/24, \
         ranges: [{{type: static, start: 10.0.0.10, end: 10.0.0.50}}]}}}}\n---\n\
         {{schema: drydock/NetworkLink/v1, metadata: {{name: wire}}, data: {{allowed_networks: [lan]}}}}\n",
        parent_and_child(
            "interfaces: {eth0: {device_link: wire, slaves: [eth0], networks: [lan]}}",
            "addressing: [{network: lan, address: 10.0.0.99}]"
        )
    );
    assert_eq!(codes(&outside), [Code::AddressInNoRange]);
}
