//! The directory of a local machine.
//!
//! | name | what |
//! |---|---|
//! | `machine.json` | owner and addresses, written at allocation |
//! | `agent.toml` | the agent's configuration, written at deployment |
//! | `root/` | `MUSTER_ROOT`, the disk of the machine |
//! | `agent/` | the agent's state directory |
//! | `agent.log` | the agent's log since its last rotation |

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use muster_core::names::{EnvName, NodeName};
use muster_removal::OwnedDir;

const MACHINE_FILE: &str = "machine.json";

/// Content of `machine.json`.
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
    #[error("{path} was not written by Muster: if the machine can be created again, remove its directory")]
    Content {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

/// A machine's directory, which may not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MachineDir {
    path: PathBuf,
}

impl MachineDir {
    pub(super) fn new(nodes: &Path, node: &NodeName) -> Self {
        Self { path: nodes.join(node.as_str()) }
    }

    /// The path, which is also the mark of the machine's processes.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The node, by the name of the directory.
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
        self.path.join(MACHINE_FILE)
    }

    /// True if the driver has made the directory: it has a machine file, or holds nothing else than an incomplete machine.
    fn is_ours(&self) -> bool {
        let is_ours = |name: &str| {
            matches!(name, "root" | "agent")
                || [MACHINE_FILE, "agent.toml", "agent.log"].iter().any(|own| name.starts_with(own))
        };
        let entries = || fs::read_dir(&self.path).into_iter().flatten().flatten();
        self.machine_file().exists() || entries().all(|entry| entry.file_name().to_str().is_some_and(is_ours))
    }

    /// The machine file. `None`: not allocated.
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

    /// Removes the machine. The file is removed first, so that an incomplete removal leaves no machine and frees its address.
    /// Links are removed and not followed, also one in place of the directory.
    pub(super) fn remove(&self) -> io::Result<()> {
        let (Some(nodes), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let nodes = match OwnedDir::open(nodes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        if let Some(machine) = nodes.subdirectory(name)? {
            machine.remove(MACHINE_FILE)?;
        }
        nodes.remove(name)
    }
}

/// Replaces a file atomically and durably.
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

/// All directories with the name of a node that the driver has made. Others are ignored: the machines of nodes that left the
/// design are removed.
pub(super) fn machine_dirs(nodes: &Path) -> io::Result<Vec<MachineDir>> {
    let mut dirs = Vec::new();
    for entry in fs::read_dir(nodes)? {
        let name = entry?.file_name().into_string();
        if let Some(node) = name.ok().and_then(|name| NodeName::new(name).ok()) {
            dirs.extend(Some(MachineDir::new(nodes, &node)).filter(MachineDir::is_ours));
        }
    }
    Ok(dirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_read_back_and_removed_idempotently() {
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
    fn link_in_place_of_a_machine_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (nodes, other) = (dir.path().join("nodes"), dir.path().join("other"));
        fs::create_dir(&nodes).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("machine.json"), "{}").unwrap();
        std::os::unix::fs::symlink(&other, nodes.join("web1")).unwrap();
        MachineDir::new(&nodes, &NodeName::new("web1").unwrap()).remove().unwrap();
        assert!(nodes.join("web1").symlink_metadata().is_err(), "the link is removed");
        assert!(other.join("machine.json").exists(), "and not what it leads to");

        fs::create_dir(other.join("web1")).unwrap();
        fs::remove_dir(&nodes).unwrap();
        std::os::unix::fs::symlink(&other, &nodes).unwrap();
        MachineDir::new(&nodes, &NodeName::new("web1").unwrap()).remove().unwrap_err();
        assert!(other.join("web1").exists(), "the directory of the machines is a link");
    }

    #[test]
    fn directory_that_is_no_machine_is_ignored() {
        let nodes = tempfile::tempdir().unwrap();
        for path in ["web1/root/etc", "web1/agent", "web2", "web3/Documents", "No node"] {
            fs::create_dir_all(nodes.path().join(path)).unwrap();
        }
        let dirs = machine_dirs(nodes.path()).unwrap();
        let mut found: Vec<_> = dirs.iter().filter_map(MachineDir::node).map(|node| node.to_string()).collect();
        found.sort();
        assert_eq!(found, ["web1", "web2"], "incomplete machines");
    }

    #[test]
    fn foreign_machine_file_is_an_error_with_its_path() {
        let nodes = tempfile::tempdir().unwrap();
        let dir = MachineDir::new(nodes.path(), &NodeName::new("web1").unwrap());
        fs::create_dir(dir.path()).unwrap();
        fs::write(dir.machine_file(), "{").unwrap();
        let error = dir.read().unwrap_err().to_string();
        assert!(error.contains("web1/machine.json was not written by Muster"), "{error}");
    }
}
