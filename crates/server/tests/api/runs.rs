//! Requested runs, the runs of the fleet, failure groups, and logs of runs in progress and ended.

use std::time::Duration;

use muster_core::keys::Keys;
use muster_core::names::{RunId, Version};
use muster_core::node::pause::PauseRecord;
use muster_core::node::status::{Activity, NodeState};
use muster_core::report::reason::RunReason;
use muster_core::report::record::StatusLeaf;
use muster_core::report::{Cause, Outcome, ResourceError, RunOptions, RunResult, Verdict};
use muster_core::txn::{Op, Txn};
use muster_store::CommitOutcome;
use muster_testkit::wait::until;
use muster_wire::client::LogStream;
use muster_wire::problem::ProblemCode;
use muster_wire::runs::{LogEnd, LogEvent, LogPiece, PIECE, RunRequestProgress, StartRunRequest};
use muster_wire::sync::{RequestedRun, SyncEvent, SyncOpen};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::fixture::{CHANGED, Fixture, PASSED, http, next, node, token, version};

const FLEET: [(&str, &str); 3] = [("web1", "web"), ("web2", "web"), ("db1", "db")];
const NOW: Duration = Duration::ZERO;

fn noop() -> StartRunRequest {
    StartRunRequest { noop: true, ..StartRunRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn requested_run_reaches_the_node_and_is_tracked() {
    let fixture = Fixture::start(&FLEET).await;
    let (env, web1) = (&fixture.env, node("web1"));
    let silent = fixture.client.request_run(env, "web1", "jo", &StartRunRequest::default()).await.unwrap();
    assert!(silent.silent_since.is_some(), "its agent is not there");

    // The agent receives the request when it connects, and the next one at once.
    let mut agent = fixture.open("web1", &SyncOpen::default()).await;
    let next_request = async |agent: &mut _| loop {
        if let SyncEvent::Run(RequestedRun { id, noop, by, .. }) = next(agent).await {
            return (id, noop, by);
        }
    };
    assert_eq!(next_request(&mut agent).await, (silent.id, false, "jo".to_owned()));
    let asked = fixture.client.request_run(env, "web1", "ann", &noop()).await.unwrap();
    assert_eq!(asked.silent_since, None);
    assert_eq!(next_request(&mut agent).await, (asked.id.clone(), true, "ann".to_owned()));

    let progress = async || fixture.client.run_request(env, &web1, &asked.id, NOW).await.unwrap().progress;
    assert_eq!(progress().await, RunRequestProgress::Waiting { silent_since: None });
    let run = RunId::new("r1").unwrap();
    let piece = LogPiece { asked: vec![asked.id.clone()], ..LogPiece::default() };
    fixture.client.send_log(env, &web1, &run, &piece).await.unwrap();
    assert_eq!(progress().await, RunRequestProgress::Running { run: run.clone() });
    let mut report = fixture.report("web1", 1, 1, Outcome::Previewed(RunResult::Changed));
    report.causes = vec![Cause::operator(asked.id.clone(), "ann")];
    let taken = fixture.send(&report).await;
    fixture.app.view.reach(taken.revision).await.unwrap();
    assert_eq!(progress().await, RunRequestProgress::Done { run });
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_node_accepts_only_noop_run_requests() {
    let fixture = Fixture::start(&FLEET).await;
    let env = &fixture.env;
    let since = jiff::Timestamp::UNIX_EPOCH;
    let pause = PauseRecord { by: "ann".into(), reason: "disk swap".into(), since, until: None };
    let key = Keys::new(env).pause(&muster_core::node::pause::PauseScope::Host { node: node("web1") });
    fixture.store.commit(Txn::new().op(Op::put_json(key, &pause).unwrap())).await.unwrap();
    let error = fixture.client.request_run(env, "web1", "jo", &StartRunRequest::default()).await.unwrap_err();
    let problem = error.problem().unwrap();
    assert_eq!(problem.code, ProblemCode::Conflict);
    assert!(problem.detail.contains("ann") && problem.detail.contains("disk swap"), "{problem}");
    fixture.client.request_run(env, "web1", "jo", &noop()).await.unwrap();
    fixture.client.request_run(env, "web2", "jo", &StartRunRequest::default()).await.unwrap();
    let error = fixture.client.request_run(env, "db9", "jo", &StartRunRequest::default()).await.unwrap_err();
    assert_eq!(error.problem().unwrap().code, ProblemCode::UnknownNode);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_a_requested_run_are_checked_and_sent() {
    let fixture = Fixture::start(&FLEET).await;
    let env = &fixture.env;
    let request = async |noop: bool, options: RunOptions| {
        let request = StartRunRequest { noop, options };
        fixture.client.request_run(env, "web1", "jo", &request).await.map_err(|error| error.problem().unwrap().clone())
    };
    let version = |text: &str| RunOptions { version: Some(Version::new(text).unwrap()), ..RunOptions::default() };
    let tags =
        |tags: &[&str]| RunOptions { tags: tags.iter().map(|&tag| tag.into()).collect(), ..RunOptions::default() };

    let problem = request(true, version("v9")).await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::UnknownVersion, "{problem}");
    let problem = request(false, version("v1")).await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::InvalidRequest, "{problem}");
    assert!(problem.hint.as_deref().unwrap().contains("--noop"), "{problem:?}");
    for tag in ["", "-x", "a b", "a,b", "ä", &"x".repeat(101)] {
        let problem = request(true, tags(&[tag])).await.unwrap_err();
        assert_eq!(problem.code, ProblemCode::InvalidRequest, "{tag}: {problem}");
    }
    let many = vec!["x"; 21];
    assert_eq!(request(true, tags(&many)).await.unwrap_err().code, ProblemCode::InvalidRequest);
    let problem = request(false, tags(&["profile::web"])).await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::Conflict, "{problem}");
    assert!(problem.detail.contains("has not validated"), "{problem}");

    let mut agent = fixture.open("web1", &SyncOpen::default()).await;
    let options = RunOptions { debug: true, tags: vec!["profile::web".into()], ..version("v1") };
    let asked = request(true, options.clone()).await.unwrap();
    let sent = loop {
        if let SyncEvent::Run(sent) = next(&mut agent).await {
            break sent;
        }
    };
    assert_eq!((sent.id, sent.noop, sent.options), (asked.id, true, options));
    let release = sent.release.unwrap();
    assert_eq!((release.version.as_str(), release.allow_older), ("v1", true));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn preview_of_a_removed_release_has_failed() {
    let fixture = Fixture::start(&FLEET).await;
    let (env, web1) = (&fixture.env, node("web1"));
    let options = RunOptions { version: Some(version("v2")), ..RunOptions::default() };
    let request = StartRunRequest { noop: true, options };
    let asked = fixture.client.request_run(env, "web1", "jo", &request).await.unwrap();
    let progress = async || fixture.client.run_request(env, &web1, &asked.id, NOW).await.unwrap().progress;
    assert!(matches!(progress().await, RunRequestProgress::Waiting { .. }));

    let removed = Txn::new().op(Op::delete(Keys::new(env).release(&version("v2"))));
    let CommitOutcome::Committed { revision } = fixture.store.commit(removed).await.unwrap() else {
        panic!("nothing guards it")
    };
    fixture.app.view.reach(revision).await.unwrap();
    assert_eq!(progress().await, RunRequestProgress::ReleaseRemoved { version: version("v2") });
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_the_same_error_are_one_failure_group() {
    let names: Vec<String> = (1..=50).map(|number| format!("web{number}")).collect();
    let mut fleet: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "web")).collect();
    fleet.push(("db1", "db"));
    let fixture = Fixture::start(&fleet).await;
    for name in &names {
        let mut report = fixture.report(name, 1, 1, Outcome::Configured(RunResult::Failed));
        report.reason = Some(RunReason::NotCompiled);
        report.attempt = 1;
        report.errors = vec![ResourceError {
            resource: None,
            file: Some("site.pp".into()),
            line: Some(3),
            message: format!("Evaluation Error: Unknown variable: 'x' on addr-of-{name}"),
        }];
        report.errors.push(ResourceError { line: Some(9), ..report.errors[0].clone() });
        report.errors.push(ResourceError { line: Some(12), ..report.errors[0].clone() });
        let taken = fixture.send(&report).await;
        fixture.app.view.reach(taken.revision).await.unwrap();
    }
    let last = fixture.validate("db1", 1).await;
    fixture.app.view.reach(last.revision).await.unwrap();
    let mut agents = Vec::new();
    let since = jiff::Timestamp::UNIX_EPOCH;
    for (place, (name, _)) in fleet.iter().enumerate() {
        // Half of the nodes are in a retry.
        let again =
            Activity::Applying { run: RunId::new("again").unwrap(), version: Version::new("v1").unwrap(), since };
        let activity = if place % 2 == 0 { again } else { Activity::default() };
        agents.push(fixture.open(name, &SyncOpen { incarnation: Some(1), activity, ..SyncOpen::default() }).await);
    }
    let groups = fixture.client.failures(&fixture.env, "").await.unwrap().groups;
    assert_eq!(groups.len(), 1, "{groups:?}");
    assert_eq!(groups[0].nodes.len(), 50);
    assert_eq!(
        groups[0].error.to_string(),
        "Evaluation Error: Unknown variable: 'x' on <address> (site.pp:3)",
        "with file and line, and without what is each node's own"
    );
    let lines = |errors: &[ResourceError]| errors.iter().filter_map(|error| error.line).collect::<Vec<_>>();
    assert_eq!(lines(&groups[0].errors), [3, 9, 12], "all errors of the first node's run, from its report");
    assert_eq!(groups[0].run.as_ref().map(RunId::as_str), Some("r1"));
    let detail = fixture.client.node(&fixture.env, "web7").await.unwrap();
    assert_eq!((lines(&detail.errors), lines(&detail.last.unwrap().errors)), (vec![3, 9, 12], vec![3, 9]));
    let one = fixture.client.failures(&fixture.env, "name=web7").await.unwrap().groups;
    assert_eq!((one.len(), one[0].nodes.len()), (1, 1));
    assert!(fixture.client.failures(&fixture.env, "role=db").await.unwrap().groups.is_empty());
    drop(agents);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_lasts_until_a_validation_passes() {
    let fixture = Fixture::start(&FLEET).await;
    let env = &fixture.env;
    let hello = SyncOpen { incarnation: Some(1), ..SyncOpen::default() };
    let mut stream = fixture.open("web1", &hello).await;
    next(&mut stream).await;
    let mut seq = 0;
    let mut send = async |outcome, message: &str| {
        seq += 1;
        let mut report = fixture.report("web1", 1, seq, outcome);
        if !message.is_empty() {
            report.reason = Some(RunReason::NotCompiled);
            report.errors = vec![error(message)];
        }
        let taken = fixture.send(&report).await;
        fixture.app.view.reach(taken.revision).await.unwrap();
    };
    let failed = async || {
        let list = fixture.client.failures(env, "").await.unwrap();
        let [row] = &list.items[..] else { panic!("{list:?}") };
        let [group] = &list.groups[..] else { panic!("{list:?}") };
        let [member] = &group.nodes[..] else { panic!("{list:?}") };
        assert_eq!((&row.node, row.since), (&member.node, member.since));
        (row.state, row.since.unwrap(), member.current, group.error.message.clone())
    };
    send(Outcome::Configured(RunResult::Failed), "no such package").await;
    let (state, since, current, message) = failed().await;
    assert_eq!((state, current, message.as_str()), (NodeState::Failed, None, "no such package"));

    // It retries: the applier succeeds, and the validation is in progress.
    let (run, version) = (RunId::new("again").unwrap(), Version::new("v1").unwrap());
    let applying = Activity::Applying { run, version, since };
    fixture.client.activity(env, &node("web1"), &applying).await.unwrap();
    assert_eq!(failed().await, (NodeState::Failed, since, Some(NodeState::Applying), message));
    send(CHANGED, "").await;
    fixture.client.activity(env, &node("web1"), &Activity::Idle).await.unwrap();
    // The errors were those of the last run; the history has its reason.
    let reason = RunReason::NotCompiled.to_string();
    assert_eq!(failed().await, (NodeState::Failed, since, Some(NodeState::Configured), reason));
    send(Outcome::Validated(Verdict::Failed), "port 80 is closed").await;
    let invalid = |current| (NodeState::Invalid, since, current, "port 80 is closed".to_owned());
    assert_eq!(failed().await, invalid(None));

    drop(stream);
    until("web1 is silent", || fixture.app.agents.hub.session(env, &node("web1")).is_none()).await;
    assert_eq!(failed().await, invalid(Some(NodeState::Silent)));
    send(PASSED, "").await;
    assert!(fixture.client.failures(env, "").await.unwrap().items.is_empty());
    fixture.stop().await;
}

fn error(message: &str) -> ResourceError {
    ResourceError { message: message.into(), ..ResourceError::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_runs_come_first() {
    let fixture = Fixture::start(&FLEET).await;
    for (seq, name) in [(1, "web1"), (1, "db1"), (2, "web1"), (3, "web1")] {
        let mut report = fixture.report(name, 1, seq, PASSED);
        report.ended += jiff::SignedDuration::from_secs(i64::try_from(seq).unwrap() * 10 + i64::from(name == "db1"));
        let taken = fixture.send(&report).await;
        fixture.app.view.reach(taken.revision).await.unwrap();
    }
    let shown = async |filter: &str, limit| -> Vec<(String, String)> {
        let page = fixture.client.runs(&fixture.env, filter, limit).await.unwrap();
        page.items.into_iter().map(|row| (row.node.to_string(), row.run.run.to_string())).collect()
    };
    let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect::<Vec<_>>();
    assert_eq!(shown("", 50).await, pairs(&[("web1", "r3"), ("web1", "r2"), ("db1", "r1"), ("web1", "r1")]));
    assert_eq!(shown("", 3).await, pairs(&[("web1", "r3"), ("web1", "r2"), ("db1", "r1")]));
    assert_eq!(shown("role=db", 3).await, pairs(&[("db1", "r1")]));
    fixture.stop().await;
}

const LOG_FLEET: [(&str, &str); 2] = [("web1", "web"), ("web2", "web")];

fn run(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

fn piece(offset: u64, text: &str) -> LogPiece {
    LogPiece { offset, text: text.into(), ..LogPiece::default() }
}

impl Fixture {
    async fn send_piece(&self, run_id: &str, piece: &LogPiece) {
        self.client.send_log(&self.env, &node("web1"), &run(run_id), piece).await.unwrap();
    }
}

/// The next event that is not a keep-alive.
async fn next_event(stream: &mut LogStream) -> Option<LogEvent> {
    loop {
        match stream.next().await.unwrap() {
            Some(LogEvent::Alive) => {}
            event => return event,
        }
    }
}

fn text(offset: u64, text: &str) -> Option<LogEvent> {
    Some(LogEvent::Text { offset, text: text.into() })
}

#[tokio::test(flavor = "multi_thread")]
async fn log_is_followed_line_by_line_to_its_end() {
    let fixture = Fixture::start(&LOG_FLEET).await;
    let mut agent = fixture.open("web1", &SyncOpen::default()).await;
    next(&mut agent).await;
    fixture.send_piece("r1", &piece(0, "one\n")).await;

    let web1 = node("web1");
    let mut reader = fixture.client.follow_log(&fixture.env, &web1, &run("r1"), 0).await.unwrap();
    assert_eq!(next_event(&mut reader).await, text(0, "one\n"));
    let so_far = fixture.client.run_log(&fixture.env, &web1, &run("r1")).await.unwrap();
    assert_eq!((so_far.text.as_str(), so_far.end), ("one\n", LogEnd::SoFar));
    fixture.send_piece("r1", &piece(4, "two\n")).await;
    assert_eq!(next_event(&mut reader).await, text(4, "two\n"));
    // The agent retries because the response was lost.
    fixture.send_piece("r1", &piece(4, "two\nthree\n")).await;
    assert_eq!(next_event(&mut reader).await, text(8, "three\n"));
    fixture.send_piece("r1", &LogPiece { last: true, ..piece(14, "four\n") }).await;
    assert_eq!(next_event(&mut reader).await, text(14, "four\n"));
    assert_eq!(next_event(&mut reader).await, Some(LogEvent::End { end: LogEnd::Finished }));
    assert_eq!(next_event(&mut reader).await, None);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_run_has_the_logs_of_its_reports() {
    let fixture = Fixture::start(&LOG_FLEET).await;
    let mut agent = fixture.open("web1", &SyncOpen::default()).await;
    next(&mut agent).await;
    let reports = [(1, CHANGED, "applied\n"), (2, PASSED, "checked\n")];
    fixture.send_piece("r9", &piece(0, "applied\n")).await;
    let web1 = node("web1");
    let mut reader = fixture.client.follow_log(&fixture.env, &web1, &run("r9"), 0).await.unwrap();
    assert_eq!(next_event(&mut reader).await, text(0, "applied\n"));
    for (seq, outcome, log) in reports {
        let mut report = fixture.report("web1", 1, seq, outcome);
        (report.run, report.log) = (run("r9"), log.into());
        fixture.send(&report).await;
    }
    // The last piece of the log never arrived. The last report still ends the log.
    assert_eq!(next_event(&mut reader).await, Some(LogEvent::End { end: LogEnd::Finished }));
    let stored = fixture.client.run_log(&fixture.env, &web1, &run("r9")).await.unwrap();
    assert_eq!((stored.text.as_str(), stored.end), ("applied\nchecked\n", LogEnd::Finished));
    // The link in the status leaf is a path that the server serves.
    let prefix = format!("{}status/validated/", Keys::new(&fixture.env).prefix());
    let leaf = fixture.store.range(&prefix, None).await.unwrap();
    let leaf: StatusLeaf = serde_json::from_slice(&leaf.kvs[0].value).unwrap();
    let served = http().get(fixture.url(&leaf.log.unwrap())).send().await.unwrap();
    let served: serde_json::Value = serde_json::from_slice(&served.bytes().await.unwrap()).unwrap();
    assert_eq!(served["text"], "applied\nchecked\n");
    let mut reader = fixture.client.follow_log(&fixture.env, &web1, &run("r9"), 8).await.unwrap();
    assert_eq!(next_event(&mut reader).await, text(8, "checked\n"));
    assert_eq!(next_event(&mut reader).await, Some(LogEvent::End { end: LogEnd::Finished }));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_applier_ends_its_run_and_disconnect_ends_the_log() {
    let fixture = Fixture::start(&LOG_FLEET).await;
    let mut agent = fixture.open("web1", &SyncOpen::default()).await;
    next(&mut agent).await;
    let web1 = node("web1");
    fixture.send_piece("r1", &piece(0, "no\n")).await;
    let mut reader = fixture.client.follow_log(&fixture.env, &web1, &run("r1"), 0).await.unwrap();
    assert_eq!(next_event(&mut reader).await, text(0, "no\n"));
    let mut failed = fixture.report("web1", 1, 1, Outcome::Configured(RunResult::Failed));
    failed.run = run("r1");
    fixture.send(&failed).await;
    assert_eq!(next_event(&mut reader).await, Some(LogEvent::End { end: LogEnd::Finished }));

    fixture.send_piece("r2", &piece(0, "again\n")).await;
    let mut reader = fixture.client.follow_log(&fixture.env, &web1, &run("r2"), 0).await.unwrap();
    assert_eq!(next_event(&mut reader).await, text(0, "again\n"));
    drop(agent);
    assert_eq!(next_event(&mut reader).await, Some(LogEvent::End { end: LogEnd::AgentGone }));

    // The agent reconnects and continues the run. A reader that asks again continues too.
    let mut agent = fixture.open("web1", &SyncOpen { incarnation: Some(1), ..SyncOpen::default() }).await;
    next(&mut agent).await;
    fixture.send_piece("r2", &piece(6, "on\n")).await;
    let mut reader = fixture.client.follow_log(&fixture.env, &web1, &run("r2"), 6).await.unwrap();
    assert_eq!(next_event(&mut reader).await, text(6, "on\n"));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_without_output_can_be_followed() {
    let fixture = Fixture::start(&LOG_FLEET).await;
    let since = jiff::Timestamp::UNIX_EPOCH;
    let activity = Activity::Applying { run: run("r1"), version: version("v1"), since };
    let mut agent = fixture.open("web1", &SyncOpen { activity, ..SyncOpen::default() }).await;
    next(&mut agent).await;
    let mut reader = fixture.client.follow_log(&fixture.env, &node("web1"), &run("r1"), 0).await.unwrap();
    fixture.send_piece("r1", &piece(0, "at last\n")).await;
    assert_eq!(next_event(&mut reader).await, text(0, "at last\n"));
    fixture.run_to_its_end().await;
    let end = next_event(&mut reader).await;
    let ends = [LogEnd::ServerStops, LogEnd::AgentGone].map(|end| Some(LogEvent::End { end }));
    assert!(ends.contains(&end), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_log_is_truncated_with_a_notice() {
    let fixture = Fixture::start(&LOG_FLEET).await;
    let mut agent = fixture.open("web1", &SyncOpen::default()).await;
    next(&mut agent).await;
    let full = format!("{}\n", "x".repeat(1023)).repeat(PIECE / 1024);
    for number in 0..8 {
        fixture.send_piece("r1", &piece(number * PIECE as u64, &full)).await;
    }
    let mut reader = fixture.client.follow_log(&fixture.env, &node("web1"), &run("r1"), 0).await.unwrap();
    assert_eq!(next_event(&mut reader).await, Some(LogEvent::Cut { bytes: 4 * PIECE as u64 }));
    assert_eq!(next_event(&mut reader).await, text(4 * PIECE as u64, &full));
    fixture.stop().await;
}

/// Announces a body of 8 pieces, and sends one byte more than the limit. The server refuses it there. It has read all that was
/// sent: a server that closes a connection with unread data resets it, and its answer may be lost.
async fn too_long_body(fixture: &Fixture) -> serde_json::Value {
    let address = fixture.url("").trim_start_matches("http://").to_owned();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        "/v1/envs/test/nodes/web1/runs/r1/log",
        token().as_str(),
        8 * PIECE
    );
    let limit = 6 * PIECE + 4096;
    let start = "{\"offset\": 0, \"text\": \"";
    let body = format!("{start}{}", "x".repeat(limit + 1 - start.len()));
    let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(Duration::from_secs(60), stream.read_to_string(&mut answer)).await.expect("no answer").unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_log_requests_are_refused() {
    let fixture = Fixture::start(&LOG_FLEET).await;
    let (env, web1) = (&fixture.env, node("web1"));
    let code = |error: muster_wire::client::ClientError| error.problem().map(|problem| problem.code);
    let unknown = fixture.client.run_log(env, &web1, &run("r1")).await.unwrap_err();
    assert_eq!(code(unknown), Some(ProblemCode::UnknownRun));
    let unconnected = fixture.client.send_log(env, &web1, &run("r1"), &piece(0, "x\n")).await.unwrap_err();
    assert_eq!(code(unconnected), Some(ProblemCode::Conflict));
    let mut agent = fixture.open("web1", &SyncOpen::default()).await;
    next(&mut agent).await;
    let error = fixture.client.send_log(env, &web1, &run("r1"), &piece(0, &"x".repeat(PIECE + 1))).await.unwrap_err();
    assert_eq!(code(error), Some(ProblemCode::TooLarge));
    assert_eq!(too_long_body(&fixture).await["code"], "too_large");
    let error = fixture.client.send_log(env, &node("db9"), &run("r1"), &piece(0, "x\n")).await.unwrap_err();
    assert_eq!(code(error), Some(ProblemCode::UnknownNode));
    fixture.stop().await;
}
