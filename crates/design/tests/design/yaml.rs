//! Parsed trees: values, positions and documents. The parser terminates without a panic for any input.

use std::fmt::Write;

use muster_design::environment::Environment;
use muster_design::file_text::{FileText, Position, Span};
use muster_design::yaml::{self, Limits, ParsedFile, ScalarKind, Value, YamlNode};
use proptest::prelude::*;

/// One line for each value of a tree: its position, path and content.
fn outline(text: &str) -> String {
    let source = FileText::new("test.yaml", text);
    let parsed = yaml::parse(&source, &Limits::DOCUMENTS);
    let mut lines = String::new();
    for (number, document) in parsed.documents.iter().enumerate() {
        describe(document, &number.to_string(), &mut lines);
    }
    for finding in &parsed.findings {
        let at = finding.location.as_ref().unwrap().span.unwrap().start;
        writeln!(lines, "{} at {}:{}: {}", finding.code, at.line, at.column, finding.message).unwrap();
    }
    lines
}

fn describe(node: &YamlNode, path: &str, lines: &mut String) {
    let (start, end) = (node.span.start, node.span.end);
    write!(lines, "{}:{}-{}:{} {path} = ", start.line, start.column, end.line, end.column).unwrap();
    match &node.value {
        Value::Scalar(scalar) => match scalar.kind() {
            ScalarKind::Text => writeln!(lines, "{:?}", scalar.text()),
            kind @ (ScalarKind::Null | ScalarKind::Bool(_) | ScalarKind::Int(_) | ScalarKind::Float) => {
                writeln!(lines, "{kind:?}")
            }
        }
        .unwrap(),
        Value::Seq(items) => {
            writeln!(lines, "list").unwrap();
            items.iter().enumerate().for_each(|(number, item)| describe(item, &format!("{path}.{number}"), lines));
        }
        Value::Map(map) => {
            writeln!(lines, "mapping").unwrap();
            for entry in map.entries() {
                describe(&entry.value, &format!("{path}.{}", entry.key.text), lines);
            }
        }
    }
}

