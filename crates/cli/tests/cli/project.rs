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
    release v1: cannot use release v1: 1 file of the release cannot be parsed
      data/common.yaml:2:1: while parsing a flow sequence, expected ',' or ']'
    release v2: cannot use release v2: shop/releases/v2 cannot be used: release.yaml:1:10: unknown variant `scrip`, expected one of puppet, script at line 1, column 10
    release v3: cannot use release v3: shop/releases/v3 cannot be used: release.yaml:2: it names "apply", which is not in the release
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
}
