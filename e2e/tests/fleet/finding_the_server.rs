//! The command line finds the running server by itself, from any directory and any terminal.

use muster_e2e::process::Signal;
use muster_e2e::project::Project;
use muster_e2e::server::Server;
use muster_e2e::stage::Stage;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::TIMEOUT;

#[test]
fn any_directory_and_any_terminal_finds_the_server_and_none_that_has_ended() {
    let stage = Stage::new();
    let project = Project::new(&stage, &[("web", 2)]).release("v1", &ScriptRelease::new("exit 0"));

    let nobody = stage.ask_from("elsewhere", &["status"]);
    assert_eq!(nobody.code(), 2, "{nobody:?}");
    assert!(nobody.stderr.contains("no server was found"), "{}", nobody.stderr);
    assert!(nobody.stderr.contains("muster up"), "it says what to do: {}", nobody.stderr);

    // The state directory of a project is `.muster` in it.
    let state = project.dir.join(".muster");
    let server = Server::start_at(&stage, &project.dir, &state);
    for directory in ["elsewhere", "project", "project/releases/v1"] {
        let found = stage.ask_from(directory, &["status"]);
        assert_eq!(found.code(), 0, "{directory}: {found:?}");
        assert!(found.stdout.starts_with("test: 2 nodes should run v1"), "{}", found.stdout);
    }
    // Two terminals at once.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(stage.ask_json(&["node", "list"])["items"].as_array().unwrap().len(), 2));
        }
    });

    server.process.signal(Signal::TERM);
    assert_eq!(server.process.ended(TIMEOUT).code(), 0);
    assert!(!state.join("server.json").exists(), "an ended server is not announced any more");
    assert_eq!(stage.ask_from("project", &["status"]).code(), 2);

    // One that was killed could not take its announcement away; it is not taken for one that runs.
    let killed = Server::start_at(&stage, &project.dir, &state);
    killed.kill();
    let ended = stage.ask_from("project", &["status"]);
    assert_eq!(ended.code(), 2, "{ended:?}");
    assert!(ended.stderr.contains("is not running any more"), "{}", ended.stderr);
    assert_eq!(stage.ask_from("elsewhere", &["status"]).code(), 2);
}
