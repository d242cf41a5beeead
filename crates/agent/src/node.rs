//! Who this agent is: what does not change while it runs.

use std::path::PathBuf;

use muster_core::names::{EnvName, NodeName};
use muster_core::report::{Facts, Interfaces};

use crate::config::Config;
use crate::state_dir::Layout;

#[derive(Clone, Debug)]
pub struct Node {
    pub env: EnvName,
    pub name: NodeName,
    pub interfaces: Interfaces,
    pub root: PathBuf,
    pub releases: PathBuf,
    pub puppet: PathBuf,
    pub layout: Layout,
}

impl Node {
    pub fn new(config: &Config, layout: Layout) -> Self {
        Self {
            env: config.env.clone(),
            name: config.node.clone(),
            interfaces: config.interfaces.clone(),
            root: config.root.clone(),
            releases: config.releases_dir.clone(),
            puppet: config.puppet.clone(),
            layout,
        }
    }

    pub fn facts(&self) -> Facts {
        Facts { interfaces: self.interfaces.clone(), agent: env!("CARGO_PKG_VERSION").to_owned() }
    }
}
