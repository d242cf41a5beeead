//! Tests of checks with much output.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::process;
use crate::process::ProcessMark;
use crate::process::children::Children;
use crate::process::supervise::{Program, ProgramEnd, supervise};

const MARK: &str = "MUSTER_RUN_ID";

fn shell(directory: &Path, name: &str, script: &str) -> Program {
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
    }
}

async fn ended(program: &Program) -> ProgramEnd {
    supervise(program, &Children::default(), &CancellationToken::new()).await
}

/// A process that removed its mark and left the process group keeps the output open.
#[tokio::test]
async fn check_ends_with_its_process_not_with_its_output() {
    let dir = tempfile::tempdir().unwrap();
    let script = "env -i setsid sleep 1000 & echo $!; echo said";
    let program = shell(dir.path(), "escaped", script);
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
    let dir = tempfile::tempdir().unwrap();
    let script = "echo before; yes | head -c 4M; echo after; sleep 1000";
    let mut program = shell(dir.path(), "deadline", script);
    program.deadline = Duration::from_secs(3);
    let ended = ended(&program).await;
    assert!(matches!(ended, ProgramEnd::Deadline), "{ended:?}");
    let text = fs::read_to_string(&program.output).unwrap();
    assert!(text.starts_with("before\n") && text.ends_with("after\n"));
}
