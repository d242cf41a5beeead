//! Tests with real processes. Each process prints a line when it is ready; no test waits by time.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use muster_marked::{Process, Signal, Termination, TerminationSummary, find, terminate_all};

const NAME: &str = "MUSTER_MARKED_TEST";
/// Longer than any test: a test that waits this long is ended by the test runner.
const LONG: Duration = Duration::from_secs(3600);

/// A shell's child may lose a SIGTERM that arrives before it has become `sleep`; the test then waits this long.
const GRACE: Duration = Duration::from_secs(5);

/// A unique path, which is the value of this test's mark.
fn mark() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A script that runs until it is terminated, or until its test ends and closes its standard input.
const WAITS: &str = "echo ready; read line";

/// Starts a shell script and returns when it has printed `ready`.
fn start(mark: &Path, script: &str) -> Child {
    let mut child = Command::new("sh")
        .args(["-c", script])
        .env(NAME, mark)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn pids(mark: &Path) -> Vec<u32> {
    find(NAME, mark).unwrap().iter().map(Process::pid).collect()
}

#[tokio::test]
async fn find_returns_only_processes_with_the_mark() {
    let (ours, others) = (mark(), mark());
    let mut child = start(ours.path(), WAITS);
    let mut stranger = start(others.path(), WAITS);

    assert_eq!(pids(ours.path()), [child.id()]);
    assert_eq!(pids(&ours.path().join("longer")), [0; 0]);
    assert!(find("MUSTER_MARKED", ours.path()).unwrap().is_empty(), "a prefix of the name does not match");

    assert_eq!(terminate_all(NAME, ours.path(), LONG).await.unwrap().terminated, [child.id()]);
    child.wait().unwrap();
    assert_eq!(pids(others.path()), [stranger.id()], "other marks are not touched");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn zombie_is_not_found() {
    let mark = mark();
    let mut child = start(mark.path(), WAITS);
    let process = Process::open(child.id()).unwrap().unwrap();
    assert!(!process.has_ended().unwrap());

    assert!(process.signal(Signal::KILL).unwrap());
    process.wait().await.unwrap();

    assert!(process.has_ended().unwrap());
    assert_eq!(pids(mark.path()), [0; 0], "a zombie has ended");
    child.wait().unwrap();
    assert!(!process.signal(Signal::KILL).unwrap(), "a signal after the end is not sent");
    assert!(process.arguments().unwrap().is_empty());
    assert!(!process.leads_group().unwrap());
    assert!(Process::open(child.id()).unwrap().is_none());
}

#[tokio::test]
async fn grandchild_that_ignores_sigterm_in_its_own_session_is_killed() {
    let mark = mark();
    let script = "setsid sh -c 'trap \"\" TERM; echo ready; exec sleep 3600' & wait";
    let mut child = start(mark.path(), script);

    let ended = terminate_all(NAME, mark.path(), Duration::ZERO).await.unwrap();

    child.wait().unwrap();
    assert!(ended.is_complete() && !ended.killed.is_empty(), "{ended:?}");
    assert_eq!(ended.terminated.len() + ended.killed.len(), 2, "the shell and its grandchild: {ended:?}");
    assert_eq!(pids(mark.path()), [0; 0]);
}

#[tokio::test]
async fn process_started_during_termination_is_terminated() {
    let mark = mark();
    let script = "trap 'setsid sleep 3600 & setsid sleep 3600 & exit 0' TERM; echo ready; sleep 3600 & wait";
    let mut child = start(mark.path(), script);

    let ended = terminate_all(NAME, mark.path(), GRACE).await.unwrap();

    child.wait().unwrap();
    assert!(ended.terminated.len() + ended.killed.len() >= 3, "the shell and the two late ones at least: {ended:?}");
    assert_eq!(pids(mark.path()), [0; 0]);
}

#[tokio::test]
async fn process_that_ends_within_the_grace_is_not_killed() {
    let mark = mark();
    let file = mark.path().join("said-goodbye");
    let script = format!("trap 'echo bye > {}; exit 0' TERM; echo ready; sleep 3600 & wait", file.display());
    let mut child = start(mark.path(), &script);

    let ended = terminate_all(NAME, mark.path(), GRACE).await.unwrap();

    assert!(child.wait().unwrap().success());
    assert!(ended.terminated.contains(&child.id()), "{ended:?}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "bye\n");
}

#[tokio::test]
async fn single_process_is_terminated_or_killed() {
    let mark = mark();
    let mut polite = start(mark.path(), WAITS);
    let mut deaf = start(mark.path(), "trap '' TERM; echo ready; read line");
    let open = |child: &Child| Process::open(child.id()).unwrap().unwrap();

    assert_eq!(open(&polite).terminate(LONG).await.unwrap(), Termination::Graceful);
    assert_eq!(open(&deaf).terminate(Duration::ZERO).await.unwrap(), Termination::Killed);

    let gone = open(&polite);
    polite.wait().unwrap();
    deaf.wait().unwrap();
    assert_eq!(gone.terminate(LONG).await.unwrap(), Termination::Graceful, "it had ended before");
}

#[tokio::test]
async fn without_processes_termination_returns_at_once() {
    let mark = mark();
    assert_eq!(terminate_all(NAME, mark.path(), LONG).await.unwrap(), TerminationSummary::default());
}

#[test]
fn process_reports_its_command_line_and_group() {
    let mark = mark();
    let mut child = start(mark.path(), WAITS);
    let process = Process::open(child.id()).unwrap().unwrap();
    assert_eq!(process.arguments().unwrap(), ["sh", "-c", WAITS]);
    assert!(!process.leads_group().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn impossible_pid_opens_no_process() {
    assert!(Process::open(0).unwrap().is_none());
    assert!(Process::open(u32::MAX).unwrap().is_none());
}
