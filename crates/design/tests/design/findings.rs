//! Catalogue of findings: every code has an explanation, an example that triggers this code alone, and a similar
//! example that triggers none.

use std::collections::BTreeMap;

use muster_core::names::Role;
use muster_design::bundle::Bundle;
use muster_design::file_text::FileText;
use muster_design::finding::{Code, Findings};
use muster_design::{CompileOptions, Design};

use crate::finding_example::{example, printed};

/// Codes that no example directory triggers alone: the reason, and the test that covers the code.
pub(crate) const ELSEWHERE: &[(Code, &str, fn())] = &[
    (Code::TooManyFindings, "two hundred others come before it", the_findings_of_a_file_are_cut_off),
    (Code::UnknownRole, "it is about the command line", a_cardinality_for_a_role_that_is_not_there),
];

#[test]
fn every_code_is_explained() {
    let mut wanting = Vec::new();
    for code in Code::ALL {
        let explanation = code.explanation().trim();
        let lines = explanation.lines().count();
        let is_explained = (3..=40).contains(&lines) && explanation.len() > 2 * code.meaning().len();
        if !is_explained {
            wanting.push(format!("{code}: {lines} lines"));
        }
    }
    assert!(wanting.is_empty(), "explanations that say too little: {wanting:#?}");
}

#[test]
fn every_code_has_an_example_that_triggers_it_alone() {
    let mut wanting = Vec::new();
    for code in directories() {
        let found = example(code, "bad").map(|bad| bad.findings());
        let is_alone = found.as_ref().is_some_and(|found| codes(found) == [code]);
        if !is_alone {
            wanting.push(describe(code, "bad", found));
        }
    }
    assert!(wanting.is_empty(), "these are not as they should be:\n\n{}", wanting.join("\n"));
}

#[test]
fn every_code_has_a_near_miss_that_triggers_nothing() {
    let mut wanting = Vec::new();
    for code in directories() {
        let found = example(code, "good").map(|good| good.findings());
        let is_fine = found.as_ref().is_some_and(Findings::is_empty);
        if !is_fine {
            wanting.push(describe(code, "good", found));
        }
    }
    assert!(wanting.is_empty(), "these are not as they should be:\n\n{}", wanting.join("\n"));
}

#[test]
fn codes_without_a_directory_are_shown_elsewhere() {
    for (code, why, shows) in ELSEWHERE {
        assert!(example(*code, "bad").is_none(), "{code} has an example after all, though {why}");
        shows();
    }
}

fn the_findings_of_a_file_are_cut_off() {
    let found = compile("---\n]\n".repeat(1_000), &CompileOptions::default());
    assert_eq!(found.iter().count(), 201);
    assert_eq!(found.iter().last().unwrap().code, Code::TooManyFindings);
}

fn a_cardinality_for_a_role_that_is_not_there() {
    let with = |role: &str| {
        let cardinality = BTreeMap::from([(Role::new(role).unwrap(), 3)]);
        let options = CompileOptions { cardinality, ..CompileOptions::default() };
        codes(&compile("roles: {web: {cardinality: 1, flavor: small}}".to_owned(), &options))
    };
    assert_eq!(with("wbe"), [Code::UnknownRole]);
    assert_eq!(with("web"), []);
}

fn compile(text: String, options: &CompileOptions) -> Findings {
    let files = vec![FileText::new("environments/prod.yaml", text)];
    Design::compile(vec![Bundle { name: "site".into(), files }], options).findings
}

/// Codes that a directory triggers.
fn directories() -> impl Iterator<Item = Code> {
    Code::ALL.iter().copied().filter(|code| ELSEWHERE.iter().all(|(elsewhere, ..)| elsewhere != code))
}

fn codes(findings: &Findings) -> Vec<Code> {
    findings.iter().map(|finding| Code::parse(finding.code.as_str()).unwrap()).collect()
}

fn describe(code: Code, which: &str, found: Option<Findings>) -> String {
    let found = match found {
        None => "there is no such directory".to_owned(),
        Some(found) if found.is_empty() => "nothing was found".to_owned(),
        Some(found) => printed(&found),
    };
    format!("examples/findings/{code}/{which}:\n{found}\n")
}
