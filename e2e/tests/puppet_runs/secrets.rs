//! Secrets are only in the node's files, also when a release unwraps and prints them.

use std::fs;

use serde_json::json;

use muster_core::report::RunResult;
use muster_testkit::secret_search::SecretSearch;

use crate::node::TestNode;

const PASSWORD: &str = "Tr0ub4dor & 'three'";
const KEY: &str = "-----BEGIN KEY-----\nMIIBVgIBADANBgkq\nhkiG9w0BAQEFAASC==\n-----END KEY-----\n";

const MANIFEST: &str = r#"
node default {
  $root = muster::self()['root']
  $password = lookup('db::password')
  # As it should be.
  file { "${root}/sensitive": content => $password }
  # As it often is.
  notify { "unwrapped ${password.unwrap}": }
  file { "${root}/password": content => "password=${password.unwrap}\n" }
  file { "${root}/key": content => lookup('tls').unwrap['key'] }
  exec { 'prints':
    command  => "cat ${root}/password ${root}/key; exit 3",
    provider => shell,
    path     => '/usr/bin:/bin',
    require  => [File["${root}/password"], File["${root}/key"]],
  }
  exec { "login --password='${password.unwrap}'": provider => shell, path => '/nonexistent' }
}
"#;

#[tokio::test]
async fn no_secret_leaves_the_node() {
    let node = TestNode::new(&[("site.pp", MANIFEST)]);
    // With an existing file, Puppet shows the difference.
    for file in ["sensitive", "password", "key"] {
        fs::write(node.root().join(file), "old content\n").unwrap();
    }
    let data = json!({
        "db::password": {"value": PASSWORD, "secret": true, "layer": "global"},
        "tls": {"value": {"key": KEY, "port": 443}, "secret": true, "layer": "role", "role": "web"},
    });

    let run = node.apply(json!({"data": data.clone()})).await;

    assert_eq!(run.applied.result, RunResult::Failed, "{run:#?}");
    assert_eq!(run.applied.counts.failed, 2, "{run:#?}");
    // The node's own files contain them.
    assert_eq!(node.read("sensitive"), PASSWORD);
    assert_eq!(node.read("password"), format!("password={PASSWORD}\n"));
    assert_eq!(node.read("key"), KEY);

    // Puppet hides values that are marked as secret; the agent redacts the rest.
    assert_eq!(run.changed("/sensitive]", "content"), ["[redacted] → [redacted]"]);
    assert!(run.log.contains("[diff redacted]"), "{}", run.log);
    assert!(run.log.contains("unwrapped [secret]"), "{}", run.log);
    assert!(run.log.contains("  -old content\n  +password=[secret]\n"), "{}", run.log);
    assert!(run.log.contains("  -old content\n  +[secret]\n"), "{}", run.log);
    let output = format!("{:?}\n{}", run.applied, run.log);
    for secret in ["Tr0ub4dor", KEY.trim_end(), "hkiG9w0BAQEFAASC=="] {
        SecretSearch::new(secret).assert_absent("what the agent reports", output.as_bytes());
    }
    for piece in ["Tr0ub4dor", "three", "MIIBVg", "hkiG9w", "BEGIN KEY"] {
        assert!(!output.contains(piece), "{piece} is in {output}");
    }
    let errors = run.errors();
    assert!(errors.iter().any(|error| error.starts_with("Exec[login --password='[secret]']: ")), "{errors:#?}");

    // A run that replaces a secret shows neither the old nor the new one.
    let mut data = data;
    data["db::password"]["value"] = "correct horse".into();
    let run = node.apply(json!({"data": data})).await;
    assert_eq!(node.read("password"), "password=correct horse\n");
    assert!(run.log.contains("  -password=[secret]\n  +password=[secret]\n"), "{}", run.log);
    let output = format!("{:?}\n{}", run.applied, run.log);
    assert!(!output.contains("Tr0ub4dor") && !output.contains("horse"), "{output}");
}
