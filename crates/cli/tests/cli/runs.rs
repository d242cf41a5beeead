//! Tests of `muster runs`, `muster node logs`, `muster drift`, `muster node run`, `muster pause`, `muster resume` and `muster pauses`.

use std::process::Stdio;
use std::time::Duration;

use muster_core::names::RunId;
use muster_core::node::status::Activity;
use muster_core::report::reason::RunReason;
use muster_core::report::{
    Cause, CheckResult, Counts, Outcome, Report, ResourceChange, ResourceError, RunResult, Verdict,
};
use muster_wire::runs::LogPiece;
use muster_wire::sync::{RequestedRun, SyncEvent};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

use crate::fixture::{Fleet, PASSED, node, shown, version};
use crate::snapshot;

/// Longer than any of these tests takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A script as applier reports no differences. The printed command shows them.
#[tokio::test]
async fn drift_without_differences_names_the_log() {
    let fleet = Fleet::validated().await;
    let outcome = Outcome::Previewed(RunResult::Changed);
    fleet.send(&Report { causes: vec![Cause::Schedule], ..fleet.report("db1", 3, outcome) }).await;
    let said = fleet.muster(&["drift", "name=db1"]).await;
    let command = said.lines().find_map(|line| line.trim().strip_suffix(" has the differences")).unwrap();
    assert_eq!(command, "muster node logs db1 --run run-3", "{said}");
    let arguments: Vec<&str> = command.split(' ').skip(1).collect();
    let log = fleet.muster(&arguments).await;
    assert!(log.starts_with("exit 0"), "{log}");
}

#[tokio::test]
async fn runs_of_all_nodes_are_listed() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["runs"]).await, @"
    exit 0
    --- stdout
    AGO  NODE  RUN    VERSION  RESULT     TOOK  CAUSES AND REASON
    3d   db1   run-1  v1       validated  3.4s  agent started, version v1
    3d   lb1   run-1  v1       pending    3.4s  agent started, version v1 → waiting for role web: 0 of 2 active
    3d   web1  run-1  v1       failed     3.4s  agent started, version v1 → the content could not be compiled; nothing was applied
    ");
    snapshot!(fleet.muster(&["runs", "--node", "db1", "--limit", "1"]).await, @"
    exit 0
    --- stdout
    AGO  NODE  RUN    VERSION  RESULT     TOOK  CAUSES AND REASON
    3d   db1   run-1  v1       validated  3.4s  agent started, version v1
    ");
}

