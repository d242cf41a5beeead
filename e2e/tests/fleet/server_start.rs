//! A server that cannot start says why, and what to do.

use std::net::TcpListener;

use muster_e2e::project::Project;
use muster_e2e::server::Server;
use muster_e2e::stage::Stage;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::TIMEOUT;

fn project(stage: &Stage) -> Project {
    Project::new(stage, &[("web", 1)]).release("v1", &ScriptRelease::new("exit 0"))
}

#[test]
fn a_second_server_on_the_same_store_is_refused_and_names_the_file() {
    let stage = Stage::new();
    let project = project(&stage);
    let first = Server::start(&stage, &project);

    let store = format!("embedded:{}", stage.path("state").join("store").display());
    let other = stage.path("other");
    let second =
        stage.ask(&["serve", "--store", &store, "--listen", "127.0.0.1:0", "--state", other.to_str().unwrap()]);

    assert_eq!(second.code(), 1, "{second:?}");
    assert!(second.stderr.contains("state/store") && second.stderr.contains("in use"), "{}", second.stderr);
    assert_eq!(second.stdout, "", "nobody is told an address");
    assert_eq!(first.api.get("status")["nodes"], 1, "the first one serves as before");
}

#[test]
fn a_taken_port_is_named_with_how_to_choose_another() {
    let stage = Stage::new();
    let project = project(&stage);
    let taken = TcpListener::bind(stage.listen()).unwrap();

    let refused = Server::launch(&stage, &project.dir, &stage.path("state")).ended(TIMEOUT);
    assert_eq!(refused.code(), 1, "{refused:?}");
    let says = format!("{} is taken by another process", stage.listen());
    assert!(refused.stderr.contains(&says) && refused.stderr.contains("--listen"), "{}", refused.stderr);

    // Nothing of the attempt is in the way of the next one.
    drop(taken);
    Server::start(&stage, &project);
}

#[test]
fn a_server_refuses_to_listen_where_others_could_reach_it() {
    let stage = Stage::new();
    let store = format!("embedded:{}", stage.path("store").display());
    let refused = stage.ask(&["serve", "--store", &store, "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(refused.stderr.contains("refusing to listen on 0.0.0.0:0"), "{}", refused.stderr);
}

#[test]
fn a_release_that_changed_after_it_was_registered_is_refused() {
    let stage = Stage::new();
    let project = project(&stage);
    Server::start(&stage, &project).kill();

    let changed = project.release("v1", &ScriptRelease::new("exit 2"));
    let refused = Server::launch(&stage, &changed.dir, &stage.path("state")).ended(TIMEOUT);
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(refused.stderr.contains("release v1 has changed since it was registered"), "{}", refused.stderr);
}
