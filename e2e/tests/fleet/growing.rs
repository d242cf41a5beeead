//! A fleet that grows and shrinks while it runs: nodes come up and are taken in, and go when nobody needs them any more.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_testkit::release::ScriptRelease;
use serde_json::Value;

use muster_e2e::gate::Gate;
use muster_e2e::http;
use muster_e2e::process::Process;
use muster_e2e::project::Project;
use muster_e2e::server::{Api, repository};
use muster_e2e::stage::{Stage, describe};
use muster_e2e::up::Up;
use muster_testkit::wait::{TIMEOUT, eventually};

/// Puppet takes as long as it takes.
const PUPPET: Duration = Duration::from_secs(240);
/// A client that asks again is served before this: a listener that is replaced is away for a moment.
const CLIENT_PATIENCE: Duration = Duration::from_secs(20);

/// The design of the quickstart with so many nodes of two roles, in a directory of the same name: it replaces what that
/// brought.
fn design(stage: &Stage, dbs: u32, webs: u32) -> PathBuf {
    let text = fs::read_to_string(repository().join("examples/quickstart/environments/quickstart.yaml")).unwrap();
    let changed = text.replace("    cardinality: 2\n", &format!("    cardinality: {webs}\n"));
    let changed = changed.replace("  db:\n    cardinality: 1\n", &format!("  db:\n    cardinality: {dbs}\n"));
    let dir = stage.path("quickstart");
    fs::create_dir_all(dir.join("environments")).unwrap();
    fs::write(dir.join("environments/quickstart.yaml"), changed).unwrap();
    dir
}

fn apply(stage: &Stage, dbs: u32, webs: u32) -> String {
    let dir = design(stage, dbs, webs);
    let applied = stage.ask(&["env", "apply", "quickstart", dir.to_str().unwrap()]);
    assert_eq!(applied.code(), 0, "{applied:?}\n{}", stage.ask(&["status"]).stdout);
    applied.stdout
}

/// Asks the load balancer.
fn through_lb(stage: &Stage) -> Result<String, String> {
    match http::try_request("GET", &format!("{}:7301", stage.address(4)), "/", None) {
        Ok(answer) if answer.status == 200 => Ok(answer.body),
        Ok(answer) => Err(format!("{answer:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// The nodes behind the load balancer: it asks them in turn.
fn behind_lb(stage: &Stage) -> Vec<String> {
    let answer = || eventually("lb1 answers", CLIENT_PATIENCE, || through_lb(stage));
    let mut nodes: Vec<String> = (0..6).map(|_| answer().split_whitespace().next().unwrap().to_owned()).collect();
    nodes.sort();
    nodes.dedup();
    nodes
}

fn of_machine(stage: &Stage, node: &str) -> Vec<Process> {
    let nodes = stage.path("state").canonicalize().unwrap().join("nodes");
    muster_marked::find("MUSTER_MACHINE", nodes.join(node)).unwrap()
}

/// What must stay the same of those who have nothing to do with it: their runs, and the life of their agents.
fn lives(api: &Api, nodes: &[&str]) -> Vec<(Vec<Value>, Value)> {
    nodes.iter().map(|node| (api.runs(node), api.node(node)["incarnation"].clone())).collect()
}

#[test]
fn the_quickstart_grows_and_shrinks_while_it_runs() {
    let stage = Stage::new();
    let up = Up::start(&stage, &repository().join("examples/quickstart"), &[]);
    let api = up.api(&stage, "quickstart");
    up.process.says("all 4 nodes validated at v1", PUPPET);
    assert_eq!(behind_lb(&stage), ["web1", "web2"]);
    let others = ["db1", "web1", "web2"];
    let (before, lb1_ran) = (lives(&api, &others), api.runs("lb1").len());

    apply(&stage, 1, 3);
    let lb1 = api.until_node("lb1", "runs without anybody asking it to", |lb1| {
        lb1["standing"] == "validated" && lb1["history"].as_array().unwrap().len() > lb1_ran
    });
    assert!(lb1["history"][0]["causes"].to_string().contains("active_roles::web"), "{:#}", lb1["history"][0]);
    assert_eq!(behind_lb(&stage), ["web1", "web2", "web3"], "at the address that it had");
    assert_eq!(lives(&api, &others), before, "nobody else ran, and no agent was started again");
    assert_eq!(stage.ask(&["verify-hosts", "v1", "web3"]).code(), 0);
    let planned =
        stage.ask(&["env", "plan", "quickstart", stage.path("quickstart").to_str().unwrap(), "--detailed-exitcode"]);
    assert_eq!(planned.code(), 0, "nothing is to do: {planned:?}");

    // It is asked all the time while it shrinks, and answers: whom it asks is there.
    let (said, done) = (up.process.lines(), AtomicBool::new(false));
    let asked = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut asked = 0;
            while !done.load(Ordering::SeqCst) {
                eventually("lb1 answers", CLIENT_PATIENCE, || through_lb(&stage));
                asked += 1;
            }
            asked
        });
        apply(&stage, 1, 2);
        done.store(true, Ordering::SeqCst);
        asking.join().unwrap()
    });
    assert!(asked > 10, "only {asked} times");
    up.process.says_after(said, "web3  leaving: waits until lb1 has run without it", TIMEOUT);
    up.process.says_after(said, "web3  gone: its machine was released", TIMEOUT);
    assert_eq!(behind_lb(&stage), ["web1", "web2"]);
    let left: Vec<_> = of_machine(&stage, "web3").iter().map(describe).collect();
    assert_eq!(left, [""; 0]);
    assert!(!stage.path("state/nodes/web3").exists());
    assert_eq!(stage.ask(&["node", "show", "web3"]).code(), 1);
    assert_eq!(lives(&api, &others), before);
    assert_eq!(stage.ask(&["check-single-version", "v1"]).code(), 0);

    a_second_db_wakes_who_looked_it_up(&stage, &api);
    up.process.interrupt_group();
    assert_eq!(up.process.ended(PUPPET).code(), 0);
    stage.is_empty();
}

