//! Examples of filters, errors and hints, and property tests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const KEYS: FilterKeys<'_> = FilterKeys {
    fixed: &["name", "role", "state", "version", "reason", "active"],
    open: &["label."],
    closed: &[("active", &["true", "false"]), ("state", &["pending", "validated", "unreachable"])],
    aliases: &[("state", &["silent"])],
};

struct Item(&'static [(&'static str, &'static str)]);

impl FilterFields for Item {
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
fn only_current_values_are_suggested() {
    assert!(Filter::parse("state=silent,pending state!=sil*", &KEYS).is_ok());
    let hint = |filter: &str| Filter::parse(filter, &KEYS).unwrap_err().hint();
    let values = "values of state: pending, validated, unreachable";
    assert_eq!(hint("state=valid"), format!("did you mean state=validated? {values}"));
    assert_eq!(hint("state=slient"), values);
    assert_eq!(hint("active=maybe"), "values of active: true, false");
}

#[test]
fn positions_count_characters() {
    let error = Filter::parse("name=äöü stat", &KEYS).unwrap_err();
    assert_eq!((error.at, error.term.as_str()), (10, "stat"));
    let error = Filter::parse(&"x".repeat(5000), &KEYS).unwrap_err();
    assert_eq!(error.trouble, FilterProblem::TooLong);
}

const GENERATED_KEYS: FilterKeys<'_> =
    FilterKeys { fixed: &["name", "role"], open: &["label."], closed: &[], aliases: &[] };

/// Field → values. Few letters, so that generated keys and values collide.
#[derive(Clone, Debug)]
struct GeneratedItem(BTreeMap<String, Vec<String>>);

impl FilterFields for GeneratedItem {
    fn any(&self, key: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        self.0.get(key).is_some_and(|values| values.iter().any(|value| test(value)))
    }
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![Just("name".to_owned()), Just("role".to_owned()), r#"label\.[ab"' =!,*\\ä]{1,3}"#]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]{0,4}", r#"[ab"' =!,*\\ä\t\n]{0,4}"#]
}

fn pattern() -> impl Strategy<Value = Pattern> {
    prop::collection::vec(text(), 1..4).prop_map(Pattern::new)
}

fn term() -> impl Strategy<Value = Term> {
    let test = prop_oneof![Just(Test::IsSet), prop::collection::vec(pattern(), 1..3).prop_map(Test::IsLike)];
    (key(), test, any::<bool>()).prop_map(|(key, test, not)| Term { key: key.into(), test, not })
}

fn filter() -> impl Strategy<Value = Filter> {
    prop::collection::vec(term(), 0..4).prop_map(|terms| Filter { terms })
}

fn item() -> impl Strategy<Value = GeneratedItem> {
    prop::collection::btree_map(key(), prop::collection::vec(text(), 0..3), 0..4).prop_map(GeneratedItem)
}

/// Reference implementation of matching: slow and obvious.
fn by_the_book(parts: &[Box<str>], value: &str) -> bool {
    match parts {
        [] => false,
        [last] => **last == *value,
        [first, rest @ ..] => value.strip_prefix(&**first).is_some_and(|value| {
            value.char_indices().map(|(at, _)| at).chain([value.len()]).any(|at| by_the_book(rest, &value[at..]))
        }),
    }
}

proptest! {
    #[test]
    fn printed_filter_parses_back(filter in filter()) {
        let printed = filter.to_string();
        prop_assert_eq!(Filter::parse(&printed, &GENERATED_KEYS), Ok(filter), "{}", printed);
    }

    #[test]
    fn negation_is_the_exact_opposite(term in term(), item in item()) {
        let opposite = Term { not: !term.not, ..term.clone() };
        prop_assert_ne!(term.holds(&item), opposite.holds(&item));
    }

    #[test]
    fn filter_matches_if_all_terms_match(filter in filter(), item in item()) {
        let each = filter.terms().iter().all(|term| Filter { terms: vec![term.clone()] }.matches(&item));
        prop_assert_eq!(filter.matches(&item), each);
    }

    #[test]
    fn stars_match_like_the_reference(parts in prop::collection::vec("[ab]{0,2}", 1..5), value in "[ab]{0,6}") {
        let pattern = Pattern::new(parts.clone());
        let parts: Vec<Box<str>> = parts.into_iter().map(Into::into).collect();
        prop_assert_eq!(pattern.matches(&value), by_the_book(&parts, &value));
    }

    #[test]
    fn any_input_parses_or_errors(text in r#"(?s)([namerol. b=!,*"'\\ä>]|label\.|.){0,30}"#) {
        match Filter::parse(&text, &GENERATED_KEYS) {
            Ok(filter) => prop_assert_eq!(Filter::parse(&filter.to_string(), &GENERATED_KEYS), Ok(filter)),
            Err(error) => prop_assert!(error.at <= text.chars().count() + 1 && !error.hint().is_empty()),
        }
    }
}

#[test]
fn value_that_never_matches_is_an_error() {
    for text in ["active=true", "active=true,false", "active!=false", "active=t*", "active", "!active"] {
        Filter::parse(text, &KEYS).unwrap();
    }
    for (text, at, hint) in [
        ("active=ture", 8, "did you mean active=true? values of active: true, false"),
        ("name=web1 active!=true,yes", 24, "values of active: true, false"),
        ("active=x*", 8, "values of active: true, false"),
    ] {
        let error = Filter::parse(text, &KEYS).unwrap_err();
        assert_eq!((error.at, error.hint().as_str()), (at, hint), "{error}");
    }
}
