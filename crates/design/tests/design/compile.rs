//! Compilation of files to effective values, and their provenance. A design that is updated file by file equals one that is
//! compiled from the final files.

use std::collections::BTreeMap;

use muster_design::diff::diff;
use muster_design::file_text::FileText;
use muster_design::inherit::ValuePath;
use muster_design::source::DesignSource;
use muster_design::{CheckedDesign, CompileOptions, Design, SourceFileChange};
use proptest::prelude::*;

fn compile(files: &[(&str, &str)]) -> CheckedDesign {
    let files = files.iter().map(|(name, text)| FileText::new(*name, *text)).collect();
    Design::compile(vec![DesignSource { name: "site".into(), files }], &CompileOptions::default())
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
fn four_layers_merge_and_each_is_named() {
    let CheckedDesign { design, findings } = compile(&[("site.yaml", PROFILES)]);
    assert_eq!(findings.to_string(), "");
    let effective = serde_json::to_string(&design.effective("Node", "compute1").unwrap()).unwrap();
    assert_eq!(
        effective,
        r#"{"interfaces":{"bond0":{"mtu":8900,"devices":["nic1","nic2"],"networks":["tenant","mgmt"]}},"role":"compute"}"#
    );
    let provenance_of = |path: &str| {
        let why = design.provenance("Node", "compute1", &path.parse::<ValuePath>().unwrap()).unwrap();
        let steps = why.steps.iter().map(|step| {
            let line = step.location.span.unwrap().start.line;
            format!("{} {}:{line} {}", step.name, step.location.file, serde_json::to_string(&step.action).unwrap())
        });
        steps.collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(provenance_of("interfaces.bond0.mtu"), @r#"
    base site.yaml:5 {"action":"set","value":1500}
    rack site.yaml:10 {"action":"changed","value":9000}
    compute1 site.yaml:20 {"action":"changed","value":8900}
    "#);
    insta::assert_snapshot!(provenance_of("interfaces.bond0.networks.storage"), @r#"
    base site.yaml:5 {"action":"set","value":"storage"}
    compute site.yaml:15 {"action":"removed"}
    "#);
    insta::assert_snapshot!(provenance_of("interfaces.bond0.networks"), @r#"
    base site.yaml:5 {"action":"set","value":["mgmt","storage"]}
    compute site.yaml:15 {"action":"members","written":["tenant","!storage"],"value":["tenant","mgmt"]}
    "#);
}

#[test]
fn environment_node_with_a_document_is_merged() {
    let environment = "stack: blue\ncloud: north\nroles:\n  web: {cardinality: 2, flavor: small, profile: front, failure_domain: r1}\n";
    let documents = "{kind: HostProfile, name: front, labels: {tier: edge}, spec: {tags: [a]}}
---
{kind: Node, name: web2_blue, labels: {tier: inner}, spec: {failure_domain: r2}}
---
{kind: Node, name: old-door-7, extends: [front], spec: {role: store, flavor: large}}
";
    let map = "flavor: {small: '100', large: '102'}\n";
    let files =
        [("x/environments/prod.yaml", environment), ("x/environments/north.map.yaml", map), ("x/site.yaml", documents)];
    let CheckedDesign { design, findings } = compile(&files);
    assert_eq!(findings.to_string(), "");
    let nodes = design.nodes().iter().map(|node| {
        let record = &node.record;
        let flavor = record.flavor.as_deref().unwrap_or_default();
        let (profile, tier) = (record.profile.as_deref().unwrap_or_default(), &record.labels["tier"]);
        format!("{} {} {} {flavor} {profile} {tier} {}", record.position, node.name, record.role, record.failure_domain)
    });
    insta::assert_snapshot!(nodes.collect::<Vec<_>>().join("\n"), @r"
    0 web1_blue web 100 front edge r1
    1 web2_blue web 100 front inner r2
    2 old-door-7 store 102 front edge default
    ");
}

const HOSTS: &str = "\
roles:
  db: {cardinality: 1, flavor: small}
  web: {cardinality: 3, flavor: small}
hosts:
  pattern: '{role}{num:02}.example.org'
  db1: oracle.example.org
";

#[test]
fn hosts_of_the_environment_are_host_names() {
    let node = "kind: Node\nname: web3\nspec: {host_name: front}\n";
    let checked = compile(&[("environments/prod.yaml", HOSTS), ("nodes.yaml", node)]);
    assert!(checked.findings.is_empty(), "{}", checked.findings);
    let names = checked.design.nodes().iter().map(|node| node.record.host(&node.name));
    assert_eq!(names.collect::<Vec<_>>(), ["oracle.example.org", "web01.example.org", "web02.example.org", "front"]);
    // A larger role than the file says gets names from the pattern too.
    let files = vec![FileText::new("environments/prod.yaml", HOSTS)];
    let cardinality = [("web".parse().unwrap(), 12)].into();
    let options = CompileOptions { cardinality, ..CompileOptions::default() };
    let checked = Design::compile(vec![DesignSource { name: "site".into(), files }], &options);
    let last = checked.design.nodes().last().unwrap().record.clone();
    assert_eq!(last.host_name.unwrap().as_str(), "web12.example.org");
}

#[test]
fn pattern_that_repeats_a_host_name_is_reported() {
    for (hosts, found) in [
        ("{pattern: '{role}.example.org'}", "\"web.example.org\" is the host name of node \"web1\" already"),
        ("{pattern: 'x{num}', web2: x1}", "\"x1\" is the host name of node \"db1\" already"),
        ("{web1: oracle, db1: oracle}", "\"oracle\" is the host name of node \"db1\" already"),
        ("{web1: db1}", "\"db1\" is the name of node \"db1\" already"),
    ] {
        let text = format!("{}hosts: {hosts}\n", HOSTS.split("hosts").next().unwrap());
        let findings = compile(&[("environments/prod.yaml", &text)]).findings;
        let messages: Vec<_> = findings.iter().map(|finding| (finding.code.as_str(), &*finding.message)).collect();
        assert!(messages.contains(&("M1221", found)), "{hosts}: {findings}");
        let line =
            findings.iter().next().and_then(|finding| finding.location.as_ref()?.span).map(|span| span.start.line);
        assert_eq!(line, Some(4), "{findings}");
    }
}

#[test]
fn document_of_another_program_is_unchanged() {
    let item = "{kind: acme/Widget, name: w, spec: {a: null, '!b': 1, c: ['!d', null]}}";
    let CheckedDesign { design, findings } = compile(&[("items.yaml", item)]);
    assert_eq!(findings.to_string(), "");
    let effective = serde_json::to_string(design.effective("acme/Widget", "w").unwrap()).unwrap();
    assert_eq!(effective, r#"{"a":null,"!b":1,"c":["!d",null]}"#);
}

#[test]
fn selected_environment_has_its_cloud() {
    let prod = ("environments/prod.yaml", "cloud: nrth\nroles: {web: {cardinality: 1, flavor: small}}\n");
    let map = ("environments/north.map.yaml", "flavor: {small: '1'}\n");
    insta::assert_snapshot!(compile(&[prod, map]).findings, @r#"
    error[M1010]: there is no cloud "nrth"
     --> environments/prod.yaml:1:8
      |
    1 | cloud: nrth
      |        ^^^^
    help: did you mean "north"?
    "#);
    let test = ("environments/test.yaml", "roles: {web: {cardinality: 1, flavor: small}}\n");
    insta::assert_snapshot!(compile(&[prod, test]).findings, @r"
    error[M1029]: there are several environments, and none was selected
    help: select one with --env: prod, test
    ");
}

#[test]
fn large_file_in_pieces_reads_the_same() {
    let node = |number: usize| {
        let note = "a note, \u{e4}\u{f6}\u{fc}, ".repeat(24);
        let extra = if number == 2_500 { "  colour: blue\n" } else { "" };
        format!(
            "kind: Node\nname: web{number}\nspec:\n  role: web\n{extra}  owner_data:\n    note: |\n      {note}\n      --- not a document\n"
        )
    };
    let documents: Vec<String> = (1..=3_000).map(node).collect();
    let whole = documents.join("---\n");
    assert!(whole.len() > 1 << 20, "it is to be cut several times");
    let of_one = compile(&[("site.yaml", &whole)]);
    let names: Vec<String> = (0..documents.len()).map(|at| format!("{at}.yaml")).collect();
    let files: Vec<(&str, &str)> =
        names.iter().zip(&documents).map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let of_many = compile(&files);
    assert_eq!(muster_design::diff::diff(&of_one.design, &of_many.design), []);
    assert_eq!(of_one.design.nodes().len(), 3_000);
    let line = 1 + whole.lines().position(|line| line == "  colour: blue").unwrap();
    let finding = of_one.findings.iter().next().unwrap();
    assert_eq!((of_one.findings.errors(), finding.message.as_str()), (1, "unknown key \"colour\" in a node"));
    assert_eq!(finding.location.as_ref().unwrap().span.unwrap().start.line as usize, line);
}

#[test]
fn secret_is_not_shown_by_a_finding() {
    let document = "kind: HostProfile
name: a
spec: {tags: x, oob: {type: redfish, credential: hunter2}}
---
kind: HostProfile
name: b
spec:
  oob: {type: acme, acme-password: hunter2, bogus: {token: hunter2}}
  driver: {name: local, parameters: {list: [{api_key: hunter2}], token: {secret: fine}, passwords: 3}}
";
    let findings = compile(&[("site.yaml", document)]).findings;
    assert!(!findings.to_string().contains("hunter2"), "{findings}");
    assert!(!serde_json::to_string(&findings).unwrap().contains("hunter2"));
    let codes: Vec<_> = findings.iter().map(|finding| finding.code.as_str()).collect();
    assert_eq!(codes, ["M0105", "M1023", "M1023", "M1023", "M1023"]);
}

#[test]
fn environments_may_have_nodes_of_the_same_name() {
    let file = |name: &str| (format!("environments/{name}.yaml"), "roles: {web: {cardinality: 1, flavor: small}}\n");
    let nodes = "{kind: Node, name: web1, spec: {environment: prod, owner_data: {site: hall}}}
---
{kind: Node, name: web1, spec: {environment: test, owner_data: {site: desk}}}
";
    let ((prod, of_prod), (test, of_test), (spare, of_spare)) = (file("prod"), file("test"), file("spare"));
    let all = [(prod.as_str(), of_prod), (test.as_str(), of_test), (spare.as_str(), of_spare), ("nodes.yaml", nodes)];
    for (env, site) in [("prod", "\"hall\""), ("test", "\"desk\""), ("spare", "null")] {
        let files = all.iter().map(|(name, text)| FileText::new(*name, *text)).collect();
        let options = CompileOptions { env: Some(env.parse().unwrap()), ..CompileOptions::default() };
        let CheckedDesign { design, findings } =
            Design::compile(vec![DesignSource { name: "site".into(), files }], &options);
        assert_eq!(findings.to_string(), "", "{env}");
        assert_eq!(design.nodes().len(), 1, "{env}");
        let tree = design.effective("Node", "web1").unwrap();
        let value = tree.get("owner_data").and_then(|data| data.get("site"));
        assert_eq!(serde_json::to_string(&value).unwrap(), site, "{env}");
    }
}

#[test]
fn mistake_in_an_environment_file_is_reported_once() {
    let files = [
        ("environments/prod.yaml", "roles: {web: {cardinality: 20000, flavor: small}}\n"),
        ("nodes.yaml", "{kind: Node, name: web1}\n---\n{kind: Node, name: web2}\n"),
    ];
    let findings = compile(&files).findings;
    let codes: Vec<_> = findings.iter().map(|finding| finding.code.as_str()).collect();
    assert_eq!(codes, ["M0108"]);
}

#[test]
fn broken_line_with_a_secret_is_not_shown() {
    let broken = [
        "spec: {oob: {credential: hunter2",
        "\toob: {credential: hunter2}",
        "kind: Network\nname: a b\nspec: {credential: hunter2}",
        "{kind: Rack, name: 'r 1', credential: hunter2}",
        "oob: {credential: 'hunter2}",
        "a: {password: hunter2, password: hunter2}",
        "x: *unknown # password: hunter2",
    ];
    for text in broken {
        let findings = compile(&[("site.yaml", text)]).findings;
        assert!(findings.has_errors(), "{text}");
        assert!(!serde_json::to_string(&findings).unwrap().contains("hunter2"), "{findings}");
    }
    let many = format!(
        "kind: HostProfile\nname: a\nspec:\n{}  oob: {{credential: hunter2, type: 5}}\n",
        (0..400).map(|n| format!("  bogus{n}: 1\n")).collect::<String>()
    );
    assert!(!compile(&[("site.yaml", &many)]).findings.to_string().contains("hunter2"));
}

type Files = BTreeMap<(usize, String), String>;

const SOURCES: [&str; 2] = ["site", "api"];

fn compile_files(files: &Files) -> CheckedDesign {
    let bundle = |number: usize| {
        let of_source = files.iter().filter(|((source, _), _)| *source == number);
        let files = of_source.map(|((_, name), text)| FileText::new(name, text)).collect();
        DesignSource { name: SOURCES[number].into(), files }
    };
    Design::compile(vec![bundle(0), bundle(1)], &CompileOptions::default())
}

/// Documents with a small vocabulary, so that they conflict.
fn document() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["web1", "web2", "db1", "web9"]);
    let profile = prop::sample::select(vec!["base", "base", "base", "base", "rack", "rack", "rack", "none"]);
    let address = prop::sample::select(vec!["10.0.0.1", "10.0.0.2", "10.9.0.1", "dhcp", "dhcp", "x"]);
    let role = prop::sample::select(vec!["role: web, ", "role: db, ", "role: db, ", ""]);
    // Drydock's nodes have a layer of defaults.
    let drydock = (name.clone(), profile.clone()).prop_map(|(name, profile)| {
        format!("{{schema: drydock/BaremetalNode/v1, metadata: {{name: {name}}}, data: {{host_profile: {profile}}}}}")
    });
    let node = (name, profile.clone(), address, role, any::<bool>()).prop_map(|(name, profile, address, role, overlay)| {
        let overlay = if overlay { "overlay: true, " } else { "" };
        format!("{{kind: Node, name: {name}, {overlay}extends: [{profile}], spec: {{{role}'!tags': x, addresses: [{{network: mgmt, address: {address}}}]}}}}")
    });
    let host = (profile, any::<bool>()).prop_map(|(name, tags)| {
        let tags = if tags { "tags: [a, b]" } else { "" };
        format!("{{kind: HostProfile, name: {name}, spec: {{{tags}}}}}")
    });
    let network = Just("{kind: Network, name: mgmt, spec: {cidr: 10.0.0.0/24}}".to_owned());
    let broken = Just("{kind: Node, name: [".to_owned());
    prop_oneof![12 => node, 3 => drydock, 1 => host, 1 => network, 1 => broken]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(document(), 1..3).prop_map(|documents| documents.join("\n---\n"))
}

fn change() -> impl Strategy<Value = (usize, String, Option<String>)> {
    let file = prop::sample::select(vec!["a.yaml", "b.yaml", "c.yaml"]);
    (0..2usize, file, prop::option::weighted(0.8, text()))
        .prop_map(|(source, file, text)| (source, file.to_owned(), text))
}

proptest! {
    #[test]
    fn updated_design_equals_compiled_design(
        first in prop::collection::vec(change(), 0..4),
        changes in prop::collection::vec(change(), 1..5),
    ) {
        let mut files: Files = BTreeMap::new();
        files.insert((0, "environments/prod.yaml".into()), "roles: {web: {cardinality: 2, flavor: small}}".into());
        let profiles = "{kind: HostProfile, name: base}\n---\n{kind: HostProfile, name: rack, spec: {tags: [a]}}\n---\n{kind: Network, name: mgmt}";
        files.insert((0, "profiles.yaml".into()), profiles.into());
        for (source, name, text) in first {
            files.extend(text.map(|text| ((source, name), text)));
        }
        let mut checked = compile_files(&files);
        for (source, name, text) in changes {
            match &text {
                Some(text) => files.insert((source, name.clone()), text.clone()),
                None => files.remove(&(source, name.clone())),
            };
            let change = match text {
                Some(text) => SourceFileChange::Put(FileText::new(name, text)),
                None => SourceFileChange::Remove { file: name },
            };
            checked = checked.design.with(SOURCES[source], vec![change]);
            let expected = compile_files(&files);
            prop_assert_eq!(checked.findings.to_string(), expected.findings.to_string());
            prop_assert_eq!(diff(&checked.design, &expected.design), vec![]);
            let nodes = |design: &Design| design.nodes().iter().map(|node| (node.name.clone(), node.record.clone())).collect::<Vec<_>>();
            prop_assert_eq!(nodes(&checked.design), nodes(&expected.design));
        }
    }
}

#[test]
fn update_reports_a_broken_environment_file() {
    let name = || (0, "environments/prod.yaml".to_owned());
    let node = ((0, "nodes.yaml".to_owned()), "{kind: Node, name: web1}".to_owned());
    // Found by fuzzing: an empty file was treated as a change of nodes alone.
    for before in [None, Some("roles: {web: {cardinality: 1, flavor: small}}")] {
        let mut files: Files = BTreeMap::from([node.clone()]);
        files.extend(before.map(|text| (name(), text.to_owned())));
        let change = SourceFileChange::Put(FileText::new(name().1, "roles: {web: ["));
        let changed = compile_files(&files).design.with("site", vec![change]);
        files.insert(name(), "roles: {web: [".to_owned());
        assert_eq!(changed.findings.to_string(), compile_files(&files).findings.to_string());
    }
}
