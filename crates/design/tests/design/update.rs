//! A design that is updated file by file equals one that is compiled from the final files.

use std::collections::BTreeMap;

use muster_design::bundle::Bundle;
use muster_design::diff::diff;
use muster_design::file_text::FileText;
use muster_design::{CheckedDesign, CompileOptions, Design, FileChange};
use proptest::prelude::*;

type Files = BTreeMap<(usize, String), String>;

const SOURCES: [&str; 2] = ["site", "api"];

fn compile(files: &Files) -> CheckedDesign {
    let bundle = |number: usize| {
        let of_source = files.iter().filter(|((source, _), _)| *source == number);
        let files = of_source.map(|((_, name), text)| FileText::new(name, text)).collect();
        Bundle { name: SOURCES[number].into(), files }
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
    fn changed_step_by_step_is_made_at_once(
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
        let mut checked = compile(&files);
        for (source, name, text) in changes {
            match &text {
                Some(text) => files.insert((source, name.clone()), text.clone()),
                None => files.remove(&(source, name.clone())),
            };
            let change = match text {
                Some(text) => FileChange::Put(FileText::new(name, text)),
                None => FileChange::Remove { file: name },
            };
            checked = checked.design.with(SOURCES[source], vec![change]);
            let anew = compile(&files);
            prop_assert_eq!(checked.findings.to_string(), anew.findings.to_string());
            prop_assert_eq!(diff(&checked.design, &anew.design), vec![]);
            let nodes = |design: &Design| design.nodes().iter().map(|node| (node.name.clone(), node.record.clone())).collect::<Vec<_>>();
            prop_assert_eq!(nodes(&checked.design), nodes(&anew.design));
        }
    }
}

#[test]
fn broken_environment_file_is_noticed_by_update() {
    let name = || (0, "environments/prod.yaml".to_owned());
    let node = ((0, "nodes.yaml".to_owned()), "{kind: Node, name: web1}".to_owned());
    // Found by fuzzing: an empty file was treated as a change of nodes alone.
    for before in [None, Some("roles: {web: {cardinality: 1, flavor: small}}")] {
        let mut files: Files = BTreeMap::from([node.clone()]);
        files.extend(before.map(|text| (name(), text.to_owned())));
        let change = FileChange::Put(FileText::new(name().1, "roles: {web: ["));
        let changed = compile(&files).design.with("site", vec![change]);
        files.insert(name(), "roles: {web: [".to_owned());
        assert_eq!(changed.findings.to_string(), compile(&files).findings.to_string());
    }
}
