//! An agent is stopped or killed during a run, a run is lost, or the disk of a node is full. A run outlives its agent, and no
//! report is lost.

use std::fs;
use std::path::Path;

use muster_e2e::agent::SandboxNode;
use muster_e2e::process::Signal;
use muster_e2e::sandbox::{Barrier, Sandbox, TestProject, describe};
use muster_e2e::server::SandboxServer;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};
use muster_testkit::{SmallDisk, passed_in_a_namespace};
use serde_json::json;

/// A release whose runs write to the journal and wait for the gate. The grandchild leaves the session, as processes of
/// Puppet's exec do.
fn waiting_release(journal: &Path, gate: &Barrier) -> ScriptRelease {
    ScriptRelease::new(&format!(
        "setsid sh -c 'echo grandchild $$ >> {journal}; exec sleep 1000' &\n\
         while ! grep -qs grandchild {journal}; do sleep 0.01; done\n\
         echo run $MUSTER_RUN_ID >> {journal}\n\
         read line < {gate}\n\
         pid=$(sed -n 's/^grandchild //p' {journal} | tail -n 1); kill $pid; exit 2",
        journal = journal.display(),
        gate = gate.path().display()
    ))
}

/// The run with this number in the journal, as soon as it has begun.
fn begun_run(journal: &Path, number: usize) -> String {
    eventually("the applier has begun", TIMEOUT, || {
        let text = fs::read_to_string(journal).unwrap_or_default();
        let run = text.lines().filter_map(|line| line.strip_prefix("run ")).nth(number).map(str::to_owned);
        run.ok_or(text)
    })
}

#[test]
fn run_of_a_stopped_agent_is_adopted_and_reported_once() {
    let sandbox = Sandbox::new();
    let (gate, journal) = (Barrier::new(sandbox.path("gate")), sandbox.path("journal"));
    let project = TestProject::new(&sandbox, &[("web", 1)]).release("v1", &waiting_release(&journal, &gate));
    let server = SandboxServer::start(&sandbox, &project);
    let node = SandboxNode::new(&sandbox, "web1", 1);
    let agent = node.start();
    let run = begun_run(&journal, 0);
    let marked = || muster_marked::find("MUSTER_RUN_ID", &run).unwrap();

    agent.signal(Signal::TERM);
    assert_eq!(agent.wait_exit(TIMEOUT).code(), 0);
    server.api.wait_node_state("web1", "silent");
    assert!(marked().len() >= 3, "the applier, its supervisor and the grandchild: {:?}", marked());

    let agent = node.start();
    agent.wait_for_output("adopting the work of an earlier agent", TIMEOUT);
    gate.release(1);
    sandbox.wait_validated("v1", &["web1"]);
    let runs = server.api.runs("web1");
    assert_eq!(runs.iter().map(|run| run["run"].as_str().unwrap()).collect::<Vec<_>>(), [&run]);
    let left: Vec<_> = marked().iter().map(describe).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn lost_run_is_reported_and_followed_by_another() {
    let sandbox = Sandbox::new();
    let (gate, journal) = (Barrier::new(sandbox.path("gate")), sandbox.path("journal"));
    let project = TestProject::new(&sandbox, &[("web", 1)]).release("v1", &waiting_release(&journal, &gate));
    let server = SandboxServer::start(&sandbox, &project);
    let node = SandboxNode::new(&sandbox, "web1", 1);
    let agent = node.start();
    let first = begun_run(&journal, 0);

    // As a reboot does.
    agent.kill(TIMEOUT);
    let marked = || muster_marked::find("MUSTER_RUN_ID", &first).unwrap();
    for process in marked() {
        process.signal(Signal::KILL).unwrap();
    }
    let _agent = node.start();
    let second = begun_run(&journal, 1);
    let lost = server.api.wait_node("web1", "has reported the loss", |seen| seen["history"][0]["run"] == *first);
    assert_eq!(lost["history"][0]["result"], "failed");
    let reason = lost["history"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("was lost"), "{reason}");

    gate.release(1);
    sandbox.wait_validated("v1", &["web1"]);
    let runs = server.api.runs("web1");
    assert_eq!(runs.iter().map(|run| run["run"].as_str().unwrap()).collect::<Vec<_>>(), [&first, &second]);
    let causes = runs[1]["causes"].as_array().unwrap();
    assert!(causes.contains(&json!({"kind": "interrupted", "run": first})), "{causes:?}");
}

#[test]
fn second_agent_of_a_node_is_refused() {
    let sandbox = Sandbox::new();
    let project = TestProject::new(&sandbox, &[("web", 1)]).release("v1", &ScriptRelease::new("exit 0"));
    let _server = SandboxServer::start(&sandbox, &project);
    let node = SandboxNode::new(&sandbox, "web1", 1);
    let _first = node.start();
    sandbox.wait_validated("v1", &["web1"]);

    let second = node.start().wait_exit(TIMEOUT);
    assert_eq!(second.code(), 1, "{second:?}");
    assert!(second.stderr.contains("another agent uses the state directory"), "{second:?}");
}

#[test]
fn full_node_disk_is_reported_and_loses_no_report() {
    if passed_in_a_namespace() {
        return;
    }
    let sandbox = Sandbox::new();
    let (gate, journal) = (Barrier::new(sandbox.path("gate")), sandbox.path("journal"));
    let script = format!("echo run >> {}\nread line < {}\nexit 2", journal.display(), gate.path().display());
    let project = TestProject::new(&sandbox, &[("web", 1)])
        .release("v1", &ScriptRelease::new(&script))
        .release("v2", &ScriptRelease::new(&script));
    let server = SandboxServer::start(&sandbox, &project);
    let disk = SmallDisk::mount("1m");
    let node = SandboxNode::new(&sandbox, "web1", 1).state(disk.path().join("agent"));
    let _agent = node.start();
    let begun = |many: usize| {
        eventually(&format!("{many} runs have begun"), TIMEOUT, || {
            let text = fs::read_to_string(&journal).unwrap_or_default();
            if text.lines().count() == many { Ok(()) } else { Err(text) }
        });
    };

    // Full during a run: its report cannot be stored, so it is not sent either.
    begun(1);
    disk.fill();
    gate.release(1);
    let seen = server.api.wait_node_state("web1", "blocked");
    assert!(seen["why"]["problem"].as_str().unwrap().contains("No space left on device"), "{seen:#}");
    let shown = sandbox.run_muster(&["status"]).stdout;
    assert!(shown.contains("blocked") && shown.contains("No space left on device"), "{shown}");
    assert_eq!(seen["version"], serde_json::Value::Null, "{seen:#}");

    disk.make_space();
    sandbox.wait_validated("v1", &["web1"]);
    assert_eq!(server.api.reports("web1").len(), 2);

    // Full before an update: the desired state cannot be stored, so it is not executed.
    disk.fill();
    assert_eq!(server.api.trigger_update("v2").status, 200);
    server.api.wait_node_state("web1", "blocked");
    begun(1);
    disk.make_space();
    begun(2);
    gate.release(1);
    sandbox.wait_validated("v2", &["web1"]);
    assert_eq!(server.api.runs("web1").len(), 2, "one run for each cause");
}
