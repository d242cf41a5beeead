//! Every scenario in `scenarios/` passes and matches its transcript, as in `make simulate`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use muster_sim::script::{GoldenMode, check_script, parse, play};

fn scripts() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut scripts: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    scripts.sort();
    scripts
}

#[test]
fn every_scenario_matches_its_transcript() {
    let scripts = scripts();
    assert!(scripts.len() >= 10, "only {} scenarios", scripts.len());
    let result = scripts.iter().map(|script| check_script(script, GoldenMode::Compare));
    let wrong: String = result.filter(|result| result.failed).map(|result| result.text).collect();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_transcript_has_its_script() {
    let missing = scripts().iter().map(|script| script.with_extension("out")).filter(|out| !out.exists()).count();
    assert_eq!(missing, 0);
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let outs = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    for out in outs.filter(|path| path.extension().is_some_and(|end| end == "out")) {
        assert!(out.with_extension("txt").exists(), "{} has no script", out.display());
    }
}

const HEAD: &str = "# A scenario\nWithout a subject.\n\nfleet\n  web: 3 nodes\n";

/// The error of a script with these lines.
fn refused(lines: &str) -> String {
    parse("a.txt", &format!("{HEAD}{lines}")).unwrap_err().to_string()
}

#[test]
fn parse_error_has_file_line_and_a_guess() {
    assert_eq!(
        refused("at 0s ada strats v2\n"),
        "a.txt:6: unknown action: ada strats v2\n  help: did you mean \"starts\" instead of \"strats\"?"
    );
    assert_eq!(
        refused("at 0s wbe1 reboots\n"),
        "a.txt:6: there is no node, role or rack \"wbe1\" in this scenario\n  help: did you mean web1?"
    );
    assert!(refused("at noon ada starts v2\n").starts_with("a.txt:6: \"noon\" is not a duration"));
    assert!(refused("at 0s ada starts v9\n").contains("every scenario has v1 to v5"));
    assert!(refused("when web runs v2 ada pauses\n").contains("a comma is missing"));
    assert!(refused("expect web rusn v2\n").contains("did you mean \"run\""));
    assert!(refused("expct the rollout has ended\n").contains("did you mean \"expect\""));
    assert!(refused("").contains("the scenario has no steps"));
    assert!(refused("  web: 3 noses\n").contains("is not a number"));
    assert!(refused("  app: 3 nodes, after db\n").contains("no role db is above it"));
    assert!(refused("clock 2026-13-01 01:00 UTC\n").contains("is not a time"));
}

#[test]
fn strategy_error_has_its_position() {
    let error = refused("strategy\n  waves: [{percent: 100}]\n  max_unavailble: 1\nat 0s ada starts v2\n");
    assert!(error.contains("a.txt:8:3") && error.contains("max_unavailable"), "{error}");
}

#[test]
fn failed_assertion_has_its_line_and_the_actual_state() {
    let source = format!("{HEAD}at 0s ada starts v2\nuntil wave 1 has started\nexpect web runs v2\n");
    let result = play(&parse("a.txt", &source).unwrap(), "a.txt");
    let failures: Vec<String> = result.failures.iter().map(ToString::to_string).collect();
    assert_eq!(failures, ["a.txt:8: assertion failed: web1 is validated at v1"]);
    assert!(result.transcript.contains("FAILED: web runs v2"), "{}", result.transcript);
}

#[test]
fn scenario_is_deterministic() {
    let source = format!("{HEAD}at 0s ada starts v2\nuntil the rollout has ended\n");
    let script = parse("a.txt", &source).unwrap();
    assert_eq!(play(&script, "a.txt").transcript, play(&script, "a.txt").transcript);
}
