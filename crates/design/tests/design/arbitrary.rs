//! Property tests: the parser terminates without a panic for any input.

use muster_design::environment::Environment;
use muster_design::file_text::FileText;
use muster_design::span::{Position, Span};
use muster_design::yaml::{self, Limits, Node, Parsed, Value};
use proptest::prelude::*;

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

fn parse(source: &FileText) -> Parsed {
    yaml::parse(source, &Limits::HANDWRITTEN)
}

fn walk(node: &Node, visit: &mut dyn FnMut(Span)) {
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
    fn reading_twice_gives_the_same(text in any_text()) {
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
    fn what_is_shown_cannot_steer_a_terminal(text in any_text()) {
        let source = FileText::new("prod.yaml", text);
        let shown = match Environment::parse(&source) {
            Ok(accepted) => accepted.warnings.to_string(),
            Err(findings) => findings.to_string(),
        };
        prop_assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
    }

    #[test]
    fn a_quoted_text_comes_back(text in any::<String>()) {
        let json = serde_json::to_string(&text).unwrap();
        let parsed = parse(&FileText::new("test.yaml", json));
        // JSON allows characters that YAML does not.
        if let [Node { value: Value::Scalar(scalar), .. }] = parsed.documents.as_slice() {
            prop_assert_eq!(scalar.text(), text);
        }
    }
}
