//! `muster serve`, and its API.

use std::path::{Path, PathBuf};

use muster_testkit::wait::{TIMEOUT, eventually};
use serde_json::Value;

use crate::http::{self, Answer};
use crate::process::Started;
use crate::project::Project;
use crate::stage::Stage;

/// The environment of every project that a test writes.
pub const ENV: &str = "test";

/// A server that was started.
#[derive(Debug)]
pub struct Server {
    pub process: Started,
    pub api: Api,
}

/// The API at an address.
#[derive(Clone, Debug)]
pub struct Api {
    pub to: String,
    env: String,
}

impl Server {
    /// Starts the server of a project, with its state in `state` of the stage; it listens when this returns.
    pub fn start(stage: &Stage, project: &Project) -> Self {
        Self::start_at(stage, &project.dir, &stage.path("state"))
    }

    pub fn start_at(stage: &Stage, project: &Path, state: &Path) -> Self {
        let process = Self::launch(stage, project, state);
        process.says("API: http://", TIMEOUT);
        Self { process, api: Api::new(stage.listen(), ENV) }
    }

    /// Starts a server that may well not come to listen.
    pub fn launch(stage: &Stage, project: &Path, state: &Path) -> Started {
        let store = format!("embedded:{}", state.join("store").display());
        let (state, project) = (state.to_str().unwrap(), project.to_str().unwrap());
        let (listen, key) = (stage.listen(), stage.release_key());
        let args = ["serve", "--store", &store, "--listen", &listen, "--state", state, "--project", project];
        Started::new("muster serve", stage.muster(&args).arg("--release-key").arg(key))
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

    /// Every report that the server has of a node, as the agent sent it, the oldest first.
    pub fn reports(&self, node: &str) -> Vec<Value> {
        let runs = self.runs(node);
        let of_run = |run: &Value| self.get(&format!("nodes/{node}/runs/{}", run["run"].as_str().unwrap()));
        runs.iter().map(of_run).flat_map(|run| run["reports"].as_array().unwrap().clone()).collect()
    }

    /// Sends a report as an agent does.
    pub fn report(&self, node: &str, report: &Value) -> Answer {
        http::request("POST", &self.to, &self.path(&format!("nodes/{node}/reports")), Some(report))
    }

    /// Moves the whole fleet in one transaction.
    pub fn trigger_update(&self, version: &str) -> Answer {
        // Tests go back and forth, and are not about rollouts; what must be said for both is tested where it is decided.
        let body = serde_json::json!({"version": version, "allow_older": true, "at_once": true});
        http::request("PUT", &self.to, &self.path("current-version"), Some(&body))
    }

    /// Opens a node's stream as its agent does.
    pub fn sync(&self, node: &str, open: &Value) -> http::Events {
        http::Events::open(&self.to, &self.path(&format!("nodes/{node}/sync")), open)
    }

    /// Waits until a node stands as this word says; gives all that is known of it then.
    pub fn until_node_is(&self, node: &str, word: &str) -> Value {
        self.until_node(node, &format!("is {word}"), |seen| seen["standing"] == word)
    }

    /// Waits until this is so of a node.
    pub fn until_node(&self, node: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("{node} {what}"), TIMEOUT, || {
            let answer = http::try_request("GET", &self.to, &self.path(&format!("nodes/{node}")), None);
            match answer {
                Ok(answer) if answer.status == 200 => {
                    let seen = answer.json();
                    if is_so(&seen) { Ok(seen) } else { Err(format!("{seen:#}")) }
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
