//! Properties of inheritance for arbitrary documents, and the examples of the book's page about it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use muster_design::file_text::FileText;
use muster_design::finding::Findings;
use muster_design::inherit::{LayerAction, LayerStep, ValuePath};
use muster_design::source::DesignSource;
use muster_design::yaml::Limits;
use muster_design::{CheckedDesign, CompileOptions, Design, ProvenanceError, yaml};
use proptest::prelude::*;

use crate::document_generator::{Layer, SOURCES, body_type, generated_site};
use crate::findings::ROOT;
use crate::reference_model::{Tree, replay};

/// All effective documents by kind and name.
fn effective(design: &Design) -> BTreeMap<(String, String), String> {
    let all = design.effective_documents();
    all.map(|(kind, name, node)| ((kind.to_string(), name.to_owned()), serde_json::to_string(node).unwrap())).collect()
}

/// Findings without locations, which depend on the files.
fn sorted_messages(findings: &Findings) -> Vec<(String, String, Option<String>)> {
    let line =
        |finding: &muster_design::finding::Finding| Some(finding.location.as_ref()?.excerpt.as_ref()?.text.clone());
    let mut sorted_messages: Vec<_> =
        findings.iter().map(|finding| (finding.code.to_string(), finding.message.clone(), line(finding))).collect();
    sorted_messages.sort();
    sorted_messages
}

fn value_of(design: &Design, kind: &str, name: &str) -> Tree {
    Tree::from_yaml(design.effective(kind, name).unwrap())
}

