//! Tests of `muster check` and `muster up` on a project directory with mistakes.

use muster_testkit::release::ScriptRelease;

use crate::fixture::{Machine, write};
use crate::snapshot;

#[tokio::test]
async fn check_reports_all_problems_of_a_project() {
    let machine = Machine::new();
    machine.run(&["init", "shop"]).await;
    let write = |path: &str, text: &str| write(&machine.path("elsewhere/shop").join(path), text);
    write("releases/v1/data/common.yaml", "app::greeting: [Hello\n");
    write("releases/v2/release.yaml", "applier: scrip\n");
    write("releases/v3/release.yaml", "applier: script\nmanifest: apply\n");
    write("environments/shop.yaml", "roles:\n  app: {cardinality: two, flavor: local}\n");
    write("strategy.yaml", "waves: [{percent: 100}]\n");
    write("hardware/acme.yaml", "kind: HardwareProfile\nname: acme\nspec: {}\n");
    snapshot!(machine.run(&["check", "shop"]).await, @r#"
    exit 1
    --- stdout
    error[M0105]: "cardinality" of role "app" must be an integer from 0 to 9999, but is the text "two"
     --> shop/environments/shop.yaml:2:22
      |
    2 |   app: {cardinality: two, flavor: local}
      |                      ^^^ expected an integer from 0 to 9999

    1 error
    release v1: 1 file of the release cannot be parsed
      data/common.yaml:2:1: while parsing a flow sequence, expected ',' or ']'
    release v2: release.yaml:1:10: unknown variant `scrip`, expected one of puppet, script at line 1, column 10
    release v3: release.yaml:2: it names "apply", which is not in the release
    --- stderr
    warning: shop/hardware/acme.yaml is not read: the documents of a project are in design/ and environments/, or in the directories that muster.yaml lists
    warning: puppet is not installed: 2 manifests were not validated
    "#);
}

#[tokio::test]
async fn up_refuses_checks_for_unknown_roles() {
    let machine = Machine::new();
    let project = machine.path("elsewhere/project");
    write(&project.join("environments/lab.yaml"), "roles: {web: {cardinality: 1, flavor: small}}\n");
    ScriptRelease::new("true")
        .check("{name: up, tcp: \"{eth0}:80\", roles: [wbe]}")
        .write(&project.join("releases/v1"));
    snapshot!(machine.run(&["up", "project", "--once", "--state", "state"]).await, @"
    exit 1
    --- stderr
    error: release v1 has a check for role wbe, which the environment lab does not have: the check would never run
    hint: correct `roles` of the checks in release.yaml; the roles are web
    ");
    assert!(!machine.path("elsewhere/state/nodes").exists());

    // A file that cannot be parsed does not hide the other problem.
    machine.run(&["init", "shop"]).await;
    let release = machine.path("elsewhere/shop/releases/v1");
    write(&release.join("data/common.yaml"), "app::greeting: [Hello\n");
    let spec = std::fs::read_to_string(release.join("release.yaml")).unwrap();
    write(&release.join("release.yaml"), &spec.replace("roles: [app]", "roles: [wbe]"));
    let checked = machine.run(&["check", "shop"]).await;
    let problems: Vec<&str> = checked.lines().filter(|line| line.starts_with("release v1: ")).collect();
    assert_eq!(problems[0], "release v1: 1 file of the release cannot be parsed", "{checked}");
    assert!(problems[1].starts_with("release v1: has a check for role wbe, which the environment shop"), "{checked}");
    for args in [&["check", "nowhere"][..], &["up", "nowhere"], &["key", "show", "nowhere"], &["restore", "nowhere"]] {
        let missing = machine.run(args).await;
        assert!(missing.starts_with("exit 64\n"), "{args:?}: {missing}");
    }
}
