//! Writes the agent's configuration file.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use muster_core::names::{EnvName, NodeName};
use muster_core::release::manifest::PublicKey;

use super::machine_dir::replace;

/// The keys of `agent.toml`. TOML requires tables at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct AgentConfig {
    pub env: EnvName,
    pub node: NodeName,
    pub server: String,
    pub state_dir: PathBuf,
    pub root: PathBuf,
    pub trusted_keys: Vec<PublicKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub puppet: Option<PathBuf>,
    pub interfaces: BTreeMap<String, Ipv4Addr>,
}

#[derive(Debug, Error)]
pub enum WriteConfigError {
    /// Most likely a path that is not UTF-8.
    #[error("cannot encode the agent's configuration as TOML")]
    Unwritable(#[source] toml::ser::Error),
    #[error("cannot write {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl AgentConfig {
    fn text(&self) -> Result<String, WriteConfigError> {
        let values = toml::to_string(self).map_err(WriteConfigError::Unwritable)?;
        Ok(format!("# Written by Muster at each start of the machine: changes made here are lost.\n{values}"))
    }

    /// Writes the file. `false`: it has this content already.
    pub(super) fn write(&self, path: &Path) -> Result<bool, WriteConfigError> {
        let text = self.text()?;
        if std::fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(false);
        }
        match replace(path, text.as_bytes()) {
            Ok(()) => Ok(true),
            Err(source) => Err(WriteConfigError::Io { path: path.to_owned(), source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_is_written_in_the_agents_format() {
        let mut config = AgentConfig {
            env: EnvName::new("quickstart").unwrap(),
            node: NodeName::new("web1").unwrap(),
            server: "http://127.0.0.1:7077".into(),
            state_dir: "/s/nodes/web1/agent".into(),
            root: "/s/nodes/web1/root".into(),
            trusted_keys: vec![PublicKey::from_bytes([7; 32])],
            puppet: None,
            interfaces: BTreeMap::from([("eth0".to_owned(), Ipv4Addr::new(127, 77, 0, 2))]),
        };
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.toml");
        assert!(config.write(&path).unwrap());
        assert!(!config.write(&path).unwrap(), "unchanged content is not written");
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            r#"# Written by Muster at each start of the machine: changes made here are lost.
env = "quickstart"
node = "web1"
server = "http://127.0.0.1:7077"
state_dir = "/s/nodes/web1/agent"
root = "/s/nodes/web1/root"
trusted_keys = ["ed25519:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="]

[interfaces]
eth0 = "127.77.0.2"
"#
        );
        config.puppet = Some("/opt/puppet".into());
        assert!(config.write(&path).unwrap());
        assert!(std::fs::read_to_string(&path).unwrap().contains("puppet = \"/opt/puppet\"\n"));
    }
}
