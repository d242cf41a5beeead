//! Examples of filters, errors and hints.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

const KEYS: FilterKeys<'_> = FilterKeys { fixed: &["name", "role", "state", "version", "reason"], open: &["label."] };

struct Item(&'static [(&'static str, &'static str)]);

impl Fields for Item {
    fn any(&self, key: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        self.0.iter().filter(|(name, _)| *name == key).any(|(_, value)| test(value))
    }
}

const WEB1: Item = Item(&[
    ("name", "web1"),
    ("role", "web"),
    ("state", "pending"),
    ("version", ""),
    ("label.rack", "r1"),
    ("label.owner", "the web team, Berlin"),
    ("label.odd key", "a*b"),
    ("label.zone", "eu"),
    ("label.zone", "de"),
]);

#[track_caller]
fn matches(filter: &str) -> bool {
    Filter::parse(filter, &KEYS).unwrap().matches(&WEB1)
}

fn refused(filter: &str) -> String {
    let error = Filter::parse(filter, &KEYS).unwrap_err();
    format!("{error}\n{}", error.hint())
}

#[test]
fn terms_match_as_expected() {
    for filter in [
        "",
        "  ",
        "role=web",
        "role=db,web",
        "role!=db",
        "role!=db,lb state=pending",
        "name=web*",
        "name=*1",
        "name=w*b*",
        "name=*",
        "name=*e*",
        "version",
        "version=\"\"",
        "!reason",
        "reason!=timeout",
        "label.rack=r1",
        "label.zone=eu label.zone=de",
        "label.owner=\"the web team, Berlin\"",
        "label.owner='the web team'*",
        "label.\"odd key\"=\"a*b\"",
        "label.\"odd key\"=a\"*\"b",
    ] {
        assert!(matches(filter), "{filter}");
    }
    for filter in [
        "role=we",
        "role=db,lb",
        "role!=web",
        "role=web state=validated",
        "name=web",
        "name=*2",
        "name=web1*web1",
        "label.zone!=eu",
        "reason",
        "!version",
        "reason=*",
        "label.rack=R1",
        "label.\"odd key\"='a*'",
    ] {
        assert!(!matches(filter), "{filter}");
    }
}

#[test]
fn filter_prints_as_typed() {
    let print = |text: &str| Filter::parse(text, &KEYS).unwrap().to_string();
    assert_eq!(print("  role=web,db   !reason\tstate"), "role=web,db !reason state");
    assert_eq!(print("label.'odd key'!='x y',\"*\",**"), r#""label.odd key"!="x y","*",*"#);
    assert_eq!(print(r#"name="" version="=" label.x=a=b"#), r#"name="" version="=" label.x=a=b"#);
}

#[test]
fn filter_errors_have_position_and_hint() {
    let all: Vec<String> = [
        "role=web stat=pending",
        "label",
        "colour=red",
        "role=web and state=pending",
        "role=",
        "role=web, db",
        "state!",
        "!role=web",
        "role==web",
        "version>2",
        "=web",
        "! role",
        "name=\"web 1",
        "role&state",
    ]
    .map(|filter| format!("{filter}\n{}\n", refused(filter)))
    .into();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn positions_count_characters() {
    let error = Filter::parse("name=äöü stat", &KEYS).unwrap_err();
    assert_eq!((error.at, error.term.as_str()), (10, "stat"));
    let error = Filter::parse(&"x".repeat(5000), &KEYS).unwrap_err();
    assert_eq!(error.trouble, FilterProblem::TooLong);
}
