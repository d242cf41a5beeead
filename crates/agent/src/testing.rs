//! Fixtures shared by the tests of several modules.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use jiff::Timestamp;

use muster_core::lookup::config_data::Datum;
use muster_core::names::{DataKey, EnvName, NodeName, RunId, Version};
use muster_core::report::{Facts, Outcome, RunResult};
use muster_core::txn::Generation;

use muster_core::lookup::snapshot::Snapshot;

use crate::config::AgentNode;
use crate::interfaces::NodeInterfaces;
use crate::process::children::Stat;
use crate::process::supervised::Launcher;
use crate::redact::Redactor;
use crate::report::unsent::{ApplierSummary, UnsentReport};
use crate::state::directory::StateDir;

/// A report with this number.
pub(crate) fn report(seq: u64) -> UnsentReport {
    UnsentReport {
        node: NodeName::new("web1").unwrap(),
        seq,
        run: RunId::new(format!("r{seq}")).unwrap(),
        outcome: Outcome::Configured(RunResult::Changed),
        version: Version::new("v1").unwrap(),
        digest: String::new(),
        generation: Generation::default(),
        causes: Vec::new(),
        reason: None,
        attempt: 0,
        started: Timestamp::UNIX_EPOCH,
        ended: Timestamp::UNIX_EPOCH,
        applier: ApplierSummary::default(),
        first_failure: None,
        checks: Vec::new(),
        hooks: Vec::new(),
        services: Default::default(),
        facts: Facts::default(),
        lookups: Default::default(),
        log: String::new(),
    }
}

/// A node with its own directories. Their lock is not held.
pub(crate) fn node(name: &str) -> (tempfile::TempDir, AgentNode) {
    let dir = tempfile::tempdir().unwrap();
    let layout = StateDir::open(&dir.path().join("state")).unwrap().layout();
    let node = AgentNode {
        env: EnvName::new("test").unwrap(),
        name: NodeName::new(name).unwrap(),
        host: None,
        certname: None,
        interfaces: NodeInterfaces::Configured([("eth0".into(), "127.0.0.1".into())].into()),
        every: None,
        boot: None,
        holder: None,
        root: dir.path().join("root"),
        puppet: "puppet".into(),
        puppet_conf: None,
        puppet_agent_lock: None,
        layout,
    };
    (dir, node)
}

/// Redactor of these texts.
pub(crate) fn secrets(texts: &[&str]) -> Redactor {
    let layer = muster_core::lookup::config_data::Layer::Global;
    let datum = |text: &&str| {
        let (value, layer) = ((*text).into(), layer.clone());
        Datum { value, secret: true, tag: None, unavailable: None, layer }
    };
    let key = |number| DataKey::new(format!("secret_{number}")).unwrap();
    let data = texts.iter().enumerate().map(|(number, text)| (key(number), datum(text))).collect();
    Redactor::for_snapshot(&Snapshot { data, ..Snapshot::default() })
}

/// Writes files; those that begin with `#!` are executable.
pub(crate) fn write_release(directory: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Ids of the given processes that have not ended.
pub(crate) fn living(pids: &[i32]) -> Vec<i32> {
    pids.iter().copied().filter(|pid| Stat::read(*pid).is_some_and(|stat| !stat.has_ended())).collect()
}

/// Starts supervisors from the test binary: its test [`supervisor`] runs nothing else.
pub(crate) fn launcher() -> Launcher {
    let arguments = ["--exact", "--nocapture", "testing::supervisor", "--skip"].map(str::to_owned);
    Launcher::new("/proc/self/exe".into(), arguments.to_vec())
}

/// Not a test: the supervisor of other tests, see [`launcher`].
#[test]
fn supervisor() {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let [.., skip, directory] = &arguments[..]
        && skip == "--skip"
    {
        muster_supervisor::run(Path::new(directory));
    }
}
