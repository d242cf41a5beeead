//! JSON Schemas of documents: they accept and refuse the same documents as Muster.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use jsonschema::Validator;
use muster_design::file_text::FileText;
use muster_design::finding::Code;
use muster_design::kinds::Kind;
use muster_design::source::DesignSource;
use muster_design::types::{Type, json_schema};
use muster_design::yaml::{self, Limits};
use muster_design::{CompileOptions, Design};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::document_generator::generated_site;
use crate::findings::ROOT;
use crate::reference_model::below_type;

/// Documents of built-in kinds in a text.
fn documents(text: &str) -> Vec<(Kind, Value)> {
    let trees = yaml::parse(&FileText::new("site.yaml", text), &Limits::DOCUMENTS).documents;
    let known = |document: &Value| Kind::parse(document.get("kind")?.as_str()?);
    let documents = trees.iter().map(|tree| serde_json::to_value(tree).unwrap());
    documents.filter_map(|document| Some((known(&document)?, document))).collect()
}

fn yaml_below(directory: PathBuf) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open = vec![directory];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files
}

static VALIDATORS: LazyLock<BTreeMap<Kind, Validator>> = LazyLock::new(|| {
    let validator = |kind: &Kind| (*kind, jsonschema::validator_for(&json_schema(*kind)).unwrap());
    Kind::ALL.iter().map(validator).collect()
});

fn is_valid(kind: Kind, document: &Value) -> bool {
    VALIDATORS[&kind].is_valid(document)
}

/// Reports whether Muster finds a value of the wrong type in the document.
fn is_refused(document: &Value) -> bool {
    // JSON is YAML.
    let files = vec![FileText::new("site.yaml", document.to_string())];
    let findings =
        Design::compile(vec![DesignSource { name: "site".into(), files }], &CompileOptions::default()).findings;
    let of_types = [Code::WrongType, Code::UnknownKey, Code::NotADocument, Code::SecretAsText, Code::UnknownKind];
    findings.iter().any(|finding| of_types.iter().any(|code| finding.code == *code))
}

#[test]
fn example_documents_are_valid_and_mutations_are_not() {
    let mut kinds = Vec::new();
    let mut mutations = 0;
    for file in yaml_below(Path::new(ROOT).join("examples/site")) {
        for (kind, document) in documents(&fs::read_to_string(&file).unwrap()) {
            assert!(is_valid(kind, &document), "{}: {document}", file.display());
            kinds.push(kind);
            for mutation in mutated(kind, &document) {
                assert!(!is_valid(kind, &mutation), "{kind}: {mutation}");
                assert!(is_refused(&mutation), "{kind}: {mutation}");
                mutations += 1;
            }
        }
    }
    let is_there = |kind: &&Kind| kinds.contains(kind) || **kind == Kind::Cloud;
    assert_eq!(Kind::ALL.iter().filter(is_there).count(), Kind::ALL.len(), "the example has no document of some kind");
    assert!(mutations > 500, "only {mutations} mutations were tried");
}

/// Copies of a document with one mistake each.
fn mutated(kind: Kind, document: &Value) -> Vec<Value> {
    let with = |change: &dyn Fn(&mut Map<String, Value>)| {
        let mut document = document.clone();
        change(document.as_object_mut().unwrap());
        document
    };
    let mut all = vec![
        with(&|document| drop(document.remove("name"))),
        with(&|document| drop(document.remove("kind"))),
        with(&|document| drop(document.insert("spce".into(), json!({})))),
        with(&|document| drop(document.insert("extends".into(), json!("base")))),
        with(&|document| drop(document.insert("labels".into(), json!({"a": 1})))),
    ];
    if let Some(spec) = document.get("spec") {
        let body = if kind == Kind::Schema { Type::ReplacedList(&Type::Any) } else { kind.body() };
        for spec in wrong(spec, body) {
            all.push(with(&|document| drop(document.insert("spec".into(), spec.clone()))));
        }
    }
    all
}

/// Copies of a value, each with one part of the wrong type.
fn wrong(value: &Value, ty: Type) -> Vec<Value> {
    let mut all = match ty {
        Type::Any => Vec::new(),
        Type::Object(object) if !object.open => {
            let mut with_another = value.clone();
            with_another.as_object_mut().unwrap().insert("no_such_key".into(), json!(1));
            vec![with_another, json!("a text")]
        }
        Type::Map(_) | Type::Object(_) | Type::List(_) | Type::ReplacedList(_) | Type::Keyed { .. } => {
            vec![json!(true)]
        }
        Type::Text(_) | Type::Integer { .. } | Type::Bool | Type::OneOf(_) | Type::Scalar | Type::Reference(_) => {
            vec![json!([["nested"]])]
        }
        Type::Secret => vec![json!("hunter2")],
    };
    let of_removal = |name: &str| name.starts_with('!');
    match (value, ty) {
        (Value::Object(entries), Type::Map(_) | Type::Object(_)) => {
            for (key, below) in entries.iter().filter(|(key, _)| !of_removal(key)) {
                for changed in wrong(below, below_type(ty, key)) {
                    let mut entries = entries.clone();
                    entries.insert(key.clone(), changed);
                    all.push(Value::Object(entries));
                }
            }
        }
        (Value::Array(items), Type::List(item) | Type::ReplacedList(item)) => {
            all.extend(wrong_members(items, |_| *item));
        }
        (Value::Array(items), Type::Keyed { item, .. }) => {
            all.extend(wrong_members(items, |_| Type::Object(item)));
        }
        _ => {}
    }
    all
}

fn wrong_members(items: &[Value], ty: impl Fn(&Value) -> Type) -> Vec<Value> {
    let mut all = Vec::new();
    for (at, member) in items.iter().enumerate() {
        let is_removal = member.as_str().is_some_and(|text| text.starts_with('!'))
            || member.as_object().is_some_and(|member| {
                member.values().any(|value| value.as_str().is_some_and(|text| text.starts_with('!')))
            });
        for changed in wrong(member, ty(member)).into_iter().filter(|_| !is_removal) {
            let mut items = items.to_vec();
            items[at] = changed;
            all.push(Value::Array(items));
        }
    }
    all
}

proptest! {
    /// Includes removals and `null`.
    #[test]
    fn generated_documents_match_their_schema(generated_site in generated_site(false)) {
        let order: Vec<usize> = (0..generated_site.layers.len()).collect();
        let bundles = generated_site.files(&order, 1);
        for file in bundles.iter().flat_map(|bundle| &bundle.files) {
            for (kind, document) in documents(file.text()) {
                prop_assert!(is_valid(kind, &document), "{}", document);
            }
        }
    }
}
