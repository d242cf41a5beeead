//! A node with its own directories and a release, and runs as the agent makes them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use muster_agent::applier::{ApplierResult, Job, Mode, apply};
use muster_agent::interfaces::NodeInterfaces;
use muster_agent::process::supervised::Launcher;
use muster_agent::redact::Redactor;
use muster_agent::release::UnpackedRelease;
use muster_agent::run::directory::RunDirectory;
use muster_agent::run::log;
use muster_agent::state::directory::StateDir;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::{EnvName, HostName, NodeName, Role, RunId, Version};
use muster_core::report::{ResourceChange, RunOptions};
use muster_e2e::sandbox::muster_agent;

/// Hiera configuration of every release: Muster, and a file of data.
const HIERA: &str = "version: 5\n\
                     defaults: {datadir: data, data_hash: yaml_data}\n\
                     hierarchy:\n\
                     - {name: muster, lookup_key: muster::lookup_key}\n\
                     - {name: common, path: common.yaml}\n";
const RELEASE: &str = "applier: puppet\nmanifest: site.pp\nmodulepath: [modules]\nhiera: hiera.yaml\n";

pub(crate) struct TestNode {
    directory: TempDir,
    node: muster_agent::config::AgentNode,
    /// Host name in the design.
    host_name: Option<HostName>,
    release: UnpackedRelease,
    runs: AtomicU32,
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct RunOutput {
    pub(crate) applied: ApplierResult,
    pub(crate) log: String,
    pub(crate) lookups: String,
}

impl TestNode {
    /// `web1` with a release of these files.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        Self::with(|release| write_release(release, files))
    }

    /// The same with a release that `put` writes.
    pub(crate) fn with(put: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::Builder::new().prefix("muster-puppet-run-").tempdir().unwrap();
        let state = StateDir::open(&directory.path().join("state")).unwrap();
        let release = directory.path().join("release");
        put(&release);
        let spec = muster_release::check_directory(&release).unwrap();
        let node = muster_agent::config::AgentNode {
            env: EnvName::new("test").unwrap(),
            name: NodeName::new("web1").unwrap(),
            host: None,
            certname: None,
            interfaces: NodeInterfaces::Configured([("eth0".into(), "127.77.0.9".into())].into()),
            every: None,
            boot: None,
            holder: None,
            root: directory.path().join("root"),
            puppet: "puppet".into(),
            puppet_conf: None,
            puppet_agent_lock: None,
            layout: state.layout(),
        };
        fs::create_dir(&node.root).unwrap();
        let release = UnpackedRelease { directory: release, spec };
        Self { directory, node, host_name: None, release, runs: AtomicU32::new(0) }
    }

    /// The same node with a host name in the design.
    pub(crate) fn with_host_name(mut self, host_name: &str) -> Self {
        self.host_name = Some(HostName::new(host_name).unwrap());
        self
    }

    /// The same node with a name for Puppet in its configuration.
    pub(crate) fn with_certname(mut self, certname: &str) -> Self {
        self.node.certname = Some(HostName::new(certname).unwrap());
        self
    }

    /// The same node with another Puppet.
    pub(crate) fn with_puppet(mut self, program: &Path) -> Self {
        self.node.puppet = program.to_owned();
        self
    }

    /// Directory of Puppet's own directories.
    pub(crate) fn puppet_directory(&self) -> PathBuf {
        self.node.layout.puppet()
    }

    /// Writes the node's own `puppet.conf`.
    pub(crate) fn write_puppet_conf(&self, text: &str) {
        fs::write(self.puppet_directory().join("conf/puppet.conf"), text).unwrap();
    }

    /// Directory of files that the release writes.
    pub(crate) fn root(&self) -> &Path {
        &self.node.root
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.root().join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// All files below the root with their content.
    pub(crate) fn files(&self) -> Vec<(PathBuf, String)> {
        let mut found = Vec::new();
        let mut left = vec![self.root().to_owned()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    left.push(path);
                } else {
                    let text = fs::read_to_string(&path).unwrap();
                    found.push((path, text));
                }
            }
        }
        found.sort();
        found
    }

    /// Uses a lock of `puppet agent` in the node's directory. Returns its path.
    pub(crate) fn lock_agent(&mut self) -> PathBuf {
        let lock = self.directory.path().join("agent_catalog_run.lock");
        self.node.puppet_agent_lock = Some(lock.clone());
        lock
    }

    pub(crate) async fn apply(&self, snapshot: Value) -> RunOutput {
        self.run(snapshot, Mode::Apply, RunOptions::default()).await
    }

    pub(crate) async fn apply_with(&self, snapshot: Value, options: RunOptions) -> RunOutput {
        self.run(snapshot, Mode::Apply, options).await
    }

    pub(crate) async fn preview(&self, snapshot: Value) -> RunOutput {
        self.run(snapshot, Mode::Preview, RunOptions::default()).await
    }

    /// Runs with these tables of a snapshot; other tables are empty.
    async fn run(&self, tables: Value, mode: Mode, options: RunOptions) -> RunOutput {
        let mut snapshot = json!({"revision": 42, "active_roles": {}});
        let Value::Object(tables) = tables else { panic!("tables have names") };
        snapshot.as_object_mut().unwrap().extend(tables);
        let snapshot: Snapshot = serde_json::from_value(snapshot).unwrap();
        let (role, version) = (Role::new("web").unwrap(), Version::new("v1").unwrap());
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let run = RunId::new(format!("puppet-run-{}-{number}", std::process::id())).unwrap();
        let directory = RunDirectory::create(&self.node.layout.runs(), &run).unwrap();
        let names = self.node.names(self.host_name.as_ref());
        directory.write_snapshot(&self.node, &names, &role, &version, &snapshot).unwrap();
        let secrets = Redactor::for_run(&snapshot, &self.node.layout.runs());
        let job = Job {
            node: &self.node,
            names: &names,
            role: &role,
            version: &version,
            run: &run,
            directory: &directory,
            release: &self.release,
            mode,
            options: &options,
            secrets: &secrets,
        };
        let launcher = Launcher::new(muster_agent(), vec!["supervise".to_owned()]);
        let applied = apply(&job, &launcher, &CancellationToken::new()).await.unwrap();
        let log = log::applier_log(&directory, &self.release.directory, &secrets).finish();
        let lookups = fs::read_to_string(directory.lookups()).unwrap_or_default();
        RunOutput { applied: applied.result, log, lookups }
    }

    /// The directory of the node as shown in the report.
    pub(crate) fn path(&self) -> String {
        self.directory.path().display().to_string()
    }
}

/// Writes a release: these files and the common ones.
pub(crate) fn write_release(directory: &Path, files: &[(&str, &str)]) {
    for (path, text) in [("release.yaml", RELEASE), ("hiera.yaml", HIERA), ("modules/.keep", "")].iter().chain(files) {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
}

impl RunOutput {
    /// The changes of one property, as `old → new`.
    pub(crate) fn changed(&self, resource: &str, property: &str) -> Vec<String> {
        let of_it = |change: &&ResourceChange| {
            change.resource.contains(resource) && change.property.as_deref() == Some(property)
        };
        self.applied.changes.iter().filter(of_it).map(|change| format!("{} → {}", change.old, change.new)).collect()
    }

    pub(crate) fn errors(&self) -> Vec<String> {
        self.applied.errors.iter().map(ToString::to_string).collect()
    }

    pub(crate) fn reason(&self) -> String {
        self.applied.reason.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}
