//! Encrypted data of Hiera, with the private key outside of the release.

use std::path::Path;
use std::process::Command;

use muster_core::report::RunResult;
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
async fn encrypted_value_is_decrypted_with_a_key_outside() {
    let keys = tempfile::tempdir().unwrap();
    eyaml(keys.path(), &["createkeys"]);
    let encrypted = eyaml(keys.path(), &["encrypt", "--output", "string", "--string", "open sesame"]);
    let hiera = format!(
        "version: 5\ndefaults: {{datadir: data}}\nhierarchy:\n- name: secrets\n  lookup_key: eyaml_lookup_key\n  \
         path: secrets.eyaml\n  options: {{pkcs7_private_key: '{0}/private.pem', pkcs7_public_key: '{0}/public.pem'}}\n",
        keys.path().display()
    );
    let data = format!("app::password: {encrypted}\n");
    let node = TestNode::with(|release| {
        write_release(release, &[("site.pp", SITE), ("hiera.yaml", &hiera), ("data/secrets.eyaml", &data)]);
    });

    let run = node.apply(json!({})).await;

    assert_eq!(run.applied.result, RunResult::Changed, "{run:#?}");
    assert_eq!(node.read("password"), "open sesame");
}
