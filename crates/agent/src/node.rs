//! Identity and fixed properties of the node that this agent runs on.

use std::path::PathBuf;

use muster_core::names::{EnvName, NodeName};
use muster_core::report::{Facts, Interfaces};

use crate::config::Config;
use crate::state::directory::Layout;

#[derive(Clone, Debug)]
pub struct Node {
    pub env: EnvName,
    pub name: NodeName,
    pub interfaces: Interfaces,
    /// Boot id of the machine; `None` if unknown.
    pub boot: Option<String>,
    pub root: PathBuf,
    pub puppet: PathBuf,
    pub layout: Layout,
}

impl Node {
    pub fn new(config: &Config, layout: Layout) -> Self {
        Self {
            env: config.env.clone(),
            name: config.node.clone(),
            interfaces: config.interfaces.clone(),
            boot: boot(),
            root: config.root.clone(),
            puppet: config.puppet.clone(),
            layout,
        }
    }

    pub fn facts(&self) -> Facts {
        let agent = env!("CARGO_PKG_VERSION").to_owned();
        Facts { interfaces: self.interfaces.clone(), boot: self.boot.clone(), agent }
    }
}

/// Boot id of a machine that shares its kernel with others, such as a local node.
const BOOT: &str = "MUSTER_BOOT";

/// The boot id. Processes of an earlier boot are gone.
fn boot() -> Option<String> {
    let kernel = || std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let boot = std::env::var(BOOT).ok().or_else(kernel)?;
    Some(boot.trim().to_owned()).filter(|boot| !boot.is_empty())
}
