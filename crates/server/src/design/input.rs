//! Merges the sources that a client sends into the sources of a design.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_wire::design::{API_SOURCE, DesignInput, SourceBundle};
use thiserror::Error;

use super::compiled::Texts;
use super::tree::{DesignTree, FileRef, SourceTree};
use crate::blobs::Blobs;

/// Longest name of a source and path of a file, in bytes.
const LONGEST_NAME: usize = 128;
const LONGEST_PATH: usize = 1024;

/// Reason why sources cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InputError {
    #[error(
        "{0:?} is not a valid name of a source: expected 1 to {LONGEST_NAME} characters without '/' and control characters"
    )]
    SourceName(String),
    #[error("the source {API_SOURCE:?} holds what is written through the API, and cannot be sent as a whole")]
    ApiSource,
    #[error("the source {0:?} is given twice")]
    SourceTwice(String),
    #[error("the source {0:?} is to be removed, and is given as well")]
    GivenAndRemoved(String),
    #[error("there is no source {0:?} to remove; existing sources: {1}")]
    NoSuchSource(String, String),
    #[error(
        "{path:?} in the source {name:?} is not a valid path: expected 1 to {LONGEST_PATH} characters without control characters"
    )]
    Path { name: String, path: String },
    #[error("{path:?} is given twice in the source {name:?}")]
    PathTwice { name: String, path: String },
}

/// Merges sent sources into a tree. Returns the new tree, and the texts that were sent.
pub fn merge_sources(base: &DesignTree, input: &DesignInput) -> Result<(DesignTree, Texts), InputError> {
    let mut texts = Texts::new();
    let mut given: BTreeMap<&str, SourceTree> = BTreeMap::new();
    for bundle in &input.bundles {
        let source = source(bundle, &mut texts)?;
        if given.insert(&bundle.name, source).is_some() {
            return Err(InputError::SourceTwice(bundle.name.clone()));
        }
    }
    let existing: Vec<&str> = base.sources.iter().map(|source| source.name.as_str()).collect();
    for name in &input.remove_sources {
        if given.contains_key(name.as_str()) {
            return Err(InputError::GivenAndRemoved(name.clone()));
        }
        if !existing.contains(&name.as_str()) {
            let known = if existing.is_empty() { "none".to_owned() } else { existing.join(", ") };
            return Err(InputError::NoSuchSource(name.clone(), known));
        }
    }
    let is_removed = |name: &str| input.remove_sources.iter().any(|removed| removed == name);
    let order = order(&existing, &input.bundles.iter().map(|bundle| bundle.name.as_str()).collect::<Vec<_>>());
    let mut sources: Vec<SourceTree> = Vec::with_capacity(order.len() + 1);
    for name in order.into_iter().filter(|name| !is_removed(name)) {
        let kept = || base.source(name).cloned();
        sources.extend(given.remove(name).or_else(kept));
    }
    let written = base.source(API_SOURCE).filter(|_| !is_removed(API_SOURCE)).cloned();
    sources.push(written.unwrap_or_else(|| SourceTree::new(API_SOURCE, [])));
    let cardinality = if input.is_empty() { base.cardinality.clone() } else { input.cardinality.clone() };
    Ok((DesignTree { cardinality, sources }, texts))
}

