//! Host names of the environment file reach Puppet: node definitions and data by certificate name match.

use std::fs;

use serde_json::{Value, json};

use muster_e2e::agent::SandboxNode;
use muster_e2e::sandbox::{Sandbox, TestProject};
use muster_e2e::server::SandboxServer;

const SITE: &str = "$root = muster::self()['root']
node 'web01.example.org' { file { \"${root}/motd\": content => \"01: ${lookup('rack')}\" } }
node 'www.example.org' { file { \"${root}/motd\": content => \"www: ${lookup('rack')}\" } }
";
const HIERA: &str = "version: 5
hierarchy:
- {name: nodes, data_hash: yaml_data, datadir: nodes, path: '%{trusted.certname}.yaml'}
";

fn environment(hosts: &str) -> String {
    format!("roles:\n  web: {{cardinality: 1, flavor: local}}\nhosts: {hosts}\n")
}

#[test]
fn node_definition_and_data_match_the_host_name() {
    let sandbox = Sandbox::new();
    let text = environment("{pattern: '{role}{num:02}.example.org'}");
    let project = TestProject::with_environment(&sandbox, &text).puppet_release("v1", SITE);
    let release = project.dir.join("releases/v1");
    fs::write(release.join("release.yaml"), "applier: puppet\nmanifest: site.pp\nhiera: hiera.yaml\n").unwrap();
    fs::write(release.join("hiera.yaml"), HIERA).unwrap();
    fs::create_dir(release.join("nodes")).unwrap();
    fs::write(release.join("nodes/web01.example.org.yaml"), "rack: rack 7\n").unwrap();
    fs::write(release.join("nodes/www.example.org.yaml"), "rack: rack 8\n").unwrap();
    let server = SandboxServer::start(&sandbox, &project);
    let node = SandboxNode::new(&sandbox, "web1", 1);
    let _agent = node.start();
    sandbox.wait_validated("v1", &["web01.example.org"]);
    let motd = node.root().join("motd");
    assert_eq!(fs::read_to_string(&motd).unwrap(), "01: rack 7");

    // Another name makes the node run.
    let design = project.dir.join("environments");
    let file = fs::read_dir(&design).unwrap().next().unwrap().unwrap().path();
    let env = file.file_stem().unwrap().to_str().unwrap();
    fs::write(&file, environment("{web1: www.example.org}")).unwrap();
    let project = project.dir.to_str().unwrap();
    let plan = sandbox.run_muster(&["env", "plan", env, project]);
    for text in ["host_name", "web01.example.org", "www.example.org"] {
        assert!(plan.stdout.contains(text), "{plan:?}");
    }
    let applied = sandbox.run_muster(&["env", "apply", env, project]);
    assert_eq!(applied.code(), 0, "{applied:?}");
    let cause = json!([{"kind": "identity", "role": "web", "host": "www.example.org"}]);
    let has_run = |node: &Value| node["history"][0]["causes"] == cause && node["state"] == "validated";
    let renamed = server.api.wait_node("web1", "runs with its new name", has_run);
    assert_eq!(renamed["host"], "www.example.org");
    assert_eq!(fs::read_to_string(&motd).unwrap(), "www: rack 8");
    sandbox.wait_validated("v1", &["www.example.org"]);
}
