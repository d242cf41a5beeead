//! Logs that tell, while a run goes on and afterwards; runs that a person asks for.

use muster_e2e::agent::Node;
use muster_e2e::gate::Gate;
use muster_e2e::process::Started;
use muster_e2e::project::Project;
use muster_e2e::server::Server;
use muster_e2e::stage::Stage;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::TIMEOUT;
use rustix::process::Signal;

/// A command that goes on while the test does something.
fn starts(stage: &Stage, args: &[&str]) -> Started {
    Started::new(format!("muster {}", args.join(" ")), &mut stage.muster(args))
}

#[test]
fn a_resources_message_is_printed_while_the_run_of_the_real_puppet_still_goes_on() {
    let stage = Stage::new();
    let gate = Gate::new(stage.path("gate"));
    // The command waits at the gate, so what is printed before it is opened is printed while the run goes on.
    let manifest = format!(
        "notify {{ 'the first resource speaks': }}\n-> exec {{ 'read line < {}':\n  provider => shell,\n}}\n\
         -> notify {{ 'the last resource speaks': }}\n",
        gate.path().display()
    );
    let project = Project::new(&stage, &[("web", 1)]).puppet_release("v1", &manifest);
    let server = Server::start(&stage, &project);
    let _agent = Node::new(&stage, "web1", 1).never_retries().start();
    server.api.until_node_is("web1", "applying");

    let follower = starts(&stage, &["node", "logs", "web1", "--follow"]);
    follower.says("the first resource speaks", TIMEOUT * 3);
    assert!(!follower.transcript().contains("the last resource speaks"), "{}", follower.transcript());
    server.api.until_node_is("web1", "applying");
    gate.let_pass(1);
    follower.says("the last resource speaks", TIMEOUT * 3);
    stage.wait_for("v1", &["web1"]);
    // Ctrl-C is how one stops looking.
    follower.signal(Signal::INT);
    assert_eq!(follower.ended(TIMEOUT).code(), 0, "{}", follower.transcript());

    let stored = stage.ask(&["node", "logs", "web1"]);
    assert!(stored.stdout.contains("the last resource speaks"), "{stored:?}");
}

#[test]
fn a_run_that_a_person_asks_for_is_made_and_watched() {
    let stage = Stage::new();
    let project =
        Project::new(&stage, &[("web", 1)]).release("v1", &ScriptRelease::new("echo hello from the run; exit 2"));
    let _server = Server::start(&stage, &project);
    let _agent = Node::new(&stage, "web1", 1).start();
    stage.wait_for("v1", &["web1"]);
    let ran = stage.ask(&["node", "run", "web1"]);
    assert_eq!(ran.code(), 0, "{ran:?}");
    assert!(ran.stdout.contains("hello from the run"), "{ran:?}");
    assert!(ran.stdout.contains("validated: "), "{ran:?}");
    let runs = stage.ask(&["runs", "--node", "web1"]);
    assert!(runs.stdout.contains("operator "), "{runs:?}");
}
