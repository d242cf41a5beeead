//! A few real agents, a real server, and a proxy between them.

use std::path::Path;
use std::time::{Duration, Instant};

use muster_core::node::status::NodeState;
use muster_wire::client::Client;
use muster_wire::operator::NodeRow;
use muster_wire::runs::StartRunRequest;
use tempfile::TempDir;

use super::agent::{BenchAgent, SCRIPT};
use super::project::{self, BenchProject, Roles};
use super::proxy::CountingProxy;
use super::server::BenchServer;
use crate::bench::Bench;

/// Timeout of a fleet. It needs less than a second, unless it has much to download.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Interval of checks. No number depends on it.
const INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct BenchFleet {
    pub(crate) server: BenchServer,
    pub(crate) proxy: CountingProxy,
    pub(crate) client: Client,
    pub(crate) agents: Vec<BenchAgent>,
    pub(crate) project: BenchProject,
    _dir: TempDir,
}

/// Content of a fleet.
#[derive(Clone, Debug)]
pub(crate) struct FleetOptions<'a> {
    pub(crate) roles: Roles<'a>,
    /// The nodes of this role do not end their first run before their gate is opened.
    pub(crate) held: Option<&'a str>,
    pub(crate) script: &'a str,
    /// With a manifest, Puppet is used instead of the script.
    pub(crate) manifest: Option<&'a str>,
    /// Incompressible bytes in the release of a version.
    pub(crate) ballast: Option<(&'a str, usize)>,
    /// A directory of modules in both releases, and a file of each that differs.
    pub(crate) modules: Option<(&'a Path, &'a str)>,
    /// True if agents connect to the server directly: a proxy would use processor time.
    pub(crate) direct: bool,
}

impl<'a> FleetOptions<'a> {
    pub(crate) fn new(roles: Roles<'a>) -> Self {
        Self { roles, held: None, script: SCRIPT, manifest: None, ballast: None, modules: None, direct: false }
    }
}

impl BenchFleet {
    /// Starts a fleet. Nodes of the role `held` wait in their first run.
    pub(crate) async fn start(bench: &Bench, roles: Roles<'_>, held: Option<&str>) -> anyhow::Result<Self> {
        Self::start_as(bench, &FleetOptions { held, ..FleetOptions::new(roles) }).await
    }

    pub(crate) async fn start_as(bench: &Bench, plan: &FleetOptions<'_>) -> anyhow::Result<Self> {
        let dir = bench.dir()?;
        let versions = ["v1", "v2"];
        let project = BenchProject::write(dir.path(), plan.roles, &versions, plan.script)?;
        if let Some(manifest) = plan.manifest {
            versions.iter().try_for_each(|version| project.use_puppet(version, manifest))?;
        }
        if let Some((version, bytes)) = plan.ballast {
            project.add_ballast(version, bytes)?;
        }
        if let Some((modules, changed)) = plan.modules {
            versions.iter().try_for_each(|version| project.add_modules(version, modules, changed))?;
        }
        let server = BenchServer::start(bench, dir.path(), Some(&project.dir)).await?;
        let proxy = CountingProxy::start(&server.address).await?;
        let client = server.client()?;
        let mut agents = Vec::new();
        let url = if plan.direct { &server.url } else { &proxy.url };
        for (number, node) in project.nodes.iter().enumerate() {
            let hold = plan.held.is_some_and(|role| node.natural().0 == role);
            agents.push(BenchAgent::start(bench, dir.path(), &project, node, number, url, hold)?);
        }
        Ok(Self { server, proxy, client, agents, project, _dir: dir })
    }

    pub(crate) fn agent(&self, node: &str) -> anyhow::Result<&BenchAgent> {
        let found = self.agents.iter().find(|agent| agent.node.as_str() == node);
        found.ok_or_else(|| anyhow::anyhow!("there is no node {node}"))
    }

    /// Waits until a condition holds for all nodes.
    pub(crate) async fn until(&self, what: &str, stands: impl Fn(&NodeRow) -> bool) -> anyhow::Result<()> {
        let env = project::env()?;
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let rows = self.client.nodes(&env).await?.items;
            if rows.iter().all(&stands) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let rows: Vec<String> =
                    rows.iter().map(|row| format!("{} is {}", row.node, row.state.as_str())).collect();
                let words: Vec<String> = self.agents.iter().map(BenchAgent::log_tail).collect();
                let (rows, words) = (rows.join(", "), words.join("\n"));
                anyhow::bail!("after {TIMEOUT:?} it is not so that {what}: {rows}\n{words}");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Waits until all nodes have validated a version and are idle.
    pub(crate) async fn until_validated(&self, version: &str) -> anyhow::Result<()> {
        let wanted = project::version(version)?;
        self.until(&format!("all nodes are validated at {version}"), |row| {
            row.state == NodeState::Validated && row.running.as_ref() == Some(&wanted)
        })
        .await
    }

    /// Requests a run, as `muster node run` does.
    pub(crate) async fn request_run(&self, node: &str) -> anyhow::Result<()> {
        let node = &self.agent(node)?.node;
        self.client.request_run(&project::env()?, node.as_str(), "the benchmark", &StartRunRequest::default()).await?;
        Ok(())
    }

    /// Waits until the applier of a node was started this many times.
    pub(crate) async fn until_started(&self, node: &str, times: usize) -> anyhow::Result<()> {
        let (agent, deadline) = (self.agent(node)?, Instant::now() + TIMEOUT);
        while agent.starts()?.len() < times {
            anyhow::ensure!(Instant::now() < deadline, "{node} has not run {times} times:\n{}", agent.log_tail());
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(())
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        for agent in self.agents {
            agent.stop().await?;
        }
        self.server.stop().await
    }
}
