//! Rules for storage, hardware, boot actions, out-of-band access and configuration items: findings, and inputs without
//! findings.

use muster_design::file_text::FileText;
use muster_design::source::DesignSource;
use muster_design::{CompileOptions, Design};

/// Findings as code and line: `M1302 3`.
fn found(text: &str) -> Vec<String> {
    let files = vec![FileText::new("site.yaml", text)];
    let checked = Design::compile(vec![DesignSource { name: "site".into(), files }], &CompileOptions::default());
    let describe = |finding: &muster_design::finding::Finding| {
        let at = finding.location.as_ref().and_then(|place| place.span).unwrap().start;
        format!("{} {}", finding.code, at.line)
    };
    checked.findings.iter().map(describe).collect()
}

/// Findings of a node with this storage, which is indented by four.
fn storage(text: &str) -> Vec<String> {
    found(&format!("kind: Node\nname: web1\nspec:\n  role: web\n  storage:\n{text}"))
}

#[test]
fn root_in_a_volume_group_may_take_the_rest() {
    let on_lvm = "    disks: {sda: {volume_group: os}}
    volume_groups: {os: {logical_volumes: [{name: slash, size: '>20g', filesystem: {mountpoint: /}}]}}\n";
    assert_eq!(storage(on_lvm), [""; 0]);
    let rest = "    disks: {sda: {partitions: [{name: root, size: '>20g', filesystem: {mountpoint: /}}]}}\n";
    assert_eq!(storage(rest), [""; 0]);
}

#[test]
fn root_is_found_by_its_mountpoint() {
    let text = "    disks:
      sda:
        partitions:
        - {name: boot, size: 512m, filesystem: {mountpoint: /boot}}
        - {name: system, size: 10g, filesystem: {mountpoint: /}}\n";
    assert_eq!(storage(text), ["M1303 9", "M1302 10"]);
}

#[test]
fn share_is_checked_if_the_disk_size_is_known() {
    let text = |size: &str| {
        format!(
            "kind: Node\nname: web1\nspec:\n  role: web\n  hardware_profile: h\n  storage:\n    disks:
      sda: {{partitions: [{{name: root, size: '{size}', filesystem: {{mountpoint: /}}}}]}}
---\n{{kind: HardwareProfile, name: h, spec: {{device_aliases: {{sda: {{bus_type: scsi, address: '0:0.0.0', size: 100g}}}}}}}}\n"
        )
    };
    assert_eq!(found(&text("10%")), ["M1302 8"]);
    assert_eq!(found(&text("20%")), [""; 0]);
    assert_eq!(found(&text(">1g")), [""; 0], "it takes the whole disk");
    assert_eq!(found(&text("101g")), ["M1304 8"]);
    assert_eq!(found(&text("101%")), ["M1305 8"], "reported once");
}

#[test]
fn volume_group_assigned_by_partitions_is_accepted() {
    let text = "    disks:
      sda: {partitions: [{name: root, size: 20g, filesystem: {mountpoint: /}}, {name: a, size: 1g, volume_group: v}]}
      sdb: {partitions: [{name: b, size: 50%, volume_group: v}, {name: c, size: 50%, volume_group: w}]}
    volume_groups: {v: {}, w: {}}\n";
    assert_eq!(storage(text), [""; 0]);
}

#[test]
fn volume_group_of_another_node_does_not_count() {
    let with =
        "disks: {sda: {partitions: [{name: r, size: 20g, filesystem: {mountpoint: /}}]}, sdb: {volume_group: v}}";
    let without = "disks: {sda: {partitions: [{name: r, size: 20g, filesystem: {mountpoint: /}}]}}";
    let node = |name: &str, disks: &str| {
        format!(
            "---\nkind: Node\nname: {name}\nspec:\n  role: web\n  storage:\n    volume_groups: {{v: {{}}}}\n    {disks}\n"
        )
    };
    assert_eq!(found(&(node("web1", with) + &node("web2", without))), ["M1312 15"]);
}

