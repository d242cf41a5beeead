//! Configuration data and published values reach Puppet through Hiera, and cause runs of exactly the nodes that looked
//! them up.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use muster_e2e::sandbox::{Sandbox, TestProject};
use muster_e2e::server::{Api, UpProcess};
use muster_testkit::wait::eventually;

/// Timeout of Puppet runs.
const PUPPET: Duration = Duration::from_secs(240);

const SITE: &str = r#"
node /^db\d+/ {
  muster::publish('db::binlog', { 'file' => lookup('binlog', { 'default_value' => 'bin.1' }) })
}
node /^web\d+/ {
  $binlogs = lookup('etcdlookup::published::db::binlog', Hash)
  file { "${muster::self()['root']}/binlogs":
    content => $binlogs.map |$node, $binlog| { "${node} ${binlog['file']}" }.join(', '),
  }
}
node /^cache\d+/ {
  file { "${muster::self()['root']}/servers":
    content => lookup('ntp_servers', { 'default_value' => ['none'] }).join(' '),
  }
}
"#;

fn project(sandbox: &Sandbox, dbs: u32) -> TestProject {
    TestProject::new(sandbox, &[("db", dbs), ("web", 1), ("cache", 1)]).puppet_release("v1", SITE)
}

fn file(sandbox: &Sandbox, node: &str, name: &str) -> PathBuf {
    sandbox.path("state/nodes").join(node).join("root").join(name)
}

/// Waits until a node has written this text and has validated its run.
fn until_written(sandbox: &Sandbox, api: &Api, node: &str, name: &str, text: &str) {
    eventually(&format!("{node} writes {text:?}"), PUPPET, || {
        let found = fs::read_to_string(file(sandbox, node, name)).unwrap_or_default();
        let state = api.node(node)["state"].clone();
        if found == text && state == "validated" { Ok(()) } else { Err(format!("{found:?}, {state}")) }
    });
}

/// Causes of the last run of a node.
fn causes(api: &Api, node: &str) -> String {
    api.runs(node).last().unwrap()["causes"].to_string()
}

#[test]
fn data_reaches_the_manifests_that_look_it_up() {
    let sandbox = Sandbox::new();
    let up = UpProcess::start(&sandbox, &project(&sandbox, 2).dir, &[]);
    let api = up.api(&sandbox, "test");
    up.process.wait_for_output("all 4 nodes validated at v1", PUPPET);
    until_written(&sandbox, &api, "web1", "binlogs", "db1 bin.1, db2 bin.1");
    let ran = |nodes: [&str; 2]| nodes.map(|node| api.runs(node).len());

    // Data of one role: its nodes run and publish another value, and readers of that run too.
    let before = (ran(["db1", "db2"]), api.runs("cache1").len());
    let set = sandbox.run_muster(&["data", "set", "binlog", "\"bin.2\"", "--role", "db"]);
    assert_eq!(set.code(), 0, "{set:?}");
    until_written(&sandbox, &api, "web1", "binlogs", "db1 bin.2, db2 bin.2");
    assert!(causes(&api, "db1").contains("data::binlog"), "{}", causes(&api, "db1"));
    assert!(causes(&api, "web1").contains("published::db::binlog"), "{}", causes(&api, "web1"));
    assert_eq!((ran(["db1", "db2"]), api.runs("cache1").len()), (before.0.map(|runs| runs + 1), before.1));

    // Another key wakes the one node that has looked it up, found or not.
    let before = (ran(["db1", "db2"]), api.runs("web1").len(), api.runs("cache1").len());
    let set = sandbox.run_muster(&["data", "set", "ntp_servers", "[\"10.0.0.1\", \"10.0.0.2\"]"]);
    assert_eq!(set.code(), 0, "{set:?}");
    until_written(&sandbox, &api, "cache1", "servers", "10.0.0.1 10.0.0.2");
    assert!(causes(&api, "cache1").contains("data::ntp_servers"), "{}", causes(&api, "cache1"));
    let after = (ran(["db1", "db2"]), api.runs("web1").len(), api.runs("cache1").len());
    assert_eq!(after, (before.0, before.1, before.2 + 1));
    let found = sandbox.run_muster(&["lookup", "cache1", "ntp_servers"]);
    assert_eq!(found.code(), 0, "{found:?}");
    assert!(found.stdout.contains("10.0.0.2") && found.stdout.contains("global"), "{found:?}");

    // Published values are removed with their node.
    let dir = project(&sandbox, 1).dir;
    let applied = sandbox.run_muster(&["env", "apply", "test", dir.to_str().unwrap(), "--yes"]);
    assert_eq!(applied.code(), 0, "{applied:?}");
    until_written(&sandbox, &api, "web1", "binlogs", "db1 bin.2");
    up.process.interrupt_group();
    assert_eq!(up.process.wait_exit(PUPPET).code(), 0);
    sandbox.assert_no_processes();
}
