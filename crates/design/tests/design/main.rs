//! Tests of the public API. One binary, to link once.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod book_pages;
mod compile;
mod document_generator;
mod drydock;
mod drydock_defects;
mod environment_files;
mod examples;
mod findings;
mod generated_sites;
mod host_rules;
mod inheritance;
mod invalid_input;
mod limits;
mod network_rules;
mod project;
mod reference_model;
mod resolve;
mod schemas;
mod strategy;
mod yaml;

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
