//! An agent is killed during a run: nothing of the run is left, it is reported as interrupted, and made again.

use std::fs;

use muster_testkit::release::ScriptRelease;
use serde_json::json;

use muster_e2e::agent::Node;
use muster_e2e::gate::Gate;
use muster_e2e::process::Signal;
use muster_e2e::project::Project;
use muster_e2e::server::Server;
use muster_e2e::stage::{Stage, describe};
use muster_testkit::wait::{TIMEOUT, eventually};

#[test]
fn a_run_that_was_cut_off_is_reported_ended_and_made_again() {
    let stage = Stage::new();
    let (gate, journal) = (Gate::new(stage.path("gate")), stage.path("journal"));
    // The grandchild leaves the session, as what Puppet's exec starts does.
    let script = format!(
        "setsid sh -c 'echo grandchild $$ >> {journal}; sleep 1000' &\n\
         while ! grep -qs grandchild {journal}; do sleep 0.01; done\n\
         echo run $MUSTER_RUN_ID >> {journal}\n\
         read line < {gate}\n\
         pid=$(sed -n 's/^grandchild //p' {journal} | tail -n 1); kill $pid; exit 2",
        journal = journal.display(),
        gate = gate.path().display()
    );
    let project = Project::new(&stage, &[("web", 1)]).release("v1", &ScriptRelease::new(&script));
    let server = Server::start(&stage, &project);
    let node = Node::new(&stage, "web1", 1);
    let agent = node.start();
    let run_of = |number: usize| {
        eventually("the applier has begun", TIMEOUT, || {
            let text = fs::read_to_string(&journal).unwrap_or_default();
            let run = text.lines().filter_map(|line| line.strip_prefix("run ")).nth(number).map(str::to_owned);
            run.ok_or(text)
        })
    };
    let first = run_of(0);
    let marked = || muster_marked::find("MUSTER_RUN_ID", &first).unwrap();
    assert!(marked().len() >= 3, "the applier, the grandchild and its sleep: {:?}", marked());

    agent.kill(TIMEOUT);
    server.api.until_node_is("web1", "silent");
    assert!(marked().len() >= 2, "nobody was there to end them");

    let agent = node.start();
    agent.says("a run was interrupted", TIMEOUT);
    let second = run_of(1);
    let left: Vec<_> = marked().iter().map(describe).collect();
    assert!(left.is_empty(), "{left:?}");
    let interrupted = server.api.until_node("web1", "has reported the cut", |seen| seen["history"][0]["run"] == *first);
    assert_eq!(interrupted["history"][0]["result"], "failed");
    let reason = interrupted["history"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("was interrupted"), "{reason}");

    gate.let_pass(1);
    stage.wait_for("v1", &["web1"]);
    let runs = server.api.runs("web1");
    assert_eq!(runs.iter().map(|run| run["run"].as_str().unwrap()).collect::<Vec<_>>(), [&first, &second]);
    let causes = runs[1]["causes"].as_array().unwrap();
    assert!(causes.contains(&json!({"kind": "interrupted", "run": first})), "{causes:?}");
}

#[test]
fn an_agent_that_is_told_to_end_ends_its_run_first() {
    let stage = Stage::new();
    let (gate, journal) = (Gate::new(stage.path("gate")), stage.path("journal"));
    let script = format!(
        "setsid sleep 1000 &\necho run >> {}\nread line < {}\nexit 2",
        journal.display(),
        gate.path().display()
    );
    let project = Project::new(&stage, &[("web", 1)]).release("v1", &ScriptRelease::new(&script));
    let server = Server::start(&stage, &project);
    let node = Node::new(&stage, "web1", 1);
    let agent = node.start();
    eventually("the applier has begun", TIMEOUT, || fs::read(&journal).map_err(|error| error.to_string()));

    agent.signal(Signal::TERM);
    assert_eq!(agent.ended(TIMEOUT).code(), 0);
    server.kill();
    stage.is_empty();
}

#[test]
fn a_second_agent_of_the_same_node_is_kept_out() {
    let stage = Stage::new();
    let project = Project::new(&stage, &[("web", 1)]).release("v1", &ScriptRelease::new("exit 0"));
    let _server = Server::start(&stage, &project);
    let node = Node::new(&stage, "web1", 1);
    let _first = node.start();
    stage.wait_for("v1", &["web1"]);

    let second = node.start().ended(TIMEOUT);
    assert_eq!(second.code(), 1, "{second:?}");
    assert!(second.stderr.contains("another agent uses the state directory"), "{second:?}");
}
