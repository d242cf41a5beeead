//! Pending runs: nothing is applied, the need is in the file, and lookups are recorded.

use serde_json::json;

use crate::apply::{Node, release};

#[test]
fn too_few_active_nodes_make_a_run_pending() {
    let release = release(
        r#"
node default {
  file { "${muster::self()['root']}/applied": content => 'it was' }
  $found = lookup('etcdlookup::active_roles::cache', Hash, 'first', {})
  muster::require_active('db', 2)
}
"#,
        "",
    );
    let node = Node::new("web1", "web", "127.77.0.9");

    let run = node.apply(release.path(), "v1", &json!({"db": {"db1": {"eth0": "127.77.0.1"}}, "web": {}}));

    assert_eq!(run.code, Some(1), "{run:#?}");
    assert_eq!(run.pending, [json!({"kind": "role", "role": "db", "want": 2, "have": 1})]);
    assert_eq!(run.lookups, ["active_roles::cache", "active_roles::db"]);
    assert_eq!(run.report, None);
    assert!(run.error().contains("MUSTER-PENDING waiting for role db: 1 of 2 active"), "{}", run.error());
    assert!(!node.root().join("applied").exists());

    // The same release continues when the second db is active.
    let both = json!({"db": {"db1": {"eth0": "127.77.0.1"}, "db2": {"eth0": "127.77.0.2"}}, "web": {}});
    let run = node.apply(release.path(), "v1", &both);
    assert_eq!(run.code, Some(2), "{run:#?}");
    assert!(run.pending.is_empty());
    assert!(node.root().join("applied").exists());
}

#[test]
fn unknown_role_is_pending_and_named() {
    let release = release("node default { muster::require_active('dbs') }", "");
    let node = Node::new("web1", "web", "127.77.0.9");

    let run = node.apply(release.path(), "v1", &json!({"db": {}, "web": {}}));

    assert_eq!(run.code, Some(1), "{run:#?}");
    assert_eq!(run.pending, [json!({"kind": "role", "role": "dbs", "want": 1, "have": 0})]);
    assert_eq!(run.lookups, ["active_roles::dbs"]);
    let expected = "MUSTER-PENDING waiting for role dbs: 0 of 1 active (environment test has no such role)";
    assert!(run.error().contains(expected), "{}", run.error());
}

#[test]
fn release_can_define_its_own_pending_reason() {
    let release = release("node default { muster::pending('the \"schema\" is not loaded') }", "");
    let node = Node::new("web1", "web", "127.77.0.9");

    let run = node.apply(release.path(), "v1", &json!({"web": {}}));

    assert_eq!(run.code, Some(1), "{run:#?}");
    assert_eq!(run.pending, [json!({"kind": "other", "reason": "the \"schema\" is not loaded"})]);
    assert_eq!(run.report, None);
    assert!(run.error().contains("MUSTER-PENDING the \"schema\" is not loaded"), "{}", run.error());
}
