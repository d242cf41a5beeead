//! The operator at a terminal: `muster` commands, run to their end.

use std::process::Stdio;

use muster_testkit::wait::TIMEOUT;
use serde_json::Value;

use crate::process::{Ended, Started};
use crate::stage::Stage;

impl Stage {
    /// Runs a `muster` command to its end, in the directory of the stage.
    pub fn ask(&self, args: &[&str]) -> Ended {
        self.ask_from(".", args)
    }

    /// The same in another directory of the stage.
    pub fn ask_from(&self, directory: &str, args: &[&str]) -> Ended {
        let mut command = self.muster(args);
        Started::new(format!("muster {}", args.join(" ")), command.current_dir(self.path(directory))).ended(TIMEOUT * 3)
    }

    /// The same with something to read.
    pub fn ask_with_input(&self, args: &[&str], input: &str) -> Ended {
        let path = self.path("input");
        std::fs::write(&path, input).unwrap();
        let mut command = self.muster(args);
        command.stdin(Stdio::from(std::fs::File::open(&path).unwrap()));
        Started::new(format!("muster {}", args.join(" ")), &mut command).ended(TIMEOUT)
    }

    /// Asks for JSON, of a command that must end well.
    pub fn ask_json(&self, args: &[&str]) -> Value {
        let ended = self.ask(&[args, &["-o", "json"]].concat());
        assert_eq!(ended.code(), 0, "{ended:?}");
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    }

    /// Waits until these nodes have proved to run a version: the server tells, nobody polls.
    pub fn wait_for(&self, version: &str, nodes: &[&str]) {
        let ended = self.ask(&[&["verify-hosts", version, "--wait", "--timeout", "90s"], nodes].concat());
        assert_eq!(ended.code(), 0, "{ended:?}\n{}", self.ask(&["status"]).stdout);
    }
}
