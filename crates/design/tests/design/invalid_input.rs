//! Invalid inputs in a directory of documents. Each gives findings with locations, and the other documents are still
//! checked.

use std::fs;
use std::path::Path;
use std::process::Command;

use muster_design::file_text::FileText;
use muster_design::finding::{Finding, Findings};
use muster_design::source::{DesignSource, SourceDir};
use muster_design::{CheckedDesign, CompileOptions, Design};

/// A control document with one mistake. Its finding shows that the other inputs did not hide it.
const CONTROL: &str = "kind: Network\nname: witness\nspec: {cidr: 10.9.0.0/24, vlan: 5000}\n";
const CONTROL_FINDING: &str = "M1021 z.yaml:3:33";

/// Findings of the sources, without the finding of the control document.
fn found_in(sources: &[(&str, &[(&str, &str)])]) -> Vec<String> {
    let mut bundles: Vec<DesignSource> = sources
        .iter()
        .map(|(source, files)| DesignSource {
            name: (*source).to_owned(),
            files: files.iter().map(|(name, text)| FileText::new(*name, *text)).collect(),
        })
        .collect();
    bundles.push(DesignSource { name: "witness".to_owned(), files: vec![FileText::new("z.yaml", CONTROL)] });
    other_findings(&Design::compile(bundles, &CompileOptions::default()))
}

fn found(text: &str) -> Vec<String> {
    found_in(&[("site", &[("a.yaml", text)])])
}

fn other_findings(checked: &CheckedDesign) -> Vec<String> {
    // Formatting of the findings must not fail.
    assert!(!checked.findings.to_string().is_empty());
    let mut lines = lines(&checked.findings);
    let control = lines.iter().position(|line| line == CONTROL_FINDING);
    lines.remove(control.unwrap_or_else(|| panic!("the control document was not checked: {lines:?}")));
    assert!(checked.design.effective("Network", "witness").is_some());
    lines
}

fn lines(findings: &Findings) -> Vec<String> {
    findings.iter().map(line).collect()
}

/// One finding as a line: `M1004 a.yaml:5:7`, and the locations of its notes.
fn line(finding: &Finding) -> String {
    let place = |place: &muster_design::finding::Location| {
        let at = place.span.map(|span| format!(":{}:{}", span.start.line, span.start.column));
        format!(" {}{}", place.file, at.unwrap_or_default())
    };
    let places = finding.location.iter().chain(finding.notes.iter().map(|note| &note.location)).map(place);
    format!("{}{}", finding.code, places.collect::<String>())
}

#[test]
fn cycles() {
    let text = "\
{kind: HostProfile, name: a, extends: [c], spec: {}}
---
{kind: HostProfile, name: b, extends: [a], spec: {}}
---
{kind: HostProfile, name: c, extends: [b], spec: {}}
---
{kind: HostProfile, name: alone, extends: [alone], spec: {tags: [x]}}
";
    assert_eq!(found(text), ["M1008 a.yaml:3:40", "M1008 a.yaml:7:44"]);
}

#[test]
fn duplicate_documents() {
    let text = "{kind: Rack, name: r1, spec: {}}\n---\n{kind: Rack, name: r1, spec: {}}\n";
    assert_eq!(found(text), ["M1004 a.yaml:3:20 a.yaml:1:20"]);
    let one = "{kind: Rack, name: r1, spec: {}}\n";
    assert_eq!(found_in(&[("site", &[("a.yaml", one), ("b.yaml", one)])]), ["M1004 b.yaml:1:20 a.yaml:1:20"]);
}

#[test]
fn missing_parents() {
    let text =
        "{kind: HostProfile, name: a, extends: [none, b], spec: {}}\n---\n{kind: HostProfile, name: b, spec: {}}\n";
    assert_eq!(found(text), ["M1007 a.yaml:1:40"]);
}

#[test]
fn alias_bombs() {
    let laughs = |of: char, to: char| format!("    {of}: &{of} [{}]\n", vec![format!("*{to}"); 9].join(", "));
    let mut bomb = "kind: acme/Bomb\nname: a\nspec:\n    a: &a [ha, ha, ha, ha, ha, ha, ha, ha, ha]\n".to_owned();
    bomb.extend(('b'..='i').zip('a'..='h').map(|(of, to)| laughs(of, to)));
    // The document after it is read too.
    bomb.push_str("---\n{kind: Rack, name: 5, spec: {}}\n");
    assert_eq!(found(&bomb), ["M0010 a.yaml:9:20", "M0105 a.yaml:14:20"]);
}

