//! Validates releases with the Puppet of this machine.

use std::fs;
use std::path::Path;

use muster_release::tree::ReleaseTree;
use muster_release::validate::programs::Programs;
use muster_release::validate::{Validation, validate};

use crate::support::write;

const EPP: &str = "<%- | String $name | -%>\nhello <%= $name %>\n";

fn puppet_release(root: &Path) {
    let spec = "applier: puppet\nmanifest: manifests\nmodulepath: [modules]\nhiera: hiera.yaml\n";
    for (path, text) in [
        ("release.yaml", spec),
        ("hiera.yaml", "version: 5\n"),
        ("manifests/site.pp", "node default { include web }\n"),
        ("modules/web/manifests/init.pp", "class web {\n  notify { 'x': }\n}\n"),
        ("modules/web/plans/install.pp", "plan web::install() { }\n"),
        ("modules/web/templates/a.epp", EPP),
        ("modules/web/templates/a.erb", "<% if @x -%>\n<%= @x %>\n<% end -%>\n"),
        ("data/common.yaml", "a: &x 1\nb: *x\n# Psych accepts a duplicate key.\nb: 2\n"),
        ("data/secret.yaml", "web::key: ENC[PKCS7,MIIB]\nweb::name: \"%{facts.os.name}\"\n"),
    ] {
        write(root, path, text.as_bytes(), 0o644);
    }
}

fn validated(root: &Path, programs: &Programs, cache: Option<&Path>) -> Validation {
    let tree = ReleaseTree::read(root).unwrap();
    validate(&tree, &muster_release::check(&tree).unwrap(), programs, cache).unwrap()
}

#[test]
fn valid_release_passes() {
    let dir = tempfile::tempdir().unwrap();
    puppet_release(dir.path());
    let result = validated(dir.path(), &Programs::find(), None);
    assert_eq!((result.problems, result.skipped, result.files), (vec![], vec![], 8));
}

#[test]
fn every_kind_of_file_is_parsed() {
    let dir = tempfile::tempdir().unwrap();
    puppet_release(dir.path());
    for (path, text) in [
        ("manifests/site.pp", "node default {\n  include web\n"),
        ("modules/web/manifests/init.pp", "class web {\n  file { '/x': ensure ==> present }\n}\n"),
        ("modules/web/templates/a.epp", "one\n<%= $name \n"),
        ("modules/web/templates/b.epp", "<% if $x { %>\n"),
        ("modules/web/templates/a.erb", "one\n<% if @x -%>\ntwo\n"),
        ("data/common.yaml", "a: 1\nb: [1\nc: 2\n"),
        ("data/tab.yaml", "a:\n\tb: 1\n"),
    ] {
        write(dir.path(), path, text.as_bytes(), 0o644);
    }
    let result = validated(dir.path(), &Programs::find(), None);
    let problems: Vec<String> = result.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 7, "{problems:#?}");
    for (problem, expected) in problems.iter().zip([
        "data/common.yaml:2: ",
        "data/tab.yaml:2: ",
        "manifests/site.pp:2: Syntax error at end of input",
        "modules/web/manifests/init.pp:2:23: Syntax error at '=='",
        "modules/web/templates/a.epp:3:1: Unbalanced epp tag",
        "modules/web/templates/a.erb:4: syntax error",
        "modules/web/templates/b.epp:1: ",
    ]) {
        assert!(problem.starts_with(expected), "expected {expected:?}: {problem}");
    }
}

#[test]
fn missing_programs_are_named_and_yaml_is_parsed() {
    let dir = tempfile::tempdir().unwrap();
    puppet_release(dir.path());
    write(dir.path(), "data/common.yaml", b"a: [1\n", 0o644);
    write(dir.path(), "manifests/site.pp", b"node default {\n", 0o644);
    let result = validated(dir.path(), &Programs::default(), None);
    assert_eq!(result.problems.len(), 1, "{:?}", result.problems);
    assert!(result.problems[0].to_string().starts_with("data/common.yaml:"), "{:?}", result.problems);
    assert_eq!(
        result.skipped,
        [
            "puppet is not installed: 2 manifests were not validated",
            "puppet is not installed: 1 EPP template was not validated",
            "ruby is not installed: 1 ERB template was not validated"
        ]
    );
}

/// The program that counts its calls stands for Puppet.
#[test]
fn unchanged_files_are_not_parsed_again() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    puppet_release(dir.path());
    let calls = cache.path().join("calls");
    let script = format!("#!/bin/sh\necho \"$@\" >> {}\n", calls.display());
    write(cache.path(), "puppet", script.as_bytes(), 0o755);
    let programs = Programs { puppet: Some(cache.path().join("puppet")), ..Programs::find() };
    let lines = || fs::read_to_string(&calls).unwrap_or_default().lines().count();

    assert_eq!(validated(dir.path(), &programs, Some(cache.path())).files, 8);
    assert_eq!(lines(), 2, "one call for the manifests, one for the templates");
    assert_eq!(validated(dir.path(), &programs, Some(cache.path())).files, 8);
    assert_eq!(lines(), 2);
    write(dir.path(), "manifests/site.pp", b"node default { }\n", 0o644);
    validated(dir.path(), &programs, Some(cache.path()));
    assert_eq!(lines(), 3);
    let last = fs::read_to_string(&calls).unwrap();
    let last = last.lines().last().unwrap();
    assert!(last.contains("manifests/site.pp") && !last.contains("init.pp"), "{last}");
}

#[test]
fn invalid_file_is_parsed_again() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    puppet_release(dir.path());
    write(dir.path(), "data/common.yaml", b"a: [1\n", 0o644);
    for _ in 0..2 {
        let programs = Programs { puppet: None, ruby: None };
        assert_eq!(validated(dir.path(), &programs, Some(cache.path())).problems.len(), 1);
    }
}
