//! Catalogue of mistakes: each file in `bad/` has one mistake, those named `mixed-…` have several. The snapshot beside
//! a file is the output for the operator.

use std::collections::BTreeSet;

use muster_design::environment::Environment;
use muster_design::finding::{Code, Findings};

use crate::{files, snapshot_beside};

fn findings(file: &std::path::Path) -> Findings {
    Environment::read(file).err().unwrap_or_else(|| panic!("{} was accepted", file.display()))
}

#[test]
fn each_mistake_is_explained() {
    for file in files("bad") {
        let findings = findings(&file);
        snapshot_beside(&file, &format!("{findings}\n{}", findings.summary()));
    }
}

#[test]
fn each_file_shows_the_code_it_is_named_for() {
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
