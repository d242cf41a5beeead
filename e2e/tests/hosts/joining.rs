//! Machines that join a server on an address that is not of the loopback interface, over TLS. Server and machines share a network
//! namespace of the test.

use std::fs;
use std::path::PathBuf;

use muster_e2e::process::{ChildProcess, ExitResult};
use muster_e2e::sandbox::{Sandbox, TestProject, muster_agent};
use muster_e2e::server::ENV;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};

const ADDRESS: &str = "10.99.7.1";
const URL: &str = "https://10.99.7.1:7300";
/// Gives the namespace an interface with an address, and runs a command.
const NETWORK: &str = "ip link set lo up && ip link add uplink type veth peer name port && ip link set port up && \
                       ip address add 10.99.7.1/24 dev uplink && ip link set uplink up && exec \"$@\"";

/// A server with a network of its own.
struct RemoteServer<'a> {
    sandbox: &'a Sandbox,
    state: PathBuf,
    project: PathBuf,
    process: ChildProcess,
}

impl<'a> RemoteServer<'a> {
    fn start(sandbox: &'a Sandbox, project: &TestProject) -> Self {
        let mut command = sandbox.command("unshare");
        command.args(["--net", "sh", "-c", NETWORK, "sh"]);
        Self::launch(sandbox, project.dir.clone(), command)
    }

    fn launch(sandbox: &'a Sandbox, project: PathBuf, mut command: std::process::Command) -> Self {
        let (state, listen) = (sandbox.path("state"), format!("{ADDRESS}:7300"));
        command.arg(muster_e2e::sandbox::muster()).args([
            "serve",
            "--listen",
            &listen,
            "--name",
            ADDRESS,
            "--no-validate",
            "--state",
        ]);
        command.arg(&state).arg("--project").arg(&project).arg("--release-key").arg(sandbox.release_key());
        let process = ChildProcess::new("muster serve", &mut command);
        process.wait_for_output("CA pin: ", TIMEOUT);
        Self { sandbox, state, project, process }
    }

    /// Kills the server and starts another one in the same network.
    fn restart(self, machine: &ChildProcess) -> Self {
        let Self { sandbox, project, process, .. } = self;
        let command = in_network(sandbox, machine);
        process.kill(TIMEOUT);
        Self::launch(sandbox, project, command)
    }

    fn muster(&self, args: &[&str]) -> ExitResult {
        self.sandbox.run_muster(&[args, &["--state", self.state.to_str().unwrap(), "--env", ENV]].concat())
    }

    fn output(&self, args: &[&str]) -> String {
        let ended = self.muster(args);
        assert_eq!(ended.code(), 0, "{ended:?}");
        ended.stdout.trim().to_owned()
    }

    fn wait_validated(&self, version: &str, nodes: &[&str]) {
        let ended = self.muster(&[&["verify-hosts", version, "--wait", "--timeout", "90s"], nodes].concat());
        assert_eq!(ended.code(), 0, "{ended:?}\n{}", self.muster(&["node", "list"]).stdout);
    }

    /// A command in the network of the server, without its token.
    fn run(&self, name: &str, program: PathBuf, args: &[&str]) -> ExitResult {
        let mut command = in_network(self.sandbox, &self.process);
        command.env_remove("MUSTER_TOKEN_FILE").arg(program).args(args);
        ChildProcess::new(name, &mut command).wait_exit(TIMEOUT)
    }

    /// `muster-agent join` for a machine with directories of its own.
    fn join(&self, machine: &str, token: &str, options: &[&str]) -> ExitResult {
        let at = |name: &str| self.sandbox.path(&format!("machines/{machine}/{name}"));
        let (config, state, root) = (at("agent.toml"), at("state"), at("root"));
        fs::create_dir_all(&root).unwrap();
        let paths = [config, state, root].map(|path| path.to_str().unwrap().to_owned());
        let key = self.sandbox.trusted_key();
        let args = ["join", URL, token, "--host", machine, "--config", &paths[0], "--state-dir", &paths[1]];
        let args = [&args[..], &["--root", &paths[2], "--trusted-key", &key, "--no-start"], options].concat();
        self.run("muster-agent join", muster_agent(), &args)
    }

    fn agent(&self, machine: &str) -> ChildProcess {
        let mut command = in_network(self.sandbox, &self.process);
        command.env_remove("MUSTER_TOKEN_FILE").arg(muster_agent()).args(["run", "--config"]);
        command.arg(self.sandbox.path(&format!("machines/{machine}/agent.toml")));
        ChildProcess::new(format!("agent of {machine}"), &mut command)
    }
}

