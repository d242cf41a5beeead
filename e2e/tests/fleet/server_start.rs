//! A server that cannot start reports the reason and the remedy.

use std::net::TcpListener;

use muster_e2e::project::Project;
use muster_e2e::sandbox::Sandbox;
use muster_e2e::server::Server;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::TIMEOUT;

fn project(sandbox: &Sandbox) -> Project {
    Project::new(sandbox, &[("web", 1)]).release("v1", &ScriptRelease::new("exit 0"))
}

#[test]
fn second_server_on_a_store_is_refused() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox);
    let first = Server::start(&sandbox, &project);

    let store = format!("embedded:{}", sandbox.path("state").join("store").display());
    let other = sandbox.path("other");
    let second = sandbox.run_muster(&[
        "serve",
        "--store",
        &store,
        "--listen",
        "127.0.0.1:0",
        "--state",
        other.to_str().unwrap(),
    ]);

    assert_eq!(second.code(), 1, "{second:?}");
    assert!(second.stderr.contains("state/store") && second.stderr.contains("in use"), "{}", second.stderr);
    assert_eq!(second.stdout, "", "no address is printed");
    assert_eq!(first.api.get("status")["nodes"], 1, "the first one serves as before");
}

#[test]
fn used_port_is_reported() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox);
    let taken = TcpListener::bind(sandbox.listen()).unwrap();

    let refused = Server::launch(&sandbox, &project.dir, &sandbox.path("state")).wait_exit(TIMEOUT);
    assert_eq!(refused.code(), 1, "{refused:?}");
    let says = format!("{} is in use by another process", sandbox.listen());
    assert!(refused.stderr.contains(&says) && refused.stderr.contains("--listen"), "{}", refused.stderr);

    // The failed attempt leaves nothing behind.
    drop(taken);
    Server::start(&sandbox, &project);
}

#[test]
fn public_address_is_refused() {
    let sandbox = Sandbox::new();
    let store = format!("embedded:{}", sandbox.path("store").display());
    let refused = sandbox.run_muster(&["serve", "--store", &store, "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(refused.stderr.contains("refusing to listen on 0.0.0.0:0"), "{}", refused.stderr);
}

#[test]
fn changed_release_is_refused() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox);
    Server::start(&sandbox, &project).kill();

    let changed = project.release("v1", &ScriptRelease::new("exit 2"));
    let refused = Server::launch(&sandbox, &changed.dir, &sandbox.path("state")).wait_exit(TIMEOUT);
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(refused.stderr.contains("release v1 has changed since it was registered"), "{}", refused.stderr);
}
