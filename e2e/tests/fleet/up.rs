//! `muster up`: a fleet of local nodes, its end and its deaths.

use std::collections::BTreeMap;
use std::path::Path;

use muster_e2e::process::{Process, Signal};
use muster_e2e::project::Project;
use muster_e2e::stage::{Stage, describe};
use muster_e2e::up::Up;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};

const NODES: [&str; 3] = ["db1", "web1", "web2"];

/// `web` needs an active `db`. Each node leaves a service behind, as a real one would: it outlives the run.
const SERVES: &str = r#"
echo "$MUSTER_NODE" >> "$MUSTER_ROOT/runs"
if [ "$MUSTER_ROLE" = web ]; then
    echo active_roles::db >> "$MUSTER_LOOKUPS_FILE"
    if ! grep -q '"db":{"db1"' "$MUSTER_SNAPSHOT"; then
        echo '{"kind":"role","role":"db","want":1,"have":0}' >> "$MUSTER_PENDING_FILE"
        exit 75
    fi
fi
# A zombie serves nobody.
if grep -qs '^State:.[^Z]' "/proc/$(cat "$MUSTER_ROOT/pid" || echo none)/status"; then exit 0; fi
setsid sleep 100000 > /dev/null 2>&1 &
echo $! > "$MUSTER_ROOT/pid"
exit 2
"#;

fn serving() -> ScriptRelease {
    ScriptRelease::new(SERVES).check("{name: serves, process: {pidfile: \"{root}/pid\"}, deadline: 5s}")
}

fn project(stage: &Stage) -> Project {
    Project::new(stage, &[("db", 1), ("web", 2)]).release("v1", &serving()).release("v2", &serving())
}

/// The processes of each machine, by what carries its mark.
fn machines(stage: &Stage) -> BTreeMap<&'static str, Vec<Process>> {
    let nodes = stage.path("state").canonicalize().unwrap().join("nodes");
    NODES.iter().map(|node| (*node, muster_marked::find("MUSTER_MACHINE", nodes.join(node)).unwrap())).collect()
}

fn is_agent(process: &Process) -> bool {
    process
        .arguments()
        .is_ok_and(|arguments| arguments.first().is_some_and(|program| Path::new(program).ends_with("muster-agent")))
}

