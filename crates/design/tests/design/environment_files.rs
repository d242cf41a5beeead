//! Environment files: the result of valid files in `good/`, and the findings of invalid files in `bad/`. Each file in `bad/`
//! has one mistake, those named `mixed-…` have several. The snapshot beside a file is the output for the operator.

use std::collections::BTreeSet;
use std::fmt::Write;

use muster_design::environment::Environment;
use muster_design::file_text::FileText;
use muster_design::finding::{Code, Findings, TextStyle};

use crate::{files, snapshot_beside};

fn findings(file: &std::path::Path) -> Findings {
    Environment::read(file).err().unwrap_or_else(|| panic!("{} was accepted", file.display()))
}

#[test]
fn each_bad_file_has_its_findings() {
    for file in files("bad") {
        let findings = findings(&file);
        snapshot_beside(&file, &format!("{findings}\n{}", findings.summary()));
    }
}

#[test]
fn each_bad_file_shows_the_code_of_its_name() {
    for file in files("bad") {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let Some(number) = name.strip_prefix('m').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) else {
            continue;
        };
        let code = format!("M{}", &number[..4]);
        assert!(findings(&file).iter().any(|finding| finding.code.as_str() == code), "{name} does not show {code}");
    }
}

#[test]
fn every_code_of_a_single_file_has_an_example() {
    // These are about the file system, or are no errors. `limits`, `project` and `good_files` test them.
    let elsewhere = [Code::Unreadable, Code::TooLarge, Code::TooManyFindings, Code::AfterTwice];
    let shown: BTreeSet<Code> = files("bad")
        .iter()
        .flat_map(|file| findings(file))
        .map(|finding| Code::parse(finding.code.as_str()).unwrap())
        .collect();
    for code in Code::ALL.iter().filter(|code| code.as_str() < "M1000") {
        assert!(shown.contains(code) || elsewhere.contains(code), "{code} ({}) has no example", code.meaning());
    }
}

#[test]
fn each_good_file_has_its_nodes() {
    for file in files("good") {
        let accepted = Environment::read(&file).unwrap_or_else(|findings| panic!("{findings}"));
        let environment = accepted.value;
        let mut text = format!("environment {}", environment.name);
        if let Some(stack) = &environment.stack {
            write!(text, ", stack {stack}").unwrap();
        }
        text.push('\n');
        for node in environment.nodes() {
            writeln!(text, "{}", serde_json::to_string(&node).unwrap()).unwrap();
        }
        let order: Vec<_> = environment.in_start_order().map(|role| role.role.as_str()).collect();
        writeln!(text, "start order: {}", order.join(", ")).unwrap();
        if let Some(strategy) = &environment.rollout {
            assert_eq!(strategy.check(), Ok(()));
            writeln!(text, "rollout: {}", serde_json::to_string_pretty(strategy).unwrap()).unwrap();
        }
        if !accepted.warnings.is_empty() {
            write!(text, "\n{}", accepted.warnings).unwrap();
        }
        snapshot_beside(&file, &text);
    }
}

fn bad_findings() -> Findings {
    let text = "roles:\n  web: {cardinality: 1, flavor: small}\n  web: {cardinality: 2, flavor: small}\n";
    Environment::parse(&FileText::new("environments/prod.yaml", text)).unwrap_err()
}

#[test]
fn rendered_parts_join_to_the_plain_text() {
    let finding = bad_findings().into_iter().next().unwrap();
    let parts = finding.render();
    assert_eq!(parts.iter().map(|part| part.text.as_str()).collect::<String>(), finding.to_string());
    let texts = |style: TextStyle| {
        parts.iter().filter(|part| part.style == style).map(|part| part.text.trim()).collect::<Vec<_>>()
    };
    assert_eq!(texts(TextStyle::Error), ["error[M0006]"]);
    assert_eq!(texts(TextStyle::Remark), ["note", "help"]);
    assert_eq!(texts(TextStyle::Underline), ["^^^", "^^^"]);
}

#[test]
fn json_of_findings_is_complete() {
    insta::assert_json_snapshot!(bad_findings());
}
