//! `muster up`: a whole fleet in one process and its children.

use std::os::unix::process::CommandExt;
use std::path::Path;

use muster_testkit::wait::TIMEOUT;

use crate::process::Started;
use crate::server::Api;
use crate::stage::Stage;

/// A `muster up` that was started, with its state in `state` of the stage and its nodes in the stage's network.
#[derive(Debug)]
pub struct Up {
    pub process: Started,
}

impl Up {
    pub fn start(stage: &Stage, project: &Path, more: &[&str]) -> Self {
        let state = stage.path("state");
        let (project, state, listen, network) =
            (project.to_str().unwrap(), state.to_str().unwrap(), stage.listen(), stage.network());
        let mut args = vec!["up", project, "--state", state, "--network", &network];
        if !more.contains(&"--listen") {
            args.extend(["--listen", &listen]);
        }
        let mut command = stage.muster(&[&args, more].concat());
        // As a shell does with what is typed: so Ctrl-C can be sent to all that belong to it.
        command.process_group(0);
        Self { process: Started::new("muster up", &mut command) }
    }

    /// Waits until it listens.
    pub fn api(&self, stage: &Stage, env: &str) -> Api {
        self.process.says("http://", TIMEOUT);
        Api::new(stage.listen(), env)
    }
}