#[test]
fn percentages_over_100_do_not_hide_other_findings() {
    let text = "    disks:
      sda: {volume_group: v}
      sdb: {}
    volume_groups:
      v: {logical_volumes: [{name: a, size: 60%, filesystem: {mountpoint: /}}, {name: b, size: 60%}]}\n";
    assert_eq!(storage(text), ["M1309 8", "M1305 10"]);
}

#[test]
fn storage_only_in_the_child_is_checked() {
    let text = "{kind: HostProfile, name: p, spec: {tags: [x]}}
---
kind: Node
name: web1
extends: [p]
spec: {role: web, storage: {disks: {sda: {partitions: [{name: root, size: 20g, filesystem: {mountpoint: /}}]}}}}\n";
    assert_eq!(found(text), [""; 0]);
    assert_eq!(found("{kind: Node, name: web1, spec: {role: web}}\n"), [""; 0], "no storage, no business");
    assert_eq!(found("{kind: Node, name: web1, spec: {role: web, storage: {boot_drive: sda}}}\n"), [""; 0]);
}

#[test]
fn every_duplicate_mountpoint_is_reported() {
    let text = "    disks:
      sda:
        partitions:
        - {name: a, size: 20g, filesystem: {mountpoint: /}}
        - {name: b, size: 20g, filesystem: {mountpoint: //}}
        - {name: c, size: 20g, filesystem: {mountpoint: /srv}}
        - {name: d, size: 20g, filesystem: {mountpoint: /srv}}
        - {name: e, size: 20g, filesystem: {mountpoint: /srv}}\n";
    assert_eq!(storage(text), ["M1314 10", "M1314 12", "M1314 13"]);
}

#[test]
fn sum_of_sizes_does_not_overflow() {
    let partitions: Vec<String> =
        (0..3000).map(|at| format!("{{name: p{at}, size: 9000t, labels: {{a: b}}}}")).collect();
    let text = format!(
        "{{kind: HardwareProfile, name: h, spec: {{device_aliases: {{a: {{bus_type: scsi, address: '0:0.0.0', size: 1t}}}}}}}}
---\nkind: Node\nname: web1\nspec:\n  role: web\n  hardware_profile: h\n  storage:\n    layout: flat
    disks: {{a: {{partitions: [{}]}}}}\n",
        partitions.join(", ")
    );
    assert_eq!(found(&text), ["M1304 10"]);
}

#[test]
fn oob_without_an_account_does_not_hide_other_findings() {
    let text = "{kind: Network, name: oob, spec: {cidr: 10.0.0.0/24}}
---
kind: Node
name: web1
spec:
  role: web
  oob: {type: ipmi, network: oob, credential: {secret: x}}
  platform: {kernel_params: {hugepagesz: 1G}}\n";
    assert_eq!(found(text), ["M1602 4", "M1601 7", "M1401 8"]);
}

#[test]
fn unused_incomplete_profile_is_not_checked() {
    let text = "kind: HostProfile
name: base
spec:
  oob: {account: muster}
  platform: {kernel_params: {isolcpus: 'hardwareprofile:cpuset.guests'}}
  storage: {volume_groups: {data: {}}}
---
{kind: Node, name: web1, spec: {role: web}}\n";
    assert_eq!(found(text), [""; 0]);
}

#[test]
fn inherited_mistake_is_reported_once() {
    let mut text =
        "{kind: HostProfile, name: p, spec: {platform: {kernel_params: {a: 'hardwareprofile:cpuset.x'}}}}\n".to_owned();
    for number in 1..=50 {
        text += &format!("---\n{{kind: Node, name: web{number}, extends: [p], spec: {{role: web}}}}\n");
    }
    assert_eq!(found(&text), ["M1402 1"]);
}

#[test]
fn unresolved_references_are_reported() {
    let params = |value: &str| {
        found(&format!(
            "{{kind: HardwareProfile, name: h, spec: {{cpu_sets: {{a: '1'}}, hugepages: {{b: {{size: 1G}}}}}}}}
---\n{{kind: Node, name: web1, spec: {{role: web, hardware_profile: h, platform: {{kernel_params: {{x: '{value}'}}}}}}}}\n"
        ))
    };
    for good in ["hardwareprofile:cpuset.a", "hardwareprofile:hugepages.b.size", "hardwareprofile", "a"] {
        assert_eq!(params(good), [""; 0], "{good}");
    }
    for bad in ["cpuset.b", "hugepages.b.count", "hugepages.a.size", "cpu_sets.a", "", "hugepages.b"] {
        assert_eq!(params(&format!("hardwareprofile:{bad}")), ["M1402 3"], "{bad}");
    }
}

#[test]
fn boot_actions_of_several_environments_are_not_checked() {
    let environment = "roles: {web: {cardinality: 1, flavor: small}}\n";
    let action = "{kind: BootAction, name: a, spec: {node_filter: {filters: [{node_names: [db1]}]}}}\n";
    let found = |environments: &[&str]| {
        let mut files = vec![FileText::new("actions.yaml", action)];
        files.extend(environments.iter().map(|name| FileText::new(format!("environments/{name}.yaml"), environment)));
        let options = CompileOptions { env: Some("prod".parse().unwrap()), ..CompileOptions::default() };
        let checked = Design::compile(vec![DesignSource { name: "site".into(), files }], &options);
        checked.findings.iter().map(|finding| finding.code.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found(&["prod"]), ["M1508", "M1506", "M1507"]);
    assert_eq!(found(&["prod", "staging"]), ["M1508"]);
}

/// Findings of a schema and an item of its kind, both as JSON, which is valid YAML.
fn item(schema: &str, item: &str) -> Vec<String> {
    found(&format!("{{kind: Schema, name: Thing, spec: {schema}}}\n---\n{{kind: Thing, name: one, spec: {item}}}\n"))
}

#[test]
fn items_are_checked_without_their_labels() {
    let text = "kind: Schema
name: acme/Thing
labels: {a: b}
spec: {additionalProperties: false, required: [size], properties: {size: {type: integer}, parts: {items: {enum: [x]}}}}
---
kind: acme/Thing
name: one
labels: {c: d}
spec:
  size: 1
  parts: [x]
---
kind: acme/Thing
name: two
spec:
  siez: 1
  parts:
  - x
  - y
";
    assert_eq!(found(text), ["M1701 14", "M1701 16", "M1701 19"]);
}

#[test]
fn inherited_values_of_an_item_are_checked() {
    let text = "{kind: Schema, name: Thing, spec: {required: [a, b]}}
---
{kind: Thing, name: base, spec: {a: 1, b: 2}}
---
{kind: Thing, name: one, extends: [base], spec: {c: 3}}
---
{kind: Thing, name: two, extends: [base], spec: {'!a': null}}\n";
    assert_eq!(found(text), ["M1701 7"]);
}

#[test]
fn invalid_schemas_are_reported_with_the_location() {
    for bad in [
        "{type: strnig}",
        "{properties: [a]}",
        "{pattern: '('}",
        "{pattern: '(?=a)b'}",
        "{$schema: 'https://example.org/mine'}",
        "{$ref: '#'}",
        "{$ref: 'file:///etc/hostname'}",
        "{$ref: '#/$defs/%61', $defs: {a: {}, '%61': {}}}",
        "{properties: {a: {$id: 'x:y', properties: {b: {$ref: '#'}}}}}",
        "{$defs: {a: {$ref: 'https://example.org/x.json'}}}",
        "{pattern: '(a{1000}){1000}'}",
    ] {
        assert_eq!(item(bad, "{a: 1}"), ["M1702 1"], "{bad}");
    }
}

#[test]
fn schema_may_be_as_deep_as_items() {
    let deep = |levels: usize| format!("{}1{}", "{a: ".repeat(levels), "}".repeat(levels));
    let plain = "{properties: {a: {allOf: [{allOf: [{$ref: '#'}]}]}}}";
    assert_eq!(item(plain, &deep(55)), [""; 0]);
    let branching =
        "{properties: {a: {anyOf: [{$ref: '#/$defs/never'}, {$ref: '#'}, {$ref: '#'}]}}, $defs: {never: false}}";
    assert_eq!(item(branching, &deep(10)), [""; 0]);
    assert_eq!(item(branching, &deep(55)), ["M1701 3"], "two to the power of fifty-five");
}
