//! Appliers and checks that do not do what they should: a failure with its reason, and never a success.

use std::fs;

use muster_testkit::release::ScriptRelease;
use serde_json::{Value, json};

use muster_e2e::agent::Node;
use muster_e2e::process::Started;
use muster_e2e::project::Project;
use muster_e2e::server::Server;
use muster_e2e::stage::{Stage, describe};
use muster_testkit::wait::{TIMEOUT, eventually};

/// A fleet of one node.
struct One {
    stage: Stage,
    server: Server,
    _agent: Started,
}

impl One {
    fn new(stage: Stage, release: &ScriptRelease) -> Self {
        let project = Project::new(&stage, &[("web", 1)]).release("v1", release);
        Self::of(stage, &project, |node| node)
    }

    fn of(stage: Stage, project: &Project, with: impl FnOnce(Node<'_>) -> Node<'_>) -> Self {
        let server = Server::start(&stage, project);
        let agent = with(Node::new(&stage, "web1", 1).never_retries()).start();
        Self { stage, server, _agent: agent }
    }

    /// Waits until its node stands as the word says, and has said so in a report; gives all that is known of it.
    fn is(&self, word: &str) -> Value {
        let seen = self.server.api.until_node_is("web1", word);
        assert_eq!((&seen["running"], &seen["active"]), (&Value::Null, &json!(false)), "never a success: {seen:#}");
        assert_eq!(self.stage.ask(&["verify-hosts", "v1", "web1"]).code(), 1);
        let failures = self.stage.ask(&["failures"]);
        assert_eq!(failures.code(), 1, "{failures:?}");
        assert!(failures.stdout.contains("web1"), "{failures:?}");
        seen
    }

    /// What `muster status` shows of the node.
    fn shown(&self) -> String {
        let status = self.stage.ask(&["status"]);
        assert_eq!(status.code(), 0, "{status:?}");
        status.stdout
    }
}

#[test]
fn an_applier_that_hangs_is_ended_at_its_deadline_with_all_of_its_processes() {
    let stage = Stage::new();
    let journal = stage.path("journal");
    // It does not end when it is asked to, and neither does what it has started elsewhere.
    let script = format!(
        "trap '' TERM\nsetsid sh -c \"trap '' TERM; echo $MUSTER_RUN_ID >> {}; while :; do sleep 1; done\" &\n\
         while :; do sleep 1; done",
        journal.display()
    );
    let one = One::new(stage, &ScriptRelease::new(&script).deadline("1s"));

    let seen = one.is("failed");
    let deadline = json!({"kind": "deadline", "program": "apply", "seconds": 1});
    assert_eq!(seen["why"]["reason"], deadline, "{seen:#}");
    assert!(one.shown().contains("apply was still running at its deadline of 1 s and was ended"), "{}", one.shown());
    let run = fs::read_to_string(&journal).unwrap();
    let left: Vec<_> = muster_marked::find("MUSTER_RUN_ID", run.trim()).unwrap().iter().map(describe).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_exit_code_that_is_not_understood_is_a_failure() {
    let one = One::new(Stage::new(), &ScriptRelease::new("echo all is well; exit 99"));
    let seen = one.is("failed");
    assert_eq!(seen["why"]["reason"], json!({"kind": "exit_code", "program": "apply", "code": 99}));
    assert!(one.shown().contains("apply ended with exit code 99"), "{}", one.shown());
    let node = one.stage.ask(&["node", "show", "web1"]).stdout;
    assert!(node.contains("all is well"), "the end of the log is shown:\n{node}");
}

#[test]
fn an_applier_that_says_success_while_it_waits_for_others_has_failed() {
    let need = r#"{"kind":"role","role":"web","want":3,"have":0}"#;
    let one = One::new(Stage::new(), &ScriptRelease::new(&format!("echo '{need}' >> $MUSTER_PENDING_FILE; exit 0")));
    one.is("failed");
    assert!(one.shown().contains("still waits for role web: 0 of 3 active"), "{}", one.shown());
}

#[test]
fn a_check_that_fails_and_one_that_hangs_do_not_hold_up_the_others() {
    let stage = Stage::new();
    let journal = stage.path("journal");
    let release = ScriptRelease::new("exit 2")
        .program("hang", &format!("echo $MUSTER_RUN_ID >> {}; sleep 1000 & wait", journal.display()))
        .program("no", "echo the pump is dry; exit 1")
        .program("yes", "echo flows")
        .check("{name: hangs, exec: hang, deadline: 1s}")
        .check("{name: pumps, exec: no}")
        .check("{name: flows, exec: yes}")
        .check("{name: listens, tcp: \"{eth0}:7999\", deadline: 1s}");
    let one = One::new(stage, &release);

    let seen = one.is("invalid");
    let names = json!({"kind": "checks_failed", "names": ["hangs", "pumps", "listens"]});
    assert_eq!(seen["why"]["reason"], names, "{seen:#}");
    assert!(one.shown().contains("checks failed: hangs, pumps, listens"), "{}", one.shown());
    let node = one.stage.ask(&["node", "show", "web1"]).stdout;
    assert!(node.contains("the pump is dry"), "what a check says is kept:\n{node}");
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
fn a_failed_run_is_made_again_by_itself_and_a_repaired_node_is_validated() {
    let stage = Stage::new();
    let repaired = stage.path("repaired");
    let script = format!("test -e {} || exit 1; exit 2", repaired.display());
    let project = Project::new(&stage, &[("web", 1)]).release("v1", &ScriptRelease::new(&script));
    let server = Server::start(&stage, &project);
    let _agent = Node::new(&stage, "web1", 1).start();
    let failed = server.api.until_node("web1", "has failed twice", |seen| seen["last"]["attempt"].as_u64() >= Some(2));
    let causes = failed["last"]["causes"].as_array().unwrap();
    assert!(causes.iter().any(|cause| cause["kind"] == "retry"), "{causes:?}");

    fs::write(&repaired, "").unwrap();
    stage.wait_for("v1", &["web1"]);
    assert_eq!(stage.ask(&["failures"]).code(), 0);
}

#[test]
fn a_node_without_puppet_says_so() {
    let stage = Stage::new();
    let empty = stage.path("elsewhere");
    let project = Project::new(&stage, &[("web", 1)]).puppet_release("v1", "notify { 'hello': }\n");
    let one = One::of(stage, &project, |node| node.path(empty.to_str().unwrap()));

    let seen = one.is("failed");
    assert_eq!(seen["why"]["reason"], json!({"kind": "not_installed", "program": "puppet"}));
    assert!(one.shown().contains("puppet is not installed on this node: install it"), "{}", one.shown());
}

#[test]
fn a_syntax_error_in_a_manifest_is_shown_with_file_and_line() {
    let stage = Stage::new();
    let manifest = "file { '/nonexistent/muster': }\nnotify { 'no comma'\n  message => 'x',\n}\n";
    let project = Project::new(&stage, &[("web", 1)]).puppet_release("v1", manifest);
    let one = One::of(stage, &project, |node| node);

    let seen = one.is("failed");
    assert_eq!(seen["why"]["reason"]["kind"], "not_compiled", "{seen:#}");
    let error = &seen["why"]["errors"][0];
    assert_eq!((&error["file"], &error["line"]), (&json!("site.pp"), &json!(3)), "{error}");
    assert!(one.shown().contains("site.pp:3"), "{}", one.shown());
    assert!(one.stage.ask(&["failures"]).stdout.contains("site.pp:3"));
}
