//! Starts `muster serve` and `muster up`, and calls the API.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use muster_testkit::wait::{TIMEOUT, eventually};
use serde_json::Value;

use crate::http;
use crate::http::Response;
use crate::process::ChildProcess;
use crate::sandbox::{Sandbox, TestProject};

/// The environment of every project that a test writes.
pub const ENV: &str = "test";

/// A running server.
#[derive(Debug)]
pub struct SandboxServer {
    pub process: ChildProcess,
    pub api: Api,
}

/// The API at an address.
#[derive(Clone, Debug)]
pub struct Api {
    pub to: String,
    env: String,
}

impl SandboxServer {
    /// Starts the server of a project, with its state in `state` of the sandbox. It listens when this returns.
    pub fn start(sandbox: &Sandbox, project: &TestProject) -> Self {
        Self::start_at(sandbox, &project.dir, &sandbox.path("state"))
    }

    pub fn start_at(sandbox: &Sandbox, project: &Path, state: &Path) -> Self {
        let process = Self::launch(sandbox, project, state);
        process.wait_for_output("API: http://", TIMEOUT);
        Self { process, api: Api::new(sandbox.listen(), ENV) }
    }

    /// Starts a server that may fail to start.
    pub fn launch(sandbox: &Sandbox, project: &Path, state: &Path) -> ChildProcess {
        let store = format!("embedded:{}", state.join("store").display());
        let (state, project) = (state.to_str().unwrap(), project.to_str().unwrap());
        let (listen, key) = (sandbox.listen(), sandbox.release_key());
        let args = ["serve", "--store", &store, "--listen", &listen, "--state", state];
        // Faults of manifests are tested on nodes, too.
        let args = [&args[..], &["--project", project, "--no-validate"]].concat();
        let command = &mut sandbox.muster(&args);
        // Gates of tests run a shell.
        ChildProcess::new("muster serve", command.arg("--release-key").arg(key).args(["--gate-commands", "/bin"]))
    }

    /// `kill -9`.
    pub fn kill(self) {
        self.process.kill(TIMEOUT);
    }
}

impl Api {
    pub fn new(to: String, env: &str) -> Self {
        Self { to, env: env.to_owned() }
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/envs/{}/{rest}", self.env)
    }

    pub fn get(&self, rest: &str) -> Value {
        let answer = http::get(&self.to, &self.path(rest));
        assert_eq!(answer.status, 200, "{rest}: {answer:?}");
        answer.json()
    }

    pub fn node(&self, node: &str) -> Value {
        self.get(&format!("nodes/{node}"))
    }

    /// The runs of a node, the oldest first.
    pub fn runs(&self, node: &str) -> Vec<Value> {
        let mut runs = self.node(node)["history"].as_array().unwrap().clone();
        runs.reverse();
        runs
    }

    /// All reports of a node, oldest first, as the agent sent them.
    pub fn reports(&self, node: &str) -> Vec<Value> {
        let runs = self.runs(node);
        let of_run = |run: &Value| self.get(&format!("nodes/{node}/runs/{}", run["run"].as_str().unwrap()));
        runs.iter().map(of_run).flat_map(|run| run["reports"].as_array().unwrap().clone()).collect()
    }

    /// Sends a report as an agent does.
    pub fn report(&self, node: &str, report: &Value) -> Response {
        http::request("POST", &self.to, &self.path(&format!("nodes/{node}/reports")), Some(report))
    }

    /// Updates the whole fleet in one transaction.
    pub fn trigger_update(&self, version: &str) -> Response {
        // Tests switch between versions without rollouts; the options are tested elsewhere.
        let body = serde_json::json!({"version": version, "allow_older": true, "at_once": true});
        http::request("PUT", &self.to, &self.path("current-version"), Some(&body))
    }

    /// Opens a node's stream as its agent does.
    pub fn sync(&self, node: &str, open: &Value) -> http::Events {
        http::Events::open(&self.to, &self.path(&format!("nodes/{node}/sync")), open)
    }

    /// Waits until a node is in this state. Returns the node.
    pub fn wait_node_state(&self, node: &str, state: &str) -> Value {
        self.wait_node(node, &format!("is {state}"), |seen| seen["state"] == state)
    }

    /// Waits until a condition holds for a node.
    pub fn wait_node(&self, node: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("{node} {what}"), TIMEOUT, || {
            let answer = http::try_request("GET", &self.to, &self.path(&format!("nodes/{node}")), None);
            match answer {
                Ok(answer) if answer.status == 200 => {
                    let seen = answer.json();
                    if condition(&seen) { Ok(seen) } else { Err(format!("{seen:#}")) }
                }
                Ok(answer) => Err(format!("{answer:?}")),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

/// The directory of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A running `muster up`, with its state in `state` of the sandbox and its nodes in the sandbox's network.
#[derive(Debug)]
pub struct UpProcess {
    pub process: ChildProcess,
}

impl UpProcess {
    pub fn start(sandbox: &Sandbox, project: &Path, more: &[&str]) -> Self {
        let state = sandbox.path("state");
        let (project, state, listen, network) =
            (project.to_str().unwrap(), state.to_str().unwrap(), sandbox.listen(), sandbox.network());
        let mut args = vec!["up", project, "--state", state, "--network", &network];
        if !more.contains(&"--listen") {
            args.extend(["--listen", &listen]);
        }
        let mut command = sandbox.muster(&[&args, more].concat());
        // A process group of its own, as a shell does, so that Ctrl-C can be sent to it.
        command.process_group(0);
        Self { process: ChildProcess::new("muster up", &mut command) }
    }

    /// Waits until it listens.
    pub fn api(&self, sandbox: &Sandbox, env: &str) -> Api {
        self.process.wait_for_output("http://", TIMEOUT);
        Api::new(sandbox.listen(), env)
    }
}
