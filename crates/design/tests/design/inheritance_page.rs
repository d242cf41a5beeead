//! Tests the examples of the book's page about inheritance.

use std::fs;
use std::path::Path;

use muster_design::bundle::Bundle;
use muster_design::file_text::FileText;
use muster_design::yaml::{self, Limits};
use muster_design::{CheckedDesign, CompileOptions, Design};

use crate::finding_example::ROOT;
use crate::value::Tree;

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

fn effective(text: String, kind: &str, name: &str) -> Tree {
    let files = vec![FileText::new("site.yaml", text)];
    let CheckedDesign { design, findings } =
        Design::compile(vec![Bundle { name: "site".into(), files }], &CompileOptions::default());
    // An example may be incomplete: it may refer to networks that are not in it, and have unused documents.
    let about = |code: &str| (code < "M1100" && code != "M1010").then_some(code.to_owned());
    let wrong: Vec<String> = findings.iter().filter_map(|finding| about(finding.code.as_str())).collect();
    assert!(wrong.is_empty(), "{findings}");
    Tree::of(design.effective(kind, name).unwrap())
}

#[test]
fn the_examples_on_the_page_about_inheritance_are_true() {
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
                    Some((kind, name)) => effective(std::mem::take(&mut documents), kind, name),
                    None => effective(chain(of, &layers), of, &format!("layer{}", layers.len() - 1)),
                };
                let parsed = yaml::parse(&FileText::new("result.yaml", block.text), &Limits::DOCUMENTS);
                assert_eq!(real, Tree::of(&parsed.documents[0]), "the result in line {} of the page", block.line);
                examples += 1;
            }
            other => panic!("what is a block {other:?}, in line {}?", block.line),
        }
    }
    assert!(examples >= 10);
}
