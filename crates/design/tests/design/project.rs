//! Project directories.

use std::error::Error;
use std::fs;
use std::path::Path;

use muster_design::project::Project;

const GOOD: &str = "roles: {web: {cardinality: 1, flavor: small}}\n";

/// Creates a directory with these files; a path that ends in `/` is a directory.
fn directory(paths: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for path in paths {
        let full = root.path().join(path);
        if path.ends_with('/') {
            fs::create_dir_all(full).unwrap();
        } else {
            fs::create_dir_all(full.parent().unwrap()).unwrap();
            fs::write(full, GOOD).unwrap();
        }
    }
    root
}

/// An error and its causes, without the name of the temporary directory.
fn error_text(root: &Path, error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text.replace(root.to_str().unwrap(), "DIR")
}

fn open_error(paths: &[&str]) -> String {
    let root = directory(paths);
    error_text(root.path(), &Project::open(root.path()).unwrap_err())
}

#[test]
fn project_lists_its_environments_and_releases() {
    let root = directory(&[
        "environments/staging.yaml",
        "environments/prod.yaml",
        "environments/.prod.yaml.swp",
        "environments/notes.txt",
        "environments/old/",
        "releases/v2/",
        "releases/v1/",
        "releases/README.md",
        "releases/.cache/",
    ]);
    let project = Project::open(root.path()).unwrap();
    assert_eq!(project.environments(), ["prod", "staging"]);
    assert_eq!(project.releases().iter().map(|version| version.as_str()).collect::<Vec<_>>(), ["v1", "v2"]);
    assert_eq!(project.release_dir(&project.releases()[0]), root.path().join("releases/v1"));
}

#[test]
fn only_environment_needs_no_name() {
    let root = directory(&["environments/prod.yaml"]);
    let project = Project::open(root.path()).unwrap();
    assert_eq!(project.environment(None).unwrap().value.name.as_str(), "prod");
    assert_eq!(project.environment(Some("prod")).unwrap().value.name.as_str(), "prod");
    assert!(project.releases().is_empty());
}

#[test]
fn one_of_several_environments_must_be_named() {
    let root = directory(&["environments/staging.yaml", "environments/prod.yaml"]);
    let project = Project::open(root.path()).unwrap();
    assert_eq!(project.environment(Some("staging")).unwrap().value.name.as_str(), "staging");
    let refused = |wanted| error_text(root.path(), &project.environment(wanted).unwrap_err());
    insta::assert_snapshot!(refused(None), @"DIR has several environments: choose one of prod, staging");
    insta::assert_snapshot!(refused(Some("live")), @r#"there is no environment "live" in DIR: there is prod, staging"#);
    insta::assert_snapshot!(refused(Some("../prod")), @r#"there is no environment "../prod" in DIR: there is prod, staging"#);
}

#[test]
fn findings_have_paths_relative_to_the_given_one() {
    let root = directory(&["environments/prod.yaml"]);
    fs::write(root.path().join("environments/prod.yaml"), "rolls: {}\n").unwrap();
    let error = Project::open(root.path()).unwrap().environment(None).unwrap_err();
    insta::assert_snapshot!(error_text(root.path(), &error), @r#"
    error[M0103]: unknown key "rolls" in the environment
     --> DIR/environments/prod.yaml:1:1
      |
    1 | rolls: {}
      | ^^^^^
    help: did you mean "roles"?
    "#);
}

#[test]
fn invalid_project_is_refused_with_a_reason() {
    insta::assert_snapshot!(open_error(&[]), @"DIR is not a project: there is no directory DIR/environments");
    insta::assert_snapshot!(open_error(&["environments"]), @"DIR is not a project: there is no directory DIR/environments");
    insta::assert_snapshot!(open_error(&["environments/"]), @"there is no environment file in DIR/environments: expected <environment>.yaml");
    insta::assert_snapshot!(open_error(&["environments/prod.yml"]), @"there is no environment file in DIR/environments: expected <environment>.yaml (there is prod.yml)");
    insta::assert_snapshot!(open_error(&["environments/prod.yaml", "releases/my release/"]), @r#"the name of the release directory DIR/releases/my release is not a version: "my release" is not a legal version: 1 to 64 of A-Z, a-z, 0-9, '.', '_', '+' and '-', beginning with a letter or digit"#);
}

#[test]
fn quickstart_has_no_findings() {
    let project = Project::open("../../examples/quickstart").unwrap();
    let accepted = project.environment(None).unwrap();
    assert!(accepted.warnings.is_empty(), "{}", accepted.warnings);
    // Local nodes get their addresses in this order.
    let nodes: Vec<_> = accepted.value.nodes().into_iter().map(|node| String::from(node.name)).collect();
    assert_eq!(nodes, ["db1", "web1", "web2", "lb1"]);
    assert_eq!(project.releases().iter().map(|version| version.as_str()).collect::<Vec<_>>(), ["v1", "v2"]);
}
