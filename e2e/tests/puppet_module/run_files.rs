//! Files that a run writes: the JSON report of a failed resource, needs of a pending run, and published values.

use std::process::Command;

use serde_json::{Value, json};

use crate::apply::{PuppetNode, release, repository, ruby};

#[test]
fn failed_resource_is_reported_with_its_output() {
    let release = release(
        r#"
node default {
  exec { 'breaks':
    command  => 'printf "caf\303\251 end\n"; exit 3',
    provider => shell,
    path     => '/usr/bin:/bin',
  }
}
"#,
        "",
    );
    let node = PuppetNode::new("web1", "web", "127.77.0.9");

    let run = node.apply(release.path(), "v1", &json!({}));

    assert_eq!(run.code, Some(4), "{run:#?}");
    assert_eq!(run.status(), "failed");
    let report = run.report.unwrap();
    assert_eq!(report["host"], "web1");
    let failed = &report["resource_statuses"]["Exec[breaks]"];
    assert_eq!(failed["failed"], true);
    assert_eq!(failed["file"].as_str(), release.path().join("site.pp").to_str());
    assert_eq!(failed["line"], 3);
    let mut messages = report["logs"].as_array().unwrap().iter().map(|entry| &entry["message"]);
    assert!(messages.any(|message| message == "café end"), "{report:#}");
}

/// A log line may contain invalid UTF-8, which must not cost the whole report.
#[test]
fn invalid_utf8_is_replaced() {
    let script = r#"
        ascii = "caf\xC3\xA9".dup.force_encoding(Encoding::US_ASCII)
        print JSON.generate(PuppetX::Muster::PlainData.from([ascii, "\xFF".b, :symbol, 1.5, Float::NAN, {nil => [nil]}]))
    "#;
    let output = Command::new("ruby")
        .arg("-r")
        .arg(repository().join("puppet/muster/lib/puppet_x/muster/plain_data.rb"))
        .args(["-rjson", "-e", script])
        .output()
        .expect("Ruby comes with Puppet");

    assert!(output.status.success(), "{output:?}");
    let plain: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plain, json!(["café", "\u{fffd}", "symbol", 1.5, "NaN", {"": [null]}]));
}

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
    let node = PuppetNode::new("web1", "web", "127.77.0.9");

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
    let node = PuppetNode::new("web1", "web", "127.77.0.9");

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
    let node = PuppetNode::new("web1", "web", "127.77.0.9");

    let run = node.apply(release.path(), "v1", &json!({"web": {}}));

    assert_eq!(run.code, Some(1), "{run:#?}");
    assert_eq!(run.pending, [json!({"kind": "other", "reason": "the \"schema\" is not loaded"})]);
    assert_eq!(run.report, None);
    assert!(run.error().contains("MUSTER-PENDING the \"schema\" is not loaded"), "{}", run.error());
}

#[test]
fn plain_data_is_published_once_per_key() {
    let release = release(
        r#"
node default {
  muster::publish('db::binlog', { 'file' => 'bin.000042', 'position' => 1337, 'more' => [1.5, true, undef] })
  muster::publish('token', 'é "quoted"')
  # The same again is no mistake: two classes may both say it.
  muster::publish('token', 'é "quoted"')
}
"#,
        "",
    );

    let run = PuppetNode::new("db1", "db", "127.77.0.9").apply(release.path(), "v1", &json!({}));

    assert_eq!(run.code, Some(0), "{run:#?}");
    assert_eq!(
        run.published,
        [
            json!({"key": "db::binlog", "value": {"file": "bin.000042", "position": 1337, "more": [1.5, true, null]}}),
            json!({"key": "token", "value": "é \"quoted\""}),
        ]
    );
}

#[test]
fn oversized_publication_fails_with_key_and_size() {
    let content = format!("muster::publish('small', 'x') muster::publish('db::big', '{}')", "y".repeat(4100));
    let release = release(&format!("node default {{ {content} }}"), "");

    let run = PuppetNode::new("db1", "db", "127.77.0.9").apply(release.path(), "v1", &json!({}));

    assert_eq!(run.code, Some(1), "{run:#?}");
    let says = "cannot publish db::big: its value has 4102 bytes, and with it this node would publish 4126 bytes; \
                a node may publish 4096";
    assert!(run.error().contains(says), "{}", run.error());
    assert_eq!(run.published, [json!({"key": "small", "value": "x"})]);
}

#[test]
fn unreadable_or_secret_values_are_not_published() {
    let script = r#"
        [
          ['twice', 1], ['twice', 2],
          ['secret', {'deep' => [Puppet::Pops::Types::PSensitiveType::Sensitive.new('hunter2')]}],
          ['key', {1 => 2}], ['regexp', /x/], ['endless', [Float::INFINITY]], ['bytes', "\xFF"],
        ].each do |key, value|
          PuppetX::Muster::Published.add(key, value)
        rescue Puppet::Error => e
          puts e.message
        end
    "#;
    let file = tempfile::NamedTempFile::new().unwrap();

    let said = ruby("published", script, "MUSTER_PUBLISH_FILE", file.path());

    assert_eq!(
        said.lines().collect::<Vec<_>>(),
        [
            "cannot publish twice: this run has published 1 under it already, and now 2",
            "cannot publish secret: a Sensitive value is never published: every node of the environment can read it",
            "cannot publish key: 1 is no text, and only text can name a value in a hash",
            "cannot publish regexp: only text, numbers, booleans, undef, lists and hashes are published, and not Regexp",
            "cannot publish endless: Infinity is no number that can be published",
            "cannot publish bytes: the value holds bytes that are no UTF-8 text",
        ]
    );
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "{\"key\":\"twice\",\"value\":1}\n");
}
