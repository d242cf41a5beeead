//! `muster up`: start, interruption, kill and takeover of a local fleet.

use std::collections::BTreeMap;
use std::path::Path;

use muster_e2e::process::{Process, Signal};
use muster_e2e::sandbox::{Sandbox, TestProject, describe};
use muster_e2e::server::UpProcess;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};

const NODES: [&str; 3] = ["db1", "web1", "web2"];

/// `web` needs an active `db`. Each node starts a service that outlives the run.
const SERVES: &str = r#"
echo "$MUSTER_NODE" >> "$MUSTER_ROOT/runs"
if [ "$MUSTER_ROLE" = web ]; then
    echo active_roles::db >> "$MUSTER_LOOKUPS_FILE"
    if ! grep -q '"db":{"db1"' "$MUSTER_SNAPSHOT"; then
        echo '{"kind":"role","role":"db","want":1,"have":0}' >> "$MUSTER_PENDING_FILE"
        exit 75
    fi
fi
# A zombie does not serve.
if grep -qs '^State:.[^Z]' "/proc/$(cat "$MUSTER_ROOT/pid" || echo none)/status"; then exit 0; fi
setsid sleep 100000 > /dev/null 2>&1 &
echo $! > "$MUSTER_ROOT/pid"
exit 2
"#;

fn serving() -> ScriptRelease {
    ScriptRelease::new(SERVES).check("{name: serves, process: {pidfile: \"{root}/pid\"}, deadline: 5s}")
}

fn project(sandbox: &Sandbox) -> TestProject {
    TestProject::new(sandbox, &[("db", 1), ("web", 2)]).release("v1", &serving()).release("v2", &serving())
}

/// The processes of each machine, by its mark.
fn machines(sandbox: &Sandbox) -> BTreeMap<&'static str, Vec<Process>> {
    let nodes = sandbox.path("state").canonicalize().unwrap().join("nodes");
    NODES.iter().map(|node| (*node, muster_marked::find("MUSTER_MACHINE", nodes.join(node)).unwrap())).collect()
}

fn is_agent(process: &Process) -> bool {
    process
        .arguments()
        .is_ok_and(|arguments| arguments.first().is_some_and(|program| Path::new(program).ends_with("muster-agent")))
}

/// The pids of the agent and the service of each node.
fn one_agent_and_one_service_each(sandbox: &Sandbox) -> BTreeMap<&'static str, (u32, u32)> {
    eventually("each node has one agent and one service", TIMEOUT, || {
        let machines = machines(sandbox);
        let split = machines.iter().map(|(node, processes)| {
            let (agents, others): (Vec<_>, Vec<_>) = processes.iter().partition(|process| is_agent(process));
            match (&agents[..], &others[..]) {
                ([agent], [service]) => Ok((*node, (agent.pid(), service.pid()))),
                _ => Err(format!("{node}: {:?}", processes.iter().map(describe).collect::<Vec<_>>())),
            }
        });
        split.collect()
    })
}

#[test]
fn fleet_starts_and_ends_with_ctrl_c() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox);
    let up = UpProcess::start(&sandbox, &project.dir, &[]);
    up.process.wait_for_output("all 3 nodes validated at v1", TIMEOUT);
    sandbox.wait_validated("v1", &NODES);
    let before = one_agent_and_one_service_each(&sandbox);

    // A second one on the same state is refused, and the first one continues.
    let second = UpProcess::start(&sandbox, &project.dir, &["--listen", "127.0.0.1:0"]).process.wait_exit(TIMEOUT);
    assert_eq!(second.code(), 1, "{second:?}");
    assert!(second.stderr.contains("in use"), "{}", second.stderr);
    assert_eq!(one_agent_and_one_service_each(&sandbox), before);

    up.process.interrupt_group();
    let ended = up.process.wait_exit(TIMEOUT);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.stderr.contains("the state is kept in"), "{}", ended.stderr);
    sandbox.assert_no_processes();
    assert_eq!(sandbox.run_muster(&["status", "--state", "state"]).code(), 2, "no server answers");

    // The next one continues: the same incarnations and state.
    let again = UpProcess::start(&sandbox, &project.dir, &["--once"]).process.wait_exit(TIMEOUT);
    assert_eq!(again.code(), 0, "{again:?}");
    sandbox.assert_no_processes();
    let up = UpProcess::start(&sandbox, &project.dir, &[]);
    let api = up.api(&sandbox, "test");
    up.process.wait_for_output("all 3 nodes validated at v1", TIMEOUT);
    let db1 = api.node("db1");
    assert_eq!(db1["incarnation"], 1, "{db1:#}");
    assert_eq!(db1["history"].as_array().unwrap().len(), 3, "one run for each start: {db1:#}");
}

