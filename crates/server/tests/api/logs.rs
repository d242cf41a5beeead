//! Logs of runs, in progress and ended.

use muster_core::names::RunId;
use muster_core::node::status::Activity;
use muster_core::report::{Outcome, RunResult};
use muster_wire::client::LogStream;
use muster_wire::problem::ProblemCode;
use muster_wire::runs::{LogEnd, LogEvent, LogPiece, PIECE};
use muster_wire::sync::SyncOpen;

use crate::fixture::{CHANGED, Fixture, PASSED, next, node, version};

const FLEET: [(&str, &str); 2] = [("web1", "web"), ("web2", "web")];

fn run(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

fn piece(offset: u64, text: &str) -> LogPiece {
    LogPiece { offset, text: text.into(), ..LogPiece::default() }
}

impl Fixture {
    async fn says(&self, run_id: &str, piece: &LogPiece) {
        self.client.send_log(&self.env, &node("web1"), &run(run_id), piece).await.unwrap();
    }
}

/// The next event that is not a keep-alive.
async fn told(stream: &mut LogStream) -> Option<LogEvent> {
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
async fn a_run_is_followed_line_by_line_to_its_end() {
    let fixture = Fixture::start(&FLEET).await;
    let mut agent = fixture.open("web1", &SyncOpen::default()).await;
    next(&mut agent).await;
    fixture.says("r1", &piece(0, "one\n")).await;

    let web1 = node("web1");
    let mut reader = fixture.client.follow_log(&fixture.env, &web1, &run("r1"), 0).await.unwrap();
    assert_eq!(told(&mut reader).await, text(0, "one\n"));
    let so_far = fixture.client.run_log(&fixture.env, &web1, &run("r1")).await.unwrap();
    assert_eq!((so_far.text.as_str(), so_far.end), ("one\n", LogEnd::SoFar));
    fixture.says("r1", &piece(4, "two\n")).await;
    assert_eq!(told(&mut reader).await, text(4, "two\n"));
    // The agent retries because the response was lost.
    fixture.says("r1", &piece(4, "two\nthree\n")).await;
    assert_eq!(told(&mut reader).await, text(8, "three\n"));
    fixture.says("r1", &LogPiece { last: true, ..piece(14, "four\n") }).await;
    assert_eq!(told(&mut reader).await, text(14, "four\n"));
    assert_eq!(told(&mut reader).await, Some(LogEvent::End { end: LogEnd::Finished }));
    assert_eq!(told(&mut reader).await, None);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_over_has_the_logs_of_its_reports() {
    let fixture = Fixture::start(&FLEET).await;
    let mut agent = fixture.open("web1", &SyncOpen::default()).await;
    next(&mut agent).await;
    let reports = [(1, CHANGED, "applied\n"), (2, PASSED, "checked\n")];
    fixture.says("r9", &piece(0, "applied\n")).await;
    let web1 = node("web1");
    let mut reader = fixture.client.follow_log(&fixture.env, &web1, &run("r9"), 0).await.unwrap();
    assert_eq!(told(&mut reader).await, text(0, "applied\n"));
    for (seq, outcome, log) in reports {
        let mut report = fixture.report("web1", 1, seq, outcome);
        (report.run, report.log) = (run("r9"), log.into());
        fixture.send(&report).await;
    }
    // The last piece of the log never arrived. The last report still ends the log.
    assert_eq!(told(&mut reader).await, Some(LogEvent::End { end: LogEnd::Finished }));
    let stored = fixture.client.run_log(&fixture.env, &web1, &run("r9")).await.unwrap();
    assert_eq!((stored.text.as_str(), stored.end), ("applied\nchecked\n", LogEnd::Finished));
    let mut reader = fixture.client.follow_log(&fixture.env, &web1, &run("r9"), 8).await.unwrap();
    assert_eq!(told(&mut reader).await, text(8, "checked\n"));
    assert_eq!(told(&mut reader).await, Some(LogEvent::End { end: LogEnd::Finished }));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_applier_ends_its_run_and_a_lost_agent_ends_the_log() {
    let fixture = Fixture::start(&FLEET).await;
    let mut agent = fixture.open("web1", &SyncOpen::default()).await;
    next(&mut agent).await;
    let web1 = node("web1");
    fixture.says("r1", &piece(0, "no\n")).await;
    let mut reader = fixture.client.follow_log(&fixture.env, &web1, &run("r1"), 0).await.unwrap();
    assert_eq!(told(&mut reader).await, text(0, "no\n"));
    let mut failed = fixture.report("web1", 1, 1, Outcome::Configured(RunResult::Failed));
    failed.run = run("r1");
    fixture.send(&failed).await;
    assert_eq!(told(&mut reader).await, Some(LogEvent::End { end: LogEnd::Finished }));

    fixture.says("r2", &piece(0, "again\n")).await;
    let mut reader = fixture.client.follow_log(&fixture.env, &web1, &run("r2"), 0).await.unwrap();
    assert_eq!(told(&mut reader).await, text(0, "again\n"));
    drop(agent);
    assert_eq!(told(&mut reader).await, Some(LogEvent::End { end: LogEnd::AgentGone }));

    // The agent reconnects and continues the run. A reader that asks again continues too.
    let mut agent = fixture.open("web1", &SyncOpen { incarnation: Some(1), ..SyncOpen::default() }).await;
    next(&mut agent).await;
    fixture.says("r2", &piece(6, "on\n")).await;
    let mut reader = fixture.client.follow_log(&fixture.env, &web1, &run("r2"), 6).await.unwrap();
    assert_eq!(told(&mut reader).await, text(6, "on\n"));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_has_said_nothing_yet_can_be_followed() {
    let fixture = Fixture::start(&FLEET).await;
    let since = jiff::Timestamp::UNIX_EPOCH;
    let activity = Activity::Applying { run: run("r1"), version: version("v1"), since };
    let mut agent = fixture.open("web1", &SyncOpen { activity, ..SyncOpen::default() }).await;
    next(&mut agent).await;
    let mut reader = fixture.client.follow_log(&fixture.env, &node("web1"), &run("r1"), 0).await.unwrap();
    fixture.says("r1", &piece(0, "at last\n")).await;
    assert_eq!(told(&mut reader).await, text(0, "at last\n"));
    fixture.run_to_its_end().await;
    let end = told(&mut reader).await;
    let ends = [LogEnd::ServerStops, LogEnd::AgentGone].map(|end| Some(LogEvent::End { end }));
    assert!(ends.contains(&end), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_end_of_a_long_log_is_kept_and_the_reader_is_told() {
    let fixture = Fixture::start(&FLEET).await;
    let mut agent = fixture.open("web1", &SyncOpen::default()).await;
    next(&mut agent).await;
    let full = format!("{}\n", "x".repeat(1023)).repeat(PIECE / 1024);
    for number in 0..8 {
        fixture.says("r1", &piece(number * PIECE as u64, &full)).await;
    }
    let mut reader = fixture.client.follow_log(&fixture.env, &node("web1"), &run("r1"), 0).await.unwrap();
    assert_eq!(told(&mut reader).await, Some(LogEvent::Cut { bytes: 4 * PIECE as u64 }));
    assert_eq!(told(&mut reader).await, text(4 * PIECE as u64, &full));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused() {
    let fixture = Fixture::start(&FLEET).await;
    let (env, web1) = (&fixture.env, node("web1"));
    let code = |error: muster_wire::client::ClientError| error.problem().map(|problem| problem.code);
    let unknown = fixture.client.run_log(env, &web1, &run("r1")).await.unwrap_err();
    assert_eq!(code(unknown), Some(ProblemCode::UnknownRun));
    let unconnected = fixture.client.send_log(env, &web1, &run("r1"), &piece(0, "x\n")).await.unwrap_err();
    assert_eq!(code(unconnected), Some(ProblemCode::Conflict));
    let mut agent = fixture.open("web1", &SyncOpen::default()).await;
    next(&mut agent).await;
    for (text, expected) in
        [("x".repeat(PIECE + 1), ProblemCode::TooLarge), ("x".repeat(8 * PIECE), ProblemCode::TooLarge)]
    {
        let error = fixture.client.send_log(env, &web1, &run("r1"), &piece(0, &text)).await.unwrap_err();
        assert_eq!(code(error), Some(expected));
    }
    let error = fixture.client.send_log(env, &node("db9"), &run("r1"), &piece(0, "x\n")).await.unwrap_err();
    assert_eq!(code(error), Some(ProblemCode::UnknownNode));
    fixture.stop().await;
}
