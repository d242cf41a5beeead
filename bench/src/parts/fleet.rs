//! A few real agents, a real server, and the proxy between them.

use std::time::{Duration, Instant};

use muster_core::standing::Word;
use muster_wire::client::Client;
use muster_wire::operator::NodeRow;
use tempfile::TempDir;

use super::agent::{Agent, SCRIPT};
use super::project::{self, Project, Roles};
use super::proxy::Proxy;
use super::server::Server;
use crate::bench::Bench;

/// How long a fleet may take to get somewhere; it needs less than a second.
const PATIENCE: Duration = Duration::from_secs(60);
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

impl Fleet {
    /// Starts a fleet. The nodes of role `held` do not end their first run before they are let go.
    pub(crate) async fn start(bench: &Bench, roles: Roles<'_>, held: Option<&str>) -> anyhow::Result<Self> {
        let dir = bench.dir()?;
        let project = Project::write(dir.path(), roles, &["v1", "v2"], SCRIPT)?;
        let server = Server::start(bench, dir.path(), Some(&project.dir)).await?;
        let proxy = Proxy::start(&server.address).await?;
        let client = server.client()?;
        let mut agents = Vec::new();
        for (number, node) in project.nodes.iter().enumerate() {
            let hold = held.is_some_and(|role| node.natural().0 == role);
            agents.push(Agent::start(bench, dir.path(), &project, node, number, &proxy.url, hold)?);
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
                    rows.iter().map(|row| format!("{} is {}", row.node, row.standing.as_str())).collect();
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
            row.standing == Word::Validated && row.running.as_ref() == Some(&wanted)
        })
        .await
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        for agent in self.agents {
            agent.stop().await?;
        }
        self.server.stop().await
    }
}