#[test]
fn next_up_takes_over_after_a_kill() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox);
    let up = UpProcess::start(&sandbox, &project.dir, &[]);
    up.process.wait_for_output("all 3 nodes validated at v1", TIMEOUT);
    let before = one_agent_and_one_service_each(&sandbox);
    up.process.kill(TIMEOUT);

    // Its agents and services continue without it.
    assert_eq!(one_agent_and_one_service_each(&sandbox), before);

    let up = UpProcess::start(&sandbox, &project.dir, &[]);
    let api = up.api(&sandbox, "test");
    up.process.wait_for_output("all 3 nodes validated at v1", TIMEOUT);
    let after = one_agent_and_one_service_each(&sandbox);
    for node in NODES {
        assert_ne!(after[node].0, before[node].0, "{node} has an agent that this driver has started");
        assert_eq!(after[node].1, before[node].1, "the service of {node} was not changed");
        let results: Vec<_> = api.runs(node).iter().map(|run| run["result"].clone()).collect();
        assert!(!results.contains(&"failed".into()), "{node}: {results:?}");
    }
    assert_eq!(sandbox.run_muster(&["trigger-update", "v2", "--at-once"]).code(), 0);
    sandbox.wait_validated("v2", &NODES);

    // Processes of the killed one are ended too.
    up.process.interrupt_group();
    assert_eq!(up.process.wait_exit(TIMEOUT).code(), 0);
    sandbox.assert_no_processes();
}

#[test]
fn down_ends_a_fleet_with_or_without_its_up() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox);
    let down = || {
        let ended = sandbox.run_muster(&["down", "--state", "state"]);
        assert_eq!(ended.code(), 0, "{ended:?}");
        ended.stdout
    };
    let up = UpProcess::start(&sandbox, &project.dir, &[]);
    up.process.wait_for_output("all 3 nodes validated at v1", TIMEOUT);
    one_agent_and_one_service_each(&sandbox);
    up.process.kill(TIMEOUT);
    let said = down();
    assert!(NODES.iter().all(|node| said.contains(&format!("processes of {node}"))), "{said}");
    sandbox.assert_no_processes();

    let up = UpProcess::start(&sandbox, &project.dir, &[]);
    up.process.wait_for_output("all 3 nodes validated at v1", TIMEOUT);
    let said = down();
    assert!(said.starts_with("stopped `muster up` (process "), "{said}");
    assert_eq!(up.process.wait_exit(TIMEOUT).code(), 0);
    sandbox.assert_no_processes();
    assert!(down().starts_with("no process of the fleet in "));
}

#[test]
fn second_ctrl_c_and_closed_terminal_end_it() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox);
    // Before anything is up, and twice.
    let up = UpProcess::start(&sandbox, &project.dir, &[]);
    up.process.wait_for_output("API: ", TIMEOUT);
    up.process.interrupt_group();
    up.process.signal(Signal::INT);
    assert_eq!(up.process.wait_exit(TIMEOUT).code(), 0);
    sandbox.assert_no_processes();

    let up = UpProcess::start(&sandbox, &project.dir, &[]);
    up.process.wait_for_output("all 3 nodes validated at v1", TIMEOUT);
    up.process.signal(Signal::HUP);
    assert_eq!(up.process.wait_exit(TIMEOUT).code(), 0);
    sandbox.assert_no_processes();
}

#[test]
fn used_port_starts_nothing() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox);
    let _taken = std::net::TcpListener::bind(sandbox.listen()).unwrap();
    let refused = UpProcess::start(&sandbox, &project.dir, &[]).process.wait_exit(TIMEOUT);
    assert_eq!(refused.code(), 1, "{refused:?}");
    let says = format!("{} is in use by another process", sandbox.listen());
    assert!(refused.stderr.contains(&says), "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
    sandbox.assert_no_processes();
}

