//! A few real agents, a real server, and the proxy between them.

use std::time::{Duration, Instant};

use muster_core::node::status::NodeState;
use muster_wire::client::Client;
use muster_wire::operator::NodeRow;
use muster_wire::runs::StartRunRequest;
use tempfile::TempDir;

use super::agent::{Agent, SCRIPT};
use super::project::{self, Project, Roles};
use super::proxy::Proxy;
use super::server::Server;
use crate::bench::Bench;

/// How long a fleet may take to get somewhere. It needs less than a second, unless it has much to download.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often is looked whether it got there. No number depends on it.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
    pub(crate) client: Client,
    pub(crate) agents: Vec<Agent>,
    _dir: TempDir,
}

/// What a fleet is to be.
#[derive(Clone, Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) roles: Roles<'a>,
    /// The nodes of this role do not end their first run before they are let go.
    pub(crate) held: Option<&'a str>,
    pub(crate) script: &'a str,
    /// With a manifest, Puppet applies it and there is no script.
    pub(crate) manifest: Option<&'a str>,
    /// So many bytes in the release of a version, which cannot be packed.
    pub(crate) ballast: Option<(&'a str, usize)>,
    /// Whether the agents talk to the server itself: the proxy would have its share of the work.
    pub(crate) direct: bool,
}

impl<'a> Plan<'a> {
    pub(crate) fn of(roles: Roles<'a>) -> Self {
        Self { roles, held: None, script: SCRIPT, manifest: None, ballast: None, direct: false }
    }
}

impl Fleet {
    /// Starts a fleet. The nodes of role `held` do not end their first run before they are let go.
    pub(crate) async fn start(bench: &Bench, roles: Roles<'_>, held: Option<&str>) -> anyhow::Result<Self> {
        Self::start_as(bench, &Plan { held, ..Plan::of(roles) }).await
    }

    pub(crate) async fn start_as(bench: &Bench, plan: &Plan<'_>) -> anyhow::Result<Self> {
        let dir = bench.dir()?;
        let versions = ["v1", "v2"];
        let project = Project::write(dir.path(), plan.roles, &versions, plan.script)?;
        if let Some(manifest) = plan.manifest {
            versions.iter().try_for_each(|version| project.use_puppet(version, manifest))?;
        }
        if let Some((version, bytes)) = plan.ballast {
            project.add_ballast(version, bytes)?;
        }
        let server = Server::start(bench, dir.path(), Some(&project.dir)).await?;
        let proxy = Proxy::start(&server.address).await?;
        let client = server.client()?;
        let mut agents = Vec::new();
        let url = if plan.direct { &server.url } else { &proxy.url };
        for (number, node) in project.nodes.iter().enumerate() {
            let hold = plan.held.is_some_and(|role| node.natural().0 == role);
            agents.push(Agent::start(bench, dir.path(), &project, node, number, url, hold)?);
        }
        Ok(Self { server, proxy, client, agents, _dir: dir })
    }

    pub(crate) fn agent(&self, node: &str) -> anyhow::Result<&Agent> {
        let found = self.agents.iter().find(|agent| agent.node.as_str() == node);
        found.ok_or_else(|| anyhow::anyhow!("there is no node {node}"))
    }

    /// Waits until all nodes stand as they should.
    pub(crate) async fn until(&self, what: &str, stands: impl Fn(&NodeRow) -> bool) -> anyhow::Result<()> {
        let env = project::env()?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let rows = self.client.nodes(&env).await?.items;
            if rows.iter().all(&stands) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let rows: Vec<String> =
                    rows.iter().map(|row| format!("{} is {}", row.node, row.state.as_str())).collect();
                let words: Vec<String> = self.agents.iter().map(Agent::last_words).collect();
                let (rows, words) = (rows.join(", "), words.join("\n"));
                anyhow::bail!("after {PATIENCE:?} it is not so that {what}: {rows}\n{words}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until all nodes have proved to run a version, and do nothing any more.
    pub(crate) async fn until_validated(&self, version: &str) -> anyhow::Result<()> {
        let wanted = project::version(version)?;
        self.until(&format!("all nodes are validated at {version}"), |row| {
            row.state == NodeState::Validated && row.running.as_ref() == Some(&wanted)
        })
        .await
    }

    /// Asks for a run, as `muster node run` does.
    pub(crate) async fn ask_for_run(&self, node: &str) -> anyhow::Result<()> {
        let node = &self.agent(node)?.node;
        self.client
            .ask_for_run(&project::env()?, node.as_str(), "the benchmark", &StartRunRequest { noop: false })
            .await?;
        Ok(())
    }

    /// Waits until the applier of a node was started so many times.
    pub(crate) async fn until_started(&self, node: &str, times: usize) -> anyhow::Result<()> {
        let (agent, deadline) = (self.agent(node)?, Instant::now() + PATIENCE);
        while agent.starts()?.len() < times {
            anyhow::ensure!(Instant::now() < deadline, "{node} has not run {times} times:\n{}", agent.last_words());
            tokio::time::sleep(LOOK).await;
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