/// Runs a command in the network of a process.
fn in_network(sandbox: &Sandbox, process: &ChildProcess) -> std::process::Command {
    let mut command = sandbox.command("nsenter");
    command.arg(format!("--net=/proc/{}/ns/net", process.pid()));
    command
}

#[test]
fn machines_join_follow_a_rollout_and_are_revoked() {
    let sandbox = Sandbox::new();
    let project = TestProject::new(&sandbox, &[("web", 2)])
        .release("v1", &ScriptRelease::new("echo v1 > $MUSTER_ROOT/version; exit 2"))
        .release("v2", &ScriptRelease::new("echo v2 > $MUSTER_ROOT/version; exit 2"));
    let server = RemoteServer::start(&sandbox, &project);

    let plain = server.run(
        "muster status",
        muster_e2e::sandbox::muster(),
        &["status", "--env", ENV, "--server", "http://10.99.7.1:7300"],
    );
    assert_eq!(plain.code(), 1, "a request without TLS: {plain:?}");
    assert!(plain.stderr.contains("this port needs TLS: use https://"), "{}", plain.stderr);

    let token = server.output(&["token", "create", "--node", "web1"]);
    let joined = server.join("web1", &token, &[]);
    assert_eq!(
        (joined.code(), joined.stdout.lines().next()),
        (0, Some("joined test as web1 (role web)")),
        "{joined:?}"
    );
    let again = server.join("web1", &token, &[]);
    assert!(again.code() == 1 && again.stderr.contains("this machine has joined already"), "{again:?}");
    let second = server.join("copy", &token, &[]);
    assert!(second.code() == 1 && second.stderr.contains("has been used up"), "{second:?}");
    let truncated = server.join("copy", &token[..token.len() - 1], &[]);
    assert!(truncated.code() == 1 && truncated.stderr.contains("the join token is incomplete"), "{truncated:?}");

    let token = server.output(&["token", "create", "--role", "web", "--uses", "5"]);
    let joined = server.join("spare", &token, &[]);
    assert_eq!(joined.stdout.lines().next(), Some("joined test as web2 (role web)"), "{joined:?}");
    let waiting = server.join("third", &token, &["--no-wait"]);
    assert!(waiting.code() == 1 && waiting.stderr.contains("no place is free"), "{waiting:?}");

    let (web1, _web2) = (server.agent("web1"), server.agent("spare"));
    server.wait_validated("v1", &["web1", "web2"]);
    assert_eq!(fs::read_to_string(sandbox.path("machines/spare/root/version")).unwrap(), "v1\n");

    let server = server.restart(&web1);
    server.output(&["trigger-update", "v2", "--at-once"]);
    server.wait_validated("v2", &["web1", "web2"]);

    let key = fs::read(sandbox.path("machines/web1/state/identity/node.key")).unwrap();
    let refused = server.join("web1", &token, &["--replace"]);
    assert!(refused.code() == 1 && refused.stderr.contains("already"), "{refused:?}");
    let kept = fs::read(sandbox.path("machines/web1/state/identity/node.key")).unwrap();
    assert!(key == kept, "a refused request does not replace the key");
    let replacement = server.output(&["token", "create", "--node", "web1"]);
    let identity = sandbox.path("machines/web1/state/identity");
    let certificate = fs::read(identity.join("node.crt")).unwrap();
    server.join("web1", &replacement, &["--replace"]);
    // Killed after it has written the key: the same token and key complete it.
    fs::copy(identity.join("node.key"), identity.join("node.key.new")).unwrap();
    fs::write(identity.join("node.crt"), certificate).unwrap();
    let joined = server.join("web1", &replacement, &["--replace"]);
    assert!(!identity.join("node.key.new").exists(), "{joined:?}");
    assert_eq!(joined.stdout.lines().next(), Some("joined test as web1 (role web)"), "{joined:?}");
    web1.wait_for_output("another machine has joined as web1", TIMEOUT);
    web1.kill(TIMEOUT);
    let web1 = server.agent("web1");
    web1.wait_for_output("connected", TIMEOUT);

    server.output(&["cert", "revoke", "web1", "--reason", "disk was stolen"]);
    web1.wait_for_output("the certificate of web1 was revoked", TIMEOUT);
    let listed = server.output(&["cert", "list"]);
    assert!(listed.contains("revoked") && listed.contains("valid"), "{listed}");
    eventually("web1 is not connected", TIMEOUT, || {
        let shown = server.muster(&["node", "list"]).stdout;
        let line = shown.lines().find(|line| line.starts_with("web1")).unwrap_or_default().to_owned();
        if line.contains("unreachable") { Ok(()) } else { Err(shown) }
    });
}
