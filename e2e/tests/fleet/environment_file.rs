//! A malformed environment file: no server starts, and the position is shown.

use std::fs;

use muster_e2e::project::Project;
use muster_e2e::sandbox::Sandbox;
use muster_e2e::server::Server;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::TIMEOUT;

#[test]
fn malformed_environment_file_shows_the_position() {
    let sandbox = Sandbox::new();
    let text = "version: 1\nroles:\n  db:\n    cardinality: 1\n    flavour: local\n";
    let project = Project::with_environment(&sandbox, text).release("v1", &ScriptRelease::new("exit 0"));

    let refused = Server::launch(&sandbox, &project.dir, &sandbox.path("state")).wait_exit(TIMEOUT);
    assert_eq!(refused.code(), 1, "{refused:?}");
    let shown = &refused.stderr;
    assert!(shown.contains("environments/test.yaml:5:5"), "file, line and column:\n{shown}");
    assert!(shown.contains("    flavour: local"), "the line:\n{shown}");
    assert!(shown.contains("flavor"), "what was expected:\n{shown}");

    // Not YAML, and an empty file without a line.
    for (text, says) in [("roles: [\n", "environments/test.yaml:"), ("", "the environment file is empty")] {
        fs::write(project.dir.join("environments/test.yaml"), text).unwrap();
        let refused = Server::launch(&sandbox, &project.dir, &sandbox.path("state")).wait_exit(TIMEOUT);
        assert_eq!(refused.code(), 1, "{refused:?}");
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
    }
}
