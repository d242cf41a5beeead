//! Logs during and after a run, and requested runs.

use muster_e2e::agent::Node;
use muster_e2e::process::ChildProcess;
use muster_e2e::project::Barrier;
use muster_e2e::project::Project;
use muster_e2e::sandbox::Sandbox;
use muster_e2e::server::Server;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::TIMEOUT;
use rustix::process::Signal;

/// A command that runs in the background.
fn starts(sandbox: &Sandbox, args: &[&str]) -> ChildProcess {
    ChildProcess::new(format!("muster {}", args.join(" ")), &mut sandbox.muster(args))
}

#[test]
fn log_of_a_puppet_run_is_printed_while_it_runs() {
    let sandbox = Sandbox::new();
    let gate = Barrier::new(sandbox.path("gate"));
    // The run waits at the barrier, so output before the release is printed during the run.
    let manifest = format!(
        "notify {{ 'the first resource speaks': }}\n-> exec {{ 'read line < {}':\n  provider => shell,\n}}\n\
         -> notify {{ 'the last resource speaks': }}\n",
        gate.path().display()
    );
    let project = Project::new(&sandbox, &[("web", 1)]).puppet_release("v1", &manifest);
    let server = Server::start(&sandbox, &project);
    let _agent = Node::new(&sandbox, "web1", 1).without_retries().start();
    server.api.wait_node_state("web1", "applying");

    let follower = starts(&sandbox, &["node", "logs", "web1", "--follow"]);
    follower.wait_for_output("the first resource speaks", TIMEOUT * 3);
    assert!(!follower.transcript().contains("the last resource speaks"), "{}", follower.transcript());
    server.api.wait_node_state("web1", "applying");
    gate.release(1);
    follower.wait_for_output("the last resource speaks", TIMEOUT * 3);
    sandbox.wait_validated("v1", &["web1"]);
    // Ctrl-C ends the command.
    follower.signal(Signal::INT);
    assert_eq!(follower.wait_exit(TIMEOUT).code(), 0, "{}", follower.transcript());

    let stored = sandbox.run_muster(&["node", "logs", "web1"]);
    assert!(stored.stdout.contains("the last resource speaks"), "{stored:?}");
}

#[test]
fn requested_run_is_executed_and_watched() {
    let sandbox = Sandbox::new();
    let project =
        Project::new(&sandbox, &[("web", 1)]).release("v1", &ScriptRelease::new("echo hello from the run; exit 2"));
    let _server = Server::start(&sandbox, &project);
    let _agent = Node::new(&sandbox, "web1", 1).start();
    sandbox.wait_validated("v1", &["web1"]);
    let ran = sandbox.run_muster(&["node", "run", "web1"]);
    assert_eq!(ran.code(), 0, "{ran:?}");
    assert!(ran.stdout.contains("hello from the run"), "{ran:?}");
    assert!(ran.stdout.contains("validated: "), "{ran:?}");
    let runs = sandbox.run_muster(&["runs", "--node", "web1"]);
    assert!(runs.stdout.contains("operator "), "{runs:?}");
}
