//! Rendering of findings as text and as JSON.

use muster_design::environment::Environment;
use muster_design::file_text::FileText;
use muster_design::finding::{Findings, TextStyle};

fn findings() -> Findings {
    let text = "roles:\n  web: {cardinality: 1, flavor: small}\n  web: {cardinality: 2, flavor: small}\n";
    Environment::parse(&FileText::new("environments/prod.yaml", text)).unwrap_err()
}

#[test]
fn rendered_parts_join_to_the_plain_text() {
    let finding = findings().into_iter().next().unwrap();
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
fn programs_get_everything() {
    insta::assert_json_snapshot!(findings());
}
