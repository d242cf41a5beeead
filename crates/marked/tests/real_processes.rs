//! With real processes. Each is waited for by a line that it writes when it is ready, never by time.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use muster_marked::{Ended, Ending, Process, Signal, end_all, find};

const NAME: &str = "MUSTER_MARKED_TEST";
/// Longer than any test: a test in which it passes hangs, and is ended by the runner with its name on the screen.
const LONG: Duration = Duration::from_secs(3600);

/// A shell's child that gets SIGTERM before it has become `sleep` may lose it: then this much is waited in vain.
const GRACE: Duration = Duration::from_secs(5);

/// A place that no other test has: its path is the value of this test's mark.
fn mark() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A script that stays what it is until it is ended, or until its test is: then its standard input is closed.
const WAITS: &str = "echo ready; read line";

/// Starts a shell script and returns when it has said `ready`.
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
async fn finds_who_carries_the_mark_and_nobody_else() {
    let (ours, others) = (mark(), mark());
    let mut child = start(ours.path(), WAITS);
    let mut stranger = start(others.path(), WAITS);

    assert_eq!(pids(ours.path()), [child.id()]);
    assert_eq!(pids(&ours.path().join("longer")), [0; 0]);
    assert!(find("MUSTER_MARKED", ours.path()).unwrap().is_empty(), "a name that only begins the same is another name");

    assert_eq!(end_all(NAME, ours.path(), LONG).await.unwrap().asked, [child.id()]);
    child.wait().unwrap();
    assert_eq!(pids(others.path()), [stranger.id()], "others are left alone");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn an_ended_process_is_not_found_even_before_it_is_reaped() {
    let mark = mark();
    let mut child = start(mark.path(), WAITS);
    let process = Process::open(child.id()).unwrap().unwrap();
    assert!(!process.has_ended().unwrap());

    assert!(process.signal(Signal::KILL).unwrap());
    process.ended().await.unwrap();

    assert!(process.has_ended().unwrap());
    assert_eq!(pids(mark.path()), [0; 0], "a zombie has ended");
    child.wait().unwrap();
    assert!(!process.signal(Signal::KILL).unwrap(), "a signal after the end reaches nobody");
    assert!(process.arguments().unwrap().is_empty());
    assert!(!process.leads_group().unwrap());
    assert!(Process::open(child.id()).unwrap().is_none());
}

#[tokio::test]
async fn a_grandchild_in_a_session_of_its_own_that_ignores_sigterm_is_killed() {
    let mark = mark();
    let script = "setsid sh -c 'trap \"\" TERM; echo ready; exec sleep 3600' & wait";
    let mut child = start(mark.path(), script);

    let ended = end_all(NAME, mark.path(), Duration::ZERO).await.unwrap();

    child.wait().unwrap();
    assert!(ended.all() && !ended.killed.is_empty(), "{ended:?}");
    assert_eq!(ended.asked.len() + ended.killed.len(), 2, "the shell and its grandchild: {ended:?}");
    assert_eq!(pids(mark.path()), [0; 0]);
}

#[tokio::test]
async fn what_is_started_during_the_ending_is_ended_too() {
    let mark = mark();
    let script = "trap 'setsid sleep 3600 & setsid sleep 3600 & exit 0' TERM; echo ready; sleep 3600 & wait";
    let mut child = start(mark.path(), script);

    let ended = end_all(NAME, mark.path(), GRACE).await.unwrap();

    child.wait().unwrap();
    assert!(ended.asked.len() + ended.killed.len() >= 3, "the shell and the two late ones at least: {ended:?}");
    assert_eq!(pids(mark.path()), [0; 0]);
}

#[tokio::test]
async fn who_ends_within_the_grace_is_not_killed() {
    let mark = mark();
    let file = mark.path().join("said-goodbye");
    let script = format!("trap 'echo bye > {}; exit 0' TERM; echo ready; sleep 3600 & wait", file.display());
    let mut child = start(mark.path(), &script);

    let ended = end_all(NAME, mark.path(), GRACE).await.unwrap();

    assert!(child.wait().unwrap().success());
    assert!(ended.asked.contains(&child.id()), "{ended:?}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "bye\n");
}

#[tokio::test]
async fn one_process_is_ended_by_asking_or_by_force() {
    let mark = mark();
    let mut polite = start(mark.path(), WAITS);
    let mut deaf = start(mark.path(), "trap '' TERM; echo ready; read line");
    let open = |child: &Child| Process::open(child.id()).unwrap().unwrap();

    assert_eq!(open(&polite).end(LONG).await.unwrap(), Ending::Asked);
    assert_eq!(open(&deaf).end(Duration::ZERO).await.unwrap(), Ending::Killed);

    let gone = open(&polite);
    polite.wait().unwrap();
    deaf.wait().unwrap();
    assert_eq!(gone.end(LONG).await.unwrap(), Ending::Asked, "what has ended needs no ending");
}

#[tokio::test]
async fn with_nobody_to_end_there_is_nothing_to_wait_for() {
    let mark = mark();
    assert_eq!(end_all(NAME, mark.path(), LONG).await.unwrap(), Ended::default());
}

#[test]
fn a_process_tells_its_command_line_and_group() {
    let mark = mark();
    let mut child = start(mark.path(), WAITS);
    let process = Process::open(child.id()).unwrap().unwrap();
    assert_eq!(process.arguments().unwrap(), ["sh", "-c", WAITS]);
    assert!(!process.leads_group().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn no_process_has_an_impossible_pid() {
    assert!(Process::open(0).unwrap().is_none());
    assert!(Process::open(u32::MAX).unwrap().is_none());
}
