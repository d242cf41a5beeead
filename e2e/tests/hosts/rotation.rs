//! Rotation of the certificate authority under real agents, with a server that is killed in the middle, and two servers of one
//! authority on etcd, of which one is killed.

use std::fs;
use std::path::{Path, PathBuf};

use muster_e2e::process::{ChildProcess, ExitResult};
use muster_e2e::sandbox::{Sandbox, TestProject, muster_agent};
use muster_e2e::server::ENV;
use muster_etcd_rig::{Cluster, ClusterOptions};
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};

/// A server on a loopback port that it advertises with TLS.
struct TlsServer<'a> {
    sandbox: &'a Sandbox,
    state: PathBuf,
    url: String,
    process: ChildProcess,
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl<'a> TlsServer<'a> {
    fn start(sandbox: &'a Sandbox, name: &str, port: u16, options: &[&str]) -> Self {
        let (state, url) = (sandbox.path(name), format!("https://127.0.0.1:{port}"));
        let mut command = sandbox.command(muster_e2e::sandbox::muster());
        command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--advertise", &url, "--state"]);
        command.arg(&state).args(options);
        let process = ChildProcess::new(format!("muster serve ({name})"), &mut command);
        process.wait_for_output("API: ", TIMEOUT);
        Self { sandbox, state, url, process }
    }

    fn muster(&self, args: &[&str]) -> ExitResult {
        self.sandbox.run_muster(&[args, &["--state", self.state.to_str().unwrap(), "--env", ENV]].concat())
    }

    fn output(&self, args: &[&str]) -> String {
        let ended = self.muster(args);
        assert_eq!(ended.code(), 0, "{ended:?}");
        ended.stdout.trim().to_owned()
    }

    /// Joins a machine, and starts its agent.
    fn join(&self, node: &str) -> ChildProcess {
        let token = self.output(&["token", "create", "--node", node]);
        let at = |name: &str| self.sandbox.path(&format!("machines/{node}/{name}"));
        let (config, state, root, key) = (at("agent.toml"), at("state"), at("root"), self.sandbox.trusted_key());
        fs::create_dir_all(&root).unwrap();
        let mut command = self.sandbox.command(muster_agent());
        command.env_remove("MUSTER_TOKEN_FILE").args(["join", &self.url, &token, "--host", node, "--no-start"]);
        command.args(["--trusted-key", &key, "--config"]).arg(config);
        command.arg("--state-dir").arg(state).arg("--root").arg(root);
        let joined = ChildProcess::new("muster-agent join", &mut command).wait_exit(TIMEOUT);
        assert_eq!(joined.code(), 0, "{joined:?}");
        agent(self.sandbox, node)
    }

    fn wait_validated(&self, version: &str, nodes: &[&str]) {
        let ended = self.muster(&[&["verify-hosts", version, "--wait", "--timeout", "90s"], nodes].concat());
        assert_eq!(ended.code(), 0, "{ended:?}\n{}", self.muster(&["node", "list"]).stdout);
    }
}

fn agent(sandbox: &Sandbox, node: &str) -> ChildProcess {
    let mut command = sandbox.command(muster_agent());
    command.env_remove("MUSTER_TOKEN_FILE").args(["run", "--config"]);
    command.arg(sandbox.path(&format!("machines/{node}/agent.toml")));
    ChildProcess::new(format!("agent of {node}"), &mut command)
}