#[test]
fn deep_nesting() {
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", "")] {
        let deep = format!("--- {}x{}\n", open.repeat(5_000), close.repeat(5_000));
        let found =
            found(&format!("{}{deep}---\n{{kind: Rack, name: 5, spec: {{}}}}\n", deep.replace("--- ", "---\n")));
        let codes: Vec<&str> = found.iter().map(|line| &line[..5]).collect();
        // A block list may not begin on the line of the dashes: that is another finding.
        let second = if open == "- " { "M0004" } else { "M0011" };
        assert_eq!(codes, ["M0011", second, "M0105"], "{open:?}");
    }
}

#[test]
fn wrong_types() {
    let text = "\
{kind: [Rack], name: a, spec: {}}
---
{kind: Rack, name: {b: c}, spec: {}}
---
{kind: Rack, name: c, spec: [1]}
---
{kind: Rack, name: d, extends: e, labels: f, overlay: g, spec: {location: h, local_networks: i}}
---
{kind: Network, name: j, spec: {vlan: many, cidr: [k], dns: 5}}
---
kind: Rack
name: ~
spec: text
";
    let places =
        ["1:8", "3:20", "5:29", "7:32", "7:43", "7:55", "7:75", "7:94", "9:39", "9:51", "9:61", "12:7", "13:7"];
    assert_eq!(found(text), places.map(|place| format!("M0105 a.yaml:{place}")));
}

#[test]
fn tabs() {
    assert_eq!(
        found("kind: Rack\nname: a\nspec:\n\tregion: b\n---\n{kind: Rack, name: 5, spec: {}}\n"),
        ["M0005 a.yaml:4:1", "M0105 a.yaml:6:20"]
    );
}

#[test]
fn anchors() {
    let text = "\
kind: Rack
name: a
spec:
  location: &here {grid: A1}
---
kind: Rack
name: b
spec:
  location: *here
---
kind: Rack
name: c
spec: &spec
  location: {clli: *spec}
---
kind: Rack
name: d
spec: {<<: {region: r}}
---
{kind: acme/Widget, name: e, spec: {a: &a [1], b: *a}}
";
    // An anchor that is used within its document is valid.
    assert_eq!(found(text), ["M0012 a.yaml:9:13", "M0012 a.yaml:14:20", "M0009 a.yaml:18:8"]);
}

#[test]
fn documents_must_be_mappings() {
    let text = "- kind: Rack\n  name: a\n---\ntext\n---\n5\n---\n~\n---\n{kind: Rack, name: 5, spec: {}}\n";
    assert_eq!(found(text), ["M1001 a.yaml:1:1", "M1001 a.yaml:4:1", "M1001 a.yaml:6:1", "M0105 a.yaml:10:20"]);
}

#[test]
fn empty_files() {
    for text in ["", "\n\n", "# nothing\n", "---\n", "---\n---\n...\n", "~\n", "\u{feff}"] {
        assert_eq!(found(text), ["M0101 a.yaml"], "{text:?}");
    }
}

#[test]
fn line_endings_of_other_systems_are_accepted() {
    let text = "kind: Rack\nname: a\nspec:\n  location:\n    gird: A1\n---\n{kind: Rack, name: 5}\n";
    let found_with = |end: &str| found(&text.replace('\n', end));
    assert_eq!(found_with("\n"), ["M0103 a.yaml:5:5", "M0105 a.yaml:7:20"]);
    assert_eq!(found_with("\r\n"), found_with("\n"));
    assert_eq!(found_with("\r"), found_with("\n"));
}

#[test]
fn one_document_in_two_sources() {
    let (below, above) = ("{kind: Rack, name: r1, spec: {}}\n", "\n{kind: Rack, name: r1, spec: {gird: a}}\n");
    let found = found_in(&[("site", &[("a.yaml", below)]), ("lab", &[("b.yaml", above)])]);
    assert_eq!(found, ["M1005 b.yaml:2:20 a.yaml:1:20", "M0103 b.yaml:2:31"]);
}

