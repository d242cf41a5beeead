//! Tests of the public API. One binary, to link once.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod arbitrary;
mod bad_files;
mod bad_input;
mod compile;
mod document_pages;
mod documents;
mod drydock;
mod drydock_defects;
mod examples;
mod finding_example;
mod finding_pages;
mod findings;
mod generated;
mod good_files;
mod host_rules;
mod inheritance;
mod inheritance_page;
mod layers;
mod limits;
mod network_rules;
mod project;
mod rendering;
mod replay;
mod resolve;
mod resolve_host;
mod schemas;
mod strategy;
mod update;
mod value;
mod whole_sites;

use std::path::{Path, PathBuf};

/// Example files of a directory, sorted, with names that do not depend on the machine.
fn files(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new("tests/design").join(directory);
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// Compares with the snapshot beside an example file.
fn snapshot_beside(file: &Path, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(file.parent().unwrap().strip_prefix("tests/design").unwrap());
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let name = file.file_stem().unwrap().to_str().unwrap();
    settings.bind(|| insta::assert_snapshot!(name, text));
}
