//! A server that is told to stop before it has started.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Somebody who takes connections and says nothing stands for a cluster that hangs.
#[test]
fn a_signal_ends_a_server_that_waits_for_its_store() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let store = format!("etcd://{}", silent.local_addr().unwrap());
    let mut server = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", &store])
        .current_dir(dir.path())
        .env_clear()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It has asked, and listens for signals since before that.
    let _connection = silent.accept().unwrap();
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    // Without an answer it would give up some time later, and fail.
    assert_eq!(server.wait().unwrap().code(), Some(0));
}
