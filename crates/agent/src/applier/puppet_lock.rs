//! The lock of `puppet agent`, which may still run on the host: it and a run of Muster never change the host at the same time.
//!
//! The lock is a file with the pid of the Puppet that runs. `puppet agent` skips a run while another Puppet with that pid is
//! alive; a run of Muster waits. The supervisor takes the lock for its own Puppet, and waits as well if another agent was faster.

use std::path::{Path, PathBuf};

use muster_marked::Process;
use muster_supervisor::pid_lock;
use serde::Deserialize;

/// State directories of the packages of Puppet and OpenVox, of Debian 12, and of older Debians.
const STATE_DIRECTORIES: [&str; 3] =
    ["/opt/puppetlabs/puppet/cache/state", "/var/cache/puppet/state", "/var/lib/puppet/state"];
const LOCK: &str = "agent_catalog_run.lock";

/// `puppet_agent_lock` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "PathBuf")]
pub enum PuppetAgentLock {
    /// `auto`: that of the Puppet that is installed, if the agent is root.
    #[default]
    Auto,
    /// `none`: runs do not lock.
    Unlocked,
    Path(PathBuf),
}

impl From<PathBuf> for PuppetAgentLock {
    fn from(path: PathBuf) -> Self {
        match path.to_str() {
            Some("auto") => Self::Auto,
            Some("none") => Self::Unlocked,
            Some(_) | None => Self::Path(path),
        }
    }
}

impl PuppetAgentLock {
    /// The lock file. `None`: there is no `puppet agent`, or the operator does not want a lock.
    pub fn file(&self) -> Option<PathBuf> {
        match self {
            Self::Auto if rustix::process::geteuid().is_root() => {
                STATE_DIRECTORIES.iter().map(Path::new).find(|path| path.is_dir()).map(|path| path.join(LOCK))
            }
            Self::Auto | Self::Unlocked => None,
            Self::Path(path) => Some(path.clone()),
        }
    }
}

/// Waits until no Puppet holds the lock.
pub(super) async fn wait(lock: &Path) {
    while let Some(holder) = holder(lock) {
        tracing::info!(pid = holder.pid(), lock = %lock.display(), "waiting for the Puppet that runs on this host");
        if let Err(error) = holder.wait().await {
            tracing::warn!(%error, "cannot wait for the Puppet that runs on this host; the run starts");
            return;
        }
    }
}

fn holder(lock: &Path) -> Option<Process> {
    let process = Process::open(pid_lock::holder(lock)?).ok()??;
    // Again, while the process is held: the pid may have been reused in between.
    (pid_lock::holder(lock)? == process.pid()).then_some(process)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lock_is_automatic_absent_or_a_path() {
        let read = |text: &str| serde_json::from_value::<PuppetAgentLock>(text.into()).unwrap();
        assert_eq!((read("auto"), read("none")), (PuppetAgentLock::Auto, PuppetAgentLock::Unlocked));
        assert_eq!(read("/x/lock").file(), Some("/x/lock".into()));
        assert_eq!(read("none").file(), None);
    }

    #[test]
    fn stale_lock_has_no_holder() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("lock");
        // This test is alive, but no Puppet.
        for text in ["", "no number", "0", "4194303", &std::process::id().to_string()] {
            fs::write(&lock, text).unwrap();
            assert!(holder(&lock).is_none(), "{text:?}");
        }
        fs::remove_file(&lock).unwrap();
        assert!(holder(&lock).is_none());
    }
}
