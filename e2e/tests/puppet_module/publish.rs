//! Published values, and values that are refused.

use serde_json::json;

use crate::apply::{Node, release, ruby};

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

    let run = Node::new("db1", "db", "127.77.0.9").apply(release.path(), "v1", &json!({}));

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

    let run = Node::new("db1", "db", "127.77.0.9").apply(release.path(), "v1", &json!({}));

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
