//! The JSON report of a run with a failed resource and its command's output.

use std::process::Command;

use serde_json::{Value, json};

use crate::apply::{Node, release, repository};

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
    let node = Node::new("web1", "web", "127.77.0.9");

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
