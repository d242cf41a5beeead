//! The command line finds the running server from any directory.

use muster_e2e::process::Signal;
use muster_e2e::project::Project;
use muster_e2e::sandbox::Sandbox;
use muster_e2e::server::Server;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::TIMEOUT;

#[test]
fn running_server_is_found_from_any_directory() {
    let sandbox = Sandbox::new();
    let project = Project::new(&sandbox, &[("web", 2)]).release("v1", &ScriptRelease::new("exit 0"));

    let failed = sandbox.run_muster_in("elsewhere", &["status"]);
    assert_eq!(failed.code(), 2, "{failed:?}");
    assert!(failed.stderr.contains("no server was found"), "{}", failed.stderr);
    assert!(failed.stderr.contains("muster up"), "it says what to do: {}", failed.stderr);

    // The state directory of a project is `.muster` in it.
    let state = project.dir.join(".muster");
    let server = Server::start_at(&sandbox, &project.dir, &state);
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
    let killed = Server::start_at(&sandbox, &project.dir, &state);
    killed.kill();
    let ended = sandbox.run_muster_in("project", &["status"]);
    assert_eq!(ended.code(), 2, "{ended:?}");
    assert!(ended.stderr.contains("is not running any more"), "{}", ended.stderr);
    assert_eq!(sandbox.run_muster_in("elsewhere", &["status"]).code(), 2);
}
