//! Property tests of filters.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const KEYS: FilterKeys<'_> = FilterKeys { fixed: &["name", "role"], open: &["label."] };

/// Field → values. Few letters, so that generated keys and values collide.
#[derive(Clone, Debug)]
struct Item(BTreeMap<String, Vec<String>>);

impl Fields for Item {
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

fn item() -> impl Strategy<Value = Item> {
    prop::collection::btree_map(key(), prop::collection::vec(text(), 0..3), 0..4).prop_map(Item)
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
        prop_assert_eq!(Filter::parse(&printed, &KEYS), Ok(filter), "{}", printed);
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
        match Filter::parse(&text, &KEYS) {
            Ok(filter) => prop_assert_eq!(Filter::parse(&filter.to_string(), &KEYS), Ok(filter)),
            Err(error) => prop_assert!(error.at <= text.chars().count() + 1 && !error.hint().is_empty()),
        }
    }
}
