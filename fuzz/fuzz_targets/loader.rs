//! Fuzz target: any bytes as the files of a design. Compilation terminates, does not panic, and uses bounded memory.
//!
//! An input is one to three files with the byte 0x1c (file separator) between them: documents; an environment file; documents
//! of a second source that overlays the first. The results must be consistent:
//!
//! - the same files give the same findings and values, independent of the order of hash tables;
//! - a design that was changed to these files equals one that was compiled from them;
//! - the provenance of a value ends with the value of the effective document.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muster_design::source::DesignSource;
use muster_design::diff::{self, is_same};
use muster_design::file_text::FileText;
use muster_design::finding::Findings;
use muster_design::inherit::ValuePath;
use muster_design::yaml::{self, Limits, YamlNode};
use muster_design::{CheckedDesign, CompileOptions, Design, SourceFileChange};

const SEPARATOR: u8 = 0x1c;
/// Source and name of each file.
const FILES: [(&str, &str); 3] = [("site", "a.yaml"), ("site", "environments/prod.yaml"), ("over", "b.yaml")];
/// Larger designs are compiled only once: one line of an environment file generates thousands of nodes.
const MAX_NODES: usize = 500;
/// Number of values of a design that are explained.
const PATHS: usize = 40;

fuzz_target!(|input: &[u8]| {
    let pieces: Vec<&[u8]> = input.splitn(FILES.len(), |byte| *byte == SEPARATOR).collect();
    for piece in &pieces {
        trees(piece);
    }
    let checked = compile(&pieces);
    if checked.design.nodes().len() > MAX_NODES {
        return;
    }
    let summary = summarize(&checked);
    assert_eq!(summary, summarize(&compile(&pieces)), "the same files gave another result");
    explain(&checked.design);
    change(&pieces, &checked, &summary);
});

/// Parses a file, and serializes its trees as JSON.
fn trees(bytes: &[u8]) {
    let Some(text) = text("a.yaml", bytes) else { return };
    for limits in [Limits::HANDWRITTEN, Limits::DOCUMENTS] {
        let parsed = yaml::parse(&text, &limits);
        show(&parsed.findings);
        for tree in &parsed.documents {
            serde_json::to_string(tree).expect("a tree is data");
        }
    }
}

fn text(name: &str, bytes: &[u8]) -> Option<FileText> {
    FileText::from_bytes(name, bytes.to_vec()).map_err(|findings| show(&findings)).ok()
}

/// Compiles files. Both sources always exist, so that their order does not depend on the files.
fn compile(pieces: &[&[u8]]) -> CheckedDesign {
    let mut bundles = ["site", "over"].map(|name| DesignSource { name: name.to_owned(), files: Vec::new() });
    for (bytes, (source, name)) in pieces.iter().zip(FILES) {
        let bundle = bundles.iter_mut().find(|bundle| bundle.name == source);
        bundle.expect("there are two sources").files.extend(text(name, bytes));
    }
    Design::compile(bundles.into(), &CompileOptions::default())
}

fn show(findings: &Findings) -> String {
    serde_json::to_string(&findings.iter().collect::<Vec<_>>()).expect("findings are data");
    findings.to_string()
}

/// Content of a design, independent of the way in which it was compiled.
fn summarize(checked: &CheckedDesign) -> String {
    let mut documents: Vec<String> = checked
        .design
        .effective_documents()
        .map(|(kind, name, tree)| format!("{kind} {name}: {}\n", serde_json::to_string(tree).expect("a tree is data")))
        .collect();
    documents.sort();
    let nodes = checked.design.nodes().iter().map(|node| format!("{} {:?}\n", node.name, node.record));
    documents.into_iter().chain(nodes).chain([show(&checked.findings)]).collect()
}

/// Queries the provenance of existing and missing values.
fn explain(design: &Design) {
    let mut left = PATHS;
    for (kind, name, tree) in design.effective_documents() {
        let _ = design.provenance(kind.word(), name, &ValuePath(vec!["none".to_owned()])).map_err(|error| error.to_string());
        walk(tree, &mut Vec::new(), &mut left, &mut |path, node| {
            let provenance = design.provenance(kind.word(), name, &ValuePath(path.to_vec())).expect("the value is there");
            let found = provenance.value.expect("the value is there");
            assert!(is_same(&found, node), "{kind} {name} {path:?}: {found:?} is not {node:?}");
            assert!(!provenance.steps.is_empty(), "{kind} {name} {path:?}: no step sets it");
        });
    }
}

/// Visits the values of mappings.
fn walk(node: &YamlNode, path: &mut Vec<String>, left: &mut usize, visit: &mut impl FnMut(&[String], &YamlNode)) {
    for entry in node.map().map(|map| map.entries()).unwrap_or_default() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        path.push(entry.key.text.to_string());
        visit(path, &entry.value);
        walk(&entry.value, path, left, visit);
        path.pop();
    }
}

/// Compiles the same design by updating another one.
fn change(pieces: &[&[u8]], checked: &CheckedDesign, summary: &str) {
    let Some((last, before)) = pieces.split_last() else { return };
    let (source, name) = FILES[pieces.len() - 1];
    let Some(file) = text(name, last) else { return };
    let base = compile(before).design;
    let grown = base.with(source, vec![SourceFileChange::Put(file)]);
    assert_eq!(summary, summarize(&grown), "adding a file gave another result than compiling it");
    let shrunk = grown.design.with(source, vec![SourceFileChange::Remove { file: name.to_owned() }]);
    assert_eq!(summarize(&compile(before)), summarize(&shrunk), "removing a file gave another result than compiling without it");
    diff::diff(&base, &checked.design);
    assert!(diff::diff(&checked.design, &grown.design).is_empty(), "two that are equal differ");
}