/// The one agent of each node, and the one service.
fn one_agent_and_one_service_each(stage: &Stage) -> BTreeMap<&'static str, (u32, u32)> {
    eventually("each node has one agent and one service", TIMEOUT, || {
        let machines = machines(stage);
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
fn a_fleet_comes_up_waits_for_itself_and_ends_with_ctrl_c() {
    let stage = Stage::new();
    let project = project(&stage);
    let up = Up::start(&stage, &project.dir, &[]);
    up.process.says("all 3 nodes validated at v1", TIMEOUT);
    stage.wait_for("v1", &NODES);
    let before = one_agent_and_one_service_each(&stage);

    // A second one on the same state is refused, and the first one is none the worse for it.
    let second = Up::start(&stage, &project.dir, &["--listen", "127.0.0.1:0"]).process.ended(TIMEOUT);
    assert_eq!(second.code(), 1, "{second:?}");
    assert!(second.stderr.contains("in use"), "{}", second.stderr);
    assert_eq!(one_agent_and_one_service_each(&stage), before);

    up.process.interrupt_group();
    let ended = up.process.ended(TIMEOUT);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.stderr.contains("the state is kept in"), "{}", ended.stderr);
    stage.is_empty();
    assert_eq!(stage.ask(&["status", "--state", "state"]).code(), 2, "nobody answers any more");

    // The next one goes on from there: the same lives, and nothing is forgotten.
    let again = Up::start(&stage, &project.dir, &["--once"]).process.ended(TIMEOUT);
    assert_eq!(again.code(), 0, "{again:?}");
    stage.is_empty();
    let up = Up::start(&stage, &project.dir, &[]);
    let api = up.api(&stage, "test");
    up.process.says("all 3 nodes validated at v1", TIMEOUT);
    let db1 = api.node("db1");
    assert_eq!(db1["incarnation"], 1, "{db1:#}");
    assert_eq!(db1["history"].as_array().unwrap().len(), 3, "one run for each start: {db1:#}");
}

#[test]
fn a_killed_up_is_taken_over_by_the_next_one() {
    let stage = Stage::new();
    let project = project(&stage);
    let up = Up::start(&stage, &project.dir, &[]);
    up.process.says("all 3 nodes validated at v1", TIMEOUT);
    let before = one_agent_and_one_service_each(&stage);
    up.process.kill(TIMEOUT);

    // Its agents are alone, and go on; so do the services.
    assert_eq!(one_agent_and_one_service_each(&stage), before);

    let up = Up::start(&stage, &project.dir, &[]);
    let api = up.api(&stage, "test");
    up.process.says("all 3 nodes validated at v1", TIMEOUT);
    let after = one_agent_and_one_service_each(&stage);
    for node in NODES {
        assert_ne!(after[node].0, before[node].0, "{node} has an agent that this driver has started");
        assert_eq!(after[node].1, before[node].1, "the service of {node} was not touched");
        let results: Vec<_> = api.runs(node).iter().map(|run| run["result"].clone()).collect();
        assert!(!results.contains(&"failed".into()), "{node}: {results:?}");
    }
    assert_eq!(stage.ask(&["trigger-update", "v2", "--at-once"]).code(), 0);
    stage.wait_for("v2", &NODES);

    // What the killed one has started is ended with the rest.
    up.process.interrupt_group();
    assert_eq!(up.process.ended(TIMEOUT).code(), 0);
    stage.is_empty();
}

#[test]
fn an_impatient_operator_and_a_closed_terminal_end_it_as_well() {
    let stage = Stage::new();
    let project = project(&stage);
    // Before anything is up, and twice.
    let up = Up::start(&stage, &project.dir, &[]);
    up.process.says("API: ", TIMEOUT);
    up.process.interrupt_group();
    up.process.signal(Signal::INT);
    assert_eq!(up.process.ended(TIMEOUT).code(), 0);
    stage.is_empty();

    let up = Up::start(&stage, &project.dir, &[]);
    up.process.says("all 3 nodes validated at v1", TIMEOUT);
    up.process.signal(Signal::HUP);
    assert_eq!(up.process.ended(TIMEOUT).code(), 0);
    stage.is_empty();
}

#[test]
fn a_fleet_whose_port_is_taken_starts_nothing() {
    let stage = Stage::new();
    let project = project(&stage);
    let _taken = std::net::TcpListener::bind(stage.listen()).unwrap();
    let refused = Up::start(&stage, &project.dir, &[]).process.ended(TIMEOUT);
    assert_eq!(refused.code(), 1, "{refused:?}");
    let says = format!("{} is taken by another process", stage.listen());
    assert!(refused.stderr.contains(&says), "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
    stage.is_empty();
}

#[test]
fn an_agent_that_dies_is_started_again() {
    let stage = Stage::new();
    let project = project(&stage);
    let up = Up::start(&stage, &project.dir, &[]);
    let api = up.api(&stage, "test");
    up.process.says("all 3 nodes validated at v1", TIMEOUT);
    let before = one_agent_and_one_service_each(&stage);

    let (agent, service) = before["web1"];
    Process::open(agent).unwrap().unwrap().signal(Signal::KILL).unwrap();
    api.until_node("web1", "has run again", |seen| {
        seen["history"].as_array().unwrap().len() >= 2 && seen["standing"] == "validated"
    });
    let after = one_agent_and_one_service_each(&stage);
    assert_ne!(after["web1"].0, agent);
    assert_eq!(after["web1"].1, service);
    assert_eq!(after["db1"], before["db1"], "the others were left alone");
}

#[test]
fn a_fleet_that_cannot_become_validated_ends_once_with_the_reasons() {
    let stage = Stage::new();
    let script = SERVES.replace("setsid", "[ $MUSTER_ROLE = db ] && { echo the disk is on fire; exit 7; }\nsetsid");
    let project = Project::new(&stage, &[("db", 1), ("web", 2)]).release("v1", &ScriptRelease::new(&script));
    let ended = Up::start(&stage, &project.dir, &["--once"]).process.ended(TIMEOUT * 2);
    assert_eq!(ended.code(), 1, "{ended:?}");
    let (_, reasons) = ended.stdout.split_once("the fleet cannot become validated by itself:").unwrap();
    assert!(reasons.contains("db1: apply ended with exit code 7"), "{reasons}");
    assert!(reasons.contains("web1: waiting for role db: 0 of 1 active"), "{reasons}");
    assert!(reasons.contains("web2: waiting for role db: 0 of 1 active"), "{reasons}");
    stage.is_empty();
}

#[test]
fn a_fleet_that_waits_for_what_nobody_has_ends_once_with_what_it_waits_for() {
    let stage = Stage::new();
    let script = "echo a licence from the vendor; exit 75";
    let project = Project::new(&stage, &[("web", 1)]).release("v1", &ScriptRelease::new(script));
    let ended = Up::start(&stage, &project.dir, &["--once"]).process.ended(TIMEOUT);
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stdout.contains("web1: waiting for a licence from the vendor"), "{}", ended.stdout);
    stage.is_empty();
}

#[test]
fn the_first_version_is_that_of_a_new_environment_only() {
    let stage = Stage::new();
    let project = project(&stage);
    let once =
        |first: &str| Up::start(&stage, &project.dir, &["--once", "--first-version", first]).process.ended(TIMEOUT);
    let begun = once("v2");
    assert_eq!(begun.code(), 0, "{begun:?}");
    assert!(begun.stdout.contains("all 3 nodes validated at v2"), "{}", begun.stdout);

    let refused = once("v1");
    assert_eq!((refused.code(), refused.stdout.as_str()), (1, ""), "{refused:?}");
    let says = "environment test does not begin with v1: its version is v2 already";
    assert!(refused.stderr.contains(says), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: ") && refused.stderr.contains("`muster trigger-update v1`"), "{refused:?}");
    stage.is_empty();

    assert_eq!(once("v2").code(), 0, "that is what it runs");
}

#[test]
fn a_malformed_project_starts_nothing() {
    let stage = Stage::new();
    let text = "roles:\n  db: {cardinality: one, flavor: local}\n";
    let project = Project::with_environment(&stage, text).release("v1", &serving());
    let refused = Up::start(&stage, &project.dir, &[]).process.ended(TIMEOUT);
    assert_eq!(refused.code(), 1, "{refused:?}");
    let shown = &refused.stderr;
    assert!(shown.contains("environments/test.yaml:2:21"), "file, line and column:\n{shown}");
    assert!(shown.contains("  db: {cardinality: one, flavor: local}"), "the line:\n{shown}");
    assert!(shown.contains("expected an integer"), "what was expected:\n{shown}");
    assert_eq!(refused.stdout, "");
    stage.is_empty();

    let refused = Up::start(&stage, &stage.path("elsewhere"), &[]).process.ended(TIMEOUT);
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(refused.stderr.contains("environments"), "{}", refused.stderr);
}
