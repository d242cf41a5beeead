//! Tests of programs, and of services they leave behind, with endless output.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use muster_testkit::wait::until;
use tokio_util::sync::CancellationToken;

use crate::process;
use crate::process::ProcessMark;
use crate::process::children::Children;
use crate::process::supervise::{Leftovers, Program, ProgramEnd, supervise};

const MARK: &str = "MUSTER_RUN_ID";

fn shell(directory: &Path, name: &str, script: &str, leftovers: Leftovers) -> Program {
    let mark = ProcessMark::new(MARK, format!("{name}-{}", std::process::id()));
    Program {
        path: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        directory: directory.to_owned(),
        environment: vec![("PATH".to_owned(), "/usr/bin:/bin".into()), (MARK.to_owned(), mark.value.clone().into())],
        output: directory.join("output.log"),
        mark,
        deadline: Duration::from_secs(300),
        grace: process::SHORT_GRACE,
        leftovers,
    }
}

async fn ended(program: &Program) -> ProgramEnd {
    supervise(program, &Children::default(), &CancellationToken::new()).await
}

#[tokio::test]
async fn gigabyte_of_output_is_cut_to_its_ends() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo first; yes 'a line that is said for ever' | head -c 1G; echo; echo last";
    let program = shell(dir.path(), "gigabyte", script, Leftovers::Keep);
    let output = program.output.clone();
    let mut most = 0;
    let watched = async {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            most = most.max(fs::metadata(&output).map(|file| file.blocks() * 512).unwrap_or_default());
        }
    };
    let ended = tokio::select! {
        ended = ended(&program) => ended,
        () = watched => unreachable!("the loop does not end"),
    };
    assert!(matches!(ended, ProgramEnd::Exited(0)), "{ended:?}");
    let text = fs::read_to_string(&output).unwrap();
    assert!(text.starts_with("first\na line") && text.ends_with("\nlast\n"));
    assert!(text.len() < 2 * 1024 * 1024, "{}", text.len());
    // The amount of output in the file depends on the machine, but the file never holds all of it.
    assert!(most < 1024 * 1024 * 1024, "{most} bytes were on the disk at once");
}

#[tokio::test]
async fn remaining_service_can_still_print() {
    let dir = tempfile::tempdir().unwrap();
    let script = "(while :; do echo tick || exit; sleep 0.01; done) & echo started";
    let program = shell(dir.path(), "behind", script, Leftovers::Keep);
    assert!(matches!(ended(&program).await, ProgramEnd::Exited(0)));
    let length = || fs::metadata(&program.output).unwrap().len();
    let target = length() + 100;
    until("more is printed", || length() >= target).await;
    process::end_all(&program.mark, process::SHORT_GRACE).await;
}

/// A process that removed its mark and left the process group keeps the output open.
#[tokio::test]
async fn check_ends_with_its_process_not_with_its_output() {
    let dir = tempfile::tempdir().unwrap();
    let script = "env -i setsid sleep 1000 & echo $!; echo said";
    let program = shell(dir.path(), "escaped", script, Leftovers::End);
    let ended = tokio::time::timeout(Duration::from_secs(60), ended(&program)).await.expect("it waits for the other");
    assert!(matches!(ended, ProgramEnd::Exited(0)), "{ended:?}");
    let text = fs::read_to_string(&program.output).unwrap();
    let (pid, rest) = text.split_once('\n').unwrap();
    assert_eq!(rest, "said\n");
    let escaped = muster_marked::Process::open(pid.parse().unwrap()).unwrap();
    if let Some(escaped) = escaped {
        escaped.terminate(Duration::ZERO).await.unwrap();
    }
}

#[tokio::test]
async fn output_before_the_deadline_is_kept() {
    let kept = async |name, leftovers| {
        let dir = tempfile::tempdir().unwrap();
        let script = "echo before; yes | head -c 4M; echo after; sleep 1000";
        let mut program = shell(dir.path(), name, script, leftovers);
        program.deadline = Duration::from_secs(3);
        let ended = ended(&program).await;
        assert!(matches!(ended, ProgramEnd::Deadline), "{ended:?}");
        let text = fs::read_to_string(&program.output).unwrap();
        assert!(text.starts_with("before\n") && text.ends_with("after\n"), "{name}");
    };
    tokio::join!(kept("deadline-pipe", Leftovers::End), kept("deadline-file", Leftovers::Keep));
}
