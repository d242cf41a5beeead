//! Rules for networks, links, interfaces and addresses: findings, and inputs without findings.

use muster_design::file_text::FileText;
use muster_design::finding::{Finding, Findings};
use muster_design::source::DesignSource;
use muster_design::{CompileOptions, Design, SourceFileChange};

fn findings(text: &str) -> Findings {
    let files = vec![FileText::new("site.yaml", text)];
    Design::compile(vec![DesignSource { name: "site".into(), files }], &CompileOptions::default()).findings
}

/// Findings as code and line: `M1212 3`.
fn found(text: &str) -> Vec<String> {
    let describe = |finding: &Finding| {
        let at = finding.location.as_ref().and_then(|place| place.span).unwrap().start;
        format!("{} {}", finding.code, at.line)
    };
    findings(text).iter().map(describe).collect()
}

const NOTHING: [&str; 0] = [];

#[test]
fn bonds_of_every_mode_are_accepted() {
    for bonding in [
        "{mode: disabled}",
        "{mode: 802.3ad}",
        "{mode: 802.3ad, hash: layer3+4, peer_rate: slow, mon_rate: 100, up_delay: 200, down_delay: 200}",
        "{mode: active-backup}",
        "{mode: active-backup, mon_rate: 100, up_delay: 100, down_delay: 0}",
        "{mode: balance-rr, mon_rate: 100}",
    ] {
        let text = format!("{{kind: NetworkLink, name: data, spec: {{bonding: {bonding}}}}}");
        assert_eq!(found(&text), NOTHING, "{bonding}");
    }
    for (bonding, expected) in [
        ("{hash: layer3+4}", "M1118 1"),
        ("{mode: balance-rr, peer_rate: fast}", "M1121 1"),
        ("{mode: active-backup, mon_rate: 100, down_delay: 99}", "M1119 1"),
        ("{mode: balanced-rr}", "M1022 1"),
        ("{mode: balanced-rr, hash: layer2}", "M1022 1"),
    ] {
        let text = format!("{{kind: NetworkLink, name: data, spec: {{bonding: {bonding}}}}}");
        assert_eq!(found(&text), [expected], "{bonding}");
    }
}

#[test]
fn malformed_cidr_hides_no_other_finding() {
    let text = "\
{kind: Network, name: mgmt, spec: {cidr: 10.0.0.0/99, ranges: [{type: static, start: 10.0.0.9, end: 10.0.0.1}], routes: [{subnet: 0.0.0.0/0}]}}
---
{kind: Node, name: web1, spec: {role: web, addresses: [{network: mgmt, address: 10.0.0.1}]}}
---
{kind: Node, name: web2, spec: {role: web, addresses: [{network: mgmt, address: 10.0.0.1}]}}
";
    assert_eq!(found(text), ["M1012 1", "M1105 1", "M1109 1", "M1219 5"]);
}

#[test]
fn pxe_over_a_device_of_a_bond_is_accepted() {
    let text = "\
{kind: NetworkLink, name: install, spec: {allowed_networks: [pxe]}}
---
{kind: NetworkLink, name: data, spec: {bonding: {mode: 802.3ad}, trunking: {mode: 802.1q, default_network: mgmt}, allowed_networks: [mgmt, storage]}}
---
{kind: Network, name: pxe, spec: {cidr: 10.0.0.0/24, ranges: [{type: dhcp, start: 10.0.0.5, end: 10.0.0.254}]}}
---
{kind: Network, name: mgmt, spec: {cidr: 10.0.1.0/24, vlan: 100}}
---
{kind: Network, name: storage, spec: {cidr: 10.0.2.0/24, vlan: 101}}
---
{kind: Network, name: oob, spec: {cidr: 10.0.3.0/24}}
---
kind: Node
name: web1
spec:
  role: web
  primary_network: mgmt
  oob: {type: manual, network: oob}
  interfaces:
    pxe: {device_link: install, devices: [nic1], networks: [pxe]}
    bond0: {device_link: data, devices: [nic1, nic2], networks: [mgmt, storage]}
  addresses:
  - {network: pxe, address: dhcp}
  - {network: mgmt, address: 10.0.1.10}
  - {network: oob, address: 10.0.3.10}
";
    assert_eq!(found(text), NOTHING);
}

#[test]
fn networks_of_both_families_share_a_link() {
    let link = |trunking: &str| {
        format!(
            "{{kind: NetworkLink, name: data, spec: {{trunking: {{mode: {trunking}}}, allowed_networks: [v4, v6]}}}}\n---\n"
        )
    };
    let networks = |four: &str, six: &str| {
        format!(
            "{{kind: Network, name: v4, spec: {{cidr: 10.0.0.0/24{four}}}}}\n---\n{{kind: Network, name: v6, spec: {{cidr: 'fd00::/64'{six}}}}}\n"
        )
    };
    assert_eq!(found(&format!("{}{}", link("disabled"), networks("", ""))), NOTHING);
    assert_eq!(found(&format!("{}{}", link("802.1q"), networks("", ""))), NOTHING);
    assert_eq!(found(&format!("{}{}", link("802.1q"), networks(", vlan: 7", ", vlan: 7"))), NOTHING);
    assert_eq!(found(&format!("{}{}", link("disabled"), networks(", vlan: 7", ""))), ["M1122 1"]);
}