#[test]
fn control_characters_are_refused() {
    let found = found("kind: Rack\nname: \"\\0\\e[31m\"\nspec: {}\n---\nkind: Rack\nname: \u{1b}[31m\nspec: {}\n");
    assert_eq!(found, ["M1003 a.yaml:2:7", "M1003 a.yaml:6:7"]);
}

/// Reads a directory as the commands do.
fn read(directory: &Path) -> (Vec<String>, CheckedDesign) {
    let (bundle, unread) = SourceDir { name: "site".to_owned(), path: directory.to_owned() }.read();
    let root = format!("{}/", directory.display());
    let lines = lines(&unread).into_iter().map(|line| line.replace(&root, "")).collect();
    (lines, Design::compile(vec![bundle], &CompileOptions::default()))
}

/// Asserts that the finding of the control document is reported, under its name in a directory.
fn assert_control_is_reported(checked: &CheckedDesign) {
    let lines = lines(&checked.findings);
    assert!(lines.len() == 1 && lines[0].ends_with("/z.yaml:3:33"), "{lines:?}");
}

#[test]
fn files_must_be_utf_8() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), b"kind: Rack\nname: caf\xe9\n").unwrap();
    fs::write(directory.path().join("b.yaml"), b"\xff\xfek\0i\0n\0d\0").unwrap();
    fs::write(directory.path().join("z.yaml"), CONTROL).unwrap();
    let (unread, checked) = read(directory.path());
    assert_eq!(unread, ["M0003 a.yaml:2:10", "M0003 b.yaml:1:1"]);
    assert_control_is_reported(&checked);
}

/// Fills a directory with inputs that need much memory.
fn greedy(directory: &Path) {
    fs::File::create(directory.join("a.yaml")).unwrap().set_len(100_000_000).unwrap();
    std::os::unix::fs::symlink("/dev/zero", directory.join("b.yaml")).unwrap();
    let link = |from: char, to: char| format!("{to}: &{to} [{}]\n", vec![format!("*{from}"); 50].join(", "));
    let bomb: String = ('a'..'y').zip('b'..='y').map(|(from, to)| link(from, to)).collect();
    fs::write(directory.join("c.yaml"), format!("a: &a [ha]\n{bomb}")).unwrap();
    fs::write(directory.join("d.yaml"), "[".repeat(1_000_000)).unwrap();
    fs::write(directory.join("e.yaml"), "---\n]\n".repeat(100_000)).unwrap();
    fs::write(directory.join("z.yaml"), CONTROL).unwrap();
}

/// Runs in a process of its own, because the kernel reports the peak memory of a process.
#[test]
#[expect(clippy::disallowed_methods, reason = "it is the test that starts a process, not the crate")]
fn memory_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    greedy(directory.path());
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "invalid_input::greedy_files_are_read_in_a_subprocess", "--ignored", "--nocapture"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output_text}");
    let peak = output_text.lines().find_map(|line| line.strip_prefix("peak in KiB: ")).expect("the peak is printed");
    let peak: u64 = peak.trim().parse().unwrap();
    // Includes the 32 MiB of the endless file that are read before it is refused.
    assert!(peak < 128 << 10, "{peak} KiB");
}

#[test]
#[ignore = "a part of memory_is_bounded, which starts it"]
fn greedy_files_are_read_in_a_subprocess() {
    let (unread, checked) = read(Path::new("."));
    assert_eq!(unread, ["M0002 a.yaml", "M0002 b.yaml"]);
    let mut codes: Vec<&str> = checked.findings.iter().map(|finding| finding.code.as_str()).collect();
    codes.dedup();
    assert_eq!(codes, ["M0010", "M0011", "M0004", "M0013", "M1021"]);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("\npeak in KiB: {}", peak.trim().trim_end_matches(" kB"));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it is the test that starts a process, not the crate")]
fn pipe_does_not_block() {
    let directory = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(directory.path().join("a.yaml")).status().unwrap();
    assert!(made.success());
    fs::write(directory.path().join("z.yaml"), CONTROL).unwrap();
    let (unread, checked) = read(directory.path());
    assert_eq!(unread, ["M0001 a.yaml"]);
    assert_control_is_reported(&checked);
}
