//! Tests of the commands about versions.

use muster_core::node::status::Activity;

use crate::fixture::{Fleet, QUICKSTART};
use crate::snapshot;

#[tokio::test]
async fn current_version_is_printed() {
    let fleet = Fleet::start().await;
    snapshot!(fleet.muster(&["current-version"]).await, @"
    exit 0
    --- stdout
    v1
    ");
    snapshot!(fleet.muster(&["current-version", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "version": "v1",
      "generation": {
        "epoch": N,
        "number": N
      },
      "revision": N
    }
    "#);
}

#[tokio::test]
async fn update_is_triggered_once() {
    let fleet = Fleet::start().await;
    snapshot!(fleet.muster(&["trigger-update", "v2", "--at-once"]).await, @"
    exit 0
    --- stdout
    quickstart is updated from v1 to v2: rollout 1 (revision N)
    --- stderr
    note: wait until every node has validated v2: muster verify-hosts v2 --wait
    ");
    snapshot!(fleet.muster(&["trigger-update", "v2", "--at-once"]).await, @"
    exit 0
    --- stdout
    quickstart is at v2 already: no changes
    ");
    snapshot!(fleet.muster(&["trigger-update", "v1", "--at-once"]).await, @"
    exit 1
    --- stderr
    error: release v1 (serial 1) is older than v2 (serial 2), which nodes should run now: use --allow-older to move nodes to an older release
    hint: nodes do not downgrade by themselves; use --allow-older if that is intended
    ");
    snapshot!(fleet.muster(&["trigger-update", "v1", "--allow-older", "--at-once", "-o", "json", "-q"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "from": "v2",
      "to": "v1",
      "changed": true,
      "rollout": 2,
      "revision": N
    }
    "#);
    snapshot!(fleet.muster(&["current-version"]).await, @"
    exit 0
    --- stdout
    v1
    ");
}

#[tokio::test]
async fn version_without_release_is_refused() {
    let fleet = Fleet::start().await;
    snapshot!(fleet.muster(&["trigger-update", "v3"]).await, @"
    exit 1
    --- stderr
    error: there is no release v3
    hint: there is v1, v2
    ");
}

#[tokio::test]
async fn running_versions_are_listed() {
    let mut fleet = Fleet::start().await;
    snapshot!(fleet.muster(&["running-versions"]).await, @"
    exit 0
    --- stderr
    note: no node of quickstart has validated a version yet
    ");
    fleet.validate("db1", 1).await;
    fleet.validate_at("web1", 1, "v2").await;
    fleet.validate_at("web2", 1, "v2").await;
    for (name, _) in QUICKSTART {
        fleet.connect(name, Activity::Idle).await;
    }
    snapshot!(fleet.muster(&["running-versions"]).await, @"
    exit 0
    --- stdout
    VERSION  NODES
    v1       1
    v2       2
    ");
    snapshot!(fleet.muster(&["running-versions", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "items": [
        {
          "version": "v1",
          "nodes": 1
        },
        {
          "version": "v2",
          "nodes": 2
        }
      ],
      "revision": N
    }
    "#);
    snapshot!(fleet.muster(&["hosts-at-version", "v2"]).await, @"
    exit 0
    --- stdout
    web1
    web2
    ");
    snapshot!(fleet.muster(&["hosts-at-version", "v2", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "items": [
        "web1",
        "web2"
      ],
      "revision": N
    }
    "#);
    snapshot!(fleet.muster(&["hosts-at-version", "v3"]).await, @"
    exit 0
    --- stderr
    warning: there is no release v3: no node can run it; there is v1, v2
    ");
    let single = fleet.muster(&["check-single-version", "vv"]).await;
    let warning = "warning: there is no release vv: no node can run it; did you mean v1? there is v1, v2\n";
    assert!(single.starts_with("exit 1\n") && single.contains(warning), "{single}");
}

#[tokio::test]
async fn single_version_excludes_other_versions() {
    let mut fleet = Fleet::start().await;
    snapshot!(fleet.muster(&["check-single-version", "v1", "-v"]).await, @"
    exit 1
    --- stdout
    Wanted version found: no
    Unwanted versions found: none
    --- stderr
    note: 4 nodes of quickstart without a validated version: db1, web1, web2, lb1
    ");
    for (name, _) in &QUICKSTART[..3] {
        fleet.validate(name, 1).await;
        fleet.connect(name, Activity::Idle).await;
    }
    // lb1 has no validated version: a note lists it, and the answer is still yes.
    snapshot!(fleet.muster(&["check-single-version", "v1"]).await, @"
    exit 0
    --- stderr
    note: 1 node of quickstart without a validated version: lb1
    ");
    snapshot!(fleet.muster(&["check-single-version", "v1", "-v"]).await, @"
    exit 0
    --- stdout
    Wanted version found: yes, on 3 nodes
    Unwanted versions found: none
    --- stderr
    note: 1 node of quickstart without a validated version: lb1
    ");
    snapshot!(fleet.muster(&["check-single-version", "v2", "-v"]).await, @"
    exit 1
    --- stdout
    Wanted version found: no
    Unwanted versions found: v1 on 3 nodes
    --- stderr
    note: 1 node of quickstart without a validated version: lb1
    ");
    fleet.validate_at("lb1", 1, "v2").await;
    fleet.connect("lb1", Activity::Idle).await;
    snapshot!(fleet.muster(&["check-single-version", "v1", "-v"]).await, @"
    exit 1
    --- stdout
    Wanted version found: yes, on 3 nodes
    Unwanted versions found: v2 on 1 node
    ");
    snapshot!(fleet.muster(&["check-single-version", "v1", "-o", "json"]).await, @r#"
    exit 1
    --- stdout
    {
      "schema": 1,
      "version": "v1",
      "single": false,
      "nodes": 3,
      "other_versions": {
        "v2": 1
      },
      "without": [],
      "revision": N
    }
    "#);
}

#[tokio::test]
async fn min_revision_in_the_future_is_exit_code_2() {
    let fleet = Fleet::start().await;
    let revision = fleet.app.store.revision().await.unwrap().0;
    for reached in [0, revision] {
        let text = fleet.muster(&["current-version", "--min-revision", &reached.to_string()]).await;
        assert_eq!(text, "exit 0\n--- stdout\nv1\n", "{reached}");
    }
    let ahead = (revision + 1_000).to_string();
    let ask = async |verb: &[&str]| {
        let output = fleet.machine.muster(verb).env("MUSTER_MIN_REVISION", &ahead).output().await.unwrap();
        crate::fixture::shown(&output)
    };
    for verb in [&["current-version"][..], &["env", "list"], &["check-single-version", "v1"]] {
        let text = ask(verb).await;
        let error = format!("error: revision {ahead} does not exist: the store is at revision ");
        assert!(text.starts_with(&format!("exit 2\n--- stderr\n{error}")), "{text}");
    }
}