#[test]
fn default_network_is_untagged_despite_its_vlan() {
    let text = "\
{kind: NetworkLink, name: data, spec: {trunking: {mode: 802.1q, default_network: a}, allowed_networks: [a, b]}}
---
{kind: Network, name: a, spec: {cidr: 10.0.0.0/24, vlan: 100}}
---
{kind: Network, name: b, spec: {cidr: 10.0.1.0/24}}
";
    assert_eq!(found(text), ["M1124 1"]);
}

#[test]
fn ranges_of_all_types_are_compared() {
    let text = |ranges: &str| {
        let ranges: Vec<String> = ranges
            .split_whitespace()
            .map(|range| {
                let parts: Vec<&str> = range.split(['=', '-']).collect();
                format!("{{type: {}, start: 10.0.0.{}, end: 10.0.0.{}}}", parts[0], parts[1], parts[2])
            })
            .collect();
        format!("kind: Network\nname: a\nspec:\n  cidr: 10.0.0.0/24\n  ranges:\n  - {}\n", ranges.join("\n  - "))
    };
    for (ranges, expected) in [
        ("static=10-19 dhcp=20-29 reserved=30-39", vec![]),
        ("static=10-20 dhcp=20-29", vec!["M1107 7"]),
        ("static=10-90 static=20-29 dhcp=40-49", vec!["M1108 7", "M1107 8"]),
        // The third range overlaps both others; both overlaps are reported.
        ("dhcp=10-90 static=20-80 static=30-40", vec!["M1107 7", "M1107 8", "M1108 8"]),
        // Ranges that are not written in the order of their addresses.
        ("dhcp=50-60 static=10-50", vec!["M1107 6"]),
    ] {
        let mut found = found(&text(ranges));
        found.sort_by_key(|line| line.split(' ').rev().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(found, expected, "{ranges}");
    }
}

#[test]
fn addresses_are_checked_against_ranges() {
    let text = |ranges: &str, address: &str| {
        format!(
            "{{kind: Network, name: a, spec: {{cidr: 10.0.0.0/24, ranges: [{ranges}]}}}}\n---\n{{kind: Node, name: web1, spec: {{role: web, addresses: [{{network: a, address: {address}}}]}}}}\n"
        )
    };
    let (fixed, dhcp, kept) = (
        "{type: static, start: 10.0.0.10, end: 10.0.0.19}",
        "{type: dhcp, start: 10.0.0.20, end: 10.0.0.29}",
        "{type: reserved, start: 10.0.0.30, end: 10.0.0.39}",
    );
    let all = format!("{fixed}, {dhcp}, {kept}");
    for (ranges, address, expected) in [
        ("", "10.0.0.200", vec![]),
        (dhcp, "10.0.0.200", vec![]),
        (&*all, "10.0.0.10", vec![]),
        (&*all, "10.0.0.19", vec![]),
        (&*all, "10.0.0.20", vec!["M1216 3"]),
        (&*all, "10.0.0.39", vec!["M1217 3"]),
        (&*all, "10.0.0.40", vec!["M1218 3"]),
        (&*all, "10.0.1.10", vec!["M1212 3"]),
        (&*all, "'fd00::1'", vec!["M1212 3"]),
        (&*all, "dhcp", vec![]),
    ] {
        assert_eq!(found(&text(ranges, address)), expected, "{address} in {ranges}");
    }
}

#[test]
fn ipv6_gateway_may_be_link_local() {
    let text = |gateway: &str| {
        format!(
            "{{kind: Network, name: a, spec: {{cidr: 'fd00::/64', routes: [{{subnet: '::/0', gateway: '{gateway}'}}]}}}}"
        )
    };
    assert_eq!(found(&text("fe80::1")), NOTHING);
    assert_eq!(found(&text("fd00::")), NOTHING, "the first address is one like the others");
    assert_eq!(found(&text("fd01::1")), ["M1110 1"]);
}

#[test]
fn separate_networks_may_overlap() {
    let text = |of_a: &str, of_b: &str| {
        format!(
            "{{kind: Network, name: a, spec: {{cidr: 10.0.0.0/24{of_a}}}}}\n---\n{{kind: Network, name: b, spec: {{cidr: 10.0.0.0/24{of_b}}}}}\n"
        )
    };
    assert_eq!(found(&text("", "")), NOTHING);
    assert_eq!(found(&text(", routedomain: x", ", routedomain: y")), NOTHING);
    assert_eq!(found(&text(", routedomain: x", ", routedomain: x")), ["M1103 3"]);
}

#[test]
fn mistake_in_a_profile_is_reported_once_with_its_nodes() {
    let mut text = "\
{kind: NetworkLink, name: data, spec: {allowed_networks: [a]}}
---
{kind: Network, name: a, spec: {cidr: 10.0.0.0/24}}
---
{kind: Network, name: b, spec: {cidr: 10.0.1.0/24}}
---
{kind: HostProfile, name: web, spec: {role: web, interfaces: {eth0: {device_link: data, networks: [b]}}}}
"
    .replace("role: web, ", "");
    for number in 1..=5 {
        text.push_str(&format!("---\n{{kind: Node, name: web{number}, extends: [web], spec: {{role: web}}}}\n"));
    }
    let findings = findings(&text);
    let [finding] = findings.iter().as_slice() else { panic!("{findings}") };
    assert_eq!(finding.code.as_str(), "M1201");
    let affected = finding.affected.as_ref().unwrap();
    assert_eq!(affected.nodes.len() + affected.more, 5);
}

#[test]
fn nodes_without_interfaces_or_addresses_are_accepted() {
    let text = "\
{kind: Network, name: a, spec: {cidr: 10.0.0.0/24, dns: {domain: example.org, servers: [10.0.0.9, 'fd00::9']}}}
---
{kind: HostProfile, name: web, spec: {primary_network: a}}
---
{kind: Node, name: web1, extends: [web], spec: {role: web}}
---
{kind: Node, name: web2, extends: [web], spec: {role: web, addresses: [{network: a, address: 10.0.0.2}]}}
---
{kind: Node, name: web3, extends: [web], spec: {role: web, interfaces: {eth0: {devices: [nic1]}}}}
";
    assert_eq!(found(text), NOTHING);
}

#[test]
fn duplicate_host_name_is_reported() {
    let text = "\
{kind: Node, name: web1_blue, spec: {role: web}}
---
{kind: Node, name: web1-blue, spec: {role: web}}
---
{kind: Node, name: web2, spec: {role: web, host_name: web1-blue}}
";
    assert_eq!(found(text), ["M1221 1", "M1221 5"]);
    // Commands accept names and host names: one text must not be both.
    let text = "\
{kind: Node, name: web1, spec: {role: web, host_name: web2}}
---
{kind: Node, name: web2, spec: {role: web, host_name: web3.example.org}}
---
{kind: Node, name: web3, spec: {role: web, host_name: web3}}
";
    assert_eq!(found(text), ["M1221 3"]);
}

#[test]
fn equal_racks_of_two_nodes_keep_their_lines() {
    let text = "\
{kind: Network, name: a, spec: {cidr: 10.0.0.0/24}}
---
{kind: Rack, name: r1, spec: {local_networks: [a]}}
---
{kind: Rack, name: r2}
---
{kind: HostProfile, name: web, spec: {interfaces: {eth0: {devices: [nic1], networks: [a]}}}}
---
{kind: Node, name: web2, extends: [web], spec: {role: web, rack: r2}}
---
{kind: Node, name: web1, extends: [web], spec: {role: web, rack: r2}}
";
    let findings = findings(text);
    let finding = findings.iter().find(|finding| finding.code.as_str() == "M1227").unwrap();
    let note = finding.notes.first().and_then(|note| note.location.span).unwrap();
    assert_eq!(note.start.line, 11, "the rack of web1, the first node by name");
}

#[test]
fn conflicts_follow_removed_and_returning_nodes() {
    let node = |name: &str| format!("{{kind: Node, name: {name}, spec: {{role: web, boot_mac: '52:54:00:00:00:01'}}}}");
    let files = ["web1", "web2", "web3"].map(|name| FileText::new(format!("{name}.yaml"), node(name))).into();
    let checked = Design::compile(vec![DesignSource { name: "site".into(), files }], &CompileOptions::default());
    let mut design = checked.design;
    let mut change = |change: SourceFileChange| {
        let checked = design.with("site", vec![change]);
        design = checked.design;
        let file = |finding: &Finding| finding.location.as_ref().unwrap().file.clone();
        checked.findings.iter().map(file).collect::<Vec<_>>()
    };
    let put = |name: &str| SourceFileChange::Put(FileText::new(format!("{name}.yaml"), node(name)));
    let remove = |name: &str| SourceFileChange::Remove { file: format!("{name}.yaml") };
    assert_eq!(change(remove("web1")), ["web3.yaml"]);
    assert_eq!(change(remove("web3")), NOTHING);
    assert_eq!(change(put("web1")), ["web2.yaml"]);
    assert_eq!(change(put("web3")), ["web2.yaml", "web3.yaml"]);
    assert_eq!(change(remove("web2")), ["web3.yaml"]);
}
