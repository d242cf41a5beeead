//! A fleet grows and shrinks: new nodes join, removed nodes leave when they are no longer used, also while no server runs.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_e2e::http;
use muster_e2e::process::Process;
use muster_e2e::sandbox::{Barrier, Sandbox, TestProject, describe};
use muster_e2e::server::{Api, UpProcess, repository};
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};
use serde_json::Value;

/// Timeout of Puppet runs.
const PUPPET: Duration = Duration::from_secs(240);
/// A client that retries is served within this time: a replaced listener is down for a moment.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);

/// The design of the quickstart with this many nodes of two roles, in a directory of the same name, so that it replaces
/// the first design.
fn design(sandbox: &Sandbox, dbs: u32, webs: u32) -> PathBuf {
    let text = fs::read_to_string(repository().join("examples/quickstart/environments/quickstart.yaml")).unwrap();
    let changed = text.replace("    cardinality: 2\n", &format!("    cardinality: {webs}\n"));
    let changed = changed.replace("  db:\n    cardinality: 1\n", &format!("  db:\n    cardinality: {dbs}\n"));
    let dir = sandbox.path("quickstart");
    fs::create_dir_all(dir.join("environments")).unwrap();
    fs::write(dir.join("environments/quickstart.yaml"), changed).unwrap();
    dir
}

fn apply(sandbox: &Sandbox, dbs: u32, webs: u32) -> String {
    let dir = design(sandbox, dbs, webs);
    let applied = sandbox.run_muster(&["env", "apply", "quickstart", dir.to_str().unwrap(), "--yes"]);
    assert_eq!(applied.code(), 0, "{applied:?}\n{}", sandbox.run_muster(&["status"]).stdout);
    applied.stdout
}

/// Sends a request to the load balancer.
fn through_lb(sandbox: &Sandbox) -> Result<String, String> {
    match http::try_request("GET", &format!("{}:7301", sandbox.address(4)), "/", None) {
        Ok(answer) if answer.status == 200 => Ok(answer.body),
        Ok(answer) => Err(format!("{answer:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// The nodes behind the load balancer, which uses them in turn.
fn behind_lb(sandbox: &Sandbox) -> Vec<String> {
    let answer = || eventually("lb1 answers", CLIENT_TIMEOUT, || through_lb(sandbox));
    let mut nodes: Vec<String> = (0..6).map(|_| answer().split_whitespace().next().unwrap().to_owned()).collect();
    nodes.sort();
    nodes.dedup();
    nodes
}

fn of_machine(sandbox: &Sandbox, node: &str) -> Vec<Process> {
    let nodes = sandbox.path("state").canonicalize().unwrap().join("nodes");
    muster_marked::find("MUSTER_MACHINE", nodes.join(node)).unwrap()
}

/// Runs and incarnations of unrelated nodes, which must not change.
fn lives(api: &Api, nodes: &[&str]) -> Vec<(Vec<Value>, Value)> {
    nodes.iter().map(|node| (api.runs(node), api.node(node)["incarnation"].clone())).collect()
}

#[test]
fn quickstart_grows_and_shrinks() {
    let sandbox = Sandbox::new();
    let up = UpProcess::start(&sandbox, &repository().join("examples/quickstart"), &[]);
    let api = up.api(&sandbox, "quickstart");
    up.process.wait_for_output("all 4 nodes validated at v1", PUPPET);
    assert_eq!(behind_lb(&sandbox), ["web1", "web2"]);
    let others = ["db1", "web1", "web2"];
    let (before, lb1_ran) = (lives(&api, &others), api.runs("lb1").len());

    apply(&sandbox, 1, 3);
    let lb1 = api.wait_node("lb1", "runs without a request", |lb1| {
        lb1["state"] == "validated" && lb1["history"].as_array().unwrap().len() > lb1_ran
    });
    assert!(lb1["history"][0]["causes"].to_string().contains("active_roles::web"), "{:#}", lb1["history"][0]);
    assert_eq!(behind_lb(&sandbox), ["web1", "web2", "web3"], "at the address that it had");
    assert_eq!(lives(&api, &others), before, "no other node ran, and no agent was restarted");
    assert_eq!(sandbox.run_muster(&["verify-hosts", "v1", "web3"]).code(), 0);
    let planned = sandbox.run_muster(&[
        "env",
        "plan",
        "quickstart",
        sandbox.path("quickstart").to_str().unwrap(),
        "--detailed-exitcode",
    ]);
    assert_eq!(planned.code(), 0, "nothing is to do: {planned:?}");

    // Requests continue while it shrinks, and all succeed.
    let (said, done) = (up.process.lines(), AtomicBool::new(false));
    let asked = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut asked = 0;
            while !done.load(Ordering::SeqCst) {
                eventually("lb1 answers", CLIENT_TIMEOUT, || through_lb(&sandbox));
                asked += 1;
            }
            asked
        });
        apply(&sandbox, 1, 2);
        done.store(true, Ordering::SeqCst);
        asking.join().unwrap()
    });
    assert!(asked > 10, "only {asked} times");
    up.process.wait_for_output_after(said, "web3  leaving: waits until lb1 has run without it", TIMEOUT);
    up.process.wait_for_output_after(said, "web3  gone: its machine was released", TIMEOUT);
    assert_eq!(behind_lb(&sandbox), ["web1", "web2"]);
    let left: Vec<_> = of_machine(&sandbox, "web3").iter().map(describe).collect();
    assert_eq!(left, [""; 0]);
    assert!(!sandbox.path("state/nodes/web3").exists());
    assert_eq!(sandbox.run_muster(&["node", "show", "web3"]).code(), 1);
    assert_eq!(lives(&api, &others), before);
    assert_eq!(sandbox.run_muster(&["check-single-version", "v1"]).code(), 0);

    second_db_wakes_its_readers(&sandbox, &api);
    up.process.interrupt_group();
    assert_eq!(up.process.wait_exit(PUPPET).code(), 0);
    sandbox.assert_no_processes();
}