proptest! {
    #[test]
    fn order_of_documents_and_files_does_not_matter(
        generated_site in generated_site(true),
        order in Just((0..16).collect::<Vec<usize>>()).prop_shuffle(),
        files in 1..4usize,
    ) {
        let order: Vec<usize> = order.into_iter().filter(|at| *at < generated_site.layers.len()).collect();
        let CheckedDesign { design, findings } = generated_site.compile();
        let other = Design::compile(generated_site.files(&order, files), &CompileOptions::default());
        prop_assert_eq!(effective(&design), effective(&other.design));
        prop_assert_eq!(sorted_messages(&findings), sorted_messages(&other.findings));
    }

    #[test]
    fn compiling_twice_gives_equal_designs(generated_site in generated_site(true)) {
        let (first, second) = (generated_site.compile(), generated_site.compile());
        prop_assert_eq!(effective(&first.design), effective(&second.design));
        prop_assert_eq!(first.findings, second.findings);
    }

    #[test]
    fn applying_a_layer_is_idempotent(generated_site in generated_site(false)) {
        // Add a document with the same content above each.
        let generated_site = generated_site.with_a_base();
        let mut twice = generated_site.clone();
        // No document extends a node.
        let subjects: Vec<(&str, &str)> = generated_site.subjects().into_iter().filter(|(kind, _)| *kind != "Node").collect();
        for (_, name) in &subjects {
            let layer = generated_site.layers.iter().rfind(|layer| layer.name == *name).unwrap();
            let again = Layer { source: 0, name: format!("{name}-again"), extends: Some(vec![(*name).into()]), ..layer.clone() };
            twice.layers.push(again);
        }
        let design = twice.compile().design;
        for (kind, name) in subjects {
            let (once, again) = (design.effective(kind, name), design.effective(kind, &format!("{name}-again")));
            let json = |node| serde_json::to_string(&node).unwrap();
            prop_assert_eq!(json(once), json(again));
        }
    }

    #[test]
    fn effective_values_have_no_removals(generated_site in generated_site(false)) {
        let generated_site = generated_site.with_a_base();
        let design = generated_site.compile().design;
        for (kind, name) in generated_site.subjects() {
            let value = value_of(&design, kind, name);
            prop_assert!(!value.has_marks(body_type(kind)), "{value:?}");
        }
    }

    #[test]
    fn steps_of_the_provenance_give_the_value(generated_site in generated_site(false)) {
        let design = generated_site.compile().design;
        let of_layer = |layer: &Layer| layer.body.paths(body_type(layer.kind));
        let mut paths: Vec<Vec<String>> = generated_site.layers.iter().flat_map(of_layer).collect();
        paths.sort();
        paths.dedup();
        for (kind, name) in generated_site.subjects() {
            let (whole, ty) = (value_of(&design, kind, name), body_type(kind));
            for path in &paths {
                let value = whole.find(ty, path);
                match design.provenance(kind, name, &ValuePath(path.clone())) {
                    Ok(why) => {
                        let shown = || format!("{path:?}: {}", serde_json::to_string_pretty(&why).unwrap());
                        prop_assert_eq!(&why.value.as_ref().map(Tree::from_yaml), &value.cloned(), "{}", shown());
                        let replayed = replay(&why, path, ty).map_err(|error| TestCaseError::fail(format!("{error}: {}", shown())))?;
                        prop_assert_eq!(replayed.as_ref(), value, "{}", shown());
                    }
                    Err(ProvenanceError::NoValue { .. }) => prop_assert_eq!(value, None, "{:?}", path),
                    Err(error @ ProvenanceError::NoDocument { .. }) => prop_assert!(false, "{error}"),
                }
            }
        }
    }

    #[test]
    fn every_step_has_its_location(generated_site in generated_site(false), files in 1..4usize) {
        let order: Vec<usize> = (0..generated_site.layers.len()).collect();
        let bundles = generated_site.files(&order, files);
        let texts: BTreeMap<String, Vec<String>> = bundles
            .iter()
            .flat_map(|bundle| &bundle.files)
            .map(|file| (file.name().to_owned(), file.text().lines().map(str::to_owned).collect()))
            .collect();
        let design = Design::compile(bundles, &CompileOptions::default()).design;
        for (kind, name) in generated_site.subjects() {
            for path in value_of(&design, kind, name).paths(body_type(kind)) {
                // In a configuration item, a key that looks like a removal is not a valid path.
                let Ok(why) = design.provenance(kind, name, &ValuePath(path.clone())) else { continue };
                let is_written = |step: &LayerStep| step.location.file != "site/environments/prod.yaml";
                for step in why.steps.into_iter().filter(is_written) {
                    let source = SOURCES.iter().position(|source| *source == step.source).unwrap();
                    let is_its = |layer: &Layer| layer.source == source && layer.kind == step.kind && layer.name == step.name;
                    let at = generated_site.layers.iter().position(is_its).unwrap();
                    prop_assert_eq!(&step.location.file, &format!("{}/{}.yaml", step.source, at % files));
                    let lines = &texts[&step.location.file];
                    let start = step.location.span.unwrap().start;
                    let (line, column) = (start.line as usize - 1, start.column as usize - 1);
                    // The line is in the document of the layer.
                    let above = lines[..=line].iter().rfind(|line| line.starts_with("name: ")).unwrap();
                    prop_assert_eq!(above, &format!("name: {}", step.name));
                    let rest = lines[line].get(column..).unwrap_or_default();
                    match step.action {
                        LayerAction::Set { value } | LayerAction::Changed { value } => {
                            if let Tree::One(written) = Tree::from_yaml(&value) {
                                prop_assert!(rest.starts_with(&written), "{rest:?} is not {written}");
                            }
                        }
                        LayerAction::Removed | LayerAction::Members { .. } => {}
                    }
                }
            }
        }
    }

    /// Ancestors of a parent come first, in the stated order. A document that is reached twice counts at its first
    /// position.
    #[test]
    fn parents_are_applied_in_order(generated_site in generated_site(false)) {
        let mut generated_site = generated_site;
        generated_site.layers.retain(|layer| layer.source == 0 && layer.kind != "Node");
        for layer in &mut generated_site.layers {
            layer.kind = "HostProfile";
            // Each layer adds its name, which makes the order visible.
            layer.body = Tree::Map(vec![("tags".into(), Tree::List(vec![Tree::text(&layer.name)]))]);
        }
        let design = generated_site.compile().design;
        let parents: BTreeMap<&str, Vec<String>> =
            generated_site.layers.iter().map(|layer| (layer.name.as_str(), layer.extends.clone().unwrap_or_default())).collect();
        for (_, name) in generated_site.subjects() {
            let why = design.provenance("HostProfile", name, &ValuePath(vec!["tags".into()])).unwrap();
            let order: Vec<&str> = why.steps.iter().map(|step| step.name.as_str()).collect();
            let mut expected = Vec::new();
            visit(name, &parents, &mut expected);
            prop_assert_eq!(&order, &expected);
            for (at, layer) in order.iter().enumerate() {
                prop_assert!(!order[at + 1..].contains(layer), "{layer} is defined twice");
                let are_before = parents[layer].iter().all(|parent| order[..at].contains(&parent.as_str()));
                prop_assert!(are_before, "a parent of {layer} is not before it: {order:?}");
            }
        }
    }
}

fn visit<'w>(name: &'w str, parents: &'w BTreeMap<&str, Vec<String>>, order: &mut Vec<&'w str>) {
    if order.contains(&name) {
        return;
    }
    for parent in &parents[name] {
        visit(parent, parents, order);
    }
    order.push(name);
}

/// The effective value at a path of a host profile or a node, in the documents of one file.
fn inherited(text: &str, kind: &str, name: &str, path: &[&str]) -> String {
    let files = vec![FileText::new("site.yaml", text)];
    let CheckedDesign { design, findings } =
        Design::compile(vec![DesignSource { name: "site".into(), files }], &CompileOptions::default());
    let mistakes = findings.iter().filter(|finding| finding.code.as_str() < "M1100").count();
    assert_eq!(mistakes, 0, "{findings}");
    let whole = design.effective(kind, name).unwrap();
    let value = path.iter().fold(whole, |node, key| node.get(key).unwrap());
    serde_json::to_string(value).unwrap()
}

