//! Tests of the command line: help, usage errors and configuration errors.

use std::fs;
use std::process::{Command, Output};

use crate::fake_server::FakeServer;
use crate::fixture::Fixture;

fn agent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muster-agent")).args(arguments).env("NO_COLOR", "1").output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn help_shows_the_configuration_and_version_the_version() {
    let help = agent(&["--help"]);
    let text = String::from_utf8(help.stdout).unwrap();
    assert_eq!(help.status.code(), Some(0));
    for part in ["muster-agent run --config", "trusted_keys", "SIGTERM", "Exit codes"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let version = agent(&["--version"]);
    assert_eq!(String::from_utf8(version.stdout).unwrap(), concat!("muster-agent ", env!("CARGO_PKG_VERSION"), "\n"));
    assert_eq!(agent(&["walk"]).status.code(), Some(64));
}

#[tokio::test]
async fn mistakes_in_the_configuration_are_explained() {
    let server = FakeServer::start().await;
    let fixture = Fixture::new(server.address);
    let path = fixture.write_config();
    let good = fs::read_to_string(&path).unwrap();
    for (text, says) in [
        (good.replace("web1", "Web1"), "\"Web1\" is not a legal node name"),
        (good.replace("http://", "ftp://"), "is not the address of a server: expected http://HOST:PORT"),
        (good.replace("state_dir", "stat_dir"), "unknown field `stat_dir`"),
    ] {
        fs::write(&path, text).unwrap();
        let output = agent(&["run", "--config", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(says), "{says:?} is not in:\n{}", stderr(&output));
    }
    let output = agent(&["run", "--config", "/nonexistent/agent.toml"]);
    assert!(stderr(&output).contains("cannot read the configuration /nonexistent/agent.toml: No such file"));
}

#[tokio::test]
async fn a_second_agent_on_one_directory_is_refused() {
    let mut server = FakeServer::start().await;
    let fixture = Fixture::new(server.address);
    let _agent = fixture.start();
    server.opened().await;
    let path = fixture.write_config();
    let output =
        tokio::task::spawn_blocking(move || agent(&["run", "--config", path.to_str().unwrap()])).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("another agent uses the state directory"), "{}", stderr(&output));
}
