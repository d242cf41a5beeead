//! Tests of `muster env …` and `muster item …`.

use std::io::Write;

use tokio::io::{AsyncBufReadExt, BufReader};

use crate::fixture::{Fleet, read_terminal, terminal, write};
use crate::snapshot;

/// A server, and a directory with a design that was not applied yet.
async fn server() -> Fleet {
    let fleet = Fleet::start().await;
    site(&fleet, 2);
    fleet
}

/// Writes the design with a number of web servers.
fn site(fleet: &Fleet, web: usize) {
    let file = |name: &str, text: &str| write(&fleet.machine.path("elsewhere").join(name), text);
    let roles = format!(
        "roles:\n  db: {{cardinality: 1, flavor: small}}\n  web: {{cardinality: {web}, flavor: small, profile: edge}}\n"
    );
    file("site/environments/lab.yaml", &roles);
    file("site/profiles.yaml", "kind: HostProfile\nname: edge\nspec: {tags: [front]}\n");
}

#[tokio::test]
async fn plan_changes_nothing() {
    let fleet = server().await;
    snapshot!(fleet.muster(&["env", "plan", "lab", "site"]).await, @"
    exit 0
    --- stdout
    + create  db1, web1, web2

    db: 0 → 1 node
    web: 0 → 2 nodes
    documents: 4 added, 0 changed, 0 removed
    lab: 3 to create, 0 to change, 0 to remove, 0 to keep
    ");
    let again = fleet.muster(&["env", "plan", "lab", "site", "--detailed-exitcode", "-q"]).await;
    assert!(again.starts_with("exit 3\n"), "{again}");
    assert!(!fleet.muster(&["env", "list"]).await.contains("lab"));
}

#[tokio::test]
async fn plan_shows_only_the_difference() {
    let fleet = server().await;
    let applied = fleet.muster(&["env", "apply", "lab", "site", "--no-wait", "--message", "the first"]).await;
    snapshot!(applied, @"
    exit 0
    --- stdout
    + create  db1, web1, web2

    db: 0 → 1 node
    web: 0 → 2 nodes
    documents: 4 added, 0 changed, 0 removed
    lab: 3 to create, 0 to change, 0 to remove, 0 to keep

    lab follows design 1 (revision N)
    ");
    snapshot!(fleet.muster(&["env", "plan", "lab", "site", "--detailed-exitcode"]).await, @"
    exit 0
    --- stdout
    lab: no changes; 3 nodes to keep
    ");
    snapshot!(fleet.muster(&["env", "plan", "lab", "site", "--cardinality", "web=3"]).await, @"
    exit 0
    --- stdout
    = keep    db1, web1, web2
    + create  web3

    web: 2 → 3 nodes
    documents: 1 added, 0 changed, 0 removed
    lab: 1 to create, 0 to change, 0 to remove, 3 to keep
    ");
    site(&fleet, 1);
    snapshot!(fleet.muster(&["env", "plan", "lab", "site", "--detailed-exitcode"]).await, @"
    exit 3
    --- stdout
    = keep    db1, web1
    - remove  web2

    web: 2 → 1 node: the highest numbers are removed
    documents: 0 added, 0 changed, 1 removed
    lab: 0 to create, 0 to change, 1 to remove, 2 to keep
    ");
    site_profile(&fleet);
    snapshot!(fleet.muster(&["env", "plan", "lab", "site"]).await, @"
    exit 0
    --- stdout
    = keep    db1
    ~ change  web1, web2
          failure_domain: rack2 (was not set)

    documents: 0 added, 3 changed, 0 removed
    lab: 0 to create, 2 to change, 0 to remove, 1 to keep
    ");
}

/// The same design, with another value in the profile.
fn site_profile(fleet: &Fleet) {
    site(fleet, 2);
    write(
        &fleet.machine.path("elsewhere/site/profiles.yaml"),
        "kind: HostProfile\nname: edge\nspec: {tags: [front], failure_domain: rack2}\n",
    );
}

#[tokio::test]
async fn stale_plan_is_refused() {
    let fleet = server().await;
    fleet.muster(&["env", "apply", "lab", "site", "--no-wait"]).await.clear();
    site(&fleet, 3);
    snapshot!(fleet.muster(&["env", "plan", "lab", "site", "--out", "plan.json"]).await, @"
    exit 0
    --- stdout
    = keep    db1, web1, web2
    + create  web3

    web: 2 → 3 nodes
    documents: 1 added, 0 changed, 0 removed
    lab: 1 to create, 0 to change, 0 to remove, 3 to keep
    --- stderr
    note: plan saved to plan.json; execute it with `apply --plan`
    ");
    site(&fleet, 4);
    let other_files = fleet.muster(&["env", "apply", "lab", "site", "--plan", "plan.json", "--no-wait"]).await;
    snapshot!(other_files, @"
    exit 1
    --- stdout
    = keep    db1, web1, web2
    + create  web3

    web: 2 → 3 nodes
    documents: 1 added, 0 changed, 0 removed
    lab: 1 to create, 0 to change, 0 to remove, 3 to keep
    --- stderr
    error: the plan is out of date: the files changed since the plan was made
    hint: plan again, review the plan, and apply it
    ");
    site(&fleet, 3);
    let done = fleet.muster(&["env", "apply", "lab", "site", "--plan", "plan.json", "--no-wait", "-q"]).await;
    assert!(done.starts_with("exit 0\n"), "{done}");
    let twice = fleet.muster(&["env", "apply", "lab", "site", "--plan", "plan.json", "--no-wait"]).await;
    snapshot!(twice, @"
    exit 1
    --- stdout
    = keep    db1, web1, web2
    + create  web3

    web: 2 → 3 nodes
    documents: 1 added, 0 changed, 0 removed
    lab: 1 to create, 0 to change, 0 to remove, 3 to keep
    --- stderr
    error: the plan is out of date: the newest design revision was 1 and is now 2; the applied design revision was 1 and is now 2
    hint: plan again, review the plan, and apply it
    ");
    write(&fleet.machine.path("elsewhere/no-plan.json"), "{}");
    snapshot!(fleet.muster(&["env", "apply", "lab", "site", "--plan", "no-plan.json"]).await, @"
    exit 1
    --- stderr
    error: no-plan.json is not a plan
    hint: `muster env plan ENV DIR… --out FILE` writes one
    ");
}

#[tokio::test]
async fn saved_plan_keeps_its_cardinality() {
    let fleet = server().await;
    fleet.muster(&["env", "apply", "lab", "site", "--no-wait"]).await.clear();
    let more = ["--cardinality", "web=3"];
    let plan = fleet.muster(&[&["env", "plan", "lab", "site", "--out", "plan.json", "-q"], &more[..]].concat()).await;
    assert!(plan.starts_with("exit 0\n"), "{plan}");
    let apply = ["env", "apply", "lab", "site", "--plan", "plan.json", "--no-wait"];
    let other = fleet.muster(&[&apply[..], &["--cardinality", "web=4"]].concat()).await;
    assert!(other.contains("the given numbers of nodes were web=3 and are now web=4\n"), "{other}");
    let done = fleet.muster(&apply).await;
    assert!(done.starts_with("exit 0\n") && done.contains("+ create  web3\n"), "{done}");
}

#[tokio::test]
async fn empty_design_requires_remove_all() {
    let fleet = server().await;
    fleet.muster(&["env", "apply", "lab", "site", "--no-wait"]).await.clear();
    std::fs::create_dir_all(fleet.machine.path("elsewhere/checkout/site")).unwrap();
    snapshot!(fleet.muster(&["env", "apply", "lab", "checkout/site", "--no-wait"]).await, @"
    exit 1
    --- stdout
    - remove  db1, web1, web2

    db: 1 → 0 nodes: the highest numbers are removed
    web: 2 → 0 nodes: the highest numbers are removed
    documents: 0 added, 0 changed, 4 removed
    lab: 0 to create, 0 to change, 3 to remove, 0 to keep
    --- stderr
    error: this would remove all 3 nodes of lab
    hint: check that this is the right directory; `muster env destroy lab` destroys the environment, and --remove-all (`remove_all` in the API) removes only its nodes
    ");
    let all_there = fleet.muster(&["env", "plan", "lab", "site"]).await;
    assert!(all_there.contains("no changes; 3 nodes to keep"), "{all_there}");
    let meant = fleet.muster(&["env", "apply", "lab", "checkout/site", "--no-wait", "--remove-all", "-q"]).await;
    assert!(meant.starts_with("exit 0\n") && meant.contains("lab follows design 2"), "{meant}");
}

#[tokio::test]
async fn removal_of_nodes_is_confirmed() {
    let fleet = server().await;
    fleet.muster(&["env", "apply", "lab", "site", "--no-wait"]).await.clear();
    site(&fleet, 1);
    let asked = fleet.muster(&["env", "apply", "lab", "site", "--no-wait"]).await;
    assert!(asked.starts_with("exit 64\n"), "{asked}");
    let question = "error: web2 will be drained and removed from lab. Continue? There is no terminal to ask: nothing was changed\n";
    assert!(asked.contains(question) && asked.ends_with("hint: confirm with --yes\n"), "{asked}");
    let done = fleet.muster(&["env", "apply", "lab", "site", "--no-wait", "--yes"]).await;
    assert!(done.starts_with("exit 0\n") && done.contains("lab follows design 2"), "{done}");
}

#[tokio::test]
async fn server_findings_and_other_sources_are_printed() {
    let fleet = server().await;
    fleet.muster(&["env", "apply", "lab", "site", "--no-wait"]).await.clear();
    write(&fleet.machine.path("elsewhere/over/edge.yaml"), "kind: HostProfile\nname: edge\nspec: {tags: [over]}\n");
    snapshot!(fleet.muster(&["env", "plan", "lab", "over"]).await, @r#"
    exit 0
    --- stdout
    = keep    db1
    ~ change  web1, web2
          tags: [front] → [over, front]

    documents: 0 added, 3 changed, 0 removed
    lab: 0 to create, 2 to change, 0 to remove, 1 to keep
    --- stderr
    note: lab has other sources, which are kept: site
    warning[M1005]: HostProfile "edge" of source "over" overlays that of source "site"
     --> over/edge.yaml:2:7
      |
    2 | name: edge
      |       ^^^^
    note: the other one is here
     --> profiles.yaml:2:7
      |
    2 | name: edge
      |       ^^^^
    help: if this is intended, add "overlay: true"; otherwise rename one of them
    "#);
    // Each way of applying prints the finding once.
    fleet.muster(&["env", "plan", "lab", "over", "--out", "plan.json"]).await.clear();
    let warned = |text: &str| text.starts_with("exit 0\n") && text.matches("warning[M1005]").count() == 1;
    let saved = fleet.muster(&["env", "apply", "lab", "over", "--plan", "plan.json", "--no-wait"]).await;
    assert!(warned(&saved) && saved.contains("has other sources"), "{saved}");
    let both = fleet.muster(&["env", "apply", "lab", "site", "over", "--no-wait"]).await;
    assert!(warned(&both) && !both.contains("has other sources"), "{both}");
}

#[tokio::test]
async fn local_errors_have_local_paths() {
    let fleet = server().await;
    write(&fleet.machine.path("elsewhere/site/profiles.yaml"), "kind: HostProfile\nname: edge\nspec: {tag: [front]}\n");
    snapshot!(fleet.muster(&["env", "plan", "lab", "site"]).await, @r#"
    exit 1
    --- stderr
    error[M0103]: unknown key "tag" in a host profile
     --> site/profiles.yaml:3:8
      |
    3 | spec: {tag: [front]}
      |        ^^^
    help: did you mean "tags"?
    "#);
    let nowhere = fleet.muster(&["env", "apply", "lab", "sight"]).await;
    assert_eq!(nowhere, "exit 64\n--- stderr\nerror: there is no directory sight\n");
}

#[tokio::test]
async fn server_errors_have_local_paths() {
    let fleet = server().await;
    fleet.muster(&["env", "apply", "lab", "site", "--no-wait"]).await.clear();
    // It overlays a document of the other source, and refers to one that does not exist.
    let overlay = "kind: HostProfile\nname: edge\noverlay: true\nspec: {rack: r9}\n";
    write(&fleet.machine.path("elsewhere/over/edge.yaml"), overlay);
    snapshot!(fleet.muster(&["env", "plan", "lab", "over"]).await, @r#"
    exit 1
    --- stderr
    note: lab has other sources, which are kept: site
    error[M1010]: there is no Rack "r9"
     --> over/edge.yaml:4:14
      |
    4 | spec: {rack: r9}
      |              ^^
    help: add a document of kind Rack with this name, or remove the reference

    error: the design has an error; nothing was accepted: there is no Rack "r9"
    "#);
}

#[tokio::test]
async fn server_finding_lists_the_affected_nodes() {
    let fleet = Fleet::start().await;
    site(&fleet, 5);
    let profile = "kind: HostProfile\nname: edge\nspec: {platform: {kernel_params: {hugepagesz: 1G}}}\n";
    write(&fleet.machine.path("elsewhere/site/profiles.yaml"), profile);
    let shown = fleet.muster(&["env", "plan", "lab", "site"]).await;
    assert!(shown.contains("warning[M1401]"), "{shown}");
    assert!(shown.contains("note: this affects web1, web2, web3 and 2 more nodes\n"), "{shown}");
}

#[tokio::test]
async fn environment_shows_its_design() {
    let fleet = server().await;
    fleet.muster(&["env", "apply", "lab", "site", "--no-wait", "--message", "the first"]).await.clear();
    site(&fleet, 3);
    fleet.muster(&["env", "apply", "lab", "site", "--no-wait", "--message", "one more web server"]).await.clear();
    snapshot!(fleet.muster(&["env", "show", "lab"]).await, @"
    exit 0
    --- stdout
    environment lab
    version     -
    nodes       4 nodes
    design      2, applied 5d ago by jo@desk
    source      site: 2 files, 1 document; its environment file generates 4 nodes
    source      api: 0 files, 0 documents

    ROLE  NODES  COUNTS
    db    1      1 unreachable
    web   3      3 unreachable
    ");
    snapshot!(fleet.muster(&["env", "history", "lab"]).await, @"
    exit 0
    --- stdout
    DESIGN  AGO  AUTHOR   APPLIED  MESSAGE
    2       5d   jo@desk  yes      one more web server
    1       5d   jo@desk  -        the first
    ");
    snapshot!(fleet.muster(&["env", "history", "quickstart"]).await, @"
    exit 0
    --- stderr
    note: quickstart has no design yet; apply one with `muster env apply quickstart DIR`
    ");
    snapshot!(fleet.muster(&["env", "show", "nowhere"]).await, @r#"
    exit 1
    --- stderr
    error: there is no environment "nowhere"
    hint: there is lab, quickstart
    "#);
}

#[tokio::test]
async fn destroy_requires_confirmation() {
    let fleet = server().await;
    fleet.muster(&["env", "apply", "lab", "site", "--no-wait"]).await.clear();
    snapshot!(fleet.muster(&["env", "destroy", "lab"]).await, @"
    exit 64
    --- stderr
    error: lab would be destroyed: 3 nodes (1 db, 2 web) without a version, 3 unreachable; its design, revision 1
    hint: nothing was done; confirm with --confirm lab
    ");
    snapshot!(fleet.muster(&["env", "destroy", "lab", "--confirm", "prod"]).await, @r#"
    exit 64
    --- stderr
    error: --confirm is "prod", but the environment is lab
    hint: nothing was done
    "#);
    assert!(fleet.muster(&["env", "list"]).await.contains("lab"));
    snapshot!(fleet.muster(&["env", "destroy", "nowhere", "--confirm", "nowhere"]).await, @r#"
    exit 1
    --- stderr
    error: there is no environment "nowhere"
    hint: there is lab, quickstart
    "#);
}

#[tokio::test]
async fn destroy_asks_for_the_name_on_a_terminal() {
    let fleet = server().await;
    fleet.muster(&["env", "apply", "lab", "site", "--no-wait"]).await.clear();
    let (mut reader, terminal) = terminal();
    let mut command = fleet.machine.muster(&["env", "destroy", "lab"]);
    command.stdin(terminal.try_clone().unwrap()).stderr(terminal);
    let mut child = command.spawn().unwrap();
    drop(command);
    reader.write_all(b"la\n").unwrap();
    let status = child.wait().await.unwrap();
    drop(child);
    assert_eq!(status.code(), Some(1));
    let text = read_terminal(reader).replace('\r', "");
    let asked = "lab will be destroyed: 3 nodes (1 db, 2 web) without a version, 3 unreachable; its design, revision 1.\nAll nodes \
                 are stopped and removed with all of their data. This cannot be undone.\nType the name of the \
                 environment to continue: ";
    assert!(text.contains(asked), "{text}");
    assert!(text.ends_with(": nothing was done\n"), "{text}");
    assert!(fleet.muster(&["env", "list"]).await.contains("lab"));
}

#[tokio::test]
async fn unknown_role_of_cardinality_suggests_a_near_one() {
    let fleet = server().await;
    let text = fleet.muster(&["env", "plan", "lab", "site", "--cardinality", "wbe=3"]).await;
    assert!(text.starts_with("exit 1\n") && text.contains("help: did you mean web? the environment's roles"), "{text}");
}

#[tokio::test]
async fn apply_without_a_version_ends_at_once() {
    let fleet = server().await;
    // Without a driver no machines are provisioned, and without a version agents have nothing to run.
    let text = fleet.muster(&["env", "apply", "lab", "site"]).await;
    assert!(text.starts_with("exit 0\n") && text.contains("lab follows design 1"), "{text}");
    assert!(text.contains("note: the environment has no version yet"), "{text}");
}

#[tokio::test]
async fn removal_is_asked_on_a_terminal() {
    let fleet = server().await;
    fleet.muster(&["env", "apply", "lab", "site", "--no-wait"]).await.clear();
    site(&fleet, 1);
    for (answer, code, result) in [("n", 1, "error: nothing was changed\n"), ("y", 0, "Continue? [y/N] y\n")] {
        let (mut reader, terminal) = terminal();
        let mut command = fleet.machine.muster(&["env", "apply", "lab", "site", "--no-wait"]);
        command.stdin(terminal.try_clone().unwrap()).stderr(terminal);
        let mut child = command.spawn().unwrap();
        drop(command);
        writeln!(reader, "{answer}").unwrap();
        let status = child.wait().await.unwrap();
        drop(child);
        let text = read_terminal(reader).replace('\r', "");
        assert_eq!(status.code(), Some(code), "{text}");
        assert!(text.contains("web2 will be drained and removed from lab. Continue? [y/N] "), "{text}");
        assert!(code == 0 || text.ends_with(result), "{text}");
    }
    assert!(!fleet.muster(&["node", "list", "--env", "lab", "state!=leaving"]).await.contains("web2"));
}

#[tokio::test]
async fn progress_of_apply_is_printed_in_a_pipe() {
    let fleet = server().await;
    fleet.register("lab", &[("db1", "db")]).await;
    let mut child = fleet.machine.muster(&["env", "apply", "lab", "site"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // The nodes have no machines: it waits until it is killed.
    let line = lines.next_line().await.unwrap().unwrap();
    assert!(line.starts_with("note: 0 of ") && line.contains(" converged (0s); "), "{line}");
}

#[tokio::test]
async fn apply_timeout_lists_unconverged_nodes() {
    let fleet = server().await;
    fleet.register("lab", &[]).await;
    // Without a driver no machines are provisioned.
    snapshot!(fleet.muster(&["env", "apply", "lab", "site", "--timeout", "0s", "-q"]).await, @"
    exit 1
    --- stdout
    + create  db1, web1, web2

    db: 0 → 1 node
    web: 0 → 2 nodes
    documents: 4 added, 0 changed, 0 removed
    lab: 3 to create, 0 to change, 0 to remove, 0 to keep

    lab follows design 1 (revision N)

    NODE  STATE        FOR  VERSION  WHY
    db1   unreachable  5d   -        its agent is not connected
    web1  unreachable  5d   -        its agent is not connected
    web2  unreachable  5d   -        its agent is not connected
    ");
    snapshot!(fleet.muster(&["env", "apply", "lab", "site", "--dry-run"]).await, @"
    exit 0
    --- stdout
    lab: no changes; 3 nodes to keep
    ");
}

#[tokio::test]
async fn apply_without_changes_prints_the_plan_as_json() {
    let fleet = server().await;
    fleet.muster(&["env", "apply", "lab", "site", "--no-wait"]).await.clear();
    snapshot!(fleet.muster(&["env", "apply", "lab", "site", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "design": 1,
      "changed": false,
      "plan": {
        "env": "lab",
        "base": {
          "head": 1,
          "applied": 1
        },
        "design": "DIGEST",
        "nodes": [
          {
            "node": "db1",
            "role": "db",
            "action": "keep"
          },
          {
            "node": "web1",
            "role": "web",
            "action": "keep"
          },
          {
            "node": "web2",
            "role": "web",
            "action": "keep"
          }
        ],
        "roles": [
          {
            "role": "db",
            "before": 1,
            "after": 1
          },
          {
            "role": "web",
            "before": 2,
            "after": 2
          }
        ],
        "totals": {
          "create": 0,
          "change": 0,
          "remove": 0,
          "keep": 3
        },
        "documents": {
          "added": 0,
          "changed": 0,
          "removed": 0
        }
      },
      "followed": true,
      "findings": [],
      "revision": N
    }
    "#);
}

/// A server with the design of `site`, and a file with two documents.
async fn server_with_documents_file() -> Fleet {
    let fleet = server().await;
    fleet.muster(&["env", "apply", "lab", "site", "--no-wait"]).await.clear();
    write(
        &fleet.machine.path("elsewhere/edge.yaml"),
        "# by hand\nkind: HostProfile\nname: edge\noverlay: true\nspec: {tags: [api]} # kept\n---\nkind: acme/Thing/v1\nname: one\nspec: {a: 1}\n",
    );
    fleet
}

#[tokio::test]
async fn documents_are_written_and_listed() {
    let fleet = server_with_documents_file().await;
    let run = async |args: &[&str]| fleet.muster(&[args, &["--env", "lab"]].concat()).await;
    snapshot!(run(&["item", "put", "-f", "edge.yaml", "--dry-run"]).await, @"
    exit 0
    --- stdout
    the change would be accepted; nothing was changed
    ");
    snapshot!(run(&["item", "put", "-f", "edge.yaml", "--message", "by hand"]).await, @"
    exit 0
    --- stdout
    lab has a new design, 2 (revision N)
    --- stderr
    note: apply it to nodes with `muster env apply lab`
    ");
    snapshot!(run(&["item", "put", "-f", "edge.yaml", "-q"]).await, @"
    exit 0
    --- stdout
    no changes: the design already has these documents (design 2)
    ");
    snapshot!(run(&["item", "put", "-f", "edge.yaml", "--create"]).await, @"
    exit 1
    --- stderr
    error: precondition failed for HostProfile edge: it exists, with the etag DIGEST
    hint: read the current document, then decide again
    ");
    snapshot!(run(&["item", "list"]).await, @"
    exit 0
    --- stdout
    KIND           NAME  SOURCES    FILE
    HostProfile    edge  site, api  HostProfile/edge.yaml:3
    Node           db1
    Node           web1
    Node           web2
    acme/Thing/v1  one   api        acme%2FThing%2Fv1/one.yaml:2
    ");
    snapshot!(run(&["item", "list", "kind=acme/*"]).await, @"
    exit 0
    --- stdout
    KIND           NAME  SOURCES  FILE
    acme/Thing/v1  one   api      acme%2FThing%2Fv1/one.yaml:2
    ");
}

#[tokio::test]
async fn written_documents_are_shown_planned_and_deleted() {
    let fleet = server_with_documents_file().await;
    let run = async |args: &[&str]| fleet.muster(&[args, &["--env", "lab"]].concat()).await;
    run(&["item", "put", "-f", "edge.yaml"]).await.clear();
    snapshot!(run(&["item", "get", "HostProfile", "edge"]).await, @"
    exit 0
    --- stdout
    schema: 1
    kind: HostProfile
    name: edge
    design: 2
    written:
    - source: site
      file: profiles.yaml
      line: 2
      document:
        kind: HostProfile
        name: edge
        spec:
          tags:
          - front
    - source: api
      file: HostProfile/edge.yaml
      line: 3
      document:
        kind: HostProfile
        name: edge
        overlay: true
        spec:
          tags:
          - api
    effective:
      tags:
      - api
      - front
    etag: DIGEST
    revision: N
    ");
    snapshot!(fleet.muster(&["env", "plan", "lab"]).await, @"
    exit 0
    --- stdout
    = keep    db1
    ~ change  web1, web2
          tags: [front] → [api, front]

    documents: 1 added, 3 changed, 0 removed
    lab: 0 to create, 2 to change, 0 to remove, 1 to keep
    ");
    snapshot!(run(&["item", "delete", "HostProfile", "edge", "--if-match", "stale"]).await, @"
    exit 1
    --- stderr
    error: precondition failed for HostProfile edge: it exists, with the etag DIGEST
    hint: read the current document, then decide again
    ");
    snapshot!(run(&["item", "delete", "HostProfile", "edge", "-q"]).await, @"
    exit 0
    --- stdout
    lab has a new design, 3 (revision N)
    ");
    snapshot!(run(&["item", "get", "acme/Thing/v1", "two"]).await, @"
    exit 1
    --- stderr
    error: there is no acme/Thing/v1 two in the design
    ");
    write(
        &fleet.machine.path("elsewhere/bad.yaml"),
        "kind: acme/Thing/v1\nname: two\n---\nkind: HostProfile\nname: edge\noverlay: true\nspec: {tagz: [api]}\n",
    );
    snapshot!(run(&["item", "put", "-f", "bad.yaml"]).await, @r#"
    exit 1
    --- stderr
    error[M0103]: unknown key "tagz" in a host profile
     --> bad.yaml:7:8
      |
    7 | spec: {tagz: [api]}
      |        ^^^^
    help: did you mean "tags"?

    error: the design has an error; nothing was accepted: unknown key "tagz" in a host profile
    "#);
}

#[tokio::test]
async fn plan_shows_retired_nodes() {
    let fleet = server().await;
    fleet.muster(&["env", "apply", "lab", "site", "--no-wait"]).await;
    let retired = fleet.muster(&["--env", "lab", "node", "retire", "web2", "--yes"]).await;
    assert!(retired.starts_with("exit 0\n"), "{retired}");
    snapshot!(fleet.muster(&["env", "plan", "lab", "site"]).await, @"
    exit 0
    --- stdout
    lab: no changes; 2 nodes to keep
    web2 is retired and stays out: `muster node unretire web2` lets the design bring it back
    ");
    site(&fleet, 3);
    snapshot!(fleet.muster(&["env", "plan", "lab", "site"]).await, @"
    exit 0
    --- stdout
    = keep    db1, web1
    + create  web3

    web: 1 → 2 nodes
    documents: 1 added, 0 changed, 0 removed
    lab: 1 to create, 0 to change, 0 to remove, 2 to keep
    web2 is retired and stays out: `muster node unretire web2` lets the design bring it back
    ");
}
