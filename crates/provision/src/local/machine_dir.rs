//! The directory that is a local machine.
//!
//! | name | what |
//! |---|---|
//! | `machine.json` | whose it is, and its addresses: there from allocation on |
//! | `agent.toml` | the agent's configuration: there from deployment on |
//! | `root/` | `MUSTER_ROOT`, the disk of the machine |
//! | `agent/` | the agent's own state |
//! | `agent.log` | what the agent writes, since it was last too long |

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use muster_core::names::{EnvName, NodeName};

/// What `machine.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MachineFile {
    pub env: EnvName,
    pub node: NodeName,
    pub interfaces: BTreeMap<String, Ipv4Addr>,
}

#[derive(Debug, Error)]
pub enum ReadMachineError {
    #[error("cannot read {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is not what Muster writes there: if the machine can be made anew, remove its directory")]
    Content {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

/// A machine's directory, there or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MachineDir {
    path: PathBuf,
}

impl MachineDir {
    pub(super) fn new(nodes: &Path, node: &NodeName) -> Self {
        Self { path: nodes.join(node.as_str()) }
    }

    /// Its path is also the mark of the machine's processes.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whose machine it is, by its name.
    pub(super) fn node(&self) -> Option<NodeName> {
        NodeName::new(self.path.file_name()?.to_str()?).ok()
    }

    pub(super) fn root(&self) -> PathBuf {
        self.path.join("root")
    }

    pub(super) fn agent_state(&self) -> PathBuf {
        self.path.join("agent")
    }

    pub(super) fn agent_config(&self) -> PathBuf {
        self.path.join("agent.toml")
    }

    pub(super) fn agent_log(&self) -> PathBuf {
        self.path.join("agent.log")
    }

    fn machine_file(&self) -> PathBuf {
        self.path.join("machine.json")
    }

    /// What is written of the machine. None: it was not allocated.
    pub(super) fn read(&self) -> Result<Option<MachineFile>, ReadMachineError> {
        let path = self.machine_file();
        match fs::read(&path) {
            Ok(text) => match serde_json::from_slice(&text) {
                Ok(machine) => Ok(Some(machine)),
                Err(source) => Err(ReadMachineError::Content { path, source }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ReadMachineError::Io { path, source }),
        }
    }

    pub(super) fn write(&self, machine: &MachineFile) -> io::Result<()> {
        fs::create_dir_all(&self.path)?;
        replace(&self.machine_file(), &serde_json::to_vec_pretty(machine)?)
    }

    pub(super) fn is_deployed(&self) -> bool {
        self.agent_config().is_file() && self.root().is_dir() && self.agent_state().is_dir()
    }

    /// Removes the machine. Its file goes first: what is cut off half way is no machine, and its address is free.
    pub(super) fn remove(&self) -> io::Result<()> {
        let gone = |result: io::Result<()>| match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        gone(fs::remove_file(self.machine_file()))?;
        gone(fs::remove_dir_all(&self.path))
    }
}

/// Replaces a file so that after a crash it is there as it was before, or as it is now.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_reads_back_and_can_be_removed_twice() {
        let nodes = tempfile::tempdir().unwrap();
        let node = NodeName::new("web1").unwrap();
        let dir = MachineDir::new(nodes.path(), &node);
        assert_eq!(dir.read().unwrap(), None);

        let machine = MachineFile {
            env: EnvName::new("prod").unwrap(),
            node,
            interfaces: BTreeMap::from([("eth0".to_owned(), Ipv4Addr::new(127, 77, 0, 1))]),
        };
        dir.write(&machine).unwrap();
        assert_eq!(dir.read().unwrap(), Some(machine));
        assert!(!dir.is_deployed());

        dir.remove().unwrap();
        dir.remove().unwrap();
        assert!(!dir.path().exists());
    }

    #[test]
    fn what_is_not_ours_is_told_with_its_path() {
        let nodes = tempfile::tempdir().unwrap();
        let dir = MachineDir::new(nodes.path(), &NodeName::new("web1").unwrap());
        fs::create_dir(dir.path()).unwrap();
        fs::write(dir.machine_file(), "{").unwrap();
        let error = dir.read().unwrap_err().to_string();
        assert!(error.contains("web1/machine.json is not what Muster writes there"), "{error}");
    }
}