/// Every web has looked the databases up, and nobody else has.
fn a_second_db_wakes_who_looked_it_up(stage: &Stage, api: &Api) {
    let others = ["db1", "lb1"];
    api.until_node_is("lb1", "validated");
    let (webs, before) = (["web1", "web2"], lives(api, &others));
    let ran = webs.map(|web| api.runs(web).len());
    apply(stage, 2, 2);
    api.until_node("db2", "is in service", |db2| db2["active"] == true);
    let in_service = stamp(&last_report(api, "db2", "validated")["ended"]);
    for (web, ran) in webs.into_iter().zip(ran) {
        let seen = api.until_node(web, "has run again", |seen| {
            seen["standing"] == "validated" && seen["history"].as_array().unwrap().len() > ran
        });
        let runs = api.runs(web);
        assert_eq!(runs.len(), ran + 1, "{web} runs once: {runs:#?}");
        let run = &seen["history"][0];
        assert!(run["causes"].to_string().contains("db2 added"), "{run:#}");
        // Of the stamps of one machine: when db2 had proved itself, and when this run began.
        let waited = stamp(&last_report(api, web, "configured")["started"]).duration_since(in_service);
        assert!(waited < SignedDuration::from_secs(1), "{web} began {waited:#} after db2 was in service");
    }
    assert_eq!(lives(api, &others), before, "nobody else ran, and no agent was started again");
}

fn last_report(api: &Api, node: &str, phase: &str) -> Value {
    api.reports(node).into_iter().rfind(|report| report["phase"] == phase).unwrap()
}

fn stamp(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// `lb` looks up the web nodes, and waits at the gate while that is shut.
fn release(gate: &Gate, shut: &std::path::Path) -> ScriptRelease {
    let script = r#"
[ $MUSTER_ROLE = lb ] || exit 2
echo active_roles::web >> "$MUSTER_LOOKUPS_FILE"
[ -e SHUT ] && read line < GATE
exit 2"#;
    let script = script.replace("SHUT", shut.to_str().unwrap());
    ScriptRelease::new(&script.replace("GATE", gate.path().to_str().unwrap()))
}

#[test]
fn what_is_killed_while_a_node_leaves_is_finished_by_the_next_start() {
    let stage = Stage::new();
    let (gate, shut) = (Gate::new(stage.path("gate")), stage.path("shut"));
    let project = |webs| Project::new(&stage, &[("web", webs), ("lb", 1)]).release("v1", &release(&gate, &shut));
    let up = Up::start(&stage, &project(2).dir, &[]);
    let api = up.api(&stage, "test");
    up.process.says("all 3 nodes validated at v1", TIMEOUT);
    api.until_node("lb1", "has seen both", |lb1| lb1["standing"] == "validated");

    fs::write(&shut, "").unwrap();
    let dir = project(1).dir;
    let applied = stage.ask(&["env", "apply", "test", dir.to_str().unwrap(), "--no-wait"]);
    assert_eq!(applied.code(), 0, "{applied:?}");
    let web2 = api.until_node_is("web2", "leaving");
    assert_eq!((&web2["active"], &web2["why"]["waits_for"]), (&Value::from(false), &serde_json::json!(["lb1"])));
    let shown = stage.ask(&["status"]).stdout;
    assert!(shown.contains("web2  leaving") && shown.contains("waits until lb1 has run without it"), "{shown}");
    assert!(!of_machine(&stage, "web2").is_empty(), "its machine goes on");
    up.process.kill(TIMEOUT);

    let up = Up::start(&stage, &dir, &[]);
    up.process.says("web2  leaving: waits until lb1 has run without it", TIMEOUT);
    fs::remove_file(&shut).unwrap();
    gate.let_pass(8);
    up.process.says("web2  gone: its machine was released", TIMEOUT);
    assert!(of_machine(&stage, "web2").is_empty() && !stage.path("state/nodes/web2").exists());
    assert_eq!(stage.ask(&["node", "show", "web2"]).code(), 1);
    up.process.interrupt_group();
    assert_eq!(up.process.ended(TIMEOUT).code(), 0);
    stage.is_empty();
}