#[tokio::test]
async fn failed_nodes_are_grouped() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["runs", "--failed"]).await, @"
    exit 1
    --- stdout
    1 node: Syntax error at '}' (releases/v1/site.pp:12)
      web1
      failed for 5d, attempt 2
    ");
    snapshot!(fleet.muster(&["runs", "--failed", "role=db"]).await, @"
    exit 0
    --- stderr
    note: no node of quickstart has failed
    ");
    snapshot!(fleet.muster(&["runs", "--failed", "--limit", "3"]).await, @"
    exit 64
    --- stderr
    error: the argument '--failed' cannot be used with '--limit <N>'

    Usage: muster runs --failed [FILTER]...

    For more information, try '--help'.
    ");
}

#[tokio::test]
async fn all_errors_of_failed_runs_are_listed() {
    let mut fleet = Fleet::start().await;
    let mut failed = fleet.report("web1", 1, Outcome::Configured(RunResult::Failed));
    failed.reason = Some(RunReason::ResourcesFailed { count: 2 });
    failed.errors = (1..=23)
        .map(|number| ResourceError {
            resource: Some(format!("File[/{number}]")),
            file: Some("site.pp".into()),
            line: Some(number),
            message: if number < 3 { "no space" } else { "skipped, because File[/1] failed" }.into(),
        })
        .collect();
    fleet.send(&failed).await;
    let mut invalid = fleet.report("db1", 1, Outcome::Validated(Verdict::Failed));
    invalid.reason = Some(RunReason::ChecksFailed { names: vec!["greets".into()] });
    let message = "http://127.77.0.1/ answered 500, expected a success; it said: out of memory".into();
    invalid.checks = vec![CheckResult { name: "greets".into(), verdict: Verdict::Failed, message, millis: 20 }];
    fleet.send(&invalid).await;
    fleet.connect("web1", Activity::Idle).await;
    fleet.connect("db1", Activity::Idle).await;

    snapshot!(fleet.muster(&["failures"]).await, @"
    exit 1
    --- stdout
    1 node: File[/1]: no space (site.pp:1)
      also File[/2]: no space (site.pp:2)
      also File[/3]: skipped, because File[/1] failed (site.pp:3)
      also File[/4]: skipped, because File[/1] failed (site.pp:4)
      also File[/5]: skipped, because File[/1] failed (site.pp:5)
      also File[/6]: skipped, because File[/1] failed (site.pp:6)
      also File[/7]: skipped, because File[/1] failed (site.pp:7)
      also File[/8]: skipped, because File[/1] failed (site.pp:8)
      also File[/9]: skipped, because File[/1] failed (site.pp:9)
      also File[/10]: skipped, because File[/1] failed (site.pp:10)
      also File[/11]: skipped, because File[/1] failed (site.pp:11)
      also File[/12]: skipped, because File[/1] failed (site.pp:12)
      also File[/13]: skipped, because File[/1] failed (site.pp:13)
      also File[/14]: skipped, because File[/1] failed (site.pp:14)
      also File[/15]: skipped, because File[/1] failed (site.pp:15)
      also File[/16]: skipped, because File[/1] failed (site.pp:16)
      also File[/17]: skipped, because File[/1] failed (site.pp:17)
      also File[/18]: skipped, because File[/1] failed (site.pp:18)
      also File[/19]: skipped, because File[/1] failed (site.pp:19)
      also File[/20]: skipped, because File[/1] failed (site.pp:20)
      also File[/21]: skipped, because File[/1] failed (site.pp:21)
      … and 2 more: muster node show web1
      web1
      failed for 5d

    1 node: check greets: http://127.77.0.1/ answered 500, expected a success; it said: out of memory
      db1
      failed for 5d
    ");
    snapshot!(fleet.muster(&["node", "show", "db1"]).await, @"
    exit 0
    --- stdout
    node        db1 (role db)
    state       checks failed for 5d: check greets: http://127.77.0.1/ answered 500, expected a success; it said: out of memory
    version     no validated version
    desired     v1
    in service  no
    agent       connected for 5d
    domain      rack1
    addresses   eth0 127.77.0.1

    RUN    AGO  VERSION  RESULT         TOOK  CAUSES AND REASON
    run-1  3d   v1       checks failed  3.4s  agent started, version v1 → check greets: http://127.77.0.1/ answered 500, expected a success; it said: out of memory

    CHECK   RESULT  TOOK  MESSAGE
    greets  failed  20ms  http://127.77.0.1/ answered 500, expected a success; it said: out of memory

    End of the log
      Notice: Applied catalog on db1
    Full log: muster node logs db1 --run run-1
    ");
    let shown = fleet.muster(&["node", "show", "web1"]).await;
    for number in 1..=23 {
        assert!(shown.contains(&format!("  File[/{number}]: ")), "{shown}");
    }
}

#[tokio::test]
async fn log_of_a_finished_run_is_printed() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["node", "logs", "web1"]).await, @"
    exit 0
    --- stdout
    Info: Loading facts
    Error: Syntax error at '}' (line: 12)
    --- stderr
    note: run run-1 of web1
    ");
    snapshot!(fleet.muster(&["node", "logs", "web1", "-q", "--tail", "1", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {"node":"web1","run":"run-1","line":"Error: \u001b[31mSyntax error at '}'\u001b[0m (line: 12)"}
    "#);
    snapshot!(fleet.muster(&["node", "logs", "web2"]).await, @"
    exit 0
    --- stderr
    note: web2 has no runs yet
    ");
    snapshot!(fleet.muster(&["node", "logs", "web1", "--run", "run-7"]).await, @"
    exit 1
    --- stderr
    error: web1 has no run run-7, neither in progress nor in its history
    hint: `muster node show web1` lists the runs that are kept
    ");
    snapshot!(fleet.muster(&["node", "logs", "web1", "-o", "yaml"]).await, @"
    exit 64
    --- stderr
    error: logs cannot be printed as YAML
    hint: use -o json: one object per line
    ");
}

#[tokio::test]
async fn times_of_log_lines_are_separate_in_json() {
    let fleet = Fleet::start().await;
    let mut report = fleet.report("web1", 1, PASSED);
    report.log = "2027-01-15T08:00:01Z notice: applied\nplain output\n".into();
    fleet.send(&report).await;
    // No snapshot: those have no times.
    let expected = "exit 0\n--- stdout\n\
                    {\"node\":\"web1\",\"run\":\"run-1\",\"time\":\"2027-01-15T08:00:01Z\",\"line\":\"notice: applied\"}\n\
                    {\"node\":\"web1\",\"run\":\"run-1\",\"line\":\"plain output\"}\n";
    assert_eq!(fleet.muster(&["node", "logs", "web1", "-q", "-o", "json"]).await, expected);
}

/// A node chooses its log, its messages and its facts.
#[tokio::test]
async fn texts_of_nodes_do_not_control_the_terminal() {
    const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\r\u{9b}31m\u{202e}";
    let fleet = Fleet::start().await;
    let mut report = fleet.report("web1", 1, Outcome::Configured(RunResult::Failed));
    report.log = format!("notice: {HOSTILE}applied\n");
    let message = format!("{HOSTILE}\nweb2  validated  1s  v9");
    report.reason = Some(RunReason::Machine { problem: message.clone() });
    report.errors = vec![ResourceError { resource: Some(format!("File[{HOSTILE}]")), file: None, line: None, message }];
    report.facts.boot = Some(HOSTILE.to_owned());
    report.facts.agent = format!("0.1{HOSTILE}");
    fleet.send(&report).await;
    for command in [
        &["node", "logs", "web1"][..],
        &["node", "show", "web1"],
        &["node", "list"],
        &["status"],
        &["failures"],
        &["runs"],
    ] {
        let said = fleet.muster(command).await;
        let is_control = |character: char| character.is_control() && character != '\n';
        assert!(!said.contains(|character| is_control(character) || character == '\u{202e}'), "{command:?}: {said:?}");
        assert!(!said.contains("\nweb2  validated  1s  v9"), "{command:?}: {said}");
    }
}

#[tokio::test]
async fn log_is_followed_during_the_run() {
    let mut fleet = Fleet::start().await;
    let run = RunId::new("run-1").unwrap();
    let since = jiff::Timestamp::UNIX_EPOCH;
    fleet.connect("web1", Activity::Applying { run: run.clone(), version: version("v1"), since }).await;
    let piece = |offset, text: &str, last| LogPiece { offset, text: text.into(), last, ..LogPiece::default() };
    fleet.client.send_log(&fleet.env, &node("web1"), &run, &piece(0, "one\n", false)).await.unwrap();
    let mut child = fleet.machine.muster(&["node", "logs", "web1", "--run", "run-1", "-f"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap().as_deref(), Some("one"));
    fleet.client.send_log(&fleet.env, &node("web1"), &run, &piece(4, "two\n", false)).await.unwrap();
    assert_eq!(timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap().as_deref(), Some("two"));
    fleet.client.send_log(&fleet.env, &node("web1"), &run, &piece(8, "three\n", true)).await.unwrap();
    assert_eq!(timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap().as_deref(), Some("three"));
    assert_eq!(timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap(), None);
    assert!(timeout(TIMEOUT, child.wait()).await.unwrap().unwrap().success());
}

#[tokio::test]
async fn requested_run_is_followed_to_its_result() {
    let mut fleet = Fleet::validated().await;
    let child = fleet.machine.muster(&["node", "run", "web1", "--noop"]).stdout(Stdio::piped()).spawn().unwrap();
    let stream = fleet.streams.get_mut("web1").unwrap();
    let id = loop {
        if let Some(SyncEvent::Run(RequestedRun { id, noop: true, by, .. })) =
            timeout(TIMEOUT, stream.next()).await.unwrap().unwrap()
        {
            assert_eq!(by, "jo@desk");
            break id;
        }
    };
    let run = RunId::new("run-2").unwrap();
    let piece = LogPiece { text: "noop: would change\n".into(), last: true, asked: vec![id.clone()], offset: 0 };
    fleet.client.send_log(&fleet.env, &node("web1"), &run, &piece).await.unwrap();
    let mut report = fleet.report("web1", 2, Outcome::Previewed(RunResult::Changed));
    report.log = "noop: would change\n".into();
    report.causes = vec![Cause::operator(id, "jo@desk")];
    report.counts = Counts { total: 7, changed: 1, ..Counts::default() };
    report.changes = vec![ResourceChange {
        resource: "File[/etc/motd]".into(),
        property: Some("mode".into()),
        old: "0600".into(),
        new: "0644".into(),
        noop: true,
        ..ResourceChange::default()
    }];
    fleet.send(&report).await;
    let output = timeout(TIMEOUT, child.wait_with_output()).await.unwrap().unwrap();
    let text = shown(&output);
    // The change is in the log, and is not printed again.
    let expected =
        "exit 0\n--- stdout\nnoop: would change\n\npreview: changed: 7 resources, 1 changed, 0 failed, 0 skipped\n";
    assert!(text.starts_with(expected), "{text}");
}

#[tokio::test]
async fn several_nodes_run_and_are_summed_up() {
    let mut fleet = Fleet::validated().await;
    fleet.muster(&["pause", "--role", "db", "--reason", "disk swap"]).await;
    let args = ["node", "run", "web1", "db1", "lb1", "--max", "2", "-o", "json"];
    let child = fleet.machine.muster(&args).stdout(Stdio::piped()).spawn().unwrap();
    for (name, outcome) in [("web1", RunResult::Changed), ("lb1", RunResult::Failed)] {
        let stream = fleet.streams.get_mut(name).unwrap();
        let id = loop {
            if let Some(SyncEvent::Run(run)) = timeout(TIMEOUT, stream.next()).await.unwrap().unwrap() {
                break run.id;
            }
        };
        let mut report = fleet.report(name, 2, Outcome::Configured(outcome));
        report.reason = (outcome == RunResult::Failed).then_some(RunReason::NotCompiled);
        report.causes = vec![Cause::operator(id, "jo@desk")];
        fleet.send(&report).await;
        if outcome == RunResult::Changed {
            let validated = fleet.report(name, 3, PASSED);
            fleet.send(&Report { run: report.run, causes: report.causes, ..validated }).await;
        }
    }
    let output = timeout(TIMEOUT, child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let nodes = summary["nodes"].as_array().unwrap().iter();
    let results: Vec<_> = nodes.map(|run| (run["node"].as_str().unwrap(), run["result"].as_str().unwrap())).collect();
    assert_eq!(results, [("db1", "refused"), ("web1", "changed"), ("lb1", "failed")], "{summary:#}");
    assert_eq!(summary["counts"], serde_json::json!({"changed": 1, "failed": 1, "refused": 1}));
    assert!(summary["nodes"][0]["reason"].as_str().unwrap().contains("disk swap"), "{summary:#}");

    let text = fleet.muster(&["node", "run", "role=db"]).await;
    assert!(text.starts_with("exit 1\n--- stdout\nNODE"), "{text}");
    assert!(text.contains("1 node: 1 refused"), "{text}");
    for (args, expected) in [
        (vec!["node", "run", "web1", "web8"], "not in the design of quickstart: web8"),
        (vec!["node", "run", "name=none*"], "has no matching nodes"),
        (vec!["node", "run", "web1", "lb1", "--no-wait"], "--no-wait is for the run of a single node"),
        (vec!["node", "run", "web1", "--version", "v2"], "--noop"),
    ] {
        let text = fleet.muster(&args).await;
        assert!(!text.starts_with("exit 0") && text.contains(expected), "{args:?}: {text}");
    }
}

#[tokio::test]
async fn disconnected_agent_is_not_waited_for() {
    let fleet = Fleet::start().await;
    fleet.send(&fleet.report("web1", 1, PASSED)).await;
    let text = fleet.muster(&["node", "run", "web1"]).await;
    assert!(text.starts_with("exit 2\n--- stderr\nnote: the agent of web1 has been disconnected for "), "{text}");
    assert!(text.ends_with("; the run starts when it reconnects\n"), "{text}");
    let text = fleet.muster(&["node", "run", "web9"]).await;
    assert!(text.starts_with("exit 1\n"), "{text}");
}

#[tokio::test]
async fn pause_is_listed_and_resumed() {
    let fleet = Fleet::validated().await;
    snapshot!(fleet.muster(&["pauses"]).await, @"
    exit 0
    --- stderr
    note: nothing is paused in quickstart
    ");
    snapshot!(fleet.muster(&["pause", "--role", "web", "--reason", "disk swap"]).await, @"
    exit 0
    --- stdout
    role web is paused until `muster resume`: 2 nodes (revision N)
    ");
    snapshot!(fleet.muster(&["pause", "--role", "web", "--reason", "a longer one"]).await, @"
    exit 0
    --- stdout
    role web is paused until `muster resume`: 2 nodes (revision N)
    --- stderr
    note: this replaces another pause: role web is paused by jo@desk: disk swap
    ");
    let shown = fleet.muster(&["pause", "--all", "--reason", "network", "--for", "2h"]).await;
    assert!(shown.starts_with("exit 0\n--- stdout\nthe environment is paused until 20"), "{shown}");
    let shown = fleet.muster(&["resume", "--all"]).await;
    assert!(shown.contains("; it was paused by jo@desk: network (until 20"), "{shown}");
    assert!(shown.ends_with("\nnote: still paused: role web is paused by jo@desk: a longer one\n"), "{shown}");
    snapshot!(fleet.muster(&["pauses"]).await, @"
    exit 0
    --- stdout
    SCOPE     NODES  BY       FOR  ENDS IN  REASON
    role web  2      jo@desk  5d   -        a longer one
    ");
    snapshot!(fleet.muster(&["status"]).await, @"
    exit 0
    --- stdout
    quickstart: all 4 nodes validated at v1

    role web is paused by jo@desk: a longer one
    ");
    let _ = fleet.muster(&["trigger-update", "v2", "--at-once"]).await;
    let shown = fleet.muster(&["node", "list", "reason=paused"]).await;
    assert_eq!(
        shown.matches("has not begun to run v2: role web is paused by jo@desk: a longer one").count(),
        2,
        "{shown}"
    );
    let shown = fleet.muster(&["node", "show", "web1"]).await;
    assert!(shown.contains("\npaused      role web is paused by jo@desk: a longer one\n"), "{shown}");
    snapshot!(fleet.muster(&["resume", "--role", "web"]).await, @"
    exit 0
    --- stdout
    role web is resumed (revision N); it was paused by jo@desk: a longer one
    ");
    snapshot!(fleet.muster(&["resume", "--role", "web"]).await, @"
    exit 0
    --- stdout
    role web was not paused
    ");
}

#[tokio::test]
async fn pause_requires_target_and_reason() {
    let fleet = Fleet::start().await;
    for wrong in [
        &["pause", "--role", "web"][..],
        &["pause", "--reason", "x"],
        &["pause", "--role", "web", "--all", "--reason", "x"],
        &["pause", "--all", "--reason", "x", "--for", "soon"],
        &["resume"],
    ] {
        let shown = fleet.muster(wrong).await;
        assert!(shown.starts_with("exit 64\n"), "{wrong:?}: {shown}");
    }
    snapshot!(fleet.muster(&["pause", "--host", "web3", "--reason", "x"]).await, @"
    exit 1
    --- stderr
    error: web3 is not in the design of quickstart
    hint: did you mean web1? --force sets it before the design has it
    ");
}
