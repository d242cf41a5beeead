//! A server that cannot start reports the reason and the remedy. The command line finds a running server.

use std::fs;
use std::net::TcpListener;

use muster_e2e::process::Signal;
use muster_e2e::sandbox::{Sandbox, TestProject};
use muster_e2e::server::SandboxServer;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::TIMEOUT;

fn project(sandbox: &Sandbox) -> TestProject {
    TestProject::new(sandbox, &[("web", 1)]).release("v1", &ScriptRelease::new("exit 0"))
}

#[test]
fn second_server_on_a_store_is_refused() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox);
    let first = SandboxServer::start(&sandbox, &project);

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

    let refused = SandboxServer::launch(&sandbox, &project.dir, &sandbox.path("state")).wait_exit(TIMEOUT);
    assert_eq!(refused.code(), 1, "{refused:?}");
    let says = format!("{} is in use by another process", sandbox.listen());
    assert!(refused.stderr.contains(&says) && refused.stderr.contains("--listen"), "{}", refused.stderr);

    // The failed attempt leaves nothing behind.
    drop(taken);
    SandboxServer::start(&sandbox, &project);
}

#[test]
fn public_address_of_a_server_without_tls_is_refused() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox);
    let refused = sandbox.run_muster(&["up", project.dir.to_str().unwrap(), "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(refused.stderr.contains("refusing to listen on 0.0.0.0:0"), "{}", refused.stderr);
}

#[test]
fn changed_release_is_refused() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox);
    SandboxServer::start(&sandbox, &project).kill();

    let changed = project.release("v1", &ScriptRelease::new("exit 2"));
    let refused = SandboxServer::launch(&sandbox, &changed.dir, &sandbox.path("state")).wait_exit(TIMEOUT);
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(refused.stderr.contains("release v1 has changed since it was registered"), "{}", refused.stderr);
}

#[test]
fn malformed_environment_file_shows_the_position() {
    let sandbox = Sandbox::new();
    let text = "version: 1\nroles:\n  db:\n    cardinality: 1\n    flavour: local\n";
    let project = TestProject::with_environment(&sandbox, text).release("v1", &ScriptRelease::new("exit 0"));

    let refused = SandboxServer::launch(&sandbox, &project.dir, &sandbox.path("state")).wait_exit(TIMEOUT);
    assert_eq!(refused.code(), 1, "{refused:?}");
    let shown = &refused.stderr;
    assert!(shown.contains("environments/test.yaml:5:5"), "file, line and column:\n{shown}");
    assert!(shown.contains("    flavour: local"), "the line:\n{shown}");
    assert!(shown.contains("flavor"), "what was expected:\n{shown}");

    // Not YAML, and an empty file without a line.
    for (text, says) in [("roles: [\n", "environments/test.yaml:"), ("", "the environment file is empty")] {
        fs::write(project.dir.join("environments/test.yaml"), text).unwrap();
        let refused = SandboxServer::launch(&sandbox, &project.dir, &sandbox.path("state")).wait_exit(TIMEOUT);
        assert_eq!(refused.code(), 1, "{refused:?}");
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
    }
}

#[test]
fn running_server_is_found_from_any_directory() {
    let sandbox = Sandbox::new();
    let project = TestProject::new(&sandbox, &[("web", 2)]).release("v1", &ScriptRelease::new("exit 0"));

    let failed = sandbox.run_muster_in("elsewhere", &["status"]);
    assert_eq!(failed.code(), 2, "{failed:?}");
    assert!(failed.stderr.contains("no server was found"), "{}", failed.stderr);
    assert!(failed.stderr.contains("muster up"), "it says what to do: {}", failed.stderr);

    // The state directory of a project is `.muster` in it.
    let state = project.dir.join(".muster");
    let server = SandboxServer::start_at(&sandbox, &project.dir, &state);
    for directory in ["elsewhere", "project", "project/releases/v1"] {
        let found = sandbox.run_muster_in(directory, &["status"]);
        assert_eq!(found.code(), 0, "{directory}: {found:?}");
        assert!(found.stdout.starts_with("test: 2 nodes should run v1"), "{}", found.stdout);
    }
    // Two terminals at once.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(sandbox.muster_json(&["node", "list"])["items"].as_array().unwrap().len(), 2));
        }
    });

    server.process.signal(Signal::TERM);
    assert_eq!(server.process.wait_exit(TIMEOUT).code(), 0);
    assert!(!state.join("server.json").exists(), "an ended server is not announced any more");
    assert_eq!(sandbox.run_muster_in("project", &["status"]).code(), 2);

    // A killed server leaves its announcement, which is ignored.
    let killed = SandboxServer::start_at(&sandbox, &project.dir, &state);
    killed.kill();
    let ended = sandbox.run_muster_in("project", &["status"]);
    assert_eq!(ended.code(), 2, "{ended:?}");
    assert!(ended.stderr.contains("is not running"), "{}", ended.stderr);
    assert_eq!(sandbox.run_muster_in("elsewhere", &["status"]).code(), 2);
}
