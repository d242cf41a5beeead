//! Tests of standard output and standard error: pipes, colors, full disks.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::fixture::{self, Fleet, Machine, shown};
use crate::snapshot;

const ESCAPE: u8 = 0x1b;

#[tokio::test]
async fn closed_pipe_is_not_an_error() {
    let fleet = Fleet::halfway().await;
    for (args, code) in [(&["node", "list"][..], 0), (&["status", "-o", "json"], 0), (&["failures"], 1)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = fleet.machine.muster(args).stdout(writer).spawn().unwrap().wait_with_output().await.unwrap();
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(code), &b""[..]), "{args:?}");
    }
}

#[tokio::test]
async fn reader_may_close_the_pipe_early() {
    // More than the buffer of a pipe: the command is still writing when the reader closes it.
    let names: Vec<String> = (1..=2_000).map(|number| format!("web{number}")).collect();
    let nodes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "web")).collect();
    let fleet = Fleet::start_with(Machine::new(), &nodes).await;
    let (reader, writer) = std::io::pipe().unwrap();
    let child = fleet.machine.muster(&["node", "list"]).stdout(writer).spawn().unwrap();
    let head = tokio::task::spawn_blocking(move || {
        let mut first = String::new();
        BufReader::with_capacity(64, reader).read_line(&mut first).unwrap();
        first
    });
    assert_eq!(head.await.unwrap(), "NODE     STATE   FOR  RUNS  WHY\n");
    let output = child.wait_with_output().await.unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
}

#[tokio::test]
async fn write_error_is_exit_code_2() {
    let fleet = Fleet::validated().await;
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = fleet.machine.muster(&["status"]).stdout(full).spawn().unwrap().wait_with_output().await.unwrap();
    snapshot!(shown(&output), @"
    exit 2
    --- stderr
    error: cannot write the answer to standard output
      caused by: No space left on device (os error 28)
    ");
}

#[tokio::test]
async fn output_without_terminal_has_no_color() {
    let fleet = Fleet::halfway().await;
    for args in
        [&["status"][..], &["node", "list"], &["node", "show", "web1"], &["failures"], &["status", "--env", "no"]]
    {
        let output =
            fleet.machine.muster(args).env("TERM", "xterm-256color").spawn().unwrap().wait_with_output().await.unwrap();
        assert!(!output.stdout.contains(&ESCAPE) && !output.stderr.contains(&ESCAPE), "{args:?}: {}", shown(&output));
    }
}

#[tokio::test]
async fn color_option_overrides_detection() {
    let fleet = Fleet::halfway().await;
    let colored =
        fleet.machine.muster(&["node", "list", "--color", "always"]).spawn().unwrap().wait_with_output().await.unwrap();
    assert!(colored.stdout.contains(&ESCAPE));
    let plain = fleet.machine.muster(&["node", "list"]).spawn().unwrap().wait_with_output().await.unwrap();
    assert_eq!(anstream::adapter::strip_bytes(&colored.stdout).into_vec(), plain.stdout, "colors change nothing else");
    let plain =
        fleet.machine.muster(&["node", "list", "--color", "never"]).spawn().unwrap().wait_with_output().await.unwrap();
    assert!(!plain.stdout.contains(&ESCAPE));
}

#[tokio::test]
async fn terminal_output_is_colored_without_no_color() {
    let fleet = Fleet::halfway().await;
    let on_terminal = async |no_color: &str| {
        let (reader, terminal) = fixture::terminal();
        let mut command = fleet.machine.muster(&["node", "list"]);
        command.env("TERM", "xterm-256color").env("NO_COLOR", no_color).stdout(terminal).stderr(Stdio::null());
        assert!(command.status().await.unwrap().success());
        drop(command);
        fixture::read_terminal(reader).replace("\r\n", "\n")
    };
    assert!(on_terminal("").await.contains("\u{1b}["));
    snapshot!(on_terminal("1").await, @"
    NODE  STATE      FOR  RUNS  WHY
    db1   validated  5d   v1
    web1  failed     5d   -     Syntax error at '}'
                                (releases/v1/site.pp:12); attempt 2
    web2  silent     5d   -     its agent is not connected
    lb1   pending    5d   -     waiting for role web: 0 of 2 active
    ");
}
