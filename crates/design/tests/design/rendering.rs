//! A finding for people and for programs.

use muster_design::environment::Environment;
use muster_design::file_text::FileText;
use muster_design::finding::{Findings, Ink};

fn findings() -> Findings {
    let text = "roles:\n  web: {cardinality: 1, flavor: small}\n  web: {cardinality: 2, flavor: small}\n";
    Environment::parse(&FileText::new("environments/prod.yaml", text)).unwrap_err()
}

#[test]
fn pieces_say_what_they_are_and_read_the_same() {
    let finding = findings().into_iter().next().unwrap();
    let pieces = finding.pieces();
    assert_eq!(pieces.iter().map(|piece| piece.text.as_str()).collect::<String>(), finding.to_string());
    let of =
        |ink: Ink| pieces.iter().filter(|piece| piece.ink == ink).map(|piece| piece.text.trim()).collect::<Vec<_>>();
    assert_eq!(of(Ink::Error), ["error[M0006]"]);
    assert_eq!(of(Ink::Remark), ["note", "help"]);
    assert_eq!(of(Ink::Caret), ["^^^", "^^^"]);
}

#[test]
fn programs_get_everything() {
    insta::assert_json_snapshot!(findings());
}
