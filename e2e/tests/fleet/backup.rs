//! A backup is restored over a later state: the agents roll back to it and validate.

use muster_e2e::project::Project;
use muster_e2e::sandbox::Sandbox;
use muster_e2e::server::ENV;
use muster_e2e::server::Up;
use muster_testkit::release::ScriptRelease;
use serde_json::Value;

const NODES: [&str; 3] = ["db1", "web1", "web2"];

/// Records the applied version, so that its check detects another one.
fn release(version: &str) -> ScriptRelease {
    ScriptRelease::new(&format!("echo {version} > \"$MUSTER_ROOT/version\"; exit 2"))
        .program("is-there", &format!("grep -qx {version} \"$MUSTER_ROOT/version\""))
        .check("{name: version, exec: is-there, deadline: 10s}")
}

fn generation(seen: &Value) -> (u64, u64) {
    let generation = &seen["generation"];
    (generation["epoch"].as_u64().unwrap(), generation["number"].as_u64().unwrap())
}

#[test]
fn agents_roll_back_to_a_restored_backup() {
    let sandbox = Sandbox::new();
    let project =
        Project::new(&sandbox, &[("db", 1), ("web", 2)]).release("v1", &release("v1")).release("v2", &release("v2"));
    let up = Up::start(&sandbox, &project.dir, &[]);
    let api = up.api(&sandbox, ENV);
    sandbox.wait_validated("v1", &NODES);
    let file = sandbox.path("test.backup");
    let file = file.to_str().unwrap();
    let saved = sandbox.muster_json(&["backup", file]);
    assert_eq!((saved["nodes"].as_u64(), saved["missing_blobs"].as_u64()), (Some(3), Some(0)), "{saved:#}");

    assert_eq!(api.trigger_update("v2").status, 200);
    sandbox.wait_validated("v2", &NODES);
    let later = generation(&api.get("current-version"));
    let runs: Vec<usize> = NODES.iter().map(|node| api.runs(node).len()).collect();

    let refused = sandbox.run_muster(&["restore", file]);
    assert_eq!(refused.code(), 1, "{refused:?}");
    let restored = sandbox.muster_json(&["restore", file, "--replace", "--yes"]);
    assert_eq!((&restored["env"], &restored["resumed"]), (&Value::from(ENV), &Value::from(false)), "{restored:#}");

    sandbox.wait_validated("v1", &NODES);
    for node in NODES {
        let seen = api.wait_node_state(node, "validated");
        assert_eq!(seen["running"], "v1", "{seen:#}");
    }
    let now = generation(&api.get("current-version"));
    assert!(now > later && now.0 > later.0, "the desired generation is newer than all before: {later:?} {now:?}");
    for (node, before) in NODES.iter().zip(runs) {
        // The history is that of the backup and one more run: no run without a cause, and none twice.
        let runs = api.runs(node);
        assert_eq!(runs.last().unwrap()["version"], "v1", "{runs:#?}");
        assert_eq!(runs.len(), before, "{node}: {runs:#?}");
        let version = sandbox.path("state").join("nodes").join(node).join("root/version");
        let version =
            std::fs::read_to_string(&version).unwrap_or_else(|error| panic!("{}: {error}", version.display()));
        assert_eq!(version, "v1\n", "{node}");
    }
    // Updates continue from there.
    assert_eq!(api.trigger_update("v2").status, 200);
    sandbox.wait_validated("v2", &NODES);
}
