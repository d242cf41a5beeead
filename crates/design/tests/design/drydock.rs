//! Translation of Drydock's documents, and findings of invalid ones.

use muster_core::finding::Severity;
use muster_design::file_text::FileText;
use muster_design::source::DesignSource;
use muster_design::{CheckedDesign, CompileOptions, Design};

fn compile(files: &[(&str, &str)]) -> CheckedDesign {
    let files = files.iter().map(|(name, text)| FileText::new(*name, *text)).collect();
    Design::compile(vec![DesignSource { name: "site".into(), files }], &CompileOptions::default())
}

/// A document after translation and inheritance, in a site without findings.
fn effective(text: &str, kind: &str, name: &str) -> String {
    let CheckedDesign { design, findings } = compile(&[("site.yaml", text)]);
    assert_eq!(findings.to_string(), "");
    serde_json::to_string(&design.effective(kind, name).unwrap()).unwrap()
}

fn found(text: &str) -> String {
    compile(&[("site.yaml", text)]).findings.to_string()
}

/// The first line of each finding.
fn messages(text: &str) -> String {
    let CheckedDesign { findings, .. } = compile(&[("site.yaml", text)]);
    let line = |finding: &muster_design::finding::Finding| {
        let at = finding.location.as_ref().and_then(|place| place.span).unwrap().start;
        let help = finding.help.as_deref().map(|help| format!(" ({help})")).unwrap_or_default();
        format!("{}:{} {}: {}{help}\n", at.line, at.column, finding.code, finding.message)
    };
    findings.iter().map(line).collect()
}

