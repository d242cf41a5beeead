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
    /// Which start of the machine this is; none if that cannot be told.
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

/// Set for a machine that is not a whole one, such as a local node: it starts and stops within one start of the kernel.
const BOOT: &str = "MUSTER_BOOT";

/// The identity of the machine's start. What ran before another start need not run now.
fn boot() -> Option<String> {
    let kernels = || std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let boot = std::env::var(BOOT).ok().or_else(kernels)?;
    Some(boot.trim().to_owned()).filter(|boot| !boot.is_empty())
}
