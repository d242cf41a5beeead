//! Starts `muster-agent` for a node without a driver.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use muster_testkit::wait::TIMEOUT;

use crate::process::{ChildProcess, ExitResult};
use crate::sandbox::Sandbox;
use crate::sandbox::muster_agent;
use crate::server::ENV;

/// The node of an agent: its directories and its configuration. Agents of it can be started and killed.
#[derive(Debug)]
pub struct SandboxNode<'a> {
    sandbox: &'a Sandbox,
    name: String,
    address: String,
    /// Directory of the agent's state.
    state: PathBuf,
    /// The first pause before a failed run is made again, and the longest.
    retry: (&'static str, &'static str),
    path: Option<String>,
}

impl<'a> SandboxNode<'a> {
    /// A node. `number` is the last byte of its address. Failed runs are retried at once, without the pauses of a real
    /// fleet.
    pub fn new(sandbox: &'a Sandbox, name: &str, number: u8) -> Self {
        Self {
            sandbox,
            name: name.to_owned(),
            address: sandbox.address(number).to_string(),
            state: sandbox.path(&format!("nodes/{name}/agent")),
            retry: ("50ms", "200ms"),
            path: None,
        }
    }

    /// Uses another directory for the agent's state.
    #[must_use]
    pub fn state(mut self, state: PathBuf) -> Self {
        self.state = state;
        self
    }

    /// Disables retries of failed runs.
    #[must_use]
    pub fn without_retries(mut self) -> Self {
        self.retry = ("1h", "1h");
        self
    }

    /// PATH of agents that are started from now on.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Directory of files that releases write.
    pub fn root(&self) -> PathBuf {
        self.sandbox.path(&format!("nodes/{}/root", self.name))
    }

    /// Starts an agent of the node.
    pub fn start(&self) -> ChildProcess {
        ChildProcess::new(format!("agent of {}", self.name), &mut self.agent(&["run"]))
    }

    /// Calls `muster-agent once`, as cron does, and waits for its end.
    pub fn once(&self, args: &[&str]) -> ExitResult {
        let call = ChildProcess::new(format!("call of {}", self.name), &mut self.agent(&[&["once"], args].concat()));
        call.wait_exit(TIMEOUT)
    }

    fn agent(&self, args: &[&str]) -> Command {
        let root = self.root();
        fs::create_dir_all(&root).unwrap();
        let mut text = String::new();
        let mut set = |key: &str, value: &str| writeln!(text, "{key} = {value:?}").unwrap();
        set("env", ENV);
        set("node", &self.name);
        set("server", &format!("http://{}", self.sandbox.listen()));
        set("state_dir", self.state.to_str().unwrap());
        set("root", root.to_str().unwrap());
        // Agents of several nodes run on this machine.
        set("puppet_agent_lock", "none");
        writeln!(text, "trusted_keys = [{:?}]", self.sandbox.trusted_key()).unwrap();
        let (first, cap) = self.retry;
        writeln!(text, "interfaces = {{ eth0 = {:?} }}", self.address).unwrap();
        writeln!(text, "retry = {{ first = {first:?}, cap = {cap:?} }}").unwrap();
        let config = self.sandbox.path(&format!("nodes/{}/agent.toml", self.name));
        fs::write(&config, text).unwrap();

        let mut command = self.sandbox.command(muster_agent());
        command.args(args).arg("--config").arg(&config);
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        command
    }
}
