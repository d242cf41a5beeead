//! Faulty appliers and checks: the node fails with a reason, and never succeeds.

use std::fs;

use muster_testkit::release::ScriptRelease;
use serde_json::{Value, json};

use muster_e2e::agent::SandboxNode;
use muster_e2e::process::ChildProcess;
use muster_e2e::sandbox::{Sandbox, TestProject, describe};
use muster_e2e::server::SandboxServer;
use muster_testkit::wait::{TIMEOUT, eventually};

/// A fleet of one node.
struct OneNode {
    sandbox: Sandbox,
    server: SandboxServer,
    _agent: ChildProcess,
}

impl OneNode {
    fn new(sandbox: Sandbox, release: &ScriptRelease) -> Self {
        let project = TestProject::new(&sandbox, &[("web", 1)]).release("v1", release);
        Self::start(sandbox, &project, |node| node)
    }

    fn start(sandbox: Sandbox, project: &TestProject, with: impl FnOnce(SandboxNode<'_>) -> SandboxNode<'_>) -> Self {
        let server = SandboxServer::start(&sandbox, project);
        let agent = with(SandboxNode::new(&sandbox, "web1", 1).without_retries()).start();
        Self { sandbox, server, _agent: agent }
    }

    /// Waits until its node has reported this state. Returns the node.
    fn is(&self, word: &str) -> Value {
        let seen = self.server.api.wait_node_state("web1", word);
        assert_eq!((&seen["version"], &seen["active"]), (&Value::Null, &json!(false)), "never a success: {seen:#}");
        assert_eq!(self.sandbox.run_muster(&["verify-hosts", "v1", "web1"]).code(), 1);
        let failures = self.sandbox.run_muster(&["failures"]);
        assert_eq!(failures.code(), 1, "{failures:?}");
        assert!(failures.stdout.contains("web1"), "{failures:?}");
        seen
    }

    /// The node's line of `muster status`.
    fn shown(&self) -> String {
        let status = self.sandbox.run_muster(&["status"]);
        assert_eq!(status.code(), 0, "{status:?}");
        status.stdout
    }
}

#[test]
fn hanging_applier_is_killed_at_its_deadline() {
    let sandbox = Sandbox::new();
    let journal = sandbox.path("journal");
    // It ignores SIGTERM, and so does its child in another session.
    let script = format!(
        "trap '' TERM\nsetsid sh -c \"trap '' TERM; echo $MUSTER_RUN_ID >> {}; while :; do sleep 1; done\" &\n\
         while :; do sleep 1; done",
        journal.display()
    );
    let one = OneNode::new(sandbox, &ScriptRelease::new(&script).deadline("1s"));

    let seen = one.is("failed");
    let deadline = json!({"kind": "deadline", "program": "apply", "seconds": 1});
    assert_eq!(seen["why"]["reason"], deadline, "{seen:#}");
    assert!(one.shown().contains("apply was still running at its deadline of 1 s and was ended"), "{}", one.shown());
    let run = fs::read_to_string(&journal).unwrap();
    let left: Vec<_> = muster_marked::find("MUSTER_RUN_ID", run.trim()).unwrap().iter().map(describe).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn unknown_exit_code_is_a_failure() {
    let one = OneNode::new(Sandbox::new(), &ScriptRelease::new("echo all checks passed; exit 99"));
    let seen = one.is("failed");
    assert_eq!(seen["why"]["reason"], json!({"kind": "exit_code", "program": "apply", "code": 99}));
    assert!(one.shown().contains("apply ended with exit code 99"), "{}", one.shown());
    let node = one.sandbox.run_muster(&["node", "show", "web1"]).stdout;
    assert!(node.contains("all checks passed"), "the end of the log is shown:\n{node}");
}

#[test]
fn success_with_a_pending_reason_is_a_failure() {
    let need = r#"{"kind":"role","role":"web","want":3,"have":0}"#;
    let one =
        OneNode::new(Sandbox::new(), &ScriptRelease::new(&format!("echo '{need}' >> $MUSTER_PENDING_FILE; exit 0")));
    one.is("failed");
    assert!(one.shown().contains("still waits for role web: 0 of 3 active"), "{}", one.shown());
}

#[test]
fn failing_and_hanging_checks_do_not_delay_others() {
    let sandbox = Sandbox::new();
    let journal = sandbox.path("journal");
    let release = ScriptRelease::new("exit 2")
        .program("hang", &format!("echo $MUSTER_RUN_ID >> {}; sleep 1000 & wait", journal.display()))
        .program("no", "echo the pump is dry; exit 1")
        .program("yes", "echo flows")
        .check("{name: hangs, exec: hang, deadline: 1s}")
        .check("{name: pumps, exec: no}")
        .check("{name: flows, exec: yes}")
        .check("{name: listens, tcp: \"{eth0}:7999\", deadline: 1s}");
    let one = OneNode::new(sandbox, &release);

    let seen = one.is("invalid");
    let names = json!({"kind": "checks_failed", "names": ["hangs", "pumps", "listens"]});
    assert_eq!(seen["why"]["reason"], names, "{seen:#}");
    assert!(one.shown().contains("check hangs: "), "{}", one.shown());
    let node = one.sandbox.run_muster(&["node", "show", "web1"]).stdout;
    assert!(node.contains("the pump is dry"), "the message of a check is kept:\n{node}");
    let reports = one.server.api.reports("web1");
    let checks = reports[1]["checks"].as_array().unwrap();
    let verdicts: Vec<_> = checks.iter().map(|check| check["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["failed", "failed", "passed", "failed"], "every result is kept: {checks:?}");
    let run = fs::read_to_string(&journal).unwrap();
    eventually("what the check left is ended", TIMEOUT, || {
        let left: Vec<_> = muster_marked::find("MUSTER_RUN_ID", run.trim()).unwrap().iter().map(describe).collect();
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    });
}

#[test]
fn failed_run_is_retried_until_it_validates() {
    let sandbox = Sandbox::new();
    let repaired = sandbox.path("repaired");
    let script = format!("test -e {} || exit 1; exit 2", repaired.display());
    let project = TestProject::new(&sandbox, &[("web", 1)]).release("v1", &ScriptRelease::new(&script));
    let server = SandboxServer::start(&sandbox, &project);
    let _agent = SandboxNode::new(&sandbox, "web1", 1).start();
    let failed = server.api.wait_node("web1", "has failed twice", |seen| seen["last"]["attempt"].as_u64() >= Some(2));
    let causes = failed["last"]["causes"].as_array().unwrap();
    assert!(causes.iter().any(|cause| cause["kind"] == "retry"), "{causes:?}");

    fs::write(&repaired, "").unwrap();
    sandbox.wait_validated("v1", &["web1"]);
    assert_eq!(sandbox.run_muster(&["failures"]).code(), 0);
}

#[test]
fn missing_puppet_is_reported() {
    let sandbox = Sandbox::new();
    let empty = sandbox.path("elsewhere");
    let project = TestProject::new(&sandbox, &[("web", 1)]).puppet_release("v1", "notify { 'hello': }\n");
    let one = OneNode::start(sandbox, &project, |node| node.path(empty.to_str().unwrap()));

    let seen = one.is("failed");
    assert_eq!(seen["why"]["reason"], json!({"kind": "not_installed", "program": "puppet"}));
    assert!(one.shown().contains("puppet is not installed on this node: install it"), "{}", one.shown());
}

#[test]
fn syntax_error_in_a_manifest_has_file_and_line() {
    let sandbox = Sandbox::new();
    let manifest = "file { '/nonexistent/muster': }\nnotify { 'no comma'\n  message => 'x',\n}\n";
    let project = TestProject::new(&sandbox, &[("web", 1)]).puppet_release("v1", manifest);
    let one = OneNode::start(sandbox, &project, |node| node);

    let seen = one.is("failed");
    assert_eq!(seen["why"]["reason"]["kind"], "not_compiled", "{seen:#}");
    let error = &seen["why"]["errors"][0];
    assert_eq!((&error["file"], &error["line"]), (&json!("site.pp"), &json!(3)), "{error}");
    assert!(one.shown().contains("site.pp:3"), "{}", one.shown());
    assert!(one.sandbox.run_muster(&["failures"]).stdout.contains("site.pp:3"));
}
