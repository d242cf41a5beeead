//! A node is removed from the environment file while no server runs.

use std::fs;

use muster_e2e::process::Process;
use muster_e2e::project::Project;
use muster_e2e::sandbox::{Sandbox, describe};
use muster_e2e::server::Up;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};

/// Starts a service that outlives the run.
const SERVES: &str = r#"
[ -e "$MUSTER_ROOT/served" ] && exit 0
setsid sleep 100000 > /dev/null 2>&1 &
echo yes > "$MUSTER_ROOT/served"
exit 2
"#;

fn project(sandbox: &Sandbox, webs: u32) -> Project {
    Project::new(sandbox, &[("web", webs)]).release("v1", &ScriptRelease::new(SERVES))
}

fn of_machine(sandbox: &Sandbox, node: &str) -> Vec<Process> {
    let nodes = sandbox.path("state").canonicalize().unwrap().join("nodes");
    muster_marked::find("MUSTER_MACHINE", nodes.join(node)).unwrap()
}

#[test]
fn next_up_releases_machines_of_removed_nodes() {
    let sandbox = Sandbox::new();
    let machine = |node: &str| sandbox.path("state/nodes").join(node);
    let address = |node: &str| {
        let text = fs::read_to_string(machine(node).join("machine.json")).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["interfaces"]["eth0"].clone()
    };
    let up = Up::start(&sandbox, &project(&sandbox, 2).dir, &[]);
    up.process.wait_for_output("all 2 nodes validated at v1", TIMEOUT);
    let had = address("web2");
    up.process.kill(TIMEOUT);
    assert_eq!(of_machine(&sandbox, "web2").len(), 2, "an agent and a service without a server");

    let up = Up::start(&sandbox, &project(&sandbox, 1).dir, &[]);
    up.process.wait_for_output("web2 is no longer in the design, and leaves", TIMEOUT);
    up.process.wait_for_output("web2  gone: its machine was released", TIMEOUT);
    let left: Vec<_> = of_machine(&sandbox, "web2").iter().map(describe).collect();
    assert_eq!(left, [""; 0], "it is said when it is so");
    assert!(!machine("web2").exists());
    up.process.wait_for_output("the node is validated at v1", TIMEOUT);
    eventually("web1 has its agent and its service", TIMEOUT, || {
        let processes: Vec<_> = of_machine(&sandbox, "web1").iter().map(describe).collect();
        if processes.len() == 2 { Ok(()) } else { Err(processes.join(", ")) }
    });
    up.process.interrupt_group();
    assert_eq!(up.process.wait_exit(TIMEOUT).code(), 0);
    sandbox.assert_no_processes();

    // Without a kill: the machine is stopped and removed with its address. A node of the same name is new.
    let ended = Up::start(&sandbox, &project(&sandbox, 2).dir, &["--once"]).process.wait_exit(TIMEOUT);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert_eq!(address("web2"), had);
    let ended = Up::start(&sandbox, &project(&sandbox, 1).dir, &["--once"]).process.wait_exit(TIMEOUT);
    assert!(ended.stdout.contains("web2  gone: its machine was released"), "{ended:?}");
    assert!(!machine("web2").exists());
    sandbox.assert_no_processes();
}
