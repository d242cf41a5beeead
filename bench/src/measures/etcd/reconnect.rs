//! Agents that lose their server and reconnect to another one.

use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::measures::populated::Populated;
use crate::parts::crowd::Crowd;
use crate::parts::etcd::Etcd;
use crate::parts::machine::allow_open_files;
use crate::parts::process;
use crate::parts::server::BenchServer;
use crate::row::{BenchRow, Unit, bytes};

pub(crate) const METHOD: &str = "an etcd with one member and two real `muster serve` on it. 5,000 agents, simulated in this process by one stream \
    each, are up to date and connected to the first server, which is then killed with SIGKILL; they reconnect to the \
    second within one second. Reads are etcd's own count of Range calls and the second server's count, until two \
    seconds after the last agent has its hello. Transactions are the servers' writes of presence; their comparisons \
    in etcd are shown with them. Memory per agent is the growth of the second server's resident set.";

/// Later effects are counted until this time.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let nodes = bench.size(5_000, 500);
    // Each agent has a connection here and one at a server, plus some other files.
    allow_open_files(u64::from(nodes) + 500)?;
    let dir = bench.dir()?;
    let etcd = Etcd::start(bench, dir.path()).await?;
    let Populated { server: first, project, dir, .. } = Populated::start_on(bench, nodes, dir, &etcd.spec()).await?;
    let other = bench.dir()?;
    let blobs = dir.path().join("blobs");
    let second = BenchServer::start_on(bench, other.path(), &etcd.spec(), &blobs, None).await?;
    let alone = process::read_memory(second.pid())?;
    let mut crowd = Crowd::connect(&[&first.address, &second.address], &project.nodes).await?;

    let (etcd_before, told_before) = (etcd.metrics().await?, second.metrics().await?);
    let begin = Instant::now();
    crowd.go_to(1);
    first.kill().await?;
    crowd.all(1, project.nodes.len()).await?;
    let back = begin.elapsed();
    let crowded = process::read_memory(second.pid())?;
    tokio::time::sleep(SETTLE).await;
    let (etcd_after, told_after) = (etcd.metrics().await?, second.metrics().await?);
    let connected = crowd.connected(1);
    anyhow::ensure!(connected == project.nodes.len(), "only {connected} are still connected");
    let retries = crowd.retries();
    drop(crowd);
    second.stop().await?;
    etcd.stop().await?;

    let txns =
        |scrape: &crate::parts::http::MetricsScrape| scrape.sum("grpc_server_handled_total", &["grpc_method=\"Txn\""]);
    let grown = |memory: u64| bytes(memory.saturating_sub(alone.rss));
    let lookups = etcd_after.etcd_lookups() - etcd_before.etcd_lookups();
    Ok(vec![
        BenchRow::new(
            format!("{nodes} agents come back: reads of etcd"),
            Unit::Count,
            etcd_after.etcd_reads() - etcd_before.etcd_reads(),
        )
        .at_most(10.0)
        .detail("by its own count"),
        BenchRow::new(
            format!("{nodes} agents come back: reads of the store by the server"),
            Unit::Count,
            told_after.server_reads() - told_before.server_reads(),
        )
        .at_most(10.0)
        .detail("by its count"),
        BenchRow::new(
            format!("{nodes} agents come back: transactions"),
            Unit::Count,
            txns(&etcd_after) - txns(&etcd_before),
        )
        .detail(format!("etcd looked up {} keys for them", Unit::Count.show(lookups))),
        BenchRow::new(
            format!("{nodes} agents come back: until the last is greeted"),
            Unit::Seconds,
            back.as_secs_f64(),
        )
        .detail(format!("{retries} tries failed")),
        BenchRow::new("server: memory per connected agent", Unit::Bytes, grown(crowded.rss) / f64::from(nodes)),
    ])
}
