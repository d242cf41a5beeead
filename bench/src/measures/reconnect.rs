//! Agents that lose their server and go to the other one.

use std::time::{Duration, Instant};

use super::populated::Populated;
use crate::bench::Bench;
use crate::parts::crowd::Crowd;
use crate::parts::etcd::Etcd;
use crate::parts::server::Server;
use crate::parts::{memory, open_files};
use crate::row::{Row, Unit};

pub(crate) const HOW: &str = "an etcd with one member and two real `muster serve` on it. 5,000 agents, simulated in this \
    process by one stream each, hold what they need and are connected to the first server, which is then killed with \
    SIGKILL; they come back within one second to the second. Reads are what etcd itself counted as Range calls \
    meanwhile, and what the second server counted; they are counted until two seconds after the last agent was \
    greeted. Transactions are what the servers write down about who is connected where; what they compare in etcd is \
    shown with them. Memory per agent is what the second server's resident set grew by.";

/// What comes a little later counts too.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let nodes = bench.size(5_000, 500);
    // Each agent has a connection here and one at a server; the rest is room for what else a process has open.
    open_files::allow(u64::from(nodes) + 500)?;
    let dir = bench.dir()?;
    let etcd = Etcd::start(bench, dir.path()).await?;
    let Populated { server: first, project, dir, .. } = Populated::start_on(bench, nodes, dir, &etcd.spec()).await?;
    let other = bench.dir()?;
    let blobs = dir.path().join("blobs");
    let second = Server::start_on(bench, other.path(), &etcd.spec(), &blobs, None).await?;
    let alone = memory::of(second.pid())?;
    let mut crowd = Crowd::connect(&[&first.address, &second.address], &project.nodes).await?;

    let (etcd_before, told_before) = (etcd.metrics().await?, second.metrics().await?);
    let begin = Instant::now();
    crowd.go_to(1);
    first.kill().await?;
    crowd.all(1, project.nodes.len()).await?;
    let back = begin.elapsed();
    let crowded = memory::of(second.pid())?;
    tokio::time::sleep(SETTLE).await;
    let (etcd_after, told_after) = (etcd.metrics().await?, second.metrics().await?);
    let connected = crowd.connected(1);
    anyhow::ensure!(connected == project.nodes.len(), "only {connected} are still connected");
    let retries = crowd.retries();
    drop(crowd);
    second.stop().await?;
    etcd.stop().await?;

    let txns =
        |scrape: &crate::parts::scrape::Scrape| scrape.sum("grpc_server_handled_total", &["grpc_method=\"Txn\""]);
    let grown = |memory: u64| bytes(memory.saturating_sub(alone.rss));
    let lookups = etcd_after.etcd_lookups() - etcd_before.etcd_lookups();
    Ok(vec![
        Row::new(
            format!("{nodes} agents come back: reads of etcd"),
            Unit::Count,
            etcd_after.etcd_reads() - etcd_before.etcd_reads(),
        )
        .at_most(10.0)
        .detail("by its own count"),
        Row::new(
            format!("{nodes} agents come back: reads of the store by the server"),
            Unit::Count,
            told_after.server_reads() - told_before.server_reads(),
        )
        .at_most(10.0)
        .detail("by its count"),
        Row::new(
            format!("{nodes} agents come back: transactions"),
            Unit::Count,
            txns(&etcd_after) - txns(&etcd_before),
        )
        .detail(format!("etcd looked up {} keys for them", Unit::Count.show(lookups))),
        Row::new(format!("{nodes} agents come back: until the last is greeted"), Unit::Seconds, back.as_secs_f64())
            .detail(format!("{retries} tries failed")),
        Row::new("server: memory per connected agent", Unit::Bytes, grown(crowded.rss) / f64::from(nodes)),
    ])
}

fn bytes(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
    let number = number as f64;
    number
}
