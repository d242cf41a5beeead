//! The leader of a role is lost: another node leads with a higher epoch, and nodes that looked it up run again.
//!
//! A silent node is lost after half a minute, and no node is lost in the first minute of a server. This test mostly
//! waits, so it does not share the limit of the other Puppet tests.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use muster_e2e::agent::SandboxNode;
use muster_e2e::process::ChildProcess;
use muster_e2e::sandbox::{Sandbox, TestProject};
use muster_e2e::server::SandboxServer;
use muster_testkit::wait::eventually;

/// The server's grace time, the time until a silent node is lost, and some starts of Puppet.
const LOST: Duration = Duration::from_secs(240);

const SITE: &str = r#"
node /^web\d+/ {
  $leader = muster::leader('db')
  file { "${muster::self()['root']}/leader":
    content => "${leader['node']} ${leader['epoch']}",
  }
}
node default { }
"#;

/// Leader and epoch in the files of web1.
fn leader_in_files(web1: &SandboxNode<'_>) -> (String, u64) {
    let text = fs::read_to_string(web1.root().join("leader")).unwrap();
    let (node, epoch) = text.split_once(' ').unwrap();
    (node.to_owned(), epoch.parse().unwrap())
}

#[test]
fn lost_leader_is_replaced_and_its_readers_run() {
    let sandbox = Sandbox::new();
    let project = TestProject::new(&sandbox, &[("db", 2), ("web", 1), ("cache", 1)]).puppet_release("v1", SITE);
    let server = SandboxServer::start(&sandbox, &project);
    let names = ["db1", "db2", "web1", "cache1"];
    let nodes = names.map(|name| SandboxNode::new(&sandbox, name, 1 + place(&names, name)));
    let mut agents: Vec<Option<ChildProcess>> = nodes.iter().map(|node| Some(node.start())).collect();
    let web1 = &nodes[2];
    sandbox.wait_validated("v1", &names);
    let (first, epoch) = agreed(&sandbox, &server, web1);
    let other = if first == "db1" { "db2" } else { "db1" };
    let ran = |node: &str| server.api.runs(node).len();
    let before = [other, "cache1"].map(ran);
    let web1_ran = ran("web1");

    let at = usize::from(place(&names, &first));
    agents[at].take().unwrap().kill(LOST);
    let woken = eventually("web1 runs again", LOST, || {
        let runs = server.api.runs("web1");
        let done = runs.len() > web1_ran && server.api.node("web1")["state"] == "validated";
        if done { Ok(runs[web1_ran].clone()) } else { Err(format!("{runs:#?}")) }
    });
    assert!(woken["causes"].to_string().contains("leader::db"), "{woken:#}");
    let (second, higher) = leader_in_files(web1);
    assert_eq!(second, other);
    assert!(higher > epoch, "{higher} after {epoch}");
    assert_eq!([other, "cache1"].map(ran), before, "no other node ran");

    // Back again, it is an ordinary db.
    agents[at] = Some(nodes[at].start());
    server.api.wait_node(&first, "is in service again", |node| {
        node["active"] == true && node["link"]["state"] == "connected" && node["state"] == "validated"
    });
    assert_eq!(agreed(&sandbox, &server, web1), (second, higher), "the leader stays");
    assert_eq!([other, "cache1"].map(ran), before, "no node is woken");
}

fn place(names: &[&str], name: &str) -> u8 {
    u8::try_from(names.iter().position(|known| *known == name).unwrap()).unwrap()
}

/// Waits until the files of web1 have the present leader.
fn agreed(sandbox: &Sandbox, server: &SandboxServer, web1: &SandboxNode<'_>) -> (String, u64) {
    eventually("web1 knows who leads", LOST, || {
        let now = sandbox.run_muster(&["lookup", "web1", "etcdlookup::leader::db", "-o", "json"]);
        let leader = serde_json::from_str::<Value>(&now.stdout).unwrap()["found"]["value"].clone();
        let (node, epoch) = leader_in_files(web1);
        let same = leader["node"] == node.as_str() && leader["epoch"] == epoch;
        let idle = server.api.node("web1")["state"] == "validated";
        if same && idle { Ok((node, epoch)) } else { Err(format!("{node} {epoch}, {now:?}")) }
    })
}
