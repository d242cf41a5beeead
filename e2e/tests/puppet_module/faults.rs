//! Mistakes in releases and run files: the run fails with a clear message, and is never pending.

use std::fs;
use std::process::Command;
use std::thread;

use serde_json::json;

use crate::apply::{PuppetNode, PuppetRun, release, ruby};

const SNAPSHOT: &str = "MUSTER_SNAPSHOT";
const LOOKUP: &str = "node default {\n  notice(lookup('etcdlookup::active_roles::db'))\n}\n";

/// Defects of a snapshot.
enum SnapshotFault {
    NotNamed,
    NotThere,
    Holds(&'static str),
}

impl SnapshotFault {
    fn inflict(&self, puppet: &mut Command) {
        match self {
            Self::NotNamed => {
                puppet.env_remove(SNAPSHOT);
            }
            Self::NotThere => {
                puppet.env(SNAPSHOT, "/nonexistent/snapshot.json");
            }
            Self::Holds(text) => {
                let path = puppet.get_envs().find(|(name, _)| *name == SNAPSHOT).and_then(|(_, path)| path);
                fs::write(path.unwrap(), text).unwrap();
            }
        }
    }
}

#[test]
fn unreadable_snapshot_fails_the_run_with_a_reason() {
    let faults = [
        (SnapshotFault::NotNamed, "MUSTER_SNAPSHOT is not set: muster-agent sets it for every run"),
        (
            SnapshotFault::NotThere,
            "cannot read the snapshot in MUSTER_SNAPSHOT (/nonexistent/snapshot.json): No such file",
        ),
        (SnapshotFault::Holds(r#"{"active_roles": "#), "is not JSON"),
        (
            SnapshotFault::Holds(r#"{"active_roles": {"db": [1]}}"#),
            "has no object \"active_roles\" of roles, nodes and interfaces",
        ),
    ];

    thread::scope(|scope| {
        for (fault, expected) in &faults {
            scope.spawn(move || {
                let release = release(LOOKUP, "");
                let node = PuppetNode::new("web1", "web", "127.77.0.9");
                let run = node.apply_as_is(release.path(), |puppet| fault.inflict(puppet));
                assert_failed(&run);
                assert!(run.error().contains(expected), "{expected} is not in {}", run.error());
                // The node must run again when this changes, whatever the result of the run.
                assert_eq!(run.lookups, ["active_roles::db"]);
            });
        }
    });
}

/// As written by an older agent, or truncated: an empty table would be a wrong answer.
#[test]
fn missing_snapshot_table_is_an_error() {
    let mut snapshot = json!({});
    for (table, says) in [
        ("active_roles", "has no object \"active_roles\" of roles, nodes and interfaces"),
        ("leaders", "has no object \"leaders\" of roles"),
        ("published", "has no object \"published\" of keys and nodes"),
        ("services", "has no object \"services\" of services and nodes"),
        ("data", "has no object \"data\" of keys with a value each"),
    ] {
        let said = read_snapshot(&snapshot.to_string());
        assert!(said.ends_with(says), "{says:?} is not in {said}");
        snapshot[table] = json!({});
    }
    assert_eq!(read_snapshot(&snapshot.to_string()), "fine");
    snapshot["data"] = json!({"ntp": {"layer": "global"}});
    assert!(read_snapshot(&snapshot.to_string()).ends_with("of keys with a value each"));
    // The parser's message contains a part of the text, which may be a secret.
    let cut = read_snapshot(r#"{"data": {"password": {"value": "hunter2hunter2", "secret": tru"#);
    assert!(cut.contains("is not JSON") && !cut.contains("hunter2"), "{cut}");
}

fn read_snapshot(text: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let script =
        "begin; PuppetX::Muster::Snapshot.current; print 'fine'; rescue Puppet::Error => e; print e.message; end";
    ruby("snapshot", script, SNAPSHOT, file.path())
}

#[test]
fn mistakes_in_manifests_fail_with_file_and_line() {
    let mistakes = [
        ("node default {\n  file { '/x' ensure => file }\n}\n", "Syntax error", 2),
        ("node default {\n\n  muster::require_active('Db')\n}\n", "parameter 'role' expects a match for", 3),
        ("node default {\n  muster::require_active('db', 'two')\n}\n", "parameter 'wanted' expects an Integer", 2),
        ("node default {\n  lookup(\"etcdlookup::a\\nb\")\n}\n", "it holds a line break", 2),
    ];

    thread::scope(|scope| {
        for (manifest, expected, line) in mistakes {
            scope.spawn(move || {
                let release = release(manifest, "");
                let run = PuppetNode::new("web1", "web", "127.77.0.9").apply(release.path(), "v1", &json!({"db": {}}));
                assert_failed(&run);
                assert!(run.error().contains(expected), "{expected} is not in {}", run.error());
                let entry = run.log.iter().find(|entry| entry["message"] == run.error()).unwrap();
                assert_eq!(entry["file"].as_str(), release.path().join("site.pp").to_str(), "{entry:#?}");
                assert_eq!(entry["line"], line, "{entry:#?}");
            });
        }
    });
}

/// Puppet's own message names the key.
#[test]
fn missing_key_without_default_is_named() {
    for key in ["ntp_server", "etcdlookup::leader::db"] {
        let release = release(&format!("node default {{ notice(lookup('{key}')) }}"), "");
        let run = PuppetNode::new("web1", "web", "127.77.0.9").apply(release.path(), "v1", &json!({"db": {}}));
        assert_failed(&run);
        assert_eq!(run.error(), format!("Function lookup() did not find a value for the name '{key}'"));
    }
}

fn assert_failed(run: &PuppetRun) {
    assert_eq!(run.code, Some(1), "{run:#?}");
    assert!(run.pending.is_empty(), "{run:#?}");
    assert_eq!(run.report, None);
}
