//! Limits of files, and the findings when a file exceeds them.

use std::fmt::Write;

use muster_design::environment::Environment;
use muster_design::file_text::FileText;
use muster_design::finding::Code;
use muster_design::source::DesignSource;
use muster_design::yaml::{self, Limits, ParsedFile};
use muster_design::{CompileOptions, Design};

const SMALL: Limits = Limits { file_bytes: 1000, depth: 8, tree_bytes: 100_000, alias_bytes: 10_000 };

fn parse(text: impl Into<String>, limits: &Limits) -> ParsedFile {
    yaml::parse(&FileText::new("test.yaml", text.into()), limits)
}

fn codes(parsed: &ParsedFile) -> Vec<Code> {
    parsed.findings.iter().map(|finding| Code::parse(finding.code.as_str()).unwrap()).collect()
}

#[test]
fn file_is_read_up_to_its_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prod.yaml");
    std::fs::write(&path, "#".repeat(1000)).unwrap();
    assert_eq!(FileText::read(&path, 1000).unwrap().text().len(), 1000);
    let findings = FileText::read(&path, 999).unwrap_err();
    assert_eq!(findings.iter().next().unwrap().code, Code::TooLarge);
}

#[test]
fn endless_file_is_too_large() {
    let findings = FileText::read(std::path::Path::new("/dev/zero"), 1 << 16).unwrap_err();
    assert_eq!(findings.iter().next().unwrap().code, Code::TooLarge);
}

#[test]
fn missing_file_is_reported() {
    let findings = Environment::read(std::path::Path::new("tests/design/none.yaml")).unwrap_err();
    insta::assert_snapshot!(findings, @"
    error[M0001]: the file cannot be read: No such file or directory (os error 2)
     --> tests/design/none.yaml
    ");
}

#[test]
fn depth_counts_brackets_and_blocks() {
    for nest in [|n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n)), |n| format!("{}x", "- ".repeat(n))] {
        assert_eq!(codes(&parse(nest(8), &SMALL)), []);
        assert_eq!(codes(&parse(nest(9), &SMALL)), [Code::TooDeep]);
        assert_eq!(codes(&parse(nest(100_000), &SMALL)), [Code::TooDeep]);
    }
}

#[test]
fn aliases_cannot_nest_deeper_than_brackets() {
    let text = "- &a [[[[x]]]]\n- &b [[[*a]]]\n- [[[*b]]]\n";
    assert_eq!(codes(&parse(text, &SMALL)), [Code::TooDeep]);
    assert_eq!(codes(&parse("- &a [[[[x]]]]\n- [[*a]]\n", &SMALL)), []);
}

#[test]
fn aliases_expand_up_to_their_limit() {
    let many_times = |aliases: usize| format!("- &a {}\n{}", "x".repeat(1000), "- *a\n".repeat(aliases));
    assert_eq!(codes(&parse(many_times(8), &SMALL)), []);
    assert_eq!(codes(&parse(many_times(9), &SMALL)), [Code::AliasExpansion]);
}

#[test]
fn copies_for_anchors_count() {
    let text = format!("&a [&b [&c [&d [&e [&f {}]]]]]", "x".repeat(2000));
    assert_eq!(codes(&parse(text, &SMALL)), [Code::AliasExpansion]);
}

#[test]
fn tree_has_its_own_limit() {
    let text = format!("[{}]", "a,".repeat(2000));
    assert_eq!(codes(&parse(&text, &SMALL)), [Code::TooLarge]);
    // The limit counts over all documents of a file, and is reported once.
    let text = "---\n[a, b, c, d]\n".repeat(10_000);
    assert_eq!(codes(&parse(text, &SMALL)), [Code::TooLarge]);
}

#[test]
fn broken_documents_are_counted_not_listed() {
    let parsed = parse("---\n]\n".repeat(10_000), &Limits::DOCUMENTS);
    assert_eq!(parsed.findings.iter().count(), 201);
    assert_eq!(parsed.findings.iter().last().unwrap().message, "9800 more findings are not shown");
}

/// Inputs that take quadratic time in a naive parser. The test does not measure time; a slow parser makes the suite
/// slow.
#[test]
fn pathological_large_files_are_bounded() {
    let many = 20_000;
    let keys = (0..many).fold(String::new(), |mut text, number| {
        writeln!(text, "k{number}: v").unwrap();
        text
    });
    assert_eq!(codes(&parse(keys, &Limits::DOCUMENTS)), []);
    for text in [
        "? ".repeat(many),
        "[".repeat(many),
        "{a: ".repeat(many),
        "&a ".repeat(many),
        "!a ".repeat(many),
        "\"".repeat(many),
        "'".repeat(many),
        "a: ".repeat(many),
        "- \n".repeat(many),
        "--- ".repeat(many),
        "---\n".repeat(many),
        "|\n".repeat(many),
        "\n".repeat(many),
        "\t".repeat(many),
        " ".repeat(many),
        "# \n".repeat(many),
        "%a\n".repeat(many),
        "a".repeat(many),
        "*a ".repeat(many),
        ",".repeat(many),
        "[a, ".repeat(20) + &"a, ".repeat(many),
        "{".to_owned() + &"a, ".repeat(many),
        "- |\n\n".repeat(many),
        "a: @\n---\n".repeat(many),
    ] {
        let parsed = parse(&text, &Limits::DOCUMENTS);
        assert!(parsed.findings.iter().count() <= 201);
    }
}

#[test]
fn long_chain_of_roles_is_sorted() {
    let mut text = String::from("roles:\n");
    let name = |number: usize| format!("r{number}x");
    for number in 0..10_000 {
        writeln!(text, "  {}: {{cardinality: 1, flavor: s, after: [{}]}}", name(number), name(number + 1)).unwrap();
    }
    let last = format!("  {}: {{cardinality: 1, flavor: s}}\n", name(10_000));
    let environment = Environment::parse(&FileText::new("prod.yaml", text.clone() + &last)).unwrap().value;
    assert_eq!(environment.in_start_order().next().unwrap().role.as_str(), name(10_000));

    let closing = format!("  {}: {{cardinality: 1, flavor: s, after: [{}]}}\n", name(10_000), name(0));
    let findings = Environment::parse(&FileText::new("prod.yaml", text + &closing)).unwrap_err();
    assert_eq!(
        findings.iter().next().unwrap().message,
        "roles come after each other in a cycle: r0x → r1x → r2x → r3x → … → r9998x → r9999x → r10000x → r0x"
    );
}

#[test]
fn document_has_at_most_64_layers_itself_included() {
    let findings_of_chain = |layers: usize| {
        let mut text = "{kind: HostProfile, name: p1, spec: {flavor: small}}\n".to_owned();
        for number in 2..=layers {
            let parent = number - 1;
            writeln!(text, "---\n{{kind: HostProfile, name: p{number}, extends: [p{parent}]}}").unwrap();
        }
        let source = DesignSource { name: "site".into(), files: vec![FileText::new("site.yaml", text)] };
        Design::compile(vec![source], &CompileOptions::default()).findings
    };
    let messages = |layers| findings_of_chain(layers).iter().map(|finding| finding.message.clone()).collect::<Vec<_>>();
    assert_eq!(messages(64), [""; 0]);
    assert_eq!(messages(65), ["HostProfile \"p65\" has more than 64 layers, itself included"]);
}