#[test]
fn values_get_the_type_of_the_field() {
    let network = "\
schema: drydock/Network/v1
metadata: {name: 101}
data:
  vlan: '101'
  mtu: '9000'
  cidr: 10.0.0.0/24
  dns: {domain: example.org, servers: '10.0.0.5, 10.0.0.6'}
  labels: {floor: 3, lit: true}
";
    insta::assert_snapshot!(effective(network, "Network", "101"), @r#"
    {"vlan":101,"mtu":9000,"cidr":"10.0.0.0/24","dns":{"domain":"example.org","servers":["10.0.0.5","10.0.0.6"]},"labels":{"floor":"3","lit":"true"}}
    "#);
    let hardware = "\
apiVersion: drydock/v1
kind: HardwareProfile
metadata: {name: h}
spec: {generation: 8, bios_version: 2.10, pxe_interface: 0, hugepages: {dpdk: {size: 1G, count: '30'}}, cpu_sets: {all: 4}}
";
    insta::assert_snapshot!(effective(hardware, "HardwareProfile", "h"), @r#"
    {"generation":"8","bios_version":"2.10","hugepages":{"dpdk":{"size":"1G","count":30}},"cpu_sets":{"all":"4"}}
    "#);
}

#[test]
fn region_rack_and_boot_action_are_translated() {
    let region = "\
schema: drydock/Region/v1
metadata: {name: r}
data:
  tag_definitions: [{tag: t, definition_type: lshw_xpath, definition: //x}]
  repositories:
    remove_unlisted: true
    main: {repo_type: apt, url: 'https://example.org', arches: [amd64]}
";
    insta::assert_snapshot!(effective(region, "Region", "r"), @r#"
    {"tag_definitions":[{"tag":"t","type":"lshw_xpath","definition":"//x"}],"remove_unlisted_repositories":true,"repositories":{"main":{"type":"apt","url":"https://example.org","arches":["amd64"]}}}
    "#);
    let rack = "\
schema: drydock/Rack/v1
metadata: {name: r, labels: {row: b, hall: 1}}
data: {tor_switches: {s1: {mgmt_ip: 10.0.0.2, sdn_api_url: 'https://example.org'}}, labels: {row: a}}
";
    insta::assert_snapshot!(effective(rack, "Rack", "r"), @r#"
    {"tor_switches":{"s1":{"mgmt_ip":"10.0.0.2","sdn_api_uri":"https://example.org"}},"labels":{"row":"a","hall":"1"}}
    "#);
    let action = "\
schema: drydock/BootAction/v1
metadata: {name: b}
data:
  assets:
  - {type: pkg_list, data: {lldpd: '1.0', chrony: null}}
  - {type: file, path: /etc/motd, data: 1, permissions: 0644}
  node_filter:
    filter_set_type: union
    filter_set: [{filter_type: intersection, node_labels: {gpu: true}, rack_names: [r1]}]
";
    let CheckedDesign { design, .. } = compile(&[("site.yaml", action)]);
    insta::assert_snapshot!(serde_json::to_string(&design.effective("BootAction", "b").unwrap()).unwrap(), @r#"
    {"node_filter":{"set":"union","filters":[{"type":"intersection","node_labels":{"gpu":"true"},"rack_names":["r1"]}]},"assets":[{"name":"asset-1","type":"pkg_list","packages":{"lldpd":"1.0","chrony":""}},{"name":"asset-2","type":"file","path":"/etc/motd","data":"1","permissions":"0644"}]}
    "#);
}

#[test]
fn routes_to_a_routing_domain_become_domain_routes() {
    let networks = "\
schema: drydock/Network/v1
metadata: {name: a}
data:
  cidr: 10.0.1.0/24
  routedomain: storage
  routes:
  - {routedomain: storage, gateway: 10.0.1.1, metric: '10'}
  - {subnet: 0.0.0.0/0, gateway: 10.0.1.2, metric: 5}
---
schema: drydock/Network/v1
metadata: {name: b}
data: {cidr: 10.0.2.0/24, routedomain: storage}
";
    insta::assert_snapshot!(effective(networks, "Network", "a"), @r#"
    {"cidr":"10.0.1.0/24","routedomain":"storage","domain_routes":[{"routedomain":"storage","gateway":"10.0.1.1","metric":10}],"routes":[{"subnet":"0.0.0.0/0","gateway":"10.0.1.2","metric":5}]}
    "#);
    insta::assert_snapshot!(effective(networks, "Network", "b"), @r#"
    {"cidr":"10.0.2.0/24","routedomain":"storage"}
    "#);
}

const HOSTS: &str = "\
schema: drydock/HostProfile/v1
metadata: {name: base}
data:
  hardware_profile: h
  oob: {type: manual, ipmi_retries: 3}
  platform: {image: jammy, kernel: ga, kernel_params: {quiet: true, panic: 30}}
  metadata: {tags: [a, b], owner_data: {x: one, y: two}}
---
schema: drydock/HardwareProfile/v1
metadata: {name: h}
data: {vendor: v}
---
";

#[test]
fn simple_values_are_unset_and_null_is_ignored() {
    let node = "\
schema: drydock/BaremetalNode/v1
metadata: {name: n}
data:
  host_profile: base
  hardware_profile: '!'
  oob: null
  platform: {image: -1, kernel: null, kernel_params: {'!quiet': null, level: -1}}
  metadata: {tags: [c, '!a'], owner_data: {'!x': '', z: 3}}
";
    insta::assert_snapshot!(effective(&format!("{HOSTS}{node}"), "Node", "n"), @r#"
    {"oob":{"type":"manual","ipmi_retries":3},"platform":{"kernel":"ga","kernel_params":{"panic":30,"level":-1}},"tags":["c","b"],"owner_data":{"y":"two","z":"3"},"labels":{"y":"two","z":"3"},"role":"base"}
    "#);
}

#[test]
fn labelled_disk_is_boot_drive_and_interface_labels_are_dropped() {
    let node = "\
schema: drydock/BaremetalNode/v1
metadata: {name: n}
data:
  storage:
    physical_devices:
      sda: {volume_group: v}
      sdb:
        labels: {bootdrive: true}
        partitions: [{name: root, size: 30g, filesystem: {mountpoint: /, fstype: ext4}}]
    volume_groups: {v: {}}
  interfaces:
    pxe: {slaves: [eno1], labels: {noconfig: true}}
";
    insta::assert_snapshot!(effective(node, "Node", "n"), @r#"
    {"role":"n","storage":{"boot_drive":"sdb","disks":{"sda":{"volume_group":"v"},"sdb":{"labels":{"bootdrive":"true"},"partitions":[{"name":"root","size":"30g","filesystem":{"mountpoint":"/","fstype":"ext4"}}]}},"volume_groups":{"v":{}}},"interfaces":{"pxe":{"devices":["eno1"]}}}
    "#);
}

#[test]
fn nearest_role_of_a_node_counts() {
    let role = |data: &str, files: &[(&str, &str)]| {
        let node = format!("{HOSTS}{{schema: drydock/BaremetalNode/v1, metadata: {{name: web1}}, data: {{{data}}}}}");
        let CheckedDesign { design, findings } = compile(&[&[("site.yaml", node.as_str())], files].concat());
        assert_eq!(findings.to_string(), "");
        design.nodes()[0].record.role.to_string()
    };
    assert_eq!(role("", &[]), "web");
    assert_eq!(role("host_profile: base", &[]), "base");
    assert_eq!(role("host_profile: base, metadata: {owner_data: {role: front}}", &[]), "front");
    // The derived role is a lower layer than environment files and native documents.
    let environment = ("environments/prod.yaml", "roles: {web: {cardinality: 1, flavor: metal}}");
    assert_eq!(role("host_profile: base", &[environment]), "web");
}

#[test]
fn defaults_are_the_lowest_layer_and_are_named() {
    let bundle = |name: &str, text: &str| DesignSource {
        name: name.into(),
        files: vec![FileText::new(format!("{name}.yaml"), text)],
    };
    let native = "{kind: NetworkLink, name: l, spec: {bonding: {mon_rate: 50}}}";
    let drydock =
        "schema: drydock/NetworkLink/v1\nmetadata: {name: l}\ndata:\n  bonding: {mode: 802.3ad, up_delay: 400}\n";
    let checked =
        Design::compile(vec![bundle("native", native), bundle("drydock", drydock)], &CompileOptions::default());
    let codes: Vec<&str> = checked.findings.iter().map(|finding| finding.code.as_str()).collect();
    assert_eq!(codes, ["M1005"], "the one is laid over the other, and that is all");
    let provenance_of = |path: &str| {
        let why = checked.design.provenance("NetworkLink", "l", &path.parse().unwrap()).unwrap();
        let step = |step: &muster_design::inherit::LayerStep| {
            let start = step.location.span.unwrap().start;
            format!(
                "{}:{}:{} {}",
                step.location.file,
                start.line,
                start.column,
                serde_json::to_string(&step.action).unwrap()
            )
        };
        why.steps.iter().map(step).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(provenance_of("bonding.mon_rate"), @r#"
    drydock.yaml:4:19 {"action":"set","value":100}
    native.yaml:1:57 {"action":"changed","value":50}
    "#);
    insta::assert_snapshot!(provenance_of("bonding.up_delay"), @r#"
    drydock.yaml:4:19 {"action":"set","value":200}
    drydock.yaml:4:38 {"action":"changed","value":400}
    "#);
    insta::assert_snapshot!(provenance_of("bonding.hash"), @r#"
    drydock.yaml:4:19 {"action":"set","value":"layer3+4"}
    "#);
}

#[test]
fn mistakes_are_reported_with_drydocks_names() {
    let text = "\
schema: drydock/HostProfile/v1
metadata: {name: p}
data:
  interface: {}
  interfaces:
    bond0: {slave: [a], devices: [b], networks: mgmt, sriov: {vf_count: many}}
  storage:
    physical_devices: {sda: {partitions: {name: root}}}
    disks: {}
  platform: text
  metadata: {tags: [{a: b}], owner_data: [1]}
---
schema: drydock/Network/v1
metadata: {name: n, labels: {}}
data: {vlan: one, cidr: [10.0.0.0/24], mtu: 1.5, routes: [text]}
---
schema: drydock/Rack/v1
metadata: {name: r}
data: []
";
    insta::assert_snapshot!(messages(text), @r#"
    4:3 M0103: unknown key "interface" in a host profile (did you mean "interfaces"?)
    6:13 M0103: unknown key "slave" in an interface (did you mean "slaves"?)
    6:25 M0103: unknown key "devices" in an interface (Drydock's keys here are device_link, slaves, networks, sriov, labels, device_name)
    6:49 M0105: "interfaces.bond0.networks" must be a list, but is the text "mgmt" (write it as a list: [mgmt])
    6:73 M0105: "interfaces.bond0.sriov.vf_count" must be an integer, but is the text "many"
    8:42 M0105: "storage.physical_devices.sda.partitions" must be a list, but is a mapping
    9:5 M0103: unknown key "disks" in a storage layout (Drydock's keys here are physical_devices, volume_groups)
    10:13 M0105: "platform" must be a mapping, but is the text "text"
    11:21 M0105: a member of "metadata.tags" must be a text, but is a mapping
    11:42 M0105: "metadata.owner_data" must be a mapping, but is a list
    15:14 M0105: "vlan" must be an integer, but is the text "one"
    15:25 M0105: "cidr" must be a text, but is a list
    15:45 M0105: "mtu" must be an integer, but is the number 1.5
    15:59 M0105: a member of "routes" must be a mapping, but is the text "text"
    19:7 M0105: the document's content must be a mapping, but is a list
    "#);
}

#[test]
fn malformed_values_are_reported_with_drydocks_names() {
    let text = "\
schema: drydock/BaremetalNode/v1
metadata: {name: n}
data:
  storage: {physical_devices: {sda: {partitions: [{name: root, size: big}]}}}
  addressing: [{network: lan, address: somewhere}]
---
{schema: drydock/Network/v1, metadata: {name: lan}, data: {cidr: 10.0.0.0/24}}
";
    let found = messages(text);
    assert!(found.contains("\"storage.physical_devices.sda.partitions.root.size\" is \"big\""), "{found}");
    assert!(found.contains("\"addressing.lan.address\" is \"somewhere\""), "{found}");
}

#[test]
fn incomplete_envelopes_are_reported() {
    let text = "\
schema: drydock/Rack/v1
metadata: {nome: r}
data: {location: {clly: X}}
---
apiVersion: drydock/v1
metadata: {name: r}
spec: {}
---
apiVersion: drydock/v1
kind: [Rack]
metadata: {name: r}
---
schema: drydock/Rack
metadata: {name: without-version}
---
apiVersion: drydock/v1
kind: Rack
metadata: [name]
data: {}
---
schema: drydock/Rack/v1
metadata: {name: 'two words'}
dada: {}
---
apiVersion: drydock/v1
kind: Node
metadata: {name: n}
";
    insta::assert_snapshot!(messages(text), @r#"
    1:9 M1001: the document has no "metadata.name" (for instance: metadata: {name: rack1})
    3:19 M0103: unknown key "clly" in a location (did you mean "clli"?)
    5:13 M1001: the document has no "kind" (for instance: kind: HostProfile)
    10:7 M0105: "kind" must be a text, but is a list
    13:9 M1802: the schema's name has no version (write schema: drydock/Rack/v1)
    18:11 M0105: "metadata" must be a mapping, but is a list
    19:1 M0103: unknown key "data" in a document (with this envelope it is "spec")
    22:18 M1003: "two words" is not a legal name of a document (legal: 1 to 128 of A-Z, a-z, 0-9 and - _ . + : @ /, beginning with a letter or digit)
    23:1 M0103: unknown key "dada" in a document (did you mean "data"?)
    26:7 M1801: "Node" is not one of Drydock's kinds (Drydock's kinds are Region, Rack, NetworkLink, Network, HardwareProfile, HostProfile, BaremetalNode, BootAction)
    "#);
}

#[test]
fn credential_is_never_shown() {
    let text = "\
schema: drydock/HostProfile/v1
metadata: {name: p}
data:
  oob: {type: ipmi, network: n, account: a, credential: hunter2}
---
{schema: drydock/Network/v1, metadata: {name: n}, data: {}}
---
schema: deckhand/Passphrase/v1
metadata: {name: bmc, storagePolicy: cleartext}
data: hunter2
---
schema: acme/Keys/v1
metadata: {name: k, storagePolicy: encrypted}
data: {one: hunter2}
";
    let CheckedDesign { design, findings } = compile(&[("site.yaml", text)]);
    let codes: Vec<&str> = findings.iter().map(|finding| finding.code.as_str()).collect();
    assert_eq!(codes, ["M1023", "M1023", "M1023"], "{findings}");
    // Sites in the field have credentials as text. Documents of other programs with secrets are refused.
    let severities: Vec<Severity> = findings.iter().map(|finding| finding.severity).collect();
    assert_eq!(severities, [Severity::Warning, Severity::Error, Severity::Error], "{findings}");
    let documents: Vec<String> =
        design.documents().map(|document| serde_json::to_string(document.body).unwrap()).collect();
    let all = format!("{findings}{}{}", serde_json::to_string(&findings).unwrap(), documents.concat());
    assert!(!all.contains("hunter2"), "{all}");
}

/// Severity and code of each finding.
fn severities(text: &str) -> Vec<(Severity, String)> {
    let CheckedDesign { findings, .. } = compile(&[("site.yaml", text)]);
    findings.iter().map(|finding| (finding.severity, finding.code.as_str().to_owned())).collect()
}

#[test]
fn unknown_rack_and_plain_credential_are_warnings() {
    let drydock = "\
schema: drydock/HostProfile/v1
metadata: {name: p}
data:
  oob: {type: manual, credential: hunter2}
  metadata: {rack: r7}
";
    let warning = |code: &str| (Severity::Warning, code.to_owned());
    assert_eq!(severities(drydock), [warning("M1023"), warning("M1010")]);
    let native = "{kind: HostProfile, name: p, spec: {rack: r7, oob: {type: manual, credential: hunter2}}}\n";
    let error = |code: &str| (Severity::Error, code.to_owned());
    assert_eq!(severities(native), [error("M1010"), error("M1023")]);
    // A parameter of the driver is not dropped, and a link is not a plain name.
    let others = "\
schema: drydock/HostProfile/v1
metadata: {name: p}
data:
  oob: {type: manual, password: hunter2}
  interfaces: {a: {device_link: nowhere}}
";
    assert_eq!(severities(others), [error("M1023"), error("M1010")]);
}

#[test]
fn older_lists_and_expressions_are_read() {
    let text = "\
apiVersion: 'drydock/v1'
kind: HardwareProfile
metadata: {name: h, region: sitename, date: 17-FEB-2017, author: crane@example.org, description: A profile}
spec:
  device_aliases:
  - {alias: nic1, bus_type: pci, dev_type: NIC, address: 'regexp:0000\\:(19|01)\\:00\\.[0-9]'}
  - {alias: nic2, bus_type: pci, dev_type: NIC, address: 'regex:0000.*'}
  - {alias: disk, bus_type: scsi, dev_type: DISK, address: '2:0.0.0'}
---
apiVersion: drydock/v1
kind: Network
metadata: {name: n}
spec: {cidr: 172.16.1.0/24, allocation: static}
---
apiVersion: drydock/v1
kind: HostProfile
metadata: {name: p}
spec:
  interfaces:
  - {device_name: bond0, slaves: [nic1], networks: [n]}
";
    insta::assert_snapshot!(effective(text, "HardwareProfile", "h"));
    assert_eq!(
        effective(text, "HostProfile", "p"),
        r#"{"interfaces":{"bond0":{"devices":["nic1"],"networks":["n"]}}}"#
    );
    let wrong = text.replace("alias: nic2, ", "").replace("device_name: bond0", "device_name: bond0, mtu: 9");
    insta::assert_snapshot!(messages(&wrong));
    let malformed = text.replace("regex:0000.*", "regex:");
    assert_eq!(severities(&malformed), [(Severity::Error, "M1404".to_owned())]);
}

#[test]
fn unrendered_documents_are_reported() {
    let text = "\
schema: drydock/HostProfile/v1
metadata:
  name: parent
  layeringDefinition: {abstract: true, layer: global}
data: {nonsense: 1}
---
schema: drydock/HostProfile/v1
metadata:
  name: child
  layeringDefinition: {abstract: false, layer: site, parentSelector: {a: b}, actions: [{method: merge, path: .}]}
  substitutions:
  - dest: [{path: .oob.credential}, {path: .platform.image}]
    src: {schema: deckhand/Passphrase/v1, name: bmc, path: .}
data: {oob: {type: manual, credential: placeholder}}
";
    insta::assert_snapshot!(messages(text), @r#"
    4:24 M1803: the document is abstract, and is left out (give Muster the documents that Deckhand renders)
    10:54 M1803: the document is not laid over the one that it selects (give Muster the documents that Deckhand renders)
    12:44 M1803: nothing is substituted at ".platform.image" (give Muster the documents that Deckhand renders)
    "#);
    let CheckedDesign { design, .. } = compile(&[("site.yaml", text)]);
    assert!(design.effective("HostProfile", "parent").is_none());
    let child = serde_json::to_string(&design.effective("HostProfile", "child").unwrap()).unwrap();
    assert_eq!(child, r#"{"oob":{"type":"manual","credential":{"secret":"bmc"}}}"#);
}

#[test]
fn documents_of_other_programs_are_unchanged() {
    let text = "\
---
schema: promenade/Docker/v1
metadata: {name: docker, labels: {a: b}}
data: {config: {live-restore: true}}
---
---
apiVersion: promenade/v1
kind: Kubelet
metadata: {name: kubelet}
spec: {arguments: [--one]}
---
schema: deckhand/Certificate/v1
metadata: {name: ca}
data: a text
---
";
    let CheckedDesign { design, findings } = compile(&[("site.yaml", text)]);
    assert_eq!(findings.to_string(), "");
    let all = design.documents().map(|document| {
        format!("{} {} {}\n", document.kind, document.name, serde_json::to_string(document.body).unwrap())
    });
    insta::assert_snapshot!(all.collect::<String>(), @r#"
    promenade/Docker/v1 docker {"config":{"live-restore":true},"labels":{"a":"b"}}
    promenade/Kubelet/v1 kubelet {"arguments":["--one"]}
    deckhand/Certificate/v1 ca "a text"
    "#);
    assert_eq!(found("schema: other/Thing/v1\nmetadata: {name: t}\nmore: 1\n").lines().count(), 6);
}

/// Replaces the value of each line of the example site. Each wrong type is reported at most once, and nothing panics.
#[test]
fn each_mistake_is_reported_once() {
    let directory = std::path::Path::new("../../examples/drydock/deckhand");
    for file in ["baremetal.yaml", "networks.yaml", "profiles.yaml", "nodes.yaml", "bootactions.yaml"] {
        let text = std::fs::read_to_string(directory.join(file)).unwrap();
        for document in text.split("---\n") {
            let lines: Vec<&str> = document.lines().collect();
            for (number, line) in lines.iter().enumerate() {
                let key = line.split_once(':').map(|(key, _)| key).filter(|key| !key.contains(['#', '{', '[']));
                for odd in ["", "[]", "'!'", "-1", "true", "{a: {b: [c]}}", "['!*']"] {
                    let Some(key) = key else { continue };
                    assert_reported_once(&lines, number, &format!("{key}: {odd}"));
                }
            }
        }
    }
}

/// Checks a document with one line changed. The lines nested in it are removed, to keep the YAML valid.
fn assert_reported_once(lines: &[&str], number: usize, changed: &str) {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let is_member = |line: &str| line.trim_start().starts_with("- ");
    let line = lines[number];
    let belongs =
        |next: &&&str| depth(next) > depth(line) || (depth(next) == depth(line) && is_member(next) && !is_member(line));
    let after = number + 1 + lines[number + 1..].iter().take_while(belongs).count();
    let text = [&lines[..number], &[changed], &lines[after..]].concat().join("\n");
    let CheckedDesign { findings, .. } = compile(&[("site.yaml", &text)]);
    let is_about = |finding: &&muster_design::finding::Finding| {
        let span = finding.location.as_ref().and_then(|place| place.span);
        span.is_some_and(|span| span.start.line as usize == number + 1) && finding.code.as_str() == "M0105"
    };
    assert!(findings.iter().filter(is_about).count() <= 1, "{text}\n{findings}");
    assert!(findings.iter().all(|finding| finding.code.as_str() != "M0004"), "{text}\n{findings}");
}