#[test]
fn child_overriding_one_device_keeps_the_rest() {
    let text = "\
kind: HardwareProfile
name: base
spec:
  device_aliases:
    nic1: {address: '0000:00:03.0', bus_type: pci, dev_type: Intel}
    nic2: {address: '0000:00:04.0', bus_type: pci, dev_type: Intel}
    nic3: {address: '0000:00:05.0', bus_type: pci, dev_type: Intel}
---
kind: HardwareProfile
name: newer
extends: [base]
spec:
  device_aliases:
    nic1: {address: '0000:01:00.0'}
";
    insta::assert_snapshot!(inherited(text, "HardwareProfile", "newer", &["device_aliases"]), @r#"{"nic1":{"address":"0000:01:00.0","bus_type":"pci","dev_type":"Intel"},"nic2":{"address":"0000:00:04.0","bus_type":"pci","dev_type":"Intel"},"nic3":{"address":"0000:00:05.0","bus_type":"pci","dev_type":"Intel"}}"#);
    let text = "\
{kind: HostProfile, name: base, spec: {interfaces: {bond0: {devices: [nic1, nic2, nic3]}}}}
---
{kind: HostProfile, name: newer, extends: [base], spec: {interfaces: {bond0: {devices: [nic1]}}}}
";
    insta::assert_snapshot!(inherited(text, "HostProfile", "newer", &["interfaces", "bond0", "devices"]), @r#"["nic1","nic2","nic3"]"#);
    let text = "\
kind: HostProfile
name: base
spec:
  storage:
    disks:
      sda:
        partitions: [{name: root, size: 20g}, {name: boot, size: 1g}, {name: var, size: '>20g'}]
---
kind: HostProfile
name: larger
extends: [base]
spec: {storage: {disks: {sda: {partitions: [{name: root, size: 40g}]}}}}
";
    insta::assert_snapshot!(inherited(text, "HostProfile", "larger", &["storage", "disks", "sda", "partitions"]), @r#"[{"name":"root","size":"40g"},{"name":"boot","size":"1g"},{"name":"var","size":">20g"}]"#);
}

#[test]
fn storage_only_in_the_child_is_kept() {
    let text = "\
{kind: HostProfile, name: base, spec: {flavor: small}}
---
kind: HostProfile
name: child
extends: [base]
spec: {storage: {disks: {sda: {partitions: [{name: root, size: 20g}]}}}}
---
{kind: Node, name: web1, extends: [child], spec: {role: web}}
";
    insta::assert_snapshot!(inherited(text, "Node", "web1", &["storage"]), @r#"{"disks":{"sda":{"partitions":[{"name":"root","size":"20g"}]}}}"#);
}

#[test]
fn override_of_networks_keeps_sr_iov() {
    let text = "\
{kind: Network, name: mgmt, spec: {cidr: 10.1.0.0/24}}
---
{kind: Network, name: data, spec: {cidr: 10.2.0.0/24}}
---
kind: HostProfile
name: base
spec:
  interfaces:
    p1: {devices: [nic1], networks: [mgmt], sriov: {vf_count: 8, trusted_mode: true}}
---
{kind: HostProfile, name: child, extends: [base], spec: {interfaces: {p1: {networks: [data, '!mgmt']}}}}
";
    insta::assert_snapshot!(inherited(text, "HostProfile", "child", &["interfaces", "p1"]), @r#"{"devices":["nic1"],"networks":["data"],"sriov":{"vf_count":8,"trusted_mode":true}}"#);
}

#[test]
fn duplicates_within_a_layer_are_kept() {
    let text = "\
{kind: acme/Tool, name: base, spec: {arguments: [-o, a, -o, b]}}
---
{kind: acme/Tool, name: child, extends: [base], spec: {arguments: [-v]}}
---
{kind: acme/Tool, name: grandchild, extends: [child], spec: {arguments: [-o, c]}}
";
    insta::assert_snapshot!(inherited(text, "acme/Tool", "base", &["arguments"]), @r#"["-o","a","-o","b"]"#);
    insta::assert_snapshot!(inherited(text, "acme/Tool", "child", &["arguments"]), @r#"["-v","-o","a","-o","b"]"#);
    insta::assert_snapshot!(inherited(text, "acme/Tool", "grandchild", &["arguments"]), @r#"["-o","c","-v","a","b"]"#);
}

/// In a configuration item, `null` and `!` may be ordinary values. They remove only if the item inherits.
#[test]
fn item_without_parents_is_unchanged() {
    let text = "\
{kind: acme/Rule, name: base, spec: {expression: '!ready', skip: [null, '!web'], owner: null}}
---
{kind: acme/Rule, name: child, extends: [base], spec: {more: 1}}
";
    insta::assert_snapshot!(inherited(text, "acme/Rule", "base", &[]), @r#"{"expression":"!ready","skip":[null,"!web"],"owner":null}"#);
    insta::assert_snapshot!(inherited(text, "acme/Rule", "child", &[]), @r#"{"expression":"!ready","skip":[],"more":1}"#);
}

/// `'!!a'` removes the entry `!a`. A path to that entry must not match `'!a'` of a later layer, which removes `a`.
#[test]
fn why_of_an_entry_named_like_a_removal_reports_no_value() {
    let text = "\
{kind: acme/Rule, name: base, spec: {skip: [a, '!!a']}}
---
{kind: acme/Rule, name: child, extends: [base], spec: {skip: [b, '!a']}}
";
    let bundle = DesignSource { name: "site".into(), files: vec![FileText::new("site.yaml", text)] };
    let design = Design::compile(vec![bundle], &CompileOptions::default()).design;
    let why = |member: &str| design.provenance("acme/Rule", "child", &ValuePath(vec!["skip".into(), member.into()]));
    assert!(matches!(why("!a"), Err(ProvenanceError::NoValue { .. })), "{:?}", why("!a"));
    let removed = why("a").unwrap();
    assert_eq!(removed.value, None);
    assert!(matches!(
        removed.steps.as_slice(),
        [LayerStep { action: LayerAction::Set { .. }, .. }, LayerStep { action: LayerAction::Removed, .. }]
    ));
    assert_eq!(why("b").unwrap().value.as_ref().map(Tree::from_yaml), Some(Tree::text("b")));
}

/// A YAML block of the page: the words behind ```` ```yaml ````, and its content.
struct Block {
    words: Vec<String>,
    text: String,
    line: usize,
}

fn blocks() -> Vec<Block> {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/src/inheritance.md")).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (number, line) in page.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if is_open => is_open = false,
            Some(words) => {
                is_open = true;
                let words = words.split(' ').skip(1).map(str::to_owned).collect();
                blocks.push(Block { words, text: String::new(), line: number + 1 });
            }
            None if is_open => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
    }
    blocks.retain(|block| !block.words.is_empty());
    blocks
}

/// Documents of a chain: each extends the previous one.
fn chain(kind: &str, layers: &[String]) -> String {
    let documents = layers.iter().enumerate().map(|(at, layer)| {
        let extends = if at == 0 { String::new() } else { format!("extends: [layer{}]\n", at - 1) };
        let spec: String = layer.lines().map(|line| format!("  {line}\n")).collect();
        format!("kind: {kind}\nname: layer{at}\n{extends}spec:\n{spec}")
    });
    documents.collect::<Vec<_>>().join("---\n")
}

fn effective_tree(text: String, kind: &str, name: &str) -> Tree {
    let files = vec![FileText::new("site.yaml", text)];
    let CheckedDesign { design, findings } =
        Design::compile(vec![DesignSource { name: "site".into(), files }], &CompileOptions::default());
    // An example may be incomplete: it may refer to networks that are not in it, and have unused documents.
    let about = |code: &str| (code < "M1100" && code != "M1010").then_some(code.to_owned());
    let wrong: Vec<String> = findings.iter().filter_map(|finding| about(finding.code.as_str())).collect();
    assert!(wrong.is_empty(), "{findings}");
    Tree::from_yaml(design.effective(kind, name).unwrap())
}

#[test]
fn examples_of_the_inheritance_page_are_correct() {
    let (mut layers, mut documents, mut examples) = (Vec::new(), String::new(), 0);
    for block in blocks() {
        let words: Vec<&str> = block.words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["documents"] => documents = block.text,
            ["below", ..] => layers = vec![block.text],
            ["above", ..] => layers.push(block.text),
            ["result", of @ ..] => {
                let of = of.first().copied().unwrap_or("HostProfile");
                let real = match of.split_once('/') {
                    Some((kind, name)) => effective_tree(std::mem::take(&mut documents), kind, name),
                    None => effective_tree(chain(of, &layers), of, &format!("layer{}", layers.len() - 1)),
                };
                let parsed = yaml::parse(&FileText::new("result.yaml", block.text), &Limits::DOCUMENTS);
                assert_eq!(
                    real,
                    Tree::from_yaml(&parsed.documents[0]),
                    "the result in line {} of the page",
                    block.line
                );
                examples += 1;
            }
            other => panic!("what is a block {other:?}, in line {}?", block.line),
        }
    }
    assert!(examples >= 10);
}
