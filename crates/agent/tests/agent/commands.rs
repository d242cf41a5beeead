//! Tests of the command line, as processes: help, usage errors, configuration errors, subcommands and their exit codes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use jiff::Timestamp;
use muster_core::node::pause::{NodePause, PauseRecord, PauseScope};
use muster_wire::sync::{DesiredState, SyncEvent};

use crate::fake_server::{AgentRequest, FakeServer};
use crate::fixture::{AgentFixture, first_events, with_dbs};

const RUNS: &str = "echo x >> $MUSTER_ROOT/ran; exit 0";

async fn agent(fixture: &AgentFixture, verb: &[&str]) -> (i32, String) {
    let config = fixture.write_config();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_muster-agent"));
    command.args(verb).arg("--config").arg(config).env("NO_COLOR", "1").kill_on_drop(true);
    let ended = tokio::time::timeout(std::time::Duration::from_secs(90), command.output()).await;
    let Output { status, stdout, stderr } = ended.expect("it does not end").unwrap();
    (status.code().unwrap(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

fn pause(until: Option<Timestamp>) -> NodePause {
    let pause = PauseRecord { by: "ada".into(), reason: "disk swap".into(), since: Timestamp::UNIX_EPOCH, until };
    NodePause { scope: PauseScope::Global, pause }
}

fn paused(desired: &DesiredState) -> Vec<SyncEvent> {
    [first_events(desired, with_dbs(1, &[])), vec![SyncEvent::Pause { pause: Some(pause(None)) }]].concat()
}

fn runs(root: &Path) -> usize {
    fs::read_to_string(root.join("ran")).unwrap_or_default().lines().count()
}

/// A node that has validated v1, with a stopped agent.
async fn configured(server: &mut FakeServer) -> (AgentFixture, DesiredState) {
    let fixture = AgentFixture::new(server.address);
    let desired = fixture.release("v1", RUNS, "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    assert_eq!(agent(&fixture, &["once"]).await.0, 0);
    (fixture, desired)
}

#[tokio::test]
async fn pending_update_exit_codes_distinguish_the_cases() {
    let mut server = FakeServer::start().await;
    let fresh = AgentFixture::new(server.address);
    let first = fresh.release("v1", RUNS, "");
    server.set_first_events(first_events(&first, with_dbs(1, &[])));
    assert_eq!(agent(&fresh, &["pending-update"]).await, (0, "update: to v1\n".into()));

    let (fixture, _) = configured(&mut server).await;
    assert_eq!(agent(&fixture, &["pending-update"]).await, (1, "current: the node runs v1\n".into()));
    fixture.release("v2", "exit 2", "");
    server.set_first_events(first_events(&fixture.desired("v2", 2), with_dbs(1, &[])));
    assert_eq!(agent(&fixture, &["pending-update"]).await, (0, "update: from v1 to v2\n".into()));

    // The server accepts the request and never answers.
    server.freeze();
    let (code, said) = agent(&fixture, &["pending-update"]).await;
    assert!(code == 2 && said.contains("does not answer"), "{code} {said}");
    server.stop();
    let (code, said) = agent(&fixture, &["pending-update"]).await;
    assert!(code == 2 && said.starts_with("unknown: cannot reach the server"), "{code} {said}");
    let (code, said) = agent(&fresh, &["pending-update"]).await;
    assert!(code == 3 && said.starts_with("unknown, and the node was never configured"), "{code} {said}");
}

#[tokio::test]
async fn local_version_prints_the_validated_version() {
    let mut server = FakeServer::start().await;
    let fresh = AgentFixture::new(server.address);
    assert_eq!(agent(&fresh, &["local-version"]).await, (1, String::new()));
    let (fixture, _) = configured(&mut server).await;
    // It works without a server.
    server.stop();
    assert_eq!(agent(&fixture, &["local-version"]).await, (0, "v1\n".into()));
    fs::write(fixture.state().join("ledger.json"), "{").unwrap();
    let (code, said) = agent(&fixture, &["local-version"]).await;
    assert!(code == 1 && said.contains("ledger.json is damaged"), "{code} {said}");
    // Not 1: that exit code means that the node is current.
    let (code, said) = agent(&fixture, &["pending-update"]).await;
    assert!(code == 2 && said.contains("ledger.json is damaged"), "{code} {said}");
    assert!(fixture.state().join("ledger.json").exists(), "who only looks moves nothing");
}

#[tokio::test]
async fn check_succeeds_only_if_the_node_may_run() {
    let mut server = FakeServer::start().await;
    let (fixture, desired) = configured(&mut server).await;
    assert_eq!(agent(&fixture, &["check"]).await, (0, "the node may run\n".into()));
    server.set_first_events(paused(&desired));
    assert_eq!(agent(&fixture, &["check"]).await, (9, "the environment is paused by ada: disk swap\n".into()));

    // A node that never connected to a server, and cannot reach one.
    let address = server.stop();
    let fresh = AgentFixture::new(address);
    let (code, said) = agent(&fresh, &["check"]).await;
    assert!(code == 2 && said.contains("never connected to a server"), "{code} {said}");
    // The last known state counts.
    let (code, said) = agent(&fixture, &["check"]).await;
    assert!(code == 0 && said.contains("last known state"), "{code} {said}");
    let ledger = fixture.state().join("ledger.json");
    for (until, expected) in [(None, 9), (Some(Timestamp::MAX), 9), (Some(Timestamp::UNIX_EPOCH), 0)] {
        let mut known: serde_json::Value = serde_json::from_slice(&fs::read(&ledger).unwrap()).unwrap();
        known["pause"] = serde_json::to_value(pause(until)).unwrap();
        fs::write(&ledger, known.to_string()).unwrap();
        assert_eq!(agent(&fixture, &["check"]).await.0, expected, "{until:?}");
    }
}

#[tokio::test]
async fn once_validates_again_and_says_its_interval() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    fixture.release("v1", "touch $MUSTER_ROOT/well; exit 0", "validate: [{name: well, exec: check}]\n");
    fixture.executable("v1", "check", "echo x >> $MUSTER_ROOT/checks; test -e $MUSTER_ROOT/well");
    let desired = fixture.desired("v1", 1);
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    assert_eq!(agent(&fixture, &["once", "--interval", "30m"]).await.0, 0);
    let opened = |requests: Vec<AgentRequest>| {
        let opens = requests.into_iter().filter_map(|request| match request {
            AgentRequest::Open(open) => Some((open.every.map(|every| every.to_string()), open.protocol)),
            AgentRequest::Report(_) | AgentRequest::Activity(_) => None,
        });
        opens.collect::<Vec<_>>()
    };
    assert_eq!(opened(server.queued_requests()), [(Some("30m".to_owned()), Some(2))]);

    server.set_first_events(vec![first_events(&desired, with_dbs(1, &[])).remove(0)]);
    server.set_desired(desired);
    let root = fixture.path().join("root");
    let checks = || fs::read_to_string(root.join("checks")).unwrap().lines().count();
    let before = checks();
    let (code, said) = agent(&fixture, &["once", "--interval", "30m"]).await;
    assert_eq!((code, said.as_str(), checks()), (0, "no run was due; the node was validated again\n", before + 1));
    let reports = |requests: Vec<AgentRequest>| {
        requests.iter().filter(|request| matches!(request, AgentRequest::Report(_))).count()
    };
    assert_eq!(reports(server.queued_requests()), 0, "the same result is not reported again");

    fs::remove_file(root.join("well")).unwrap();
    let (code, said) = agent(&fixture, &["once", "--interval", "30m"]).await;
    assert!(code == 1 && said.starts_with("the node is not healthy any more; see its report\n"), "{code} {said}");
    assert_eq!(reports(server.queued_requests()), 1);
    // The failure makes a run due.
    assert_eq!(agent(&fixture, &["once", "--interval", "30m"]).await, (0, "the node was validated\n".to_owned()));
    let (code, said) = agent(&fixture, &["once", "--interval", "0s"]).await;
    assert!(code == 1 && said.contains("between 1 second and 7 days"), "{code} {said}");
}

#[tokio::test]
async fn server_of_a_distant_version_is_named() {
    let mut server = FakeServer::start().await;
    let (fixture, desired) = configured(&mut server).await;
    let with_protocol = |number| {
        let mut events = first_events(&desired, with_dbs(1, &[]));
        let SyncEvent::Hello { protocol, .. } = &mut events[0] else { unreachable!() };
        *protocol = number;
        events
    };
    for near in [None, Some(1), Some(2), Some(3)] {
        server.set_first_events(with_protocol(near));
        let (_, said) = agent(&fixture, &["status"]).await;
        assert!(said.contains("server      answers"), "{near:?} {said}");
    }
    server.set_first_events(with_protocol(Some(4)));
    let (code, said) = agent(&fixture, &["status"]).await;
    let expected = "the agent speaks protocol 2 and the server 4; they may differ by 1; upgrade the agent";
    assert!(code == 0 && said.contains(expected), "{code} {said}");
    // It runs nothing for such a server.
    assert_eq!(agent(&fixture, &["once"]).await.0, 2);
}

#[tokio::test]
async fn once_makes_only_a_run_that_is_due() {
    let mut server = FakeServer::start().await;
    let (fixture, desired) = configured(&mut server).await;
    let root = fixture.path().join("root");
    assert_eq!(runs(&root), 1);
    // A stream sends only changes.
    server.set_first_events(vec![first_events(&desired, with_dbs(1, &[])).remove(0)]);
    server.set_desired(desired);
    let (code, said) = agent(&fixture, &["once"]).await;
    assert_eq!((code, said.as_str(), runs(&root)), (0, "no run was due; the node was validated again\n", 1));

    fixture.release("v2", "exit 1", "");
    server.set_first_events(first_events(&fixture.desired("v2", 2), with_dbs(1, &[])));
    assert_eq!(agent(&fixture, &["once"]).await.0, 1);
    fixture.release("v3", "echo a licence; exit 75", "");
    server.set_first_events(first_events(&fixture.desired("v3", 3), with_dbs(1, &[])));
    assert_eq!(agent(&fixture, &["once"]).await.0, 75);
    assert_eq!(fs::read_dir(fixture.state().join("outbox")).unwrap().count(), 0, "all is reported");

    server.set_first_events(paused(&fixture.desired("v3", 4)));
    let (code, said) = agent(&fixture, &["once"]).await;
    assert!(code == 9 && said.contains("paused by ada"), "{code} {said}");
    // The server is unreachable, and the last known state requires a run.
    server.stop();
    assert_eq!(agent(&fixture, &["once"]).await.0, 75);
}

#[tokio::test]
async fn once_needs_a_server_and_no_running_agent() {
    let mut server = FakeServer::start().await;
    let (fixture, _) = configured(&mut server).await;
    server.queued_requests();
    let living = fixture.start();
    server.opened().await;
    let (code, said) = agent(&fixture, &["once"]).await;
    assert!(code == 3 && said.contains("an agent is running in"), "{code} {said}");
    // Other commands work while an agent runs.
    let (code, said) = agent(&fixture, &["status", "-o", "json"]).await;
    let status: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &status["agent"], &status["version"]), (0, &true.into(), &"v1".into()));
    assert_eq!(agent(&fixture, &["pending-update"]).await.0, 1);
    living.signal(rustix::process::Signal::TERM);
    assert_eq!(living.ended().await, Some(0));
    server.stop();
    // The shutdown may have interrupted the first run of the agent. That run is then due.
    let (code, said) = agent(&fixture, &["once"]).await;
    assert!([0, 2].contains(&code), "{code} {said}");
    let (code, said) = agent(&fixture, &["once"]).await;
    assert!(code == 2 && said.starts_with("unknown whether"), "{code} {said}");
}

#[tokio::test]
async fn status_works_with_and_without_a_server() {
    let mut server = FakeServer::start().await;
    let (fixture, _) = configured(&mut server).await;
    let (code, said) = agent(&fixture, &["status"]).await;
    for line in [
        "node        web1 of test",
        "agent       not running",
        "version     v1",
        "desired     v1",
        "validated",
        "server      answers",
    ] {
        assert!(code == 0 && said.contains(line), "{line:?} is not in:\n{said}");
    }
    server.stop();
    let (code, said) = agent(&fixture, &["status"]).await;
    assert!(code == 0 && said.contains("server      does not answer: cannot reach the server"), "{said}");
    assert!(said.contains("desired     v1"), "the last known version: {said}");
}

fn run_agent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muster-agent")).args(arguments).env("NO_COLOR", "1").output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn help_shows_the_configuration() {
    let help = run_agent(&["--help"]);
    let text = String::from_utf8(help.stdout).unwrap();
    assert_eq!(help.status.code(), Some(0));
    for part in ["muster-agent run --config", "trusted_keys", "SIGTERM", "Exit codes"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let version = run_agent(&["--version"]);
    assert_eq!(String::from_utf8(version.stdout).unwrap(), concat!("muster-agent ", env!("CARGO_PKG_VERSION"), "\n"));
    assert_eq!(run_agent(&["walk"]).status.code(), Some(64));
}

#[tokio::test]
async fn invalid_configuration_is_explained() {
    let server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let path = fixture.write_config();
    let good = fs::read_to_string(&path).unwrap();
    for (text, says) in [
        (good.replace("web1", "Web1"), "\"Web1\" is not a legal node name"),
        (
            good.replace("http://", "ftp://"),
            "is not the address of a server: expected https://HOST:PORT, http://HOST:PORT",
        ),
        (good.replace("state_dir", "stat_dir"), "unknown field `stat_dir`"),
    ] {
        fs::write(&path, text).unwrap();
        let output = run_agent(&["run", "--config", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(says), "{says:?} is not in:\n{}", stderr(&output));
    }
    let output = run_agent(&["run", "--config", "/nonexistent/agent.toml", "--log-format", "json"]);
    let line: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(line["level"], "ERROR");
    assert!(line["message"].as_str().unwrap().contains("cannot read the configuration"), "{line}");
    assert!(line["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{line}");
    let output = run_agent(&["run", "--config", "/nonexistent/agent.toml"]);
    assert!(stderr(&output).contains("cannot read the configuration /nonexistent/agent.toml: No such file"));
}

#[tokio::test]
async fn second_agent_on_a_directory_is_refused() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let _agent = fixture.start();
    server.opened().await;
    let path = fixture.write_config();
    let output =
        tokio::task::spawn_blocking(move || run_agent(&["run", "--config", path.to_str().unwrap()])).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("another agent uses the state directory"), "{}", stderr(&output));
}