/// Only the web nodes have looked up the databases.
fn second_db_wakes_its_readers(sandbox: &Sandbox, api: &Api) {
    let others = ["db1", "lb1"];
    api.wait_node_state("lb1", "validated");
    let (webs, before) = (["web1", "web2"], lives(api, &others));
    let ran = webs.map(|web| api.runs(web).len());
    apply(sandbox, 2, 2);
    api.wait_node("db2", "is in service", |db2| db2["active"] == true);
    let in_service = stamp(&last_report(api, "db2", "validated")["ended"]);
    for (web, ran) in webs.into_iter().zip(ran) {
        let seen = api.wait_node(web, "has run again", |seen| {
            seen["state"] == "validated" && seen["history"].as_array().unwrap().len() > ran
        });
        let runs = api.runs(web);
        assert_eq!(runs.len(), ran + 1, "{web} runs once: {runs:#?}");
        let run = &seen["history"][0];
        assert!(run["causes"].to_string().contains("db2 added"), "{run:#}");
        // Between the validation of db2 and the start of this run, on one clock.
        let waited = stamp(&last_report(api, web, "configured")["started"]).duration_since(in_service);
        assert!(waited < SignedDuration::from_secs(1), "{web} began {waited:#} after db2 was in service");
    }
    assert_eq!(lives(api, &others), before, "no other node ran, and no agent was restarted");
}

fn last_report(api: &Api, node: &str, phase: &str) -> Value {
    api.reports(node).into_iter().rfind(|report| report["phase"] == phase).unwrap()
}

