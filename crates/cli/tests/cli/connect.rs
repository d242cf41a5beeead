//! Tests of server discovery, and of `muster serve`.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::fixture::{Fleet, Machine, shown, write};
use crate::snapshot;

/// The announcement of a server.
fn announcement(url: &str, pid: u32, state: &std::path::Path) -> String {
    format!(r#"{{"url": "{url}", "pid": {pid}, "started": "2026-01-01T00:00:00Z", "state": "{}"}}"#, state.display())
}

/// The id of a process that has ended.
fn ended_pid() -> u32 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_muster")).arg("--version").stdout(Stdio::null()).spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

#[tokio::test]
async fn server_is_found_by_directory_state_and_address() {
    let fleet = Fleet::validated().await;
    let found = "exit 0\n--- stdout\nv1\n";
    assert_eq!(fleet.muster(&["current-version"]).await, found, "the only server of the user");

    let nowhere = fleet.machine.path("no-session");
    let from = async |dir: &str, variable: Option<(&str, &str)>, args: &[&str]| {
        let mut command = fleet.machine.muster(&[&["current-version"], args].concat());
        command.current_dir(fleet.machine.path(dir)).env("XDG_RUNTIME_DIR", &nowhere).envs(variable);
        shown(&command.spawn().unwrap().wait_with_output().await.unwrap())
    };
    assert_eq!(from("work", None, &[]).await, found, "in its directory");
    assert_eq!(from("work/here", None, &[]).await, found, "below its directory");
    assert_eq!(from("elsewhere", None, &["--state", "../work/.muster"]).await, found, "by its state");
    let state = fleet.machine.path("work/.muster");
    assert_eq!(from("elsewhere", Some(("MUSTER_STATE", state.to_str().unwrap())), &[]).await, found);
    let token = state.join("token");
    let token = token.to_str().unwrap();
    let by_address = ["--server", &fleet.url, "--token-file", token];
    assert_eq!(from("elsewhere", None, &by_address).await, found, "by its address");
    let variable = Some(("MUSTER_TOKEN_FILE", token));
    assert_eq!(from("elsewhere", variable, &["--server", &fleet.url]).await, found, "by its address");
    assert_eq!(from("work", Some(("MUSTER_SERVER", &fleet.url)), &[]).await, found, "the announcement has its token");
    snapshot!(from("elsewhere", None, &["--server", &fleet.url, "--env", "quickstart"]).await, @"
    exit 1
    --- stderr
    error: the request has no token: this port needs the header `Authorization: Bearer TOKEN`
    hint: a person logs in with `muster login URL`; an administrator gives the token file of the server with --token-file or MUSTER_TOKEN_FILE: it is `token` in the state directory of the server, unless the server was started with another one
    ");
    snapshot!(from("elsewhere", None, &[]).await, @"
    exit 2
    --- stderr
    error: no server was found
      TMP/elsewhere/.muster/server.json: does not exist here or in a parent directory
      TMP/no-session/muster: does not exist
    hint: start one with `muster up DIR`, or give its address with --server or MUSTER_SERVER
    ");
}

#[tokio::test]
async fn announcement_is_private_and_removed_on_stop() {
    let fleet = Fleet::start().await;
    let state = fleet.machine.path("work/.muster/server.json");
    let user = fleet.machine.path("run/muster").join(format!("{}.json", std::process::id()));
    for file in [&state, &user] {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    assert_eq!(fleet.machine.path("run/muster").metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let machine = fleet.stop().await;
    assert!(!state.exists() && !user.exists());
    snapshot!(machine.run(&["status"]).await, @"
    exit 2
    --- stderr
    error: no server was found
      TMP/elsewhere/.muster/server.json: does not exist here or in a parent directory
      TMP/run/muster: has no running server
    hint: start one with `muster up DIR`, or give its address with --server or MUSTER_SERVER
    ");
}

#[tokio::test]
async fn announcement_of_another_server_is_kept() {
    let fleet = Fleet::start().await;
    let state = fleet.machine.path("work/.muster");
    let other = announcement("http://127.0.0.1:1", 1, &state);
    write(&state.join("server.json"), &other);
    let _machine = fleet.stop().await;
    assert_eq!(std::fs::read_to_string(state.join("server.json")).unwrap(), other);
}

#[tokio::test]
async fn killed_server_is_reported() {
    let machine = Machine::new();
    let state = machine.path("work/.muster");
    write(&state.join("server.json"), &announcement("http://127.0.0.1:1", ended_pid(), &state));
    let output = machine
        .muster(&["status"])
        .current_dir(machine.path("work/here"))
        .spawn()
        .unwrap()
        .wait_with_output()
        .await
        .unwrap();
    snapshot!(shown(&output), @"
    exit 2
    --- stderr
    error: the server of TMP/work/.muster is not running
    hint: start it again with `muster up DIR --state TMP/work/.muster`
    ");
}

#[tokio::test]
async fn killed_server_is_not_replaced_by_another() {
    let fleet = Fleet::validated().await;
    let near = fleet.machine.path("elsewhere/.muster");
    write(&near.join("server.json"), &announcement("http://127.0.0.1:1", ended_pid(), &near));
    snapshot!(fleet.muster(&["trigger-update", "v2"]).await, @"
    exit 2
    --- stderr
    error: the server of TMP/elsewhere/.muster is not running
    hint: start it again with `muster up DIR --state TMP/elsewhere/.muster`; or use --server http://127.0.0.1:PORT for that of TMP/work/.muster
    ");
}

/// After a clean stop there is no announcement: the state directory remains.
#[tokio::test]
async fn stopped_server_is_not_replaced_by_another() {
    let fleet = Fleet::validated().await;
    std::fs::create_dir(fleet.machine.path("elsewhere/.muster")).unwrap();
    snapshot!(fleet.muster(&["trigger-update", "v2"]).await, @"
    exit 2
    --- stderr
    error: the server of TMP/elsewhere/.muster is not running
    hint: start it again with `muster up DIR --state TMP/elsewhere/.muster`; or use --server http://127.0.0.1:PORT for that of TMP/work/.muster
    ");
}

#[tokio::test]
async fn server_of_another_project_is_not_used_in_a_new_one() {
    let fleet = Fleet::validated().await;
    std::fs::create_dir(fleet.machine.path("elsewhere/environments")).unwrap();
    snapshot!(fleet.muster(&["trigger-update", "v2"]).await, @"
    exit 2
    --- stderr
    error: the server of TMP/elsewhere/.muster is not running
    hint: start it again with `muster up DIR --state TMP/elsewhere/.muster`; or use --server http://127.0.0.1:PORT for that of TMP/work/.muster
    ");
}

#[tokio::test]
async fn invalid_announcement_is_named() {
    let machine = Machine::new();
    write(&machine.path("work/.muster/server.json"), "{");
    let output = machine
        .muster(&["status"])
        .current_dir(machine.path("work"))
        .spawn()
        .unwrap()
        .wait_with_output()
        .await
        .unwrap();
    snapshot!(shown(&output), @"
    exit 2
    --- stderr
    error: cannot read TMP/work/.muster/server.json
      caused by: EOF while parsing an object at line 1 column 1
    hint: give the address of the server with --server or MUSTER_SERVER
    ");
}

#[tokio::test]
async fn several_servers_are_ambiguous() {
    let fleet = Fleet::validated().await;
    let other = fleet.machine.path("other/.muster");
    write(&fleet.machine.path("run/muster/1.json"), &announcement("http://127.0.0.1:1", 1, &other));
    snapshot!(fleet.muster(&["current-version"]).await, @"
    exit 64
    --- stderr
    error: 2 servers run on this machine
      http://127.0.0.1:PORT of TMP/other/.muster
      http://127.0.0.1:PORT of TMP/work/.muster
    hint: choose one with --server or --state, or change to its directory
    ");
    // A killed server does not count.
    write(&fleet.machine.path("run/muster/1.json"), &announcement("http://127.0.0.1:1", ended_pid(), &other));
    assert_eq!(fleet.muster(&["current-version"]).await, "exit 0\n--- stdout\nv1\n");
}

#[tokio::test]
async fn directory_writable_by_others_is_not_trusted() {
    let fleet = Fleet::validated().await;
    let dir = fleet.machine.path("run/muster");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    snapshot!(fleet.muster(&["current-version"]).await, @"
    exit 2
    --- stderr
    error: no server was found
      TMP/elsewhere/.muster/server.json: does not exist here or in a parent directory
      TMP/run/muster: can be written by other users and is not trusted
    hint: start one with `muster up DIR`, or give its address with --server or MUSTER_SERVER
    ");
}

/// The server of `muster serve` needs no configuration: commands find its socket, and the token for its address.
#[tokio::test]
async fn serve_is_reached_by_socket_and_by_token() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let machine = Machine::new();
    // An older version has created it.
    std::fs::create_dir(machine.path("work/.muster")).unwrap();
    std::fs::set_permissions(machine.path("work/.muster"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let serve = ["serve", "--store", "embedded:store", "--listen", "127.0.0.1:0", "--log-format", "json"];
    let mut serve = machine.muster(&serve);
    serve.current_dir(machine.path("work")).stderr(std::process::Stdio::piped());
    let mut server = serve.spawn().unwrap();
    let line = BufReader::new(server.stdout.take().unwrap()).lines().next_line().await.unwrap().unwrap();
    // Nobody reads the log after its first line. The server answers all the same.
    let logged = BufReader::new(server.stderr.take().unwrap()).lines().next_line().await.unwrap().unwrap();
    let logged: serde_json::Value = serde_json::from_str(&logged).unwrap();
    assert!(
        logged["timestamp"].is_string() && logged["level"].is_string() && logged["message"].is_string(),
        "{logged}"
    );
    let url = line.strip_prefix("API: ").unwrap();
    let mode = |name: &str| machine.path("work/.muster").join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!([mode("token"), mode(""), mode("blobs")], [0o600, 0o700, 0o700]);

    snapshot!(machine.run(&["status"]).await, @"
    exit 1
    --- stderr
    error: the server at unix:TMP/work/.muster/server.sock has no environment yet
    hint: `muster up DIR` creates one
    ");
    snapshot!(machine.run(&["status", "--server", url]).await, @"
    exit 1
    --- stderr
    error: the server at http://127.0.0.1:PORT has no environment yet
    hint: `muster up DIR` creates one
    ");
    let localhost = url.replace("127.0.0.1", "localhost");
    snapshot!(machine.run(&["status", "--server", &localhost]).await, @"
    exit 1
    --- stderr
    error: the server at http://127.0.0.1:PORT has no environment yet
    hint: `muster up DIR` creates one
    ");
    let token = machine.path("work/.muster/token");
    let remote = ["status", "--server", "http://192.0.2.1:7300", "--token-file", token.to_str().unwrap()];
    snapshot!(machine.run(&remote).await, @"
    exit 64
    --- stderr
    error: refusing to send the token to http://192.0.2.1:7300 without encryption: every host on the way could read it; use https://, a loopback address or unix:/PATH
    ");
    let other = machine.path("other-token");
    write(&other, &"x".repeat(32));
    snapshot!(machine.run(&["status", "--server", url, "--token-file", other.to_str().unwrap()]).await, @"
    exit 1
    --- stderr
    error: the token of the request is not the token of this server
    hint: a person logs in with `muster login URL`; an administrator gives the token file of the server with --token-file or MUSTER_TOKEN_FILE: it is `token` in the state directory of the server, unless the server was started with another one
    ");
    server.kill().await.unwrap();
}

/// The text form is copied from terminals, which escape control characters.
#[tokio::test]
async fn root_certificate_in_a_terminal_is_valid_pem() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let machine = Machine::new();
    let mut serve = machine.muster(&["serve", "--store", "embedded:store", "--listen", "127.0.0.1:0"]);
    let mut server = serve.current_dir(machine.path("work")).spawn().unwrap();
    let line = BufReader::new(server.stdout.take().unwrap()).lines().next_line().await.unwrap().unwrap();
    assert!(line.starts_with("API: "), "{line}");
    let text = machine.run(&["ca", "show"]).await;
    assert!(text.starts_with("exit 0\n") && !text.contains("\\u000d"), "{text}");
    let roots = muster_identity::certificate::from_pem(&text).unwrap();
    let pin = muster_identity::token::Pin::of(&roots[0]).unwrap();
    assert!(roots.len() == 1 && text.contains(&format!("pin      {pin}")), "{text}");
    server.kill().await.unwrap();
}

/// A listener that never answers stands for a cluster that hangs.
#[test]
fn signal_stops_a_server_that_waits_for_its_store() {
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
    // The server handles signals before it connects.
    let _connection = silent.accept().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM).unwrap();
    // Without the signal it would fail after a timeout.
    assert_eq!(server.wait().unwrap().code(), Some(0));
}
