//! A node that is taken out of the environment file, with nobody there to see it.

use std::fs;

use muster_e2e::process::Process;
use muster_e2e::project::Project;
use muster_e2e::stage::{Stage, describe};
use muster_e2e::up::Up;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};

/// Leaves a service behind that outlives the run.
const SERVES: &str = r#"
[ -e "$MUSTER_ROOT/served" ] && exit 0
setsid sleep 100000 > /dev/null 2>&1 &
echo yes > "$MUSTER_ROOT/served"
exit 2
"#;

fn project(stage: &Stage, webs: u32) -> Project {
    Project::new(stage, &[("web", webs)]).release("v1", &ScriptRelease::new(SERVES))
}

fn of_machine(stage: &Stage, node: &str) -> Vec<Process> {
    let nodes = stage.path("state").canonicalize().unwrap().join("nodes");
    muster_marked::find("MUSTER_MACHINE", nodes.join(node)).unwrap()
}

#[test]
fn its_machine_is_released_by_the_next_up_also_when_the_last_one_was_killed() {
    let stage = Stage::new();
    let machine = |node: &str| stage.path("state/nodes").join(node);
    let address = |node: &str| {
        let text = fs::read_to_string(machine(node).join("machine.json")).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["interfaces"]["eth0"].clone()
    };
    let up = Up::start(&stage, &project(&stage, 2).dir, &[]);
    up.process.says("all 2 nodes validated at v1", TIMEOUT);
    let had = address("web2");
    up.process.kill(TIMEOUT);
    assert_eq!(of_machine(&stage, "web2").len(), 2, "an agent and a service, with nobody to look after them");

    let up = Up::start(&stage, &project(&stage, 1).dir, &[]);
    up.process.says("web2 is no longer in the design, and leaves", TIMEOUT);
    up.process.says("web2  gone: its machine was released", TIMEOUT);
    let left: Vec<_> = of_machine(&stage, "web2").iter().map(describe).collect();
    assert_eq!(left, [""; 0], "it is said when it is so");
    assert!(!machine("web2").exists());
    up.process.says("the node is validated at v1", TIMEOUT);
    eventually("web1 has its agent and its service", TIMEOUT, || {
        let processes: Vec<_> = of_machine(&stage, "web1").iter().map(describe).collect();
        if processes.len() == 2 { Ok(()) } else { Err(processes.join(", ")) }
    });
    up.process.interrupt_group();
    assert_eq!(up.process.ended(TIMEOUT).code(), 0);
    stage.is_empty();

    // The same with nobody killed: the machine is off, and goes with its address. When the node comes back it is new.
    let ended = Up::start(&stage, &project(&stage, 2).dir, &["--once"]).process.ended(TIMEOUT);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert_eq!(address("web2"), had);
    let ended = Up::start(&stage, &project(&stage, 1).dir, &["--once"]).process.ended(TIMEOUT);
    assert!(ended.stdout.contains("web2  gone: its machine was released"), "{ended:?}");
    assert!(!machine("web2").exists());
    stage.is_empty();
}