fn stamp(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// `lb` looks up the web nodes, and waits at the barrier while that is on.
fn release(gate: &Barrier, shut: &std::path::Path) -> ScriptRelease {
    let script = r#"
[ $MUSTER_ROLE = lb ] || exit 2
echo active_roles::web >> "$MUSTER_LOOKUPS_FILE"
[ -e SHUT ] && read line < GATE
exit 2"#;
    let script = script.replace("SHUT", shut.to_str().unwrap());
    ScriptRelease::new(&script.replace("GATE", gate.path().to_str().unwrap()))
}

#[test]
fn next_start_finishes_an_interrupted_removal() {
    let sandbox = Sandbox::new();
    let (gate, shut) = (Barrier::new(sandbox.path("gate")), sandbox.path("shut"));
    let project = |webs| TestProject::new(&sandbox, &[("web", webs), ("lb", 1)]).release("v1", &release(&gate, &shut));
    let up = UpProcess::start(&sandbox, &project(2).dir, &[]);
    let api = up.api(&sandbox, "test");
    up.process.wait_for_output("all 3 nodes validated at v1", TIMEOUT);
    api.wait_node("lb1", "has seen both", |lb1| lb1["state"] == "validated");

    fs::write(&shut, "").unwrap();
    let dir = project(1).dir;
    let applied = sandbox.run_muster(&["env", "apply", "test", dir.to_str().unwrap(), "--no-wait", "--yes"]);
    assert_eq!(applied.code(), 0, "{applied:?}");
    let web2 = api.wait_node_state("web2", "leaving");
    assert_eq!((&web2["active"], &web2["why"]["waits_for"]), (&Value::from(false), &serde_json::json!(["lb1"])));
    let shown = sandbox.run_muster(&["status"]).stdout;
    assert!(shown.contains("web2  leaving") && shown.contains("waits until lb1 has run without it"), "{shown}");
    assert!(!of_machine(&sandbox, "web2").is_empty(), "its machine runs");
    up.process.kill(TIMEOUT);

    let up = UpProcess::start(&sandbox, &dir, &[]);
    up.process.wait_for_output("web2  leaving: waits until lb1 has run without it", TIMEOUT);
    fs::remove_file(&shut).unwrap();
    gate.release(8);
    up.process.wait_for_output("web2  gone: its machine was released", TIMEOUT);
    assert!(of_machine(&sandbox, "web2").is_empty() && !sandbox.path("state/nodes/web2").exists());
    assert_eq!(sandbox.run_muster(&["node", "show", "web2"]).code(), 1);
    up.process.interrupt_group();
    assert_eq!(up.process.wait_exit(TIMEOUT).code(), 0);
    sandbox.assert_no_processes();
}

/// Starts a service that outlives the run.
const SERVES: &str = r#"
[ -e "$MUSTER_ROOT/served" ] && exit 0
setsid sleep 100000 > /dev/null 2>&1 &
echo yes > "$MUSTER_ROOT/served"
exit 2
"#;

fn project(sandbox: &Sandbox, webs: u32) -> TestProject {
    TestProject::new(sandbox, &[("web", webs)]).release("v1", &ScriptRelease::new(SERVES))
}

#[test]
fn next_up_releases_machines_of_removed_nodes() {
    let sandbox = Sandbox::new();
    let machine = |node: &str| sandbox.path("state/nodes").join(node);
    let address = |node: &str| {
        let text = fs::read_to_string(machine(node).join("machine.json")).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["interfaces"]["eth0"].clone()
    };
    let up = UpProcess::start(&sandbox, &project(&sandbox, 2).dir, &[]);
    up.process.wait_for_output("all 2 nodes validated at v1", TIMEOUT);
    let had = address("web2");
    up.process.kill(TIMEOUT);
    assert_eq!(of_machine(&sandbox, "web2").len(), 2, "an agent and a service without a server");

    let up = UpProcess::start(&sandbox, &project(&sandbox, 1).dir, &[]);
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
    let ended = UpProcess::start(&sandbox, &project(&sandbox, 2).dir, &["--once"]).process.wait_exit(TIMEOUT);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert_eq!(address("web2"), had);
    let ended = UpProcess::start(&sandbox, &project(&sandbox, 1).dir, &["--once"]).process.wait_exit(TIMEOUT);
    assert!(ended.stdout.contains("web2  gone: its machine was released"), "{ended:?}");
    assert!(!machine("web2").exists());
    sandbox.assert_no_processes();
}