/// Order of the sources without `api`, which is always last. Sent sources keep the order in which they were sent, in the
/// positions of those that existed; the others keep their position.
fn order<'a>(existing: &[&'a str], given: &[&'a str]) -> Vec<&'a str> {
    let mut next = given.iter().copied();
    let is_given = |name: &&str| given.contains(name);
    let kept = existing.iter().copied().filter(|name| *name != API_SOURCE);
    let mut order: Vec<&str> = kept.filter_map(|name| if is_given(&name) { next.next() } else { Some(name) }).collect();
    order.extend(next);
    order
}

fn source(bundle: &SourceBundle, texts: &mut Texts) -> Result<SourceTree, InputError> {
    let SourceBundle { name, files } = bundle;
    let is_legal =
        |text: &str, longest: usize| !text.is_empty() && text.len() <= longest && !text.chars().any(char::is_control);
    if !is_legal(name, LONGEST_NAME) || name.contains('/') {
        return Err(InputError::SourceName(name.clone()));
    }
    if name == API_SOURCE {
        return Err(InputError::ApiSource);
    }
    let mut seen = BTreeSet::new();
    let mut refs = Vec::with_capacity(files.len());
    for file in files {
        let (name, path) = (name.clone(), file.path.clone());
        if !is_legal(&path, LONGEST_PATH) {
            return Err(InputError::Path { name, path });
        }
        if !seen.insert(&file.path) {
            return Err(InputError::PathTwice { name, path });
        }
        let digest = Blobs::digest(file.text.as_bytes());
        texts.entry(digest.clone()).or_insert_with(|| Arc::from(file.text.as_str()));
        refs.push(FileRef { path, digest });
    }
    Ok(SourceTree::new(name.clone(), refs))
}

#[cfg(test)]
mod tests {
    use muster_core::names::Role;
    use muster_wire::design::SourceFile;

    use super::*;

    fn bundle(name: &str, files: &[(&str, &str)]) -> SourceBundle {
        let file = |(path, text): &(&str, &str)| SourceFile { path: (*path).into(), text: (*text).into() };
        SourceBundle { name: name.into(), files: files.iter().map(file).collect() }
    }

    fn given(names: &[&str]) -> DesignInput {
        let bundles = names.iter().map(|name| bundle(name, &[("a.yaml", name)])).collect();
        DesignInput { bundles, ..DesignInput::default() }
    }

    fn names(tree: &DesignTree) -> Vec<&str> {
        tree.sources.iter().map(|source| source.name.as_str()).collect()
    }

    #[test]
    fn sources_keep_their_order_and_the_api_source_is_last() {
        let (three, _) = merge_sources(&DesignTree::default(), &given(&["a", "b", "c"])).unwrap();
        assert_eq!(names(&three), ["a", "b", "c", "api"]);
        for (given_now, expected) in [
            (&["b"][..], &["a", "b", "c", "api"][..]),
            (&["c", "a"], &["c", "b", "a", "api"]),
            (&["d"], &["a", "b", "c", "d", "api"]),
            (&["d", "a"], &["d", "b", "c", "a", "api"]),
        ] {
            assert_eq!(names(&merge_sources(&three, &given(given_now)).unwrap().0), expected, "{given_now:?}");
        }
        let removing = DesignInput { remove_sources: vec!["b".into()], ..DesignInput::default() };
        assert_eq!(names(&merge_sources(&three, &removing).unwrap().0), ["a", "c", "api"]);
    }

    #[test]
    fn sent_source_replaces_only_itself() {
        let first = DesignInput {
            bundles: vec![bundle("site", &[("a.yaml", "1"), ("b.yaml", "2")]), bundle("lab", &[("a.yaml", "3")])],
            ..DesignInput::default()
        };
        let (base, _) = merge_sources(&DesignTree::default(), &first).unwrap();
        let again = DesignInput { bundles: vec![bundle("site", &[("b.yaml", "4")])], ..DesignInput::default() };
        let (next, texts) = merge_sources(&base, &again).unwrap();
        assert_eq!(next.source("site").unwrap().len(), 1);
        assert_eq!(next.source("lab"), base.source("lab"));
        assert_eq!(texts.len(), 1);
        assert_eq!(merge_sources(&base, &DesignInput::default()).unwrap().0, base, "an empty input changes nothing");
    }

    #[test]
    fn empty_input_keeps_cardinalities() {
        let cardinality = BTreeMap::from([(Role::new("web").unwrap(), 3)]);
        let (base, _) = merge_sources(&DesignTree::default(), &DesignInput { cardinality, ..given(&["a"]) }).unwrap();
        assert_eq!(merge_sources(&base, &DesignInput::default()).unwrap().0.cardinality, base.cardinality);
        assert!(merge_sources(&base, &given(&["a"])).unwrap().0.cardinality.is_empty());
    }

    #[test]
    fn invalid_sources_are_refused() {
        let base = merge_sources(&DesignTree::default(), &given(&["a"])).unwrap().0;
        let removing = |name: &str| DesignInput { remove_sources: vec![name.into()], ..given(&["b"]) };
        let with = |bundle| DesignInput { bundles: vec![bundle], ..DesignInput::default() };
        for (input, expected) in [
            (given(&["a", "a"]), "twice"),
            (given(&["api"]), "written through the API"),
            (given(&["a/b"]), "not a valid name"),
            (given(&[""]), "not a valid name"),
            (removing("c"), "existing sources: a, api"),
            (removing("b"), "given as well"),
            (with(bundle("b", &[("x.yaml", ""), ("x.yaml", "")])), "twice"),
            (with(bundle("b", &[("", "")])), "not a valid path"),
        ] {
            let error = merge_sources(&base, &input).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
