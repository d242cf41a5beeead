//! Idle agents: memory of the server for each, and the time in which all of them return.

use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_core::identity::TokenScope;
use muster_core::names::{NodeName, Role};
use muster_wire::identity::CreateToken;

use crate::bench::Bench;
use crate::measures::identity::{identity, join_all};
use crate::measures::populated::Populated;
use crate::parts::crowd::{Crowd, CrowdAgent, SPREAD};
use crate::parts::machine::allow_open_files;
use crate::parts::process;
use crate::parts::project;
use crate::parts::reports::lookups;
use crate::parts::server::BenchServer;
use crate::row::{BenchRow, Unit, bytes};

pub(crate) const METHOD: &str = "a real `muster serve` on the embedded store with 5,000 nodes that have reported. 5,000 agents, simulated in this \
    process by one stream each, are up to date and answer pings. Memory per agent is the growth of the resident set of a \
    server that was just started, until each agent has answered a ping. With mutual TLS each agent has the certificate with which it has \
    joined, and all of them connect at the same moment; the time ends when the last one has its hello. Agents and server \
    share the processors.";

/// Until this time each agent has answered a ping.
const SETTLE: Duration = Duration::from_secs(12);

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let nodes: u32 = bench.size(5_000, 500);
    // Each agent has a connection here, and some still have those of their joins.
    allow_open_files(u64::from(nodes) + 1_000)?;
    let Populated { server, project, dir, .. } = Populated::start(bench, nodes).await?;
    let (admin, url) = (server.client()?, format!("https://{}", server.address));
    let mut encrypted = Vec::new();
    for role in ["app", "store"] {
        let scope = TokenScope::Role { role: Role::new(role)?, hosts: None };
        let request = CreateToken { scope, uses: nodes, seconds: 3600 };
        let token = admin.create_token(&project::env()?, &request, "bench").await?.token.parse()?;
        let of_role = project.nodes.iter().filter(|node| node.as_str().starts_with(role)).count();
        for (key, response) in join_all(&url, &token, u32::try_from(of_role)?).await? {
            let tls = Some(Arc::new(identity(&key, &response)?));
            encrypted.push(CrowdAgent { node: response.node, lookups: lookups(), tls });
        }
    }
    server.stop().await?;

    let plain = |node: &NodeName| CrowdAgent { node: node.clone(), lookups: lookups(), tls: None };
    let plain = project.nodes.iter().map(plain).collect();
    let plain = of_crowd(BenchServer::start(bench, dir.path(), None).await?, plain, SPREAD).await?;
    let encrypted = of_crowd(BenchServer::start(bench, dir.path(), None).await?, encrypted, Duration::ZERO).await?;
    let each = |measured: &CrowdMeasurement| measured.grown / f64::from(nodes);
    Ok(vec![
        BenchRow::new(format!("server: memory of each of {nodes} idle agents, without TLS"), Unit::Bytes, each(&plain))
            .at_most(16.0 * 1024.0),
        BenchRow::new(
            format!("server: memory of each of {nodes} idle agents, with mutual TLS"),
            Unit::Bytes,
            each(&encrypted),
        )
        .at_most(24.0 * 1024.0),
        BenchRow::new(
            format!("{nodes} agents return at once with mutual TLS: until the last is greeted"),
            Unit::Seconds,
            encrypted.greeted.as_secs_f64(),
        )
        .at_most(10.0)
        .detail(format!("{} tries failed", encrypted.retries)),
    ])
}

struct CrowdMeasurement {
    /// Growth of the server in bytes.
    grown: f64,
    greeted: Duration,
    retries: usize,
}

async fn of_crowd(server: BenchServer, agents: Vec<CrowdAgent>, spread: Duration) -> anyhow::Result<CrowdMeasurement> {
    let (alone, count) = (process::read_memory(server.pid())?, agents.len());
    let begin = Instant::now();
    let crowd = Crowd::connect_within(&[&server.address], agents, spread).await?;
    let greeted = begin.elapsed();
    tokio::time::sleep(SETTLE).await;
    let connected = crowd.connected(0);
    anyhow::ensure!(connected == count, "only {connected} are still connected");
    let grown = bytes(process::read_memory(server.pid())?.rss.saturating_sub(alone.rss));
    let retries = crowd.retries();
    drop(crowd);
    server.stop().await?;
    Ok(CrowdMeasurement { grown, greeted, retries })
}
