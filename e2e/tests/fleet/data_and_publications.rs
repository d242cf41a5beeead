//! What a person sets and what a node publishes reaches the real Puppet through plain Hiera, and wakes those who looked
//! it up; nobody else.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use muster_e2e::project::Project;
use muster_e2e::server::Api;
use muster_e2e::stage::Stage;
use muster_e2e::up::Up;
use muster_testkit::wait::eventually;

/// Puppet takes as long as it takes.
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

fn project(stage: &Stage, dbs: u32) -> Project {
    Project::new(stage, &[("db", dbs), ("web", 1), ("cache", 1)]).puppet_release("v1", SITE)
}

fn file(stage: &Stage, node: &str, name: &str) -> PathBuf {
    stage.path("state/nodes").join(node).join("root").join(name)
}

/// Waits until a node's content has written this, and the node has proved its run.
fn until_written(stage: &Stage, api: &Api, node: &str, name: &str, text: &str) {
    eventually(&format!("{node} writes {text:?}"), PUPPET, || {
        let found = fs::read_to_string(file(stage, node, name)).unwrap_or_default();
        let standing = api.node(node)["standing"].clone();
        if found == text && standing == "validated" { Ok(()) } else { Err(format!("{found:?}, {standing}")) }
    });
}

/// What the newest run of a node was made for.
fn causes(api: &Api, node: &str) -> String {
    api.runs(node).last().unwrap()["causes"].to_string()
}

#[test]
fn with_a_manifest_of_the_real_puppet_data_and_publications_reach_those_who_look_them_up() {
    let stage = Stage::new();
    let up = Up::start(&stage, &project(&stage, 2).dir, &[]);
    let api = up.api(&stage, "test");
    up.process.says("all 4 nodes validated at v1", PUPPET);
    until_written(&stage, &api, "web1", "binlogs", "db1 bin.1, db2 bin.1");
    let ran = |nodes: [&str; 2]| nodes.map(|node| api.runs(node).len());

    // A person sets a datum of one role. Its nodes run, and publish something else; who reads that runs too.
    let before = (ran(["db1", "db2"]), api.runs("cache1").len());
    let set = stage.ask(&["data", "set", "binlog", "\"bin.2\"", "--role", "db"]);
    assert_eq!(set.code(), 0, "{set:?}");
    until_written(&stage, &api, "web1", "binlogs", "db1 bin.2, db2 bin.2");
    assert!(causes(&api, "db1").contains("data::binlog"), "{}", causes(&api, "db1"));
    assert!(causes(&api, "web1").contains("published::db::binlog"), "{}", causes(&api, "web1"));
    assert_eq!((ran(["db1", "db2"]), api.runs("cache1").len()), (before.0.map(|runs| runs + 1), before.1));

    // Another one wakes the one node that has asked for it, found or not.
    let before = (ran(["db1", "db2"]), api.runs("web1").len(), api.runs("cache1").len());
    let set = stage.ask(&["data", "set", "ntp_servers", "[\"10.0.0.1\", \"10.0.0.2\"]"]);
    assert_eq!(set.code(), 0, "{set:?}");
    until_written(&stage, &api, "cache1", "servers", "10.0.0.1 10.0.0.2");
    assert!(causes(&api, "cache1").contains("data::ntp_servers"), "{}", causes(&api, "cache1"));
    let after = (ran(["db1", "db2"]), api.runs("web1").len(), api.runs("cache1").len());
    assert_eq!(after, (before.0, before.1, before.2 + 1));
    let found = stage.ask(&["lookup", "cache1", "ntp_servers"]);
    assert_eq!(found.code(), 0, "{found:?}");
    assert!(found.stdout.contains("10.0.0.2") && found.stdout.contains("global"), "{found:?}");

    // What a node publishes goes with it.
    let dir = project(&stage, 1).dir;
    let applied = stage.ask(&["env", "apply", "test", dir.to_str().unwrap()]);
    assert_eq!(applied.code(), 0, "{applied:?}");
    until_written(&stage, &api, "web1", "binlogs", "db1 bin.2");
    up.process.interrupt_group();
    assert_eq!(up.process.ended(PUPPET).code(), 0);
    stage.is_empty();
}
