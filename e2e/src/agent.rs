//! `muster-agent`, started by hand.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::binaries;
use crate::process::Started;
use crate::server::ENV;
use crate::stage::Stage;

/// The node of an agent: its directories and its configuration. Agents of it can be started and killed.
#[derive(Debug)]
pub struct Node<'a> {
    stage: &'a Stage,
    name: String,
    address: String,
    /// All that the agent keeps.
    state: PathBuf,
    /// The first pause before a failed run is made again, and the longest.
    retry: (&'static str, &'static str),
    path: Option<String>,
}

impl<'a> Node<'a> {
    /// Makes a node. Its `number` is that of its address. Failed runs are made again at once: nobody wants to wait for
    /// the pauses of a real fleet.
    pub fn new(stage: &'a Stage, name: &str, number: u8) -> Self {
        Self {
            stage,
            name: name.to_owned(),
            address: stage.address(number).to_string(),
            state: stage.path(&format!("nodes/{name}/agent")),
            retry: ("50ms", "200ms"),
            path: None,
        }
    }

    /// Keeps the agent's state elsewhere.
    #[must_use]
    pub fn state(mut self, state: PathBuf) -> Self {
        self.state = state;
        self
    }

    /// A failed run is not made again while the test looks at it.
    #[must_use]
    pub fn never_retries(mut self) -> Self {
        self.retry = ("1h", "1h");
        self
    }

    /// Agents that are started from now on look for programs here only.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Where the content keeps its files.
    pub fn root(&self) -> PathBuf {
        self.stage.path(&format!("nodes/{}/root", self.name))
    }

    /// Starts an agent of the node.
    pub fn start(&self) -> Started {
        let root = self.root();
        fs::create_dir_all(&root).unwrap();
        let mut text = String::new();
        let mut say = |key: &str, value: &str| writeln!(text, "{key} = {value:?}").unwrap();
        say("env", ENV);
        say("node", &self.name);
        say("server", &format!("http://{}", self.stage.listen()));
        say("state_dir", self.state.to_str().unwrap());
        say("root", root.to_str().unwrap());
        writeln!(text, "trusted_keys = [{:?}]", self.stage.trusted_key()).unwrap();
        let (first, cap) = self.retry;
        writeln!(text, "interfaces = {{ eth0 = {:?} }}", self.address).unwrap();
        writeln!(text, "retry = {{ first = {first:?}, cap = {cap:?} }}").unwrap();
        let config = self.stage.path(&format!("nodes/{}/agent.toml", self.name));
        fs::write(&config, text).unwrap();

        let mut command = self.stage.command(binaries::muster_agent());
        command.args(["run", "--config"]).arg(&config);
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        Started::new(format!("agent of {}", self.name), &mut command)
    }
}
