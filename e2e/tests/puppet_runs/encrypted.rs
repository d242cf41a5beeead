//! Encrypted data of Hiera, with the private key outside of the release.

use std::fs;
use std::path::Path;
use std::process::Command;

use muster_core::report::RunResult;
use muster_e2e::server::repository;
use serde_json::json;

use crate::node::{TestNode, write_release};

const SITE: &str = "file { \"${muster::self()['root']}/password\": content => lookup('app::password') }\n";

fn eyaml(keys: &Path, args: &[&str]) -> String {
    let (private, public) = (keys.join("private.pem"), keys.join("public.pem"));
    let mut command = Command::new("eyaml");
    command.args(args).arg("--pkcs7-private-key").arg(private).arg("--pkcs7-public-key").arg(public);
    let output = command.output().unwrap_or_else(|error| panic!("eyaml (package hiera-eyaml): {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn encrypted_value_of_the_book_is_decrypted_with_a_key_outside() {
    let keys = tempfile::tempdir().unwrap();
    eyaml(keys.path(), &["createkeys"]);
    let encrypted = eyaml(keys.path(), &["encrypt", "--output", "string", "--string", "open sesame"]);
    let page = fs::read_to_string(repository().join("docs/src/puppet.md")).unwrap();
    let (_, text) = page.split_once("```yaml\n# hiera.yaml with encrypted data\n").unwrap();
    let (hiera, _) = text.split_once("```").unwrap();
    let hiera = hiera.replace("/etc/puppet/eyaml", keys.path().to_str().unwrap());
    let data = format!("app::password: {encrypted}\n");
    let node = TestNode::with(|release| {
        write_release(release, &[("site.pp", SITE), ("hiera.yaml", &hiera), ("data/secrets.eyaml", &data)]);
    });

    let run = node.apply(json!({})).await;

    assert_eq!(run.applied.result, RunResult::Changed, "{run:#?}");
    assert_eq!(node.read("password"), "open sesame");
}
