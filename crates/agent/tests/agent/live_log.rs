//! Tests of the live log of a run.

use std::path::Path;

use muster_core::report::{Outcome, Verdict};

use crate::fake_server::FakeServer;
use crate::fixture::{Fixture, greeting, with_dbs};

/// Opens a gate at which a script waits: `until test -e GATE; do …; done`.
fn open(gate: &Path) {
    std::fs::write(gate, "").unwrap();
}

fn waits_for(gate: &Path) -> String {
    format!("until test -e {}; do sleep 0.02; done", gate.display())
}

#[tokio::test]
async fn a_line_is_there_while_the_run_still_goes_on() {
    let mut server = FakeServer::start().await;
    let fixture = Fixture::new(server.address);
    let (first, second) = (fixture.path().join("first"), fixture.path().join("second"));
    let script = format!("echo begun; {}; echo going on; exit 2", waits_for(&first));
    let check = "validate: [{name: looks, exec: looks}, {name: waits, exec: waits}]\n";
    let desired = fixture.release("v1", &script, check);
    fixture.executable("v1", "looks", "echo well");
    fixture.executable("v1", "waits", &waits_for(&second));
    let desired = fixture.desired("v1", desired.generation.number);
    server.greet_with(greeting(&desired, with_dbs(7, &["db1"])));
    let _agent = fixture.start();

    // The script waits for the gate, which is opened only after its line was received.
    let (run, begun) = server.log().await;
    assert_eq!((begun.offset, begun.text.as_str(), begun.last), (0, "begun\n", false));
    open(&first);
    let mut text = begun.text;
    while !text.contains("check looks passed") {
        let (of, piece) = server.log().await;
        assert_eq!((&of, piece.offset, piece.last), (&run, text.len() as u64, false));
        text.push_str(&piece.text);
    }
    // The result of a check is streamed too, while another check runs.
    open(&second);
    loop {
        let (_, piece) = server.log().await;
        assert_eq!(piece.offset, text.len() as u64);
        text.push_str(&piece.text);
        if piece.last {
            break;
        }
    }
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["begun", "going on"]);
    assert!(lines[2].starts_with("check looks passed after ") && lines[3].starts_with("check waits passed"), "{text}");
}

#[tokio::test]
async fn lost_log_piece_is_sent_again_without_blocking_the_run() {
    let mut server = FakeServer::start().await;
    let fixture = Fixture::new(server.address);
    let desired = fixture.release("v1", "echo one; exit 2", "");
    server.greet_with(greeting(&desired, with_dbs(7, &["db1"])));
    server.refuse_logs(1);
    let _agent = fixture.start();
    let (_, lost) = server.log().await;
    let (_, again) = server.log().await;
    assert_eq!((lost.offset, lost.text.starts_with("one\n")), (0, true), "{lost:?}");
    assert_eq!((again.offset, again.text.starts_with("one\n")), (0, true), "{again:?}");
    server.report().await;
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
}