#[test]
fn every_value_has_its_span() {
    let text = "\
plain: some text
block:
  list:
  - one
  - [2, {three: 3.0}]

literal: |
  first
  second
quoted: \"over
  two lines\"
empty:
last: ~
";
    insta::assert_snapshot!(outline(text), @r#"
    1:1-13:8 0 = mapping
    1:8-1:17 0.plain = "some text"
    3:3-5:22 0.block = mapping
    4:5-5:22 0.block.list = list
    4:5-4:8 0.block.list.0 = "one"
    5:5-5:22 0.block.list.1 = list
    5:6-5:7 0.block.list.1.0 = Int(2)
    5:9-5:21 0.block.list.1.1 = mapping
    5:17-5:20 0.block.list.1.1.three = Float
    8:3-10:1 0.literal = "first\nsecond\n"
    10:9-11:13 0.quoted = "over two lines"
    12:6-12:6 0.empty = Null
    13:7-13:8 0.last = Null
    "#);
}

#[test]
fn alias_has_its_own_span_and_members_keep_theirs() {
    insta::assert_snapshot!(outline("base: &base\n  a: [1]\ncopy: *base\nkey: &key k\n*key : v\n"), @r#"
    1:1-5:9 0 = mapping
    1:7-2:9 0.base = mapping
    2:6-2:9 0.base.a = list
    2:7-2:8 0.base.a.0 = Int(1)
    3:7-3:12 0.copy = mapping
    2:6-2:9 0.copy.a = list
    2:7-2:8 0.copy.a.0 = Int(1)
    4:6-4:12 0.key = "k"
    5:8-5:9 0.k = "v"
    "#);
}

#[test]
fn broken_document_does_not_hide_the_next() {
    insta::assert_snapshot!(outline("a: 1\n---\nb: [\n---\nc: \"\n--- \nd: @\n---\n{e: 5}\n"), @"
    1:1-1:5 0 = mapping
    1:4-1:5 0.a = Int(1)
    9:1-9:7 1 = mapping
    9:5-9:6 1.e = Int(5)
    M0004 at 4:1: this is not YAML: while parsing a node, did not find expected node content
    M0004 at 5:4: this is not YAML: while scanning a quoted scalar, found unexpected document indicator
    M0004 at 7:4: this is not YAML: unexpected character: `@'
    ");
}

#[test]
fn dashes_in_a_text_do_not_start_a_document() {
    insta::assert_snapshot!(outline("a: @\nb: |\n  ---\n---x: 1\n"), @"M0004 at 1:4: this is not YAML: unexpected character: `@'");
}

#[test]
fn refused_part_does_not_remove_the_rest() {
    insta::assert_snapshot!(outline("a: 1\na: {b: 2}\n<<: {c: 3}\n\"<<\": 4\nd: !x 5\n[e]: {f: [6]}\ng: 7\n"), @r#"
    1:1-7:5 0 = mapping
    1:4-1:5 0.a = Int(1)
    4:7-4:8 0.<< = Int(4)
    5:4-5:8 0.d = "5"
    7:4-7:5 0.g = Int(7)
    M0006 at 2:1: the key "a" is defined twice
    M0009 at 3:1: the merge key << is not supported
    M0008 at 5:4: the YAML tag "!x" is not supported
    M0007 at 6:1: a key must be a text, not a list or a mapping
    "#);
}

#[test]
fn keys_are_always_text() {
    insta::assert_snapshot!(outline("1: a\ntrue: b\n~: c\n\"1\": d\n\"\": e\n"), @r#"
    1:1-5:6 0 = mapping
    1:4-1:5 0.1 = "a"
    2:7-2:8 0.true = "b"
    3:4-3:5 0.~ = "c"
    5:5-5:6 0. = "e"
    M0006 at 4:1: the key "1" is defined twice
    "#);
}

#[test]
fn all_line_endings_are_accepted() {
    insta::assert_snapshot!(outline("a: 1\r\nb: 2\rc: 3\n\u{feff}"), @"
    1:1-3:5 0 = mapping
    1:4-1:5 0.a = Int(1)
    2:4-2:5 0.b = Int(2)
    3:4-3:5 0.c = Int(3)
    ");
    insta::assert_snapshot!(outline("\u{feff}a: 1"), @"
    1:1-1:5 0 = mapping
    1:4-1:5 0.a = Int(1)
    ");
}

#[test]
fn duplicates_in_long_mappings_are_found() {
    let mut text: String = (0..100).map(|number| format!("key{number}: 0\n")).collect();
    text.push_str("key3: 0\nkey99: 0\nkey100: 0\n");
    let parsed = yaml::parse(&FileText::new("test.yaml", text), &Limits::DOCUMENTS);
    let lines: Vec<_> = parsed
        .findings
        .iter()
        .map(|finding| {
            let line = |place: &muster_design::finding::Location| place.span.unwrap().start.line;
            (line(finding.location.as_ref().unwrap()), line(&finding.notes[0].location))
        })
        .collect();
    assert_eq!(lines, [(101, 4), (102, 100)]);
}

#[rustfmt::skip]
const PIECES: &[&str] = &[
    "a", "b: ", ": ", "- ", "? ", "\n", "\n  ", "\n    ", "\n\t", "\r\n", "\r", " ", "\t", "[", "]", "{", "}", ", ",
    "&x ", "*x", "!t ", "!!str ", "\"", "'", "|\n", ">-\n", "|2+\n", "# c", "---\n", "\n---\n", "\n...\n", "%YAML 1.2\n",
    "%TAG ! a\n", "<<: ", "~", "12", "-0x1", "1.5", "99999999999999999999", "é", "\u{feff}", "\u{0}", "\u{85}",
    "\u{2028}", "\\", "\"\\x41\"", "@", "`", "roles:\n  web: {cardinality: 1, flavor: s}\n", "after: [web]", "roles: ",
];

/// Text that resembles YAML: it reaches more of the parser than random characters do.
fn nearly_yaml() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 0..40).prop_map(|pieces| pieces.concat())
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![4 => nearly_yaml(), 1 => any::<String>()]
}

fn parse(source: &FileText) -> ParsedFile {
    yaml::parse(source, &Limits::HANDWRITTEN)
}

fn walk(node: &YamlNode, visit: &mut dyn FnMut(Span)) {
    visit(node.span);
    match &node.value {
        Value::Scalar(_) => {}
        Value::Seq(items) => items.iter().for_each(|item| walk(item, visit)),
        Value::Map(map) => {
            for entry in map.entries() {
                visit(entry.key.span);
                walk(&entry.value, visit);
            }
        }
    }
}

/// Reports whether a position exists in the file: a character, or the end of a line.
fn within(source: &FileText, position: Position) -> bool {
    let line = source.line(position.line);
    line.is_some_and(|line| position.column >= 1 && position.column as usize <= line.chars().count() + 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn spans_are_within_the_file(text in any_text()) {
        let source = FileText::new("test.yaml", text);
        let parsed = parse(&source);
        let mut spans = Vec::new();
        parsed.documents.iter().for_each(|document| walk(document, &mut |span| spans.push(span.range())));
        for finding in &parsed.findings {
            spans.extend(finding.location.as_ref().and_then(|place| place.span));
            spans.extend(finding.notes.iter().filter_map(|note| note.location.span));
        }
        for span in spans {
            prop_assert!(within(&source, span.start), "{span:?} starts outside of {:?}", source.text());
            prop_assert!(within(&source, span.end), "{span:?} ends outside of {:?}", source.text());
            prop_assert!(span.start <= span.end, "{span:?} in {:?}", source.text());
        }
    }

    #[test]
    fn parsing_is_deterministic(text in any_text()) {
        let source = FileText::new("prod.yaml", text);
        prop_assert_eq!(parse(&source), parse(&source));
        prop_assert_eq!(Environment::parse(&source), Environment::parse(&source));
    }

    #[test]
    fn any_bytes_are_accepted_or_explained(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        match FileText::from_bytes("prod.yaml", bytes).and_then(|source| Environment::parse(&source)) {
            Ok(accepted) => prop_assert!(!accepted.warnings.has_errors()),
            Err(findings) => prop_assert!(findings.has_errors()),
        }
    }

    #[test]
    fn findings_have_no_control_characters(text in any_text()) {
        let source = FileText::new("prod.yaml", text);
        let shown = match Environment::parse(&source) {
            Ok(accepted) => accepted.warnings.to_string(),
            Err(findings) => findings.to_string(),
        };
        prop_assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
    }

    #[test]
    fn quoted_text_round_trips(text in any::<String>()) {
        let json = serde_json::to_string(&text).unwrap();
        let parsed = parse(&FileText::new("test.yaml", json));
        // JSON allows characters that YAML does not.
        if let [YamlNode { value: Value::Scalar(scalar), .. }] = parsed.documents.as_slice() {
            prop_assert_eq!(scalar.text(), text);
        }
    }
}
