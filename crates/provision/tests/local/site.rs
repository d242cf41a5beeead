//! State directory and replacement for the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe::{OpenOptions, Receiver};

use muster_core::names::{EnvName, NodeName, Role};
use muster_marked::{Process, Signal};
use muster_provision::driver::{Driver, MachineSpec, MachineState};
use muster_provision::local::{LocalConfig, LocalDriver, LoopbackNetwork, MACHINE_MARK};

/// Runs until it is terminated.
pub(crate) const STAYS: &str = "trap 'say bye; exit 0' TERM; say started $$; while :; do sleep 3600 & wait $!; done";

pub(crate) struct Site {
    place: tempfile::TempDir,
    lines: Lines<BufReader<Receiver>>,
}

impl Site {
    pub(crate) fn new(agent: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        // Also open for writing, so that it has no end and writers never wait for a reader.
        let receiver = OpenOptions::new().read_write(true).open_receiver(&pipe).unwrap();
        fs::create_dir(place.path().join("releases")).unwrap();
        let site = Self { place, lines: BufReader::new(receiver).lines() };
        site.agent(agent);
        site
    }

    /// Sets the script of the agent. The script can `say` lines to the test.
    pub(crate) fn agent(&self, script: &str) {
        let pipe = self.place.path().join("pipe");
        // The shell reads a script in parts, so a running script must not change. The new one is another file.
        let new = self.place.path().join("agent.new");
        fs::write(&new, format!("#!/bin/sh\nsay() {{ echo \"$@\" > {}; }}\n{script}\n", pipe.display())).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&new, self.agent_path()).unwrap();
    }

    pub(crate) fn agent_path(&self) -> PathBuf {
        self.place.path().join("muster-agent")
    }

    pub(crate) fn config(&self) -> LocalConfig {
        LocalConfig {
            state: self.place.path().join("state"),
            network: Some(self.network("0/24")),
            server: "http://127.0.0.1:7077".into(),
            token_file: None,
            trusted_keys: Vec::new(),
            agent: Some(self.agent_path()),
            puppet: None,
            check_ports: BTreeSet::new(),
        }
    }

    /// A part of a network that no other test uses, such as `0/24`. Tests run as processes of their own.
    pub(crate) fn network(&self, part: &str) -> LoopbackNetwork {
        let [.., a, b] = std::process::id().to_be_bytes();
        format!("127.{}.{b}.{part}", 128 | a).parse().unwrap()
    }

    /// The address of a position in the design.
    pub(crate) fn address(&self, position: u32) -> String {
        self.network("0/24").nth(position).unwrap().to_string()
    }

    pub(crate) fn driver(&self) -> LocalDriver {
        LocalDriver::open(self.config()).unwrap()
    }

    pub(crate) fn machine(&self, node: &str) -> PathBuf {
        self.place.path().canonicalize().unwrap().join("state/nodes").join(node)
    }

    /// Next line from an agent.
    pub(crate) async fn next_line(&mut self) -> String {
        self.lines.next_line().await.unwrap().unwrap()
    }

    /// Pid in the next line from an agent, which must begin with this word.
    pub(crate) async fn next_pid(&mut self, word: &str) -> u32 {
        let said = self.next_line().await;
        let (first, pid) = said.split_once(' ').unwrap_or((&said, ""));
        assert_eq!(first, word, "unexpected line {said:?}");
        pid.parse().unwrap()
    }
}

impl Drop for Site {
    /// Ends all processes of the test, even if it failed.
    fn drop(&mut self) {
        let Ok(machines) = fs::read_dir(self.place.path().join("state/nodes")) else { return };
        for machine in machines.flatten() {
            for process in marked(&self.machine(&machine.file_name().to_string_lossy())) {
                process.signal(Signal::KILL).ok();
            }
        }
    }
}

pub(crate) fn marked(machine: &Path) -> Vec<Process> {
    muster_marked::find(MACHINE_MARK, machine).unwrap()
}

pub(crate) fn spec(node: &str, position: u32) -> MachineSpec {
    MachineSpec {
        env: EnvName::new("prod").unwrap(),
        node: NodeName::new(node).unwrap(),
        role: Role::new("web").unwrap(),
        position,
        flavor: None,
        labels: BTreeMap::new(),
        interfaces: Vec::new(),
        leaving: false,
    }
}

pub(crate) async fn observed_state(driver: &LocalDriver, spec: &MachineSpec) -> MachineState {
    driver.observe(spec).await.unwrap().state
}

pub(crate) async fn bring_up(driver: &LocalDriver, spec: &MachineSpec) {
    driver.allocate(spec).await.unwrap();
    driver.deploy(spec).await.unwrap();
    driver.boot(spec).await.unwrap();
}