fn project(sandbox: &Sandbox) -> TestProject {
    TestProject::new(sandbox, &[("web", 3)])
        .release("v1", &ScriptRelease::new("echo v1 > $MUSTER_ROOT/version; exit 2"))
        .release("v2", &ScriptRelease::new("echo v2 > $MUSTER_ROOT/version; exit 2"))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const NODES: [&str; 3] = ["web1", "web2", "web3"];

#[test]
fn rotation_goes_on_after_its_server_was_killed() {
    let sandbox = Sandbox::new();
    let (project, key) = (project(&sandbox), sandbox.release_key());
    let options = ["--project", text(&project.dir), "--release-key", text(&key), "--no-validate"];
    let port = free_port();
    let server = TlsServer::start(&sandbox, "state", port, &options);
    let mut agents: Vec<ChildProcess> = NODES.iter().map(|node| server.join(node)).collect();
    server.wait_validated("v1", &NODES);
    // It holds the rotation in its first phase.
    agents.pop().unwrap().kill(TIMEOUT);
    let begun = server.output(&["ca", "rotate"]);
    assert!(begun.contains("announced"), "{begun}");
    server.process.kill(TIMEOUT);
    let server = TlsServer::start(&sandbox, "state", port, &options);
    eventually("only web3 has not stored the new root", TIMEOUT, || {
        let shown = server.output(&["ca", "show"]);
        let held = |node: &str| shown.contains(&format!("{node} in {ENV} has not stored the new root"));
        if held("web3") && !held("web1") && !held("web2") { Ok(()) } else { Err(shown) }
    });
    agents.push(agent(&sandbox, "web3"));
    eventually("the rotation has ended", TIMEOUT, || {
        let shown = server.output(&["ca", "show"]);
        if shown.contains("rotation to") || !shown.contains("replaced ") { Err(shown) } else { Ok(()) }
    });
    server.output(&["trigger-update", "v2", "--at-once"]);
    server.wait_validated("v2", &NODES);
    server.output(&["audit", "verify"]);
    drop(agents);
}

#[test]
fn agents_continue_on_the_other_server_when_one_is_killed() {
    let sandbox = Sandbox::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let etcd = runtime.block_on(Cluster::start(ClusterOptions::members(1)));
    let (project, key, blobs, token) =
        (project(&sandbox), sandbox.release_key(), sandbox.path("blobs"), sandbox.path("token"));
    fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
    let store = format!("etcd://{}", etcd.endpoints().join(","));
    let shared = ["--store", &store, "--blobs", text(&blobs), "--token-file", text(&token)];
    let imported = ["--project", text(&project.dir), "--release-key", text(&key), "--no-validate"];
    let first = TlsServer::start(&sandbox, "one", free_port(), &[&shared[..], &imported].concat());
    let machines: Vec<ChildProcess> = NODES.iter().map(|node| first.join(node)).collect();
    first.wait_validated("v1", &NODES);

    // Without the files of the authority it makes no second one.
    let mut command = sandbox.command(muster_e2e::sandbox::muster());
    command.args(["serve", "--listen", "127.0.0.1:0", "--state"]).arg(sandbox.path("two")).args(shared);
    let refused = ChildProcess::new("muster serve without the authority", &mut command).wait_exit(TIMEOUT);
    assert!(refused.code() == 1 && refused.stderr.contains("copy the directory of another server"), "{refused:?}");
    assert!(!sandbox.path("two/ca").exists());

    let ca = first.state.join("ca");
    let second = TlsServer::start(&sandbox, "two", free_port(), &[&shared[..], &["--ca", text(&ca)]].concat());
    eventually("every agent has stored both servers", TIMEOUT, || {
        let stored =
            |node: &&str| fs::read_to_string(sandbox.path(&format!("machines/{node}/state/identity/servers.json")));
        let lacking: Vec<_> =
            NODES.iter().filter(|node| !stored(node).is_ok_and(|text| text.contains(&second.url))).collect();
        if lacking.is_empty() { Ok(()) } else { Err(format!("{lacking:?}")) }
    });
    let doctor = second.muster(&["doctor"]).stdout;
    assert!(doctor.contains("all servers have the key of"), "{doctor}");
    first.process.kill(TIMEOUT);
    second.output(&["trigger-update", "v2", "--at-once"]);
    second.wait_validated("v2", &NODES);

    // A restarted agent knows the other server from its disk: its configuration names only the first.
    machines[0].kill(TIMEOUT);
    let restarted = agent(&sandbox, "web1");
    restarted.wait_for_output("connected", TIMEOUT);
}