#[test]
fn killed_agent_is_restarted() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox);
    let up = UpProcess::start(&sandbox, &project.dir, &[]);
    let api = up.api(&sandbox, "test");
    up.process.wait_for_output("all 3 nodes validated at v1", TIMEOUT);
    let before = one_agent_and_one_service_each(&sandbox);

    let (agent, service) = before["web1"];
    Process::open(agent).unwrap().unwrap().signal(Signal::KILL).unwrap();
    api.wait_node("web1", "has run again", |seen| {
        seen["history"].as_array().unwrap().len() >= 2 && seen["state"] == "validated"
    });
    let after = one_agent_and_one_service_each(&sandbox);
    assert_ne!(after["web1"].0, agent);
    assert_eq!(after["web1"].1, service);
    assert_eq!(after["db1"], before["db1"], "the other nodes are unchanged");
}

#[test]
fn once_ends_with_the_reasons_of_failures() {
    let sandbox = Sandbox::new();
    let script = SERVES.replace("setsid", "[ $MUSTER_ROLE = db ] && { echo the disk is on fire; exit 7; }\nsetsid");
    let project = TestProject::new(&sandbox, &[("db", 1), ("web", 2)]).release("v1", &ScriptRelease::new(&script));
    let ended = UpProcess::start(&sandbox, &project.dir, &["--once"]).process.wait_exit(TIMEOUT * 2);
    assert_eq!(ended.code(), 1, "{ended:?}");
    let (_, reasons) = ended.stdout.split_once("the fleet is stuck and cannot become validated:").unwrap();
    assert!(reasons.contains("db1: apply ended with exit code 7"), "{reasons}");
    assert!(reasons.contains("web1: waiting for role db: 0 of 1 active"), "{reasons}");
    assert!(reasons.contains("web2: waiting for role db: 0 of 1 active"), "{reasons}");
    sandbox.assert_no_processes();
}

#[test]
fn once_ends_with_the_unmet_needs() {
    let sandbox = Sandbox::new();
    let script = "echo a licence from the vendor; exit 75";
    let project = TestProject::new(&sandbox, &[("web", 1)]).release("v1", &ScriptRelease::new(script));
    let ended = UpProcess::start(&sandbox, &project.dir, &["--once"]).process.wait_exit(TIMEOUT);
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stdout.contains("web1: waiting for a licence from the vendor"), "{}", ended.stdout);
    sandbox.assert_no_processes();
}

#[test]
fn first_version_applies_to_a_new_environment_only() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox);
    let once = |first: &str| {
        UpProcess::start(&sandbox, &project.dir, &["--once", "--first-version", first]).process.wait_exit(TIMEOUT)
    };
    let begun = once("v2");
    assert_eq!(begun.code(), 0, "{begun:?}");
    assert!(begun.stdout.contains("all 3 nodes validated at v2"), "{}", begun.stdout);

    let refused = once("v1");
    assert_eq!((refused.code(), refused.stdout.as_str()), (1, ""), "{refused:?}");
    let says = "environment test cannot start with v1: its version is already v2";
    assert!(refused.stderr.contains(says), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: ") && refused.stderr.contains("`muster trigger-update v1`"), "{refused:?}");
    sandbox.assert_no_processes();

    assert_eq!(once("v2").code(), 0, "that is what it runs");
}

#[test]
fn malformed_project_starts_nothing() {
    let sandbox = Sandbox::new();
    let text = "roles:\n  db: {cardinality: one, flavor: local}\n";
    let project = TestProject::with_environment(&sandbox, text).release("v1", &serving());
    let refused = UpProcess::start(&sandbox, &project.dir, &[]).process.wait_exit(TIMEOUT);
    assert_eq!(refused.code(), 1, "{refused:?}");
    let shown = &refused.stderr;
    assert!(shown.contains("environments/test.yaml:2:21"), "file, line and column:\n{shown}");
    assert!(shown.contains("  db: {cardinality: one, flavor: local}"), "the line:\n{shown}");
    assert!(shown.contains("expected an integer"), "what was expected:\n{shown}");
    assert_eq!(refused.stdout, "");
    sandbox.assert_no_processes();

    let refused = UpProcess::start(&sandbox, &sandbox.path("elsewhere"), &[]).process.wait_exit(TIMEOUT);
    assert_eq!(refused.code(), 64, "{refused:?}");
    assert!(refused.stderr.contains("environments"), "{}", refused.stderr);
}
